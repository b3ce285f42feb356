"""Calls of a user on real logs, with all defaults: each row is measured in fresh processes.

The peer is an earlier ctxkit, the tree that `CTXKIT_EARLIER` names (a git worktree); without it,
a limit in seconds. Real logs are those of `CTXKIT_SESSIONS`.
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
from benchmarks.bench_engine import convert_to_langchain
from benchmarks.cpu_timing import measure_in_turns
from benchmarks.user_calls import PI, read_largest_session
from ctxkit.presets import langchain_summary

HERE = Path(__file__).parent.parent
EARLIER = os.environ.get("CTXKIT_EARLIER", "")
ROUNDS = 3
COMMON_PRESETS = 27
"""Number of presets that an earlier ctxkit has, too."""
CALLS = (
    ("ck.sweep of fased over 200 settings, Pi's log of 484 calls", "sweep", 200, 6.0, "ms"),
    ("the same with losses", "sweep with losses", 200, 10.0, "ms"),
    (
        "ck.compare with losses, 27 presets, Pi's log of 484 calls",
        "compare pi",
        COMMON_PRESETS,
        1.5,
        "s",
    ),
    ('the same, "all" presets of each', "compare pi", 0, 1.5, "s"),
    ("27 presets, a Claude Code log of 184 calls", "compare claude", COMMON_PRESETS, 0.7, "s"),
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
"""Name of the row, call of `user_calls`, its number, limit, unit (`ms`: per run, else in all)."""
SCALED_CALLS = (
    ("calls of ck.compare", "compare made", (250, 500, 1_000, 2_000)),
    ("messages of session.views()", "views", (25_000, 50_000, 100_000, 200_000)),
    ("settings of ck.sweep", "sweep", (25, 50, 100, 200)),
    ("cuts of ck.score", "score", (50, 100, 200, 400)),
    ("calls of ck.calibrate", "calibrate", (1_000, 2_000, 4_000)),
    ("calls of ck.plots.calibration", "calibration", (1_000, 2_000, 4_000)),
    ('calls of ck.write(format="otel")', "otel", (1_000, 2_000, 4_000)),
    ("calls of ck.experiments.with_memory", "with memory", (1_000, 2_000, 4_000)),
)
WITHOUT_LOGS = ("compare made", "views", "calibrate", "calibration", "otel", "with memory")
"""Calls that need no real logs."""
MAX_EXPONENT = 1.1


def run_user_call(call: str, n: int, tree: str = "") -> dict[str, Any]:
    """Run one call of `user_calls` with one ctxkit, and return what it prints."""
    env = {**os.environ, "PYTHONPATH": tree or str(HERE)}
    command = [sys.executable, str(HERE / "benchmarks" / "user_calls.py"), call, str(n)]
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if process.returncode:
        last_lines = process.stderr.strip().splitlines() or [
            f"{call!r} ended with {process.returncode}"
        ]
        raise RuntimeError(last_lines[-1])
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result


def measure_best_cpu(call: str, n: int, rounds: int = ROUNDS) -> float:
    """Return the CPU seconds of the best round, because other work on the machine only adds."""
    return min(float(run_user_call(call, n)["seconds"]) for _ in range(rounds))


def measure_call(name: str, call: str, n: int, limit: float, unit: str) -> dict[str, object]:
    """Measure one call against the earlier tree, or against its limit."""
    scale = 1000 / n if unit == "ms" else 1.0
    ours = measure_best_cpu(call, n) * scale
    peer = run_user_call(call, n, EARLIER)["seconds"] * scale if EARLIER else limit
    peer_name = "an earlier ctxkit" if EARLIER else "what it may take"
    row = {"name": f"{name}, against {peer_name}", "goal": f"ours <= {limit:g}"}
    row_unit = "ms CPU a run" if unit == "ms" else "s CPU"
    return {**row, "ours": ours, "peer": peer, "ratio": peer / ours, "unit": row_unit}


def measure_exponent(name: str, call: str, sizes: tuple[int, ...]) -> dict[str, object]:
    """Measure the exponent by which seconds grow with size, by least squares of the logarithms."""
    log_sizes = [math.log(n) for n in sizes]
    log_seconds = [math.log(measure_best_cpu(call, n)) for n in sizes]
    mean_size, mean_seconds = sum(log_sizes) / len(log_sizes), sum(log_seconds) / len(log_seconds)
    covariance = sum(
        (size - mean_size) * (seconds - mean_seconds)
        for size, seconds in zip(log_sizes, log_seconds, strict=True)
    )
    slope = covariance / sum((size - mean_size) ** 2 for size in log_sizes)
    row = {"name": f"exponent of the {name}, {sizes[0]:,} to {sizes[-1]:,}", "unit": "exponent"}
    return {
        **row,
        "ours": slope,
        "peer": MAX_EXPONENT,
        "ratio": slope / MAX_EXPONENT,
        "goal": "<= 1",
    }


def measure_frontier() -> dict[str, object]:
    """Measure the work of `make frontier` under the presets that an earlier ctxkit has, too."""
    name = f"the first {COMMON_PRESETS} presets over all real sessions, with losses"
    return {
        **measure_call(name, "frontier", COMMON_PRESETS, 6.0, "s"),
        "goal": ">= 5" if EARLIER else "",
    }


def compare_memory_with_compare() -> dict[str, object]:
    """Measure two runs with losses, with and without a memory, against a comparison of one."""
    ours, peer = measure_best_cpu("with memory", 3_000), measure_best_cpu("without memory", 3_000)
    name = "ck.experiments.with_memory of 3,000 calls made up, against ck.compare of the same rules"
    row = {"name": name, "unit": "s CPU", "goal": "<= 1.5"}
    return {**row, "ours": ours, "peer": peer, "ratio": ours / peer}


def measure_peak_memory() -> dict[str, object]:
    """Measure the peak memory of a sweep with losses over 100 sessions of 2,000 calls."""
    megabytes = float(run_user_call("many", 100)["megabytes"])
    row = {"name": "memory of a sweep with losses, 100 sessions of 2,000 calls", "unit": "MB"}
    return {**row, "ours": megabytes, "peer": 1_000.0, "ratio": megabytes / 1_000, "goal": "<= 1"}


def compare_with_langchain() -> list[dict[str, object]]:
    """Measure a replay of the Pi log against LangChain's own middleware, if it is installed."""
    if not importlib.util.find_spec("langchain"):
        return []
    from langchain.agents.middleware.summarization import SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import RemoveMessage

    session, messages_by_call = read_largest_session(PI), list[list[Any]]([[]])
    settings: Any = {"trigger": ("tokens", 60_000), "keep": ("messages", 20)}
    rules = langchain_summary(**settings, summariser="fixed")
    for message in (m for m in session.messages if m.visible):
        if message.role == "assistant":
            messages_by_call.append([])
        messages_by_call[-1] += convert_to_langchain([message])

    def peer() -> int:
        model = FakeListChatModel(responses=["summary of the conversation so far. " * 40])
        middleware, prompt, compactions_n = (
            SummarizationMiddleware(model, **settings),
            list[Any](),
            0,
        )
        for new_messages in messages_by_call[:-1]:  # no call sends the last reply
            prompt += new_messages
            update = middleware.before_model({"messages": prompt}, None)
            if update:
                compactions_n += 1
                prompt = [m for m in update["messages"] if not isinstance(m, RemoveMessage)]
        return compactions_n

    assert peer() > 2
    assert len(ck.replay(session, rules).edits) > 2  # each counts by its own rule
    ours, theirs = measure_in_turns(lambda: ck.replay(session, rules), peer)
    name = f"ck.replay of Pi's log of {len(session.calls)} calls under langchain_summary"
    row = {"name": f"{name}, against LangChain's SummarizationMiddleware", "goal": ""}
    return [{**row, "ours": ours, "peer": theirs, "ratio": theirs / ours, "unit": "s CPU"}]


def run() -> list[dict[str, object]]:
    """Return all rows; those on real logs only if there are any."""
    has_logs = Path(os.environ.get("CTXKIT_SESSIONS", "")).joinpath("pi").is_dir()
    calls = [call for call in CALLS if has_logs or call[1] in WITHOUT_LOGS]
    scaled_calls = [call for call in SCALED_CALLS if has_logs or call[1] in WITHOUT_LOGS]
    real_log_rows = [measure_frontier(), *compare_with_langchain()] if has_logs else []
    rows = [
        *(measure_call(*call) for call in calls),
        *(measure_exponent(*call) for call in scaled_calls),
    ]
    return [*rows, compare_memory_with_compare(), measure_peak_memory(), *real_log_rows]


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:90s}", row["ours"], row["peer"], row["unit"], row["goal"])
