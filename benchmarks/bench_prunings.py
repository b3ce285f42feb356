"""Replays with prunings for one call, against the same prunings folded call by call."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks.bench_engine import PiCut, talk
from ctxkit.engine import run as replay
from ctxkit.history import Log
from ctxkit.policies import triggers
from ctxkit.policies.adaptive import AdaptiveTrim
from ctxkit.policies.digest import Excerpts
from ctxkit.policies.idle import CacheTtl
from ctxkit.policies.offload import Offload
from ctxkit.policies.pairs import ToolPairs
from ctxkit.policies.prune import Cap, Prune
from ctxkit.policies.prunings import Prunings
from ctxkit.policies.rules import Rules
from ctxkit.policies.shorten import Outputs
from ctxkit.tokens import named

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 500
PRUNINGS: dict[str, Any] = {
    "tyrum's": Prunings.of(Prune(tool_calls="before-last-4-messages"), Cap()),
    "ai's": Prunings.of(Outputs(), Excerpts(keep_last=10, strategy="llm")),
    "fuseraft's": Prunings.of(Offload(threshold=40_000), AdaptiveTrim()),
    "ToolPairs": ToolPairs(keep_pairs=12),
    "CacheTtl": CacheTtl(),
}


def cpu(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def row(name: str, pruning: Any) -> list[dict[str, object]]:
    """Calls a second with the curve, over a log seen before; the peer folds. And the first replay of a log."""
    messages, counter = talk(CALLS), named("chars/4")
    log = Log.of(messages, counter)

    def rules(p: Any) -> Rules:
        return Rules(PiCut(20_000), triggers.Above(45_000), pruning=p, counter=counter, window=200_000)

    curved, plain = rules(pruning), rules(pruning.__call__)
    start = time.process_time()
    ours = replay(log, curved)
    first = time.process_time() - start
    start = time.process_time()
    theirs = replay(log, plain)
    folding = time.process_time() - start
    assert ours.prompts.tolist() == theirs.prompts.tolist()
    assert ours.fresh_tokens.tolist() == theirs.fresh_tokens.tolist()
    edits = len(ours.cuts)
    assert edits <= 10, edits
    fast, slow = cpu(lambda: replay(log, curved).total, 15), folding
    label = f"replay with {name} pruning, {edits} edits"
    figures = {"unit": "calls / CPU s", "peer": CALLS / slow}
    return [
        {"name": label, "ours": CALLS / fast, "ratio": slow / fast, "goal": ">= 100, 400,000 calls / s", **figures},
        {
            "name": f"{label}, first of its log",
            "ours": CALLS / first,
            "ratio": slow / first,
            "goal": ">= 10",
            **figures,
        },
    ]


def run() -> list[dict[str, object]]:
    return [r for name, pruning in PRUNINGS.items() for r in row(name, pruning)]


if __name__ == "__main__":
    for r in run():
        figures = f"{r['ours']:14,.0f} {r['peer']:10,.0f} {r['unit']:14s} x{r['ratio']:,.1f}"
        print(f"{r['name']:70s} {figures} (goal {r['goal']})")
