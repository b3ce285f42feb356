"""The quick bill of a run is the slow one, to the token and the dollar, whatever the session and the setting."""

from __future__ import annotations

import random

import pytest
from builders import assistant, session, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.engine import run
from ctxkit.messages import Usage
from ctxkit.metrics.quick import Quick
from ctxkit.replays import hidden, shared_tokens
from ctxkit.sweeps.batches import Bench
from ctxkit.sweeps.scores import Base, run_row


def wild(seed: int, n: int = 60):
    """A session with misses, pauses, failed calls and, at times, writes that live an hour."""
    chance, log, size, before = random.Random(seed), [], 3000, 0
    hour = chance.random() < 0.3
    for i in range(n):
        size += chance.randrange(50, 4000)
        log.append(user("word " * chance.randrange(1, 3000), time=100.0 * i))
        if chance.random() < 0.1:
            log.append(assistant("", is_error=True, time=100.0 * i + 5))
            continue
        read = chance.choice([before, before, before, before, 0, 2000, max(before - 700, 0)])
        rest = size - min(read, size)
        u = Usage(
            input_tokens=0, cache_read_tokens=min(read, size), output_tokens=50,
            cache_write_tokens=0 if hour else rest, cache_write_1h_tokens=rest if hour else 0,
        )  # fmt: skip
        wait = chance.choice([1.0, 1.0, 900.0])
        log.append(assistant("ok", usage=u, model="claude-sonnet-4-5", time=100.0 * i + wait, latency=1.0))
        before = size
    return session(*log, id=f"wild{seed}")


@given(st.integers(0, 40), st.sampled_from([20_000, 30_000, 60_000, 10**6]), st.sampled_from([500, 3000, 9000]))
def test_quick_is_slow(seed, window, keep):
    bench = Bench(wild(seed))
    rules = ck.presets.pi(context_window=window, reserve_tokens=4000, keep_recent_tokens=keep, summariser="fixed:800")
    done = run(bench.log(rules), rules, 200_000)
    quick = bench.base.quick(done.log)
    fast = run_row(bench.base, done, "x")
    slow_base = Base(bench.session)
    slow_base.quick = lambda _log: None
    slow = run_row(slow_base, done, "x")
    assert {k: v for k, v in fast.items() if slow[k] != pytest.approx(v)} == {}
    assert quick is not None


def test_the_quick_way_is_taken_where_it_matters():
    bench = Bench(wild(3))
    rules = ck.presets.pi(context_window=30_000, reserve_tokens=4000, keep_recent_tokens=3000, summariser="fixed")
    done = run(bench.log(rules), rules, 200_000)
    sums = bench.base.quick(done.log).sums(done)
    billed = bench.base.sheet.billed
    assert len(done.cuts) > 2
    assert (sums.prompts, sums.peak) == (int(done.prompts[billed].sum()), int(done.prompts[billed].max()))
    from ctxkit.metrics.quick import hidden as quickly

    assert quickly(done) == hidden(done)
    assert len(shared_tokens(done)) == done.call


def test_where_sums_cannot_say_the_slow_way_is_taken():
    two = session(
        user(), assistant(usage=Usage(input_tokens=0, cache_read_tokens=0, cache_write_tokens=9), model="claude-opus-4-5"),
        user(), assistant(usage=Usage(input_tokens=0, cache_read_tokens=0, cache_write_tokens=20), model="claude-sonnet-4-5"),
    )  # fmt: skip
    bench = Bench(two)
    rules = ck.presets.none()
    assert Quick.of(bench.base.sheet, bench.log(rules)) is None
    assert run_row(bench.base, run(bench.log(rules), rules, None), "x")["prompt_tokens"] > 0


def test_pis_session_both_ways(real):
    bench = Bench(ck.read(real / "pi/before-compaction.jsonl"))
    slow = Base(bench.session)
    slow.quick = lambda _log: None
    for window in (60_000, 100_000, 200_000):
        rules = ck.presets.pi(context_window=window, summariser="fixed")
        done = run(bench.log(rules), rules, None)
        fast = run_row(bench.base, done, "x")
        assert fast == run_row(slow, done, "x")
        assert bench.base.quick(done.log).sums(done) is not None
