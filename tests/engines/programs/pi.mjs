// Asks Pi's own functions. node pi.mjs PACKAGE, a job a line on stdin, an answer a line on stdout.
// {"file", "sizes": true}                   -> the estimate of each message
// {"file", "totals": true}                  -> what each reply's usage adds up to; null: it says nothing
// {"file", "looks": [n], "window", "settings"} -> why it compacts before a prompt, of the first n entries; or null
// {"file", "at": [n], "settings"}           -> each compaction of the first n entries, one after the other
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = join(resolve(process.argv[2]), "dist", "core");
const from = (file) => import(pathToFileURL(join(core, file)).href);
const pi = await from("compaction/compaction.js");
const { buildSessionContext } = await from("session-manager.js");
const { AgentSession } = await from("agent-session.js");
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

// The program's own check before a prompt, in a session that holds no more than it asks for.
async function looked({ file, window, settings }, n) {
  const messages = read(file).slice(0, n).filter((e) => e.type === "message").map((e) => e.message);
  const last = messages.findLast((m) => m.role === "assistant");
  if (!last) return null;
  let why = null;
  const session = {
    model: { provider: last.provider, id: last.model, contextWindow: window, maxTokens: 0 },
    settingsManager: { getCompactionSettings: () => settings },
    sessionManager: { getBranch: () => [], buildSessionProjection: () => ({ entries: [] }) },
    agent: { state: { messages: [...messages] }, replaceMessages: () => {} },
    _overflowRecoveryAttempted: false, _emit: () => {}, _findPersistedMessageEntryId: () => undefined,
    _omitRecoveryAttempt: () => {}, _runAutoCompaction: (reason) => { why = reason; return false; },
    _modelForMessage: AgentSession.prototype._modelForMessage,
  };
  await AgentSession.prototype._checkCompaction.call(session, last, false);
  return why;
}

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  const messages = () => read(job.file).filter((e) => e.type === "message").map((e) => e.message);
  let answer;
  if (job.sizes) answer = messages().map((m) => pi.estimateTokens(m));
  else if (job.totals) answer = messages().map((m) => (m.usage ? pi.calculateContextTokens(m.usage) : null));
  else if (job.looks) answer = await Promise.all(job.looks.map((n) => looked(job, n)));
  else answer = compactions(job);
  console.log(JSON.stringify(answer));
}
