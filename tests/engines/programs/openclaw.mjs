// Asks OpenClaw's own planner. node openclaw.mjs DIST; a job: {"file", "upto", "window", "chunk"}.
// The exports of its bundle have short names, so they are found by the names of the functions.
import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const dist = resolve(process.argv[2]);
const of = async (start) => {
  const file = readdirSync(dist).find((name) => name.startsWith(start));
  const all = Object.values(await import(pathToFileURL(join(dist, file)).href));
  return Object.fromEntries(all.filter((f) => typeof f === "function").map((f) => [f.name, f]));
};
const plan = await of("compaction-planning-");
const { resolveEffectiveCompactionReserveTokens: reserve } = await of("agent-compaction-constants-");
const files = new Map();
const read = (file) => files.get(file) ?? files.set(file, JSON.parse(readFileSync(file, "utf8"))).get(file);
const numbers = (messages) => messages.map((m) => m.n);

for await (const line of createInterface({ input: process.stdin })) {
  const { file, upto, window, chunk, others } = JSON.parse(line);
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
