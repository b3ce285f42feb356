"""Replays with prunings that act for one call, against the same prunings folded call by call; and
the CPU of a live decision under each pruning that ships.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.bench_engine import PiCompaction, make_conversation, measure_live_decision
from benchmarks.cpu_timing import make_bounded_row, measure_cpu
from ctxkit.engine import run_rules as replay
from ctxkit.policies import triggers
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.compaction_without_summary import AdaptiveTrim
from ctxkit.policies.history import MessageLog
from ctxkit.policies.message_hiding import MessageCountCap, PruneToolCalls
from ctxkit.policies.message_shortening import (
    IntermediateReplyShortening,
    OutputShortening,
    ReplyShortening,
    ResultShortening,
)
from ctxkit.policies.policy_base_and_chains import Chain
from ctxkit.policies.result_clearing_and_cache_ttl import (
    CacheTtl,
    Clear,
    KeepNewestToolPairs,
    ResultEvictionOverBudget,
)
from ctxkit.policies.result_excerpts_and_offload import (
    OldResultsDigest,
    ResultExcerpts,
    ResultOffload,
)
from ctxkit.policies.superseded_tool_calls import RepeatedCommands, Superseded
from ctxkit.presets import fased, names, openclaw, preset
from ctxkit.tokens import get_counter

if TYPE_CHECKING:
    from ctxkit.engine import RulesRun
    from ctxkit.session.messages import Message

CALLS = 500
COMPACTIONS = 10
"""Compactions in a run, or the nearest number below that a limit gives."""
NO_GOAL = ("Clear, first", "CacheTtl", "CacheTtl, first")
"""Rows without a goal, because only a second form of that pruning would reach it: decision 006."""
CALLS_BETWEEN_PAUSES = 28
"""After so many calls the user pauses for longer than the cache lives."""
LONG_CALLS = 5000
"""Calls of a session of 10,000 messages."""
PRUNINGS: dict[str, Any] = {
    "tyrum's": Chain.of(PruneToolCalls(tool_calls="before-last-4-messages"), MessageCountCap()),
    "ai's": Chain.of(OutputShortening(), ResultExcerpts(keep_last=10, strategy="llm")),
    "fuseraft's": Chain.of(ResultOffload(threshold=40_000), AdaptiveTrim()),
    "fuseraft's in-turn": Chain.of(
        ResultOffload(threshold=40_000),
        Superseded(min_chars=0),
        RepeatedCommands(),
        IntermediateReplyShortening(),
        KeepNewestToolPairs(keep_pairs=12),
    ),
    "gemini's": Chain.of(ResultShortening(max_chars=2000), ReplyShortening(max_chars=2000)),
    "Clear": Clear(keep_last=9),
    "KeepNewestToolPairs": KeepNewestToolPairs(keep_pairs=12),
    "CacheTtl": CacheTtl(min_prunable_tool_chars=0, soft_trim_max_chars=2000, soft_trim_ratio=0.1),
}


def add_times(
    messages: list[Message], calls_between_pauses: float = CALLS_BETWEEN_PAUSES
) -> list[Message]:
    """Return the messages with times: ten seconds apart, with a pause after every so many calls."""
    now, calls, timed = 0.0, 0, []
    for message in messages:
        calls += message.role == "assistant"
        now += 400 if message.role == "tool" and calls % calls_between_pauses < 1 else 10
        timed.append(msgspec.structs.replace(message, time=now))
    return timed


def find_limit(pruning: Any, log: MessageLog) -> int:
    """Return the largest limit, in thousands of tokens, with (nearly) ten compactions in a run."""
    best = 45
    for limit in range(45, 3, -1):
        compactions_n = len(replay(log, make_rules(pruning, limit, log.counter)).compactions)
        best = limit if compactions_n <= COMPACTIONS else best
        if compactions_n >= COMPACTIONS:
            break
    return best


def make_rules(pruning: Any, limit: int, counter: Any) -> Rules:
    """Return rules that keep four ninths of a limit, in thousands of tokens, above that limit."""
    policy, trigger = PiCompaction(limit * 4000 // 9), triggers.Above(limit * 1000)
    return Rules(policy, trigger, pruning=pruning, counter=counter, window=200_000)


def measure_pruning(name: str, pruning: Any) -> list[dict[str, object]]:
    """Measure calls per CPU second against a fold, on a log replayed before and on a new log."""
    messages, counter = add_times(make_conversation(CALLS)), get_counter("chars/4")
    limit = find_limit(pruning, MessageLog.of(messages, counter))

    def replay_new_log(pruning_form: Any) -> tuple[RulesRun, MessageLog, float]:
        log = MessageLog.of(messages, counter)
        start = time.process_time()
        result = replay(log, make_rules(pruning_form, limit, counter))
        return result, log, time.process_time() - start

    by_fold, _, fold_seconds = replay_new_log(pruning.__call__)
    by_engine, log, _ = replay_new_log(pruning)
    assert by_engine.prompts.tolist() == by_fold.prompts.tolist()
    assert by_engine.fresh_tokens.tolist() == by_fold.fresh_tokens.tolist()
    compactions_n = len(by_engine.compactions)
    assert COMPACTIONS - 3 < compactions_n <= COMPACTIONS, compactions_n
    known_rules = make_rules(pruning, limit, counter)
    seconds, first_seconds = (
        measure_cpu(lambda: replay(log, known_rules).total, 15),
        statistics.median(replay_new_log(pruning)[2] for _ in range(3)),
    )
    label = f"replay with {name} pruning, {compactions_n} edits"
    figures = {"unit": "calls / CPU s", "peer": CALLS / fold_seconds}
    goal = "" if name in NO_GOAL else ">= 10"
    first_goal = "" if f"{name}, first" in NO_GOAL else ">= 10"
    return [
        {
            "name": label,
            "ours": CALLS / seconds,
            "ratio": fold_seconds / seconds,
            "goal": goal,
            **figures,
        },
        {
            "name": f"{label}, first of its log",
            "ours": CALLS / first_seconds,
            "ratio": fold_seconds / first_seconds,
            "goal": first_goal,
            **figures,
        },
    ]


def measure_pauses() -> dict[str, object]:
    """Measure a first replay of 10,000 messages with 2,000 pauses, each of which clears results."""
    log = MessageLog.of(
        add_times(make_conversation(LONG_CALLS), LONG_CALLS / 2000), get_counter("chars/4")
    )
    calls_after_pause = [
        call
        for call in range(1, LONG_CALLS)
        if log.sent[call] - log.done[call - 1] >= CacheTtl().ttl_seconds
    ]
    assert abs(len(calls_after_pause) - 2000) <= 1, len(calls_after_pause)
    seconds = measure_cpu(lambda: replay(log, Rules(pruning=CacheTtl(), window=200_000)).total, 1)
    name = "first replay of 10,000 messages under CacheTtl, 2,000 pauses, against what it may take"
    return make_bounded_row(name, seconds, 1.0, "s CPU")


def measure_decisions() -> list[dict[str, object]]:
    """Measure a live decision at 10,000 messages, none of which was removed before."""
    messages = add_times(make_conversation(LONG_CALLS))
    preset_prunings = {f"the preset {name}": preset(name).pruning for name in names()}
    preset_prunings["the preset fased, pruning on"] = fased(context_pruning="cache-ttl").pruning
    preset_prunings["the preset openclaw, pruning on"] = openclaw(pruning="cache-ttl").pruning
    cases = [
        (name, pruning, 1.0) for name, pruning in preset_prunings.items() if pruning is not None
    ]
    cases += [
        ("appended manifests (tombstones)", ResultEvictionOverBudget(max_tokens=300), 5.0),
        ("an appended digest", OldResultsDigest(), 5.0),
        ("a cap of 20 messages", MessageCountCap(max_messages=20), 5.0),
    ]
    rows = []
    for name, pruning, limit_ms in cases:
        case_rules = Rules(pruning=pruning, counter=get_counter("chars/4"), window=200_000)
        seconds = statistics.median(measure_live_decision(messages, case_rules) for _ in range(3))
        label = f"a live decision at 10,000 messages under {name}, against what it may take"
        rows.append(make_bounded_row(label, seconds * 1e3, limit_ms, "ms CPU"))
    return rows


def run() -> list[dict[str, object]]:
    rows = [r for name, pruning in PRUNINGS.items() for r in measure_pruning(name, pruning)]
    return [*rows, measure_pauses(), *measure_decisions()]


if __name__ == "__main__":
    for r in run():
        figures = f"{r['ours']:14,.0f} {r['peer']:10,.0f} {r['unit']:14s} x{r['ratio']:,.1f}"
        print(f"{r['name']:70s} {figures} (goal {r['goal']})")
