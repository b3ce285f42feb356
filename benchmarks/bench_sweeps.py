"""Sweeps of compaction-only presets: rows with sizes and money against the slow bill, losses, processes."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

import ctxkit as ck
from ctxkit.engine import run as engine
from ctxkit.messages import Message, Text, Usage
from ctxkit.session import Session
from ctxkit.sweeps.batches import Bench, Options, Setting, batch
from ctxkit.sweeps.scores import Base, run_row

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 500


def session(calls: int = CALLS, name: str = "bench") -> Session:
    """A session whose prompt grows by 400 tokens a call, every prefix read from the cache."""
    log: list[Any] = []
    before = 0
    for i in range(calls):
        now = 10_000 + 400 * i
        text = f"step {i} in src/part{i % 40}/file{i % 9}.py " + "word " * 380
        usage = Usage(input_tokens=0, cache_read_tokens=before, cache_write_tokens=now - before, output_tokens=100)
        log.append(Message(role="user", id=f"u{i}", parts=(Text(text),), time=10.0 * i))
        reply = Message(role="assistant", id=f"a{i}", parts=(Text(f"src/part{i % 37}/file{i % 9}.py"),), usage=usage)
        log.append(msgspec.structs.replace(reply, model="claude-sonnet-4-5", time=10.0 * i + 2, latency=1.0))
        before = now
    return Session(id=name, log=tuple(log))


def grid() -> list[Any]:
    """Pi under ten settings with two to eight cuts in 500 calls, summaries of a fixed size."""
    windows = [60_000, 70_000, 80_000, 90_000, 100_000]
    return list(ck.grid(ck.presets.pi, context_window=windows, keep_recent_tokens=[5000, 10_000], summariser="fixed"))


def median(do: Callable[[], Any], times: int = 9) -> float:
    """CPU seconds, median, after a warm-up."""
    do()
    found = []
    for _ in range(times):
        start = time.process_time()
        do()
        found.append(time.process_time() - start)
    return statistics.median(found)


def run() -> list[dict]:
    bench, rules = Bench(session()), grid()
    runs = [engine(bench.log(r), r, 200_000) for r in rules]
    assert max(len(d.cuts) for d in runs) <= 10
    slow = Base(bench.session)
    slow.quick = lambda _log: None  # type: ignore[method-assign]
    for done in runs:
        assert run_row(bench.base, done, "x") == run_row(slow, done, "x")
        assert run_row(bench.base, done, "x")["prompt_tokens"] == done.total
    calls = CALLS * len(rules)
    alone = median(lambda: [engine(bench.log(r), r, 200_000) for r in rules])
    both = median(lambda: [run_row(bench.base, engine(bench.log(r), r, 200_000), "x") for r in rules])
    every = median(lambda: [run_row(slow, engine(bench.log(r), r, 200_000), "x") for r in rules])
    rate = {"unit": "million calls a second and core", "goal": None}
    return [
        {
            "name": "sizes and money of a run with 2 to 7 cuts, against the engine alone",
            "ours": calls / both / 1e6, "peer": calls / alone / 1e6, "ratio": alone / both, **rate,
        },
        {
            "name": "the same by running sums, against the bill of every call",
            "ours": calls / both / 1e6, "peer": calls / every / 1e6, "ratio": every / both, **rate,
        },
        _loss(bench, rules),
        _processes(),
    ]  # fmt: skip


def _loss(bench: Bench, rules: list[Any]) -> dict:
    """With losses: the session's items are found once, so the second setting costs only what its cuts cost."""
    settings = [Setting.of(str(i), r) for i, r in enumerate(rules)]
    first = time.process_time()
    bench.row(settings[0], Options(loss=True))
    first = time.process_time() - first
    later = median(lambda: [bench.row(s, Options(loss=True)) for s in settings], 3) / len(settings)
    return {
        "name": "a run with losses, against the first one, which finds the items",
        "ours": later * 1e3, "peer": first * 1e3, "ratio": first / later, "goal": None, "unit": "ms a run",
    }  # fmt: skip


def _processes() -> dict:
    """Two processes against one, wall time, on work that is the users' own Python."""
    sessions = [session(150, f"s{i}") for i in range(8)]
    settings = [Setting.of(str(i), r) for i, r in enumerate(grid())]
    options = Options(loss=True)
    work = [(s, settings) for s in sessions]
    with ProcessPoolExecutor(2) as two, ProcessPoolExecutor(1) as one:
        for pool, n in ((one, 1), (two, 2)):
            list(pool.map(len, ["warm"] * n * 4))
        took = []
        for pool in (one, two):
            start = time.perf_counter()
            found = [f.result() for f in [pool.submit(batch, s, tuple(x), options) for s, x in work]]
            took.append(time.perf_counter() - start)
            assert [len(f) for f in found] == [len(settings)] * len(sessions)
    return {
        "name": "two processes against one", "ours": took[1], "peer": took[0], "ratio": took[0] / took[1],
        "goal": 1.8, "unit": "s",
    }  # fmt: skip


if __name__ == "__main__":
    for row in run():
        print(row)
