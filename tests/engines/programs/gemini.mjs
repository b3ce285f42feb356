// Asks Gemini CLI's own compression. node gemini.mjs PACKAGE, a job a line, an answer a line.
// {"file", "upto": [n]} -> of the first n contents: how many are left behind the snapshot and its
//                          answer, what each content weighs, and which results were cut
// The model behind it answers with a fixed text, and the last prompt was far above the threshold.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = join(resolve(process.argv[2]), "dist", "src", "context", "chatCompressionService.js");
const { ChatCompressionService } = await import(pathToFileURL(core).href);
const service = new ChatCompressionService();
const folder = mkdtempSync(join(tmpdir(), "gemini-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const files = new Map();
const read = (file) => files.get(file) ?? files.set(file, JSON.parse(readFileSync(file, "utf8"))).get(file);
const answer = { candidates: [{ content: { parts: [{ text: "S" }] } }] };
let saved = 0;
const known = {
  getCompressionThreshold: async () => 0.5, getTruncateToolOutputThreshold: () => 40000,
  getNextCompressionTruncationId: () => (saved += 1), storage: { getProjectTempDir: () => folder },
  getBaseLlmClient: () => ({ generateContent: async () => answer }),
  getContentGenerator: () => ({ countTokens: async () => ({ totalTokens: 1 }) }),
  getActiveModel: () => "gemini-2.5-pro", getModel: () => "gemini-2.5-pro", getSessionId: () => "s",
};
const config = new Proxy({}, { get: (_, key) => (key === "config" ? config : known[key] ?? (() => undefined)) });
const output = (content) => content.parts.map((p) => p.functionResponse?.response?.output);

async function compressed(file, upto) {
  const contents = read(file).slice(0, upto);
  const chat = { getHistory: () => contents, getLastPromptTokenCount: () => 10 ** 9 };
  const { newHistory } = await service.compress(chat, "p", false, "gemini-2.5-pro", config, false);
  const left = newHistory ? newHistory.slice(2) : contents;
  const was = contents.slice(contents.length - left.length);
  const cut = newHistory ? left.flatMap((c, i) => output(c).flatMap((text, j) => (
    text === output(was[i])[j] ? [] : [was[i].parts[j].functionResponse.id]))) : [];
  return { left: newHistory ? left.length : null, cut, sizes: contents.map((c) => JSON.stringify(c).length) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { file, upto } = JSON.parse(line);
  const out = [];
  for (const n of upto) out.push(await compressed(file, n));
  console.log(JSON.stringify(out));
}
