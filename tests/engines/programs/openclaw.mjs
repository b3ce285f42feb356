// Asks OpenClaw's own planner and pruner. node openclaw.mjs DIST, a job a line, an answer a line.
// {"file", "sizes": true}               -> the estimate of each message
// {"file", "cold": [n], "window"}       -> what each call after a pause is sent of the first n
//                                          messages: those that changed, with their text
// {"file", "upto", "window", "chunk"}   -> what a summary of the first messages is planned as
// The exports of its bundle have short names, so they are found by the names of the functions.
import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const dist = resolve(process.argv[2]);
const of = async (start, wanted) => {
  for (const file of readdirSync(dist).filter((name) => name.startsWith(start))) {
    const all = Object.values(await import(pathToFileURL(join(dist, file)).href));
    const found = Object.fromEntries(all.filter((f) => typeof f === "function").map((f) => [f.name, f]));
    if (!wanted || found[wanted]) return found;
  }
};
const plan = await of("compaction-planning-");
const { resolveEffectiveCompactionReserveTokens: reserve } = await of("agent-compaction-constants-");
const pruner = await of("tool-result-truncation-", "pruneExpiredCacheTtlToolResults");
const { createToolResultPromptProjectionState: fresh } = await of("session-prompt-state-");
const files = new Map();
const read = (file) => files.get(file) ?? files.set(file, JSON.parse(readFileSync(file, "utf8"))).get(file);
const numbers = (messages) => messages.map((m) => m.n);

const text = (message) => message.content.filter((c) => c.type === "text").map((c) => c.text).join("\n");

function pruned({ file, cold, window }) {
  const projectionState = fresh();
  const settings = pruner.resolveCacheTtlPruningSettings({ mode: "cache-ttl" });
  return cold.map((n) => {
    const messages = read(file).slice(0, n);
    const sent = pruner.pruneExpiredCacheTtlToolResults({
      messages, settings, projectionState, contextWindowTokens: window, pruneNewRounds: true,
      lastCacheTouchAt: 1, now: settings.ttlMs + 2,
    });
    return sent.flatMap((m, i) => (m === messages[i] ? [] : [[messages[i].n, text(m)]]));
  });
}

for await (const line of createInterface({ input: process.stdin })) {
  const { file, upto, window, chunk, others, sizes, cold } = JSON.parse(line);
  if (sizes || cold) {
    const each = (m) => plan.estimateMessagesTokens([m]);
    console.log(JSON.stringify(sizes ? read(file).map(each) : pruned({ file, cold, window })));
    continue;
  }
  const messages = read(file).slice(0, upto);
  const share = { contextWindowTokens: window, maxHistoryShare: 0.5, parts: 2 };
  const history = (more) => {
    const made = plan.buildHistoryPrunePlan({
      messagesToSummarize: messages, turnPrefixMessages: [], ...share,
      tokensBefore: plan.estimateMessagesTokens(messages) + more,
    });
    return made.pruned ? numbers(made.pruned.messages) : null;
  };
  const stages = plan.buildStageSplitPlan({ messages, maxChunkTokens: 1, minMessagesForSplit: 2, parts: 2 });
  console.log(JSON.stringify({
    halves: stages.mode === "split" ? stages.chunks.map(numbers) : [numbers(messages)],
    chunks: plan.buildSummaryChunks({ messages, maxChunkTokens: chunk }).map(numbers),
    ratio: plan.computeAdaptiveChunkRatio(messages, window),
    kept: history(window)?.sort((a, b) => a - b) ?? numbers(messages), apart: history(others) !== null,
    reserve: reserve({ contextTokenBudget: window, reserveTokens: 20000 }),
  }));
}
