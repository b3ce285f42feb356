// Asks Pi's own functions. node pi.mjs PACKAGE, a job a line on stdin, an answer a line on stdout.
// {"file", "sizes": true}                   -> the estimate of each message
// {"file", "totals": true}                  -> what each reply's usage adds up to; null: it says nothing
// {"file", "due": [tokens], "window", "settings"} -> whether each would be compacted
// {"file", "at": [n], "settings"}           -> each compaction of the first n entries, one after the other
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = join(resolve(process.argv[2]), "dist", "core");
const from = (file) => import(pathToFileURL(join(core, file)).href);
const pi = await from("compaction/compaction.js");
const { buildSessionContext } = await from("session-manager.js");
const files = new Map();
const read = (file) => files.get(file) ?? files.set(file, JSON.parse(readFileSync(file, "utf8"))).get(file);
const number = (message) => (message.role === "compactionSummary" ? -1 : message.n);
const linked = (path) => path.map((entry, i) => ({ ...entry, parentId: i ? path[i - 1].id : null }));

function compactions({ file, at, settings }) {
  const entries = read(file);
  let path = [];
  let seen = 0;
  return at.map((n, made) => {
    path = linked([...path, ...entries.slice(seen, n)]);
    seen = n;
    const plan = pi.prepareCompaction(path, settings);
    if (!plan) return null;
    path = linked([...path, {
      type: "compaction", id: `cut${made}`, timestamp: new Date(0).toISOString(), summary: "S",
      firstKeptEntryId: plan.firstKeptEntryId, tokensBefore: plan.tokensBefore,
    }]);
    return {
      told: plan.messagesToSummarize.map(number), head: plan.turnPrefixMessages.map(number),
      shown: buildSessionContext(path, path.at(-1).id).messages.map(number).filter((m) => m >= 0),
    };
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  const messages = () => read(job.file).filter((e) => e.type === "message").map((e) => e.message);
  let answer;
  if (job.sizes) answer = messages().map((m) => pi.estimateTokens(m));
  else if (job.totals) answer = messages().map((m) => (m.usage ? pi.calculateContextTokens(m.usage) : null));
  else if (job.due) answer = job.due.map((tokens) => pi.shouldCompact(tokens, job.window, job.settings));
  else answer = compactions(job);
  console.log(JSON.stringify(answer));
}
