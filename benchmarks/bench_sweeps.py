"""Sweeps of compaction-only rules with dollars and losses, in one process, in two, and on Dask."""

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
from benchmarks.cpu_timing import make_bounded_row, measure_cpu
from benchmarks.user_calls import EIGHT, SESSIONS, read_largest_session
from ctxkit.engine import run_rules
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


def make_session(calls: int = CALLS, name: str = "bench") -> Session:
    """Return a session whose prompt grows by 400 tokens per call, with all prefixes cached."""
    log: list[Any] = []
    cached_tokens = 0
    for i in range(calls):
        prompt_tokens = 10_000 + 400 * i
        text = f"step {i} in src/part{i % 40}/file{i % 9}.py " + "word " * 380
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=cached_tokens,
            cache_write_tokens=prompt_tokens - cached_tokens,
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
        cached_tokens = prompt_tokens
    return Session(id=name, log=tuple(log))


def make_random_log(seed: int) -> MessageLog:
    """Return a log of 500 calls with pauses and up to two tool results of very different sizes."""
    rng, log, now = random.Random(seed), MessageLog(get_counter("chars/4"), fixed=3000), 0.0

    def add_message(role: str, tokens: int, **fields: Any) -> None:
        message = Message(
            role=role,
            id=f"m{len(log)}",
            parts=(Text("-"), *fields.pop("calls", ())),
            time=now,
            **fields,
        )
        log.append(message, tokens)

    for n in range(CALLS):
        if not n or rng.random() < 0.1:
            now += rng.expovariate(1 / 400)
            add_message("user", rng.randrange(5, 500))
        now += rng.expovariate(1 / 15)
        tool_calls = [
            ToolCall(id=f"c{n}.{k}", name="read", arguments={}) for k in range(rng.randrange(3))
        ]
        add_message("assistant", rng.randrange(5, 375), latency=4.0, calls=tool_calls)
        for call in tool_calls:
            add_message("tool", int(min(15_000, rng.lognormvariate(6.1, 1.2))) + 1, call_id=call.id)
    return log


def make_random_rules(n: int) -> list[Rules]:
    """Return rules like Pi's compaction with random limits and sizes."""
    rng = random.Random(1)
    return [
        Rules(
            policy=Summary(
                keep_tokens=rng.randrange(3000, 25_000), must_shrink=False,
                summariser=FixedSizeSummariser(rng.randrange(300, 4000)),
            ),
            trigger=Above(rng.randrange(30_000, 180_000)),
            window=200_000,
        )
        for _ in range(n)
    ]  # fmt: skip


def make_pi_grid() -> list[Any]:
    """Return ten settings of Pi with two to eight compactions in 500 calls."""
    windows = [60_000, 70_000, 80_000, 90_000, 100_000]
    return list(
        ck.grid(
            ck.presets.pi,
            context_window=windows,
            keep_recent_tokens=[5000, 10_000],
            summariser="fixed",
        )
    )


def fold_over_lists(log: MessageLog, rules: Rules) -> tuple[int, int]:
    """Run rules over plain lists, with sums taken anew at each call.

    Returns the tokens of all prompts and the number of compactions.
    """
    limit, keep_tokens, summary_tokens = (
        rules.trigger.limit,
        rules.policy.keep_tokens,
        rules.policy.summariser.tokens,
    )
    prompt: list[tuple[str, int]] = []
    total = compactions_n = start_row = 0
    for end_row in log.upto:
        prompt += [
            (log.messages[row].role, log.tokens.sizes[row]) for row in range(start_row, end_row)
        ]
        start_row = end_row
        if log.fixed + sum(n for _, n in prompt) > limit:
            tokens_left, start = keep_tokens, len(prompt)
            while start and tokens_left > 0:
                start -= 1
                tokens_left -= prompt[start][1]
            first_kept = start
            while first_kept < len(prompt) and prompt[first_kept][0] == "tool":
                first_kept += 1
            while first_kept >= len(prompt) or (first_kept and prompt[first_kept][0] == "tool"):
                first_kept = min(first_kept, start, len(prompt)) - 1
            if first_kept > (prompt[0][0] == "summary"):
                prompt, compactions_n = (
                    [("summary", summary_tokens), *prompt[first_kept:]],
                    compactions_n + 1,
                )
        total += log.fixed + sum(n for _, n in prompt)
    return total, compactions_n


