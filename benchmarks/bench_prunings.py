"""Replays with prunings for one call, against the same prunings folded call by call; and what a
live decision costs under each that ships.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.bench_engine import PiCut, live, talk
from benchmarks.cpu_timing import bounded, cpu
from ctxkit.engine import run_rules as replay
from ctxkit.policies import triggers
from ctxkit.policies.base import Chain
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
from ctxkit.policies.result_clearing_and_cache_ttl import (
    CacheTtl,
    Clear,
    KeepToolPairs,
    TombstoneEviction,
)
from ctxkit.policies.result_excerpts_and_offload import ResultDigest, ResultExcerpts, ResultOffload
from ctxkit.policies.superseded_tool_calls import RepeatedCommands, Superseded
from ctxkit.presets import fased, names, openclaw, preset
from ctxkit.tokens import get_counter

if TYPE_CHECKING:
    from ctxkit.engine import Run
    from ctxkit.session.messages import Message

CALLS = 500
EDITS = 10
"""Compactions in a run: so many, or as many as come next to it."""
NO_GOAL = ("Clear, first", "CacheTtl", "CacheTtl, first")
"""Rows whose goal only a second form of that pruning held: see decision 006."""
PAUSE = 28
"""Every so many calls the user is away for longer than the cache lives."""
LONG = 5000
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
        KeepToolPairs(keep_pairs=12),
    ),
    "gemini's": Chain.of(ResultShortening(max_chars=2000), ReplyShortening(max_chars=2000)),
    "Clear": Clear(keep_last=9),
    "KeepToolPairs": KeepToolPairs(keep_pairs=12),
    "CacheTtl": CacheTtl(min_prunable_tool_chars=0, soft_trim_max_chars=2000, soft_trim_ratio=0.1),
}


def away(messages: list[Message], pause: float = PAUSE) -> list[Message]:
    """The same messages, said every ten seconds, with a pause behind every so many calls."""
    now, calls, out = 0.0, 0, []
    for message in messages:
        calls += message.role == "assistant"
        now += 400 if message.role == "tool" and calls % pause < 1 else 10
        out.append(msgspec.structs.replace(message, time=now))
    return out


def limits(pruning: Any, log: MessageLog) -> int:
    """The largest limit, in thousands of tokens, at which a compaction is done ten times, or
    nearly.
    """
    found = 45
    for limit in range(45, 3, -1):
        edits = len(replay(log, rules(pruning, limit, log.counter)).compactions)
        found = limit if edits <= EDITS else found
        if edits >= EDITS:
            break
    return found


def rules(pruning: Any, limit: int, counter: Any) -> Rules:
    """Four ninths are kept where the prompt is above the limit, in thousands of tokens."""
    policy, due = PiCut(limit * 4000 // 9), triggers.Above(limit * 1000)
    return Rules(policy, due, pruning=pruning, counter=counter, window=200_000)


def row(name: str, pruning: Any) -> list[dict[str, object]]:
    """Calls a second, over a log seen before; the peer folds. And both on a log of their own."""
    messages, counter = away(talk(CALLS)), get_counter("chars/4")
    limit = limits(pruning, MessageLog.of(messages, counter))

    def first(p: Any) -> tuple[Run, MessageLog, float]:
        log = MessageLog.of(messages, counter)
        start = time.process_time()
        done = replay(log, rules(p, limit, counter))
        return done, log, time.process_time() - start

    theirs, _, folding = first(pruning.__call__)
    ours, log, _ = first(pruning)
    assert ours.prompts.tolist() == theirs.prompts.tolist()
    assert ours.fresh_tokens.tolist() == theirs.fresh_tokens.tolist()
    edits = len(ours.compactions)
    assert EDITS - 3 < edits <= EDITS, edits
    known = rules(pruning, limit, counter)
    fast, cold = (
        cpu(lambda: replay(log, known).total, 15),
        statistics.median(first(pruning)[2] for _ in range(3)),
    )
    label = f"replay with {name} pruning, {edits} edits"
    figures = {"unit": "calls / CPU s", "peer": CALLS / folding}
    seen = "" if name in NO_GOAL else ">= 10"
    new = "" if f"{name}, first" in NO_GOAL else ">= 10"
    return [
        {"name": label, "ours": CALLS / fast, "ratio": folding / fast, "goal": seen, **figures},
        {
            "name": f"{label}, first of its log",
            "ours": CALLS / cold,
            "ratio": folding / cold,
            "goal": new,
            **figures,
        },
    ]


def pauses() -> dict[str, object]:
    """A first replay of 10,000 messages with 2,000 pauses, behind each of which results go."""
    log = MessageLog.of(away(talk(LONG), LONG / 2000), get_counter("chars/4"))
    cold = [c for c in range(1, LONG) if log.sent[c] - log.done[c - 1] >= CacheTtl().ttl_seconds]
    assert abs(len(cold) - 2000) <= 1, len(cold)
    spent = cpu(lambda: replay(log, Rules(pruning=CacheTtl(), window=200_000)).total, 1)
    name = "first replay of 10,000 messages under CacheTtl, 2,000 pauses, against what it may take"
    return bounded(name, spent, 1.0, "s CPU")


def decisions() -> list[dict[str, object]]:
    """A live decision at 10,000 messages, of which none was ever left out for good."""
    messages = away(talk(LONG))
    shipped = {f"the preset {name}": preset(name).pruning for name in names()}
    shipped["the preset fased, pruning on"] = fased(context_pruning="cache-ttl").pruning
    shipped["the preset openclaw, pruning on"] = openclaw(pruning="cache-ttl").pruning
    known = [(name, pruning, 1.0) for name, pruning in shipped.items() if pruning is not None]
    known += [
        ("appended manifests (tombstones)", TombstoneEviction(max_tokens=300), 5.0),
        ("an appended digest", ResultDigest(), 5.0),
        ("a cap of 20 messages", MessageCountCap(max_messages=20), 5.0),
    ]
    rows = []
    for name, pruning, most in known:
        bound = Rules(pruning=pruning, counter=get_counter("chars/4"), window=200_000)
        spent = statistics.median(live(messages, bound) for _ in range(3))
        label = f"a live decision at 10,000 messages under {name}, against what it may take"
        rows.append(bounded(label, spent * 1e3, most, "ms CPU"))
    return rows


def run() -> list[dict[str, object]]:
    rows = [r for name, pruning in PRUNINGS.items() for r in row(name, pruning)]
    return [*rows, pauses(), *decisions()]


if __name__ == "__main__":
    for r in run():
        figures = f"{r['ours']:14,.0f} {r['peer']:10,.0f} {r['unit']:14s} x{r['ratio']:,.1f}"
        print(f"{r['name']:70s} {figures} (goal {r['goal']})")
