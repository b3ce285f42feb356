"""Sweeps of compaction-only rules, with money and losses; processes and Dask against one
process.
"""

from __future__ import annotations

import importlib.util
import os
import random
import statistics
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import msgspec

import ctxkit as ck
from benchmarks.cpu_timing import bounded, cpu
from benchmarks.user_calls import EIGHT, REAL, real
from ctxkit.engine import run_rules as engine
from ctxkit.engine.replay import make_session_from_run
from ctxkit.experiments.cost_and_loss_scores import score_session
from ctxkit.experiments.score_columns import build_score_frame
from ctxkit.experiments.sweep_workers import NamedRules, SessionRunner, SweepScoreOptions, WorkPlan
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history import MessageLog
from ctxkit.policies.offline_summarisers import FixedSizeSummariser
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Above
from ctxkit.session.messages import Message, Text, ToolCall, Usage
from ctxkit.session.session import Session
from ctxkit.tokens import get_counter

CALLS = 500
PARALLEL = True
"""Two processes are measured against one: see `__main__`."""
FOLD = "against a fold over lists"


def session(calls: int = CALLS, name: str = "bench") -> Session:
    """A session whose prompt grows by 400 tokens a call, every prefix read from the cache."""
    log: list[Any] = []
    before = 0
    for i in range(calls):
        now = 10_000 + 400 * i
        text = f"step {i} in src/part{i % 40}/file{i % 9}.py " + "word " * 380
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=before,
            cache_write_tokens=now - before,
            output_tokens=100,
        )
        log.append(Message(role="user", id=f"u{i}", parts=(Text(text),), time=10.0 * i))
        reply = Message(
            role="assistant",
            id=f"a{i}",
            parts=(Text(f"src/part{i % 37}/file{i % 9}.py"),),
            usage=usage,
        )
        log.append(
            msgspec.structs.replace(
                reply, model="claude-sonnet-4-5", time=10.0 * i + 2, latency=1.0
            )
        )
        before = now
    return Session(id=name, log=tuple(log))


def told(seed: int) -> MessageLog:
    """A log of 500 calls: questions, replies, up to two tool results of very different sizes,
    pauses.
    """
    chance, log, now = random.Random(seed), MessageLog(get_counter("chars/4"), fixed=3000), 0.0

    def say(role: str, tokens: int, **more: Any) -> None:
        message = Message(
            role=role,
            id=f"m{len(log)}",
            parts=(Text("-"), *more.pop("calls", ())),
            time=now,
            **more,
        )
        log.append(message, tokens)

    for n in range(CALLS):
        if not n or chance.random() < 0.1:
            now += chance.expovariate(1 / 400)
            say("user", chance.randrange(5, 500))
        now += chance.expovariate(1 / 15)
        asked = [
            ToolCall(id=f"c{n}.{k}", name="read", arguments={}) for k in range(chance.randrange(3))
        ]
        say("assistant", chance.randrange(5, 375), latency=4.0, calls=asked)
        for call in asked:
            say("tool", int(min(15_000, chance.lognormvariate(6.1, 1.2))) + 1, call_id=call.id)
    return log


def settings(n: int) -> list[Rules]:
    """Pi's cut under many limits."""
    chance = random.Random(1)
    return [
        Rules(
            policy=Summary(
                keep_tokens=chance.randrange(3000, 25_000), must_shrink=False,
                summariser=FixedSizeSummariser(chance.randrange(300, 4000)),
            ),
            trigger=Above(chance.randrange(30_000, 180_000)),
            window=200_000,
        )
        for _ in range(n)
    ]  # fmt: skip


def grid() -> list[Any]:
    """Pi under ten settings with two to eight cuts in 500 calls, summaries of a fixed size."""
    windows = [60_000, 70_000, 80_000, 90_000, 100_000]
    return list(
        ck.grid(
            ck.presets.pi,
            context_window=windows,
            keep_recent_tokens=[5000, 10_000],
            summariser="fixed",
        )
    )