@cache
def measure_fold() -> float:
    """Return the CPU seconds of a run of 500 calls over plain lists, the peer of all rates here."""
    log, rules_list = make_random_log(0), make_random_rules(4)
    for rules in rules_list:
        result = run_rules(log, rules, None)
        assert fold_over_lists(log, rules) == (result.total, len(result.compactions))
    return measure_cpu(
        lambda: [fold_over_lists(log, rules) for rules in rules_list], 3, warm=True
    ) / len(rules_list)


def make_rate_row(name: str, seconds: float, goal: str) -> dict:
    """Return the row for a run of 500 calls that takes so many seconds."""
    ours, peer = seconds * 1e6, measure_fold() * 1e6
    name = f"{name} ({CALLS / seconds / 1e6:,.3g} million calls a second and core), {FOLD}"
    return {
        "name": name,
        "ours": ours,
        "peer": peer,
        "ratio": peer / ours,
        "goal": goal,
        "unit": "us CPU a run",
    }


def make_dense_grid(step: int) -> Any:
    """Return settings of Pi with windows of 60,000 to 160,000 tokens, and fixed-size summaries."""
    windows = range(60_000, 160_000, step)
    return ck.grid(
        "pi", context_window=windows, keep_recent_tokens=[5000, 10_000], summariser="fixed"
    )


def measure_real_logs() -> list[dict]:
    """Measure 10,000 runs of eight real logs, whose tokens were counted before."""
    if not (SESSIONS / EIGHT[0]).exists():
        return []
    sessions, rules = [read_largest_session(name) for name in EIGHT], make_dense_grid(160)
    ck.sweep(sessions, rules[:9], progress=False)
    start = time.process_time()
    frame = ck.sweep(sessions, rules, progress=False)
    seconds = time.process_time() - start
    assert len(frame) == 10_000
    mean = frame["compactions_n"].mean()
    name = f"10,000 compaction-only runs of eight real logs counted before, {mean:.1f} a run"
    return [make_bounded_row(f"{name}, against what it may take", seconds, 1.3, "s CPU")]


def measure_sweeps() -> list[dict]:
    """Measure a sweep of 10 sessions by 1,000 settings, its rows as a frame, and single runs."""
    sessions, rules = [make_session(name=f"s{i}") for i in range(10)], make_dense_grid(200)
    named_rules = [NamedRules.of(str(i), r) for i, r in enumerate(rules)]
    runner, options = SessionRunner(sessions[0]), SweepScoreOptions()

    def make_frame() -> Any:
        return build_score_frame(
            [runner.row(rules_of_run, options) for rules_of_run in named_rules]
        )

    ck.sweep(sessions[:1], rules[:9], progress=False)  # vocabulary and prices are read once
    start = time.process_time()
    frame = ck.sweep(sessions, rules, progress=False)
    seconds = time.process_time() - start
    assert len(frame) == 10_000
    mean, peer_seconds = frame["compactions_n"].mean(), measure_fold() * 10_000
    sweep_row = {
        "name": f"10,000 compaction-only runs from the sessions on, {mean:.1f} a run, {FOLD}",
        "ours": seconds,
        "peer": peer_seconds,
        "ratio": peer_seconds / seconds,
        "goal": "ours <= 1.3",
        "unit": "s CPU",
    }
    name = "a sweep's rows with sizes and money as a frame"
    # 10 M calls a second over 0.55 M
    frame_row = make_rate_row(
        name, measure_cpu(make_frame, 3, warm=True) / len(named_rules), ">= 18"
    )
    return [sweep_row, frame_row, *measure_single_runs(runner, make_pi_grid())]


def measure_single_runs(runner: SessionRunner, rules: list[Any]) -> list[dict]:
    """Measure single runs, without and with losses."""
    named_rules = [NamedRules.of(str(i), r) for i, r in enumerate(rules)]
    options = SweepScoreOptions(loss=True)
    for one in named_rules:
        result = run_rules(runner.log(one.rules), one.rules, runner.limit)
        row, scores = (
            runner.row(one, options),
            score_session(make_session_from_run(runner.session, result), runner.base),
        )
        assert all(
            abs(row[column] - value) < 1e-9 * abs(value) + 1e-9
            for column, value in scores.items()
            if isinstance(value, (int, float))
        )
    seconds = measure_cpu(
        lambda: [runner.row(s, SweepScoreOptions()) for s in named_rules], warm=True
    ) / len(named_rules)
    loss_seconds = measure_cpu(
        lambda: [runner.row(s, options) for s in named_rules], warm=True
    ) / len(named_rules)
    return [
        make_rate_row("a run by itself with sizes and money, 2 to 7 cuts", seconds, ""),
        make_rate_row(
            "a run by itself with losses too", loss_seconds, ">= 0.36"
        ),  # 200,000 calls a second over 0.55 M
    ]


