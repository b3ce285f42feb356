"""What a person types, on real logs, with every default as it ships: each line in fresh processes.

The peer is an earlier ctxkit, the tree that `CTXKIT_EARLIER` names (a git worktree); without it,
the time that the line may take. Real logs are those of `CTXKIT_SESSIONS`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ctxkit as ck
from benchmarks.bench_engine import converted
from benchmarks.cpu_timing import paired
from benchmarks.user_calls import PI, real
from ctxkit.presets import langchain_summary

HERE = Path(__file__).parent.parent
EARLIER = os.environ.get("CTXKIT_EARLIER", "")
ROUNDS = 3
BOTH = 27
"""Presets that an earlier ctxkit has, too; of the goals' day."""
LINES = (
    ("ck.sweep of fased over 200 settings, Pi's log of 484 calls", "sweep", 200, 6.0, "ms"),
    ("the same with losses", "sweep with losses", 200, 10.0, "ms"),
    ("ck.compare with losses, 27 presets, Pi's log of 484 calls", "compare pi", BOTH, 1.5, "s"),
    ('the same, "all" presets of each', "compare pi", 0, 1.5, "s"),
    ("27 presets, a Claude Code log of 184 calls", "compare claude", BOTH, 0.7, "s"),
    ('that log, "all" presets of each', "compare claude", 0, 0.7, "s"),
    ('"all" presets, 2,000 calls made up', "compare made", 2_000, 5.0, "s"),
    ("ck.advise over eight sessions", "advise", 0, 1.5, "s"),
    ("ck.score of a replay with 400 cuts", "score", 400, 0.3, "s"),
    ("session.views() of 100,000 messages", "views", 100_000, 0.5, "s"),
    ("ck.replay under Tyrum's rules, 200 MB", "tyrum", 200, 10.0, "s"),
    ("ck.calibrate of 3,000 calls made up", "calibrate", 3_000, 1.5, "s"),
    ("ck.plots.calibration of the same", "calibration", 3_000, 1.5, "s"),
    ('ck.write(format="otel") of 3,000 calls made up', "otel", 3_000, 1.0, "s"),
)
"""Name, deed, how many, at most so long, unit (a run's share in `ms`)."""
SCALES = (
    ("calls of ck.compare", "compare made", (250, 500, 1_000, 2_000)),
    ("messages of session.views()", "views", (25_000, 50_000, 100_000, 200_000)),
    ("settings of ck.sweep", "sweep", (25, 50, 100, 200)),
    ("cuts of ck.score", "score", (50, 100, 200, 400)),
    ("calls of ck.calibrate", "calibrate", (1_000, 2_000, 4_000)),
    ("calls of ck.plots.calibration", "calibration", (1_000, 2_000, 4_000)),
    ('calls of ck.write(format="otel")', "otel", (1_000, 2_000, 4_000)),
    ("calls of ck.experiments.with_memory", "with memory", (1_000, 2_000, 4_000)),
)
MADE_UP = ("compare made", "views", "calibrate", "calibration", "otel", "with memory")
"""Deeds that need no real logs."""
STEEPEST = 1.1


def done(deed: str, n: int, tree: str = "") -> dict[str, Any]:
    """What `user_calls` tells of one deed with one ctxkit."""
    env = {**os.environ, "PYTHONPATH": tree or str(HERE)}
    command = [sys.executable, str(HERE / "benchmarks" / "user_calls.py"), deed, str(n)]
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if told.returncode:
        last = told.stderr.strip().splitlines() or [f"{deed!r} ended with {told.returncode}"]
        raise RuntimeError(last[-1])
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def least(deed: str, n: int, rounds: int = ROUNDS) -> float:
    """CPU seconds in the best of some rounds: what else the machine does only adds."""
    return min(float(done(deed, n)["seconds"]) for _ in range(rounds))


def line(name: str, deed: str, n: int, most: float, unit: str) -> dict[str, object]:
    """One line against the earlier tree, or against what it may take."""
    scale = 1000 / n if unit == "ms" else 1.0
    ours = least(deed, n) * scale
    peer = done(deed, n, EARLIER)["seconds"] * scale if EARLIER else most
    against = "an earlier ctxkit" if EARLIER else "what it may take"
    row = {"name": f"{name}, against {against}", "goal": f"ours <= {most:g}"}
    told = "ms CPU a run" if unit == "ms" else "s CPU"
    return {**row, "ours": ours, "peer": peer, "ratio": peer / ours, "unit": told}