def folded(log: MessageLog, rules: Rules) -> tuple[int, int]:
    """The same rules as a plain kit does them: a list of what is shown, re-summed at each call."""
    limit, keep, size = (
        rules.trigger.limit,
        rules.policy.keep_tokens,
        rules.policy.summariser.tokens,
    )
    shown: list[tuple[str, int]] = []
    total = cuts = row = 0
    for upto in log.upto:
        shown += [(log.messages[r].role, log.tokens.sizes[r]) for r in range(row, upto)]
        row = upto
        if log.fixed + sum(n for _, n in shown) > limit:
            left, at = keep, len(shown)
            while at and left > 0:
                at -= 1
                left -= shown[at][1]
            cut = at
            while cut < len(shown) and shown[cut][0] == "tool":
                cut += 1
            while cut >= len(shown) or (cut and shown[cut][0] == "tool"):
                cut = min(cut, at, len(shown)) - 1
            if cut > (shown[0][0] == "summary"):
                shown, cuts = [("summary", size), *shown[cut:]], cuts + 1
        total += log.fixed + sum(n for _, n in shown)
    return total, cuts


@cache
def fold() -> float:
    """CPU seconds of a run of 500 calls as a plain kit does it: the peer of every rate here."""
    log, some = told(0), settings(4)
    for rules in some:
        done = engine(log, rules, None)
        assert folded(log, rules) == (done.total, len(done.compactions))
    return cpu(lambda: [folded(log, rules) for rules in some], 3, warm=True) / len(some)


def rated(name: str, seconds: float, goal: str) -> dict:
    """A row for so many seconds a run of 500 calls."""
    ours, peer = seconds * 1e6, fold() * 1e6
    name = f"{name} ({CALLS / seconds / 1e6:,.3g} million calls a second and core), {FOLD}"
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": peer / ours,
        "goal": goal,
        "unit": "us CPU a run",
    }


def dense(step: int) -> Any:
    """Pi under windows of 60,000 to 160,000 tokens, summaries of a fixed size."""
    windows = range(60_000, 160_000, step)
    return ck.grid(
        "pi", context_window=windows, keep_recent_tokens=[5000, 10_000], summariser="fixed"
    )


def of_real_logs() -> list[dict]:
    """10,000 runs of eight real logs, whose tokens were counted before."""
    if not (REAL / EIGHT[0]).exists():
        return []
    sessions, rules = [real(name) for name in EIGHT], dense(160)
    ck.sweep(sessions, rules[:9], progress=False)
    start = time.process_time()
    found = ck.sweep(sessions, rules, progress=False)
    ours = time.process_time() - start
    assert len(found) == 10_000
    cuts = found["compactions_n"].mean()
    name = f"10,000 compaction-only runs of eight real logs counted before, {cuts:.1f} cuts a run"
    return [bounded(f"{name}, against what it may take", ours, 1.3, "s CPU")]


def swept() -> list[dict]:
    """Rows with sizes, money and how cuts held: 10 sessions x 1,000 settings, and one by one."""
    sessions, rules = [session(name=f"s{i}") for i in range(10)], dense(200)
    given = [NamedRules.of(str(i), r) for i, r in enumerate(rules)]
    bench, options = SessionRunner(sessions[0]), SweepScoreOptions()

    def frame() -> Any:
        return build_score_frame([bench.row(setting, options) for setting in given])

    ck.sweep(sessions[:1], rules[:9], progress=False)  # vocabulary and prices are read once
    start = time.process_time()
    found = ck.sweep(sessions, rules, progress=False)
    whole = time.process_time() - start
    assert len(found) == 10_000
    edits, peer = found["compactions_n"].mean(), fold() * 10_000
    sweep = {
        "name": f"10,000 compaction-only runs from the sessions on, {edits:.1f} cuts a run, {FOLD}",
        "ours": whole,
        "peer": peer,
        "ratio": peer / whole,
        "goal": "ours <= 1.3",
        "unit": "s CPU",
    }
    name = "a sweep's rows with sizes and money as a frame"
    # 10 M calls a second over 0.55 M
    rows = rated(name, cpu(frame, 3, warm=True) / len(given), ">= 18")
    return [sweep, rows, *singly(bench, grid())]