def get_process_seconds(_: int) -> tuple[int, float]:
    """Return the id of this process and its CPU seconds."""
    time.sleep(0.05)
    return os.getpid(), time.process_time()


def measure_processes() -> list[dict]:
    """Measure a sweep with extracts in two processes, by the CPU of the busiest and of this one.

    Cores may differ by half, so one process is measured on each core. Without any overhead two
    processes would take half of the harmonic mean of these.
    """
    sessions = [make_session(300, f"s{i}") for i in range(96)]
    windows = [50_000, 60_000, 70_000, 80_000, 90_000, 100_000]
    rules = ck.grid("pi", context_window=windows, keep_recent_tokens=[5000, 10_000])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    expected, seconds = None, []
    for core in [*cores[:2], None]:
        n = 1 if core is not None else 2
        with ProcessPoolExecutor(n, initializer=pin_to_core, initargs=(core,)) as pool:
            start = time.process_time()
            frame = ck.sweep(sessions, rules, executor=pool, progress=False)
            own_seconds = time.process_time() - start
            seconds.append(
                own_seconds + max(dict(pool.map(get_process_seconds, range(8 * n))).values())
            )
        assert expected is None or frame.equals(expected)
        expected = frame
    *single_process, ours = seconds
    if not single_process:
        return []
    peer = statistics.harmonic_mean(single_process)
    return [
        {
            "name": "two processes against one", "ours": ours, "peer": peer, "ratio": peer / ours,
            "goal": ">= 1.8", "unit": "s CPU of the busiest",
        }
    ]  # fmt: skip


def pin_to_core(core: int | None) -> None:
    """Keep this process on one core; None: on any."""
    if core is not None:
        os.sched_setaffinity(0, {core})


class SlowPolicy:
    """A custom policy that takes 50 ms per run by sleeping, however busy the machine is."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, history: Any, _budget: Any) -> Any:
        if history.call % 25 == 0:
            time.sleep(0.0125)
        return history

    def __repr__(self) -> str:
        return f"SlowPolicy({self.n})"


def measure_dask() -> list[dict]:
    """Measure a sweep on two workers of a Dask cluster, against the seconds that these worked."""
    if not importlib.util.find_spec("distributed"):
        return []
    from distributed import Client, LocalCluster

    sessions, rules = (
        [make_session(100, f"s{i}") for i in range(8)],
        [SlowPolicy(i) for i in range(24)],
    )
    options = {"dashboard_address": None, "silence_logs": 50}
    busy_seconds: list[float] = []
    learn = WorkPlan.learn

    def record_seconds(plan: WorkPlan, share: Any, done: Any) -> None:
        busy_seconds.append(done.first + done.rest)
        learn(plan, share, done)

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
        client.get_executor() as executor,
    ):
        ck.sweep(
            sessions, rules[:2], executor=executor, progress=False
        )  # each worker reads its vocabulary once
        WorkPlan.learn = record_seconds  # type: ignore[method-assign]
        try:
            start = time.perf_counter()
            frame = ck.sweep(sessions, rules, executor=executor, progress=False)
            seconds = time.perf_counter() - start
        finally:
            WorkPlan.learn = learn  # type: ignore[method-assign]
    assert frame.equals(ck.sweep(sessions, rules, progress=False))
    name = "Dask, runs of 50 ms, against half of the seconds that its two workers were at work"
    peer = sum(busy_seconds) / 2
    return [
        {
            "name": name,
            "ours": seconds,
            "peer": peer,
            "ratio": seconds / peer,
            "goal": "<= 1.1",
            "unit": "s",
        }
    ]


def run() -> list[dict]:
    return [*measure_sweeps(), *measure_real_logs(), *measure_processes(), *measure_dask()]


if __name__ == "__main__":
    for row in run():
        print(row)