def steepness(name: str, deed: str, sizes: tuple[int, ...]) -> dict[str, object]:
    """The exponent of the seconds over the size, by least squares of the logarithms."""
    at = [math.log(n) for n in sizes]
    taken = [math.log(least(deed, n)) for n in sizes]
    x, y = sum(at) / len(at), sum(taken) / len(taken)
    top = sum((a - x) * (t - y) for a, t in zip(at, taken, strict=True))
    slope = top / sum((a - x) ** 2 for a in at)
    row = {"name": f"exponent of the {name}, {sizes[0]:,} to {sizes[-1]:,}", "unit": "exponent"}
    return {**row, "ours": slope, "peer": STEEPEST, "ratio": slope / STEEPEST, "goal": "<= 1"}


def frontier() -> dict[str, object]:
    """What `make frontier` works out, under the presets that an earlier ctxkit has, too."""
    name = f"the first {BOTH} presets over all real sessions, with losses"
    return {**line(name, "frontier", BOTH, 6.0, "s"), "goal": ">= 5" if EARLIER else ""}


def against_compare() -> dict[str, object]:
    """Two runs and their losses, with and without a memory, beside a comparison of one."""
    ours, peer = least("with memory", 3_000), least("without memory", 3_000)
    name = "ck.experiments.with_memory of 3,000 calls made up, against ck.compare of the same rules"
    row = {"name": name, "unit": "s CPU", "goal": "<= 1.5"}
    return {**row, "ours": ours, "peer": peer, "ratio": ours / peer}


def memory() -> dict[str, object]:
    """Peak memory of a sweep with losses over 100 sessions of 2,000 calls."""
    most = float(done("many", 100)["megabytes"])
    row = {"name": "memory of a sweep with losses, 100 sessions of 2,000 calls", "unit": "MB"}
    return {**row, "ours": most, "peer": 1_000.0, "ratio": most / 1_000, "goal": "<= 1"}


def against_langchain() -> list[dict[str, object]]:
    """A replay of the Pi log beside LangChain's own middleware, with one summary; optional."""
    if not importlib.util.find_spec("langchain"):
        return []
    from langchain.agents.middleware.summarization import SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import RemoveMessage

    session, said = real(PI), list[list[Any]]([[]])
    words: Any = {"trigger": ("tokens", 60_000), "keep": ("messages", 20)}
    rules = langchain_summary(**words, summariser="fixed")
    for message in (m for m in session.messages if m.visible):
        if message.role == "assistant":
            said.append([])
        said[-1] += converted([message])

    def peer() -> int:
        model = FakeListChatModel(responses=["summary of the conversation so far. " * 40])
        middleware, shown, cuts = SummarizationMiddleware(model, **words), list[Any](), 0
        for new in said[:-1]:  # what the last reply says is sent by no call
            shown += new
            update = middleware.before_model({"messages": shown}, None)
            if update:
                cuts += 1
                shown = [m for m in update["messages"] if not isinstance(m, RemoveMessage)]
        return cuts

    assert peer() > 2
    assert len(ck.replay(session, rules).edits) > 2  # each counts by its own rule
    ours, theirs = paired(lambda: ck.replay(session, rules), peer)
    name = f"ck.replay of Pi's log of {len(session.calls)} calls under langchain_summary"
    row = {"name": f"{name}, against LangChain's SummarizationMiddleware", "goal": ""}
    return [{**row, "ours": ours, "peer": theirs, "ratio": theirs / ours, "unit": "s CPU"}]


def run() -> list[dict[str, object]]:
    """All lines; those on real logs only where these are."""
    there = Path(os.environ.get("CTXKIT_SESSIONS", "")).joinpath("pi").is_dir()
    lines = [x for x in LINES if there or x[1] in MADE_UP]
    scales = [x for x in SCALES if there or x[1] in MADE_UP]
    peers = [frontier(), *against_langchain()] if there else []
    own = [*(line(*x) for x in lines), *(steepness(*x) for x in scales)]
    return [*own, against_compare(), memory(), *peers]


if __name__ == "__main__":
    for each in run():
        print(f"{each['name']:90s}", each["ours"], each["peer"], each["unit"], each["goal"])