def singly(bench: SessionRunner, rules: list[Any]) -> list[dict]:
    """Runs one by one, without losses and with them."""
    given = [NamedRules.of(str(i), r) for i, r in enumerate(rules)]
    options = SweepScoreOptions(loss=True)
    for setting in given:
        done = engine(bench.log(setting.rules), setting.rules, bench.limit)
        row, slow = (
            bench.row(setting, options),
            score_session(make_session_from_run(bench.session, done), bench.base),
        )
        assert all(
            abs(row[k] - v) < 1e-9 * abs(v) + 1e-9
            for k, v in slow.items()
            if isinstance(v, (int, float))
        )
    one = cpu(lambda: [bench.row(s, SweepScoreOptions()) for s in given], warm=True) / len(given)
    lost = cpu(lambda: [bench.row(s, options) for s in given], warm=True) / len(given)
    return [
        rated("a run by itself with sizes and money, 2 to 7 cuts", one, ""),
        rated(
            "a run by itself with losses too", lost, ">= 0.36"
        ),  # 200,000 calls a second over 0.55 M
    ]


def spent(_: int) -> tuple[int, float]:
    """Which process this is, and its CPU seconds."""
    time.sleep(0.05)
    return os.getpid(), time.process_time()


def processes() -> list[dict]:
    """A whole sweep of extracts in two processes, by the CPU of the busiest and of this one: others
    may be at work.

    Cores may differ by half: one process is measured on each core, and the harmonic mean of these
    is what two of them would halve if nothing were lost.
    """
    sessions = [session(300, f"s{i}") for i in range(96)]
    windows = [50_000, 60_000, 70_000, 80_000, 90_000, 100_000]
    rules = ck.grid("pi", context_window=windows, keep_recent_tokens=[5000, 10_000])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    expected, took = None, []
    for core in [*cores[:2], None]:
        n = 1 if core is not None else 2
        with ProcessPoolExecutor(n, initializer=pinned, initargs=(core,)) as pool:
            start = time.process_time()
            found = ck.sweep(sessions, rules, executor=pool, progress=False)
            here = time.process_time() - start
            took.append(here + max(dict(pool.map(spent, range(8 * n))).values()))
        assert expected is None or found.equals(expected)
        expected = found
    *alone, ours = took
    if not alone:
        return []
    peer = statistics.harmonic_mean(alone)
    return [
        {
            "name": "two processes against one", "ours": ours, "peer": peer, "ratio": peer / ours,
            "goal": ">= 1.8", "unit": "s CPU of the busiest",
        }
    ]  # fmt: skip


def pinned(core: int | None) -> None:
    """Stay on one core."""
    if core is not None:
        os.sched_setaffinity(0, {core})


class Busy:
    """A policy of somebody's own that takes 50 ms a run, whatever else the machine does."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, history: Any, _budget: Any) -> Any:
        if history.call % 25 == 0:
            time.sleep(0.0125)
        return history

    def __repr__(self) -> str:
        return f"Busy({self.n})"


def dask() -> list[dict]:
    """Two workers of a Dask cluster: what handing over costs beside the seconds that the workers
    were at work.
    """
    if not importlib.util.find_spec("distributed"):
        return []
    from distributed import Client, LocalCluster

    sessions, rules = [session(100, f"s{i}") for i in range(8)], [Busy(i) for i in range(24)]
    quiet = {"dashboard_address": None, "silence_logs": 50}
    busy: list[float] = []
    learn = WorkPlan.learn

    def listen(plan: WorkPlan, share: Any, done: Any) -> None:
        busy.append(done.first + done.rest)
        learn(plan, share, done)

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(n_workers=2, threads_per_worker=1, **quiet) as cluster,
        Client(cluster) as client,
        client.get_executor() as executor,
    ):
        ck.sweep(
            sessions, rules[:2], executor=executor, progress=False
        )  # each worker reads its vocabulary once
        WorkPlan.learn = listen  # type: ignore[method-assign]
        try:
            start = time.perf_counter()
            found = ck.sweep(sessions, rules, executor=executor, progress=False)
            took = time.perf_counter() - start
        finally:
            WorkPlan.learn = learn  # type: ignore[method-assign]
    assert found.equals(ck.sweep(sessions, rules, progress=False))
    name = "Dask, runs of 50 ms, against half of the seconds that its two workers were at work"
    peer = sum(busy) / 2
    return [
        {
            "name": name,
            "ours": took,
            "peer": peer,
            "ratio": took / peer,
            "goal": "<= 1.1",
            "unit": "s",
        }
    ]


def run() -> list[dict]:
    return [*swept(), *of_real_logs(), *processes(), *dask()]


if __name__ == "__main__":
    for row in run():
        print(row)
