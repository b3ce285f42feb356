// Asks the AI SDK's own `pruneMessages`. node ai.mjs PACKAGE; a job: {"messages", "settings"} -> parts that are left.
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { pruneMessages } = await import(pathToFileURL(join(resolve(process.argv[2]), "dist", "index.js")).href);
for await (const line of createInterface({ input: process.stdin })) {
  const { messages, settings } = JSON.parse(line);
  const left = pruneMessages({ messages, ...settings });
  console.log(JSON.stringify(left.map((m) => [m.role, typeof m.content === "string" ? [m.content] : m.content.map(
    (p) => p.toolCallId ?? p.text)])));
}
