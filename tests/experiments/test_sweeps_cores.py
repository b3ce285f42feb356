"""A long sweep at a prompt goes over all cores: the same rows, one bar, nothing left behind."""

from __future__ import annotations

import multiprocessing
import sys
from types import ModuleType

import pytest
from experiments.test_cost_and_loss_scores import talk
from waiting import wait_until

import ctxkit as ck
from ctxkit.experiments import sweep_runs, sweep_workers


@pytest.fixture
def at_once(monkeypatch):
    """At a prompt with two cores, everything takes long; returns the pools that were started."""
    started = []

    def pool(travels):
        started.append(sweep_workers.make_process_pool(travels))
        return started[-1]

    monkeypatch.setattr(sweep_workers, "count_cores", lambda: 2)
    monkeypatch.setattr(sweep_workers, "is_interactive", lambda: True)
    monkeypatch.setattr(sweep_workers, "FIRST_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(sweep_workers, "CHECK_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(sweep_workers, "MIN_REMAINING_SECONDS", 0.0)
    monkeypatch.setattr(sweep_runs, "make_process_pool", pool)
    return started


def test_rows_are_the_same_over_all_cores(at_once, monkeypatch):
    rules = ck.grid("pi", context_window=[20_000, 30_000, 40_000], keep_recent_tokens=[500, 900])
    sessions = [talk(5), talk(7), talk(8)]
    found = ck.sweep(sessions, rules, loss=True)
    assert len(at_once) == 1
    monkeypatch.setattr(sweep_runs, "make_process_pool", lambda travels: None)
    assert found.equals(ck.sweep(sessions, rules, loss=True))
    assert ended()


def test_a_comparison_goes_over_all_cores_and_makes_its_replays_here(at_once, monkeypatch):
    session, rules = talk(9), ["pi", "none", "clear:keep_last=1"]
    found = ck.compare(session, rules)
    assert at_once[0] is not None
    monkeypatch.setattr(sweep_runs, "make_process_pool", lambda travels: None)
    alone = ck.compare(session, rules)
    assert found.equals(alone)
    assert [r.log for r in found.replays.values()] == [r.log for r in alone.replays.values()]
    assert ended()


def test_every_preset_can_travel(at_once):
    ck.sweep([talk(5), talk(7)], "all")
    assert at_once[0] is not None
    assert ended()


def test_what_was_made_at_the_prompt_stays_here(at_once):
    here = sys.modules["__main__"].__dict__
    exec("def mine(history, budget):\n    return history", here)
    try:
        found = ck.sweep([talk(5), talk(7)], [ck.presets.none(), here["mine"]])
    finally:
        del here["mine"]
    assert at_once == [None]
    assert found["error"].isna().all()


def test_an_interrupt_keeps_what_is_done_and_leaves_no_worker(at_once, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(sweep_runs, "run_in_executor", interrupted)
    with pytest.warns(UserWarning, match="2 of 12 runs"):
        found = ck.sweep(
            [talk(5), talk(7)], ck.grid("pi", context_window=range(20_000, 26_000, 1000))
        )
    assert len(found) == 2
    assert at_once[0] is not None
    assert ended()
    with pytest.warns(UserWarning, match="The comparison was interrupted: 2 of 3 runs are done"):
        found = ck.compare(talk(5), ["pi", "none", "codex"])
    assert list(found.replays) == list(found.index) == ["recorded", "pi", "none"]
    assert found.attrs["interrupted"] is True
    assert ended()


def test_no_pool_is_started_by_a_script_or_a_worker(monkeypatch):
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert sweep_workers.is_interactive()
    main.__file__ = "study.py"
    assert not sweep_workers.is_interactive()
    del main.__file__
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert not sweep_workers.is_interactive()


def test_one_core_needs_no_pool(monkeypatch):
    monkeypatch.setattr(sweep_workers, "is_interactive", lambda: True)
    monkeypatch.setattr(sweep_workers, "count_cores", lambda: 1)
    assert sweep_workers.make_process_pool([]) is None


def test_only_what_takes_long_is_worth_a_start(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sweep_workers, "process_time", lambda: now[0])
    monkeypatch.setattr(sweep_workers, "monotonic", lambda: now[0])
    pace = sweep_workers.RemainingTimeForPoolStart(110)
    now[0] = 5.0
    pace.record_run(10)
    now[0] = 6.0
    assert not pace.is_slow  # reading the log tells nothing of the other runs
    pace.record_run(50)
    now[0] = 8.0
    assert not pace.is_slow  # 50 calls took three seconds, and so will the 50 that are left
    now[0] = 10.0
    assert pace.is_slow  # 50 calls took five seconds
    pace.record_run(30)
    now[0] += sweep_workers.CHECK_INTERVAL_SECONDS
    assert not pace.is_slow


def test_it_does_not_look_at_each_short_run(monkeypatch):
    now, looks = [0.0], []
    monkeypatch.setattr(sweep_workers, "process_time", lambda: looks.append(now[0]) or now[0])
    monkeypatch.setattr(sweep_workers, "monotonic", lambda: now[0])
    pace = sweep_workers.RemainingTimeForPoolStart(100)
    looks.clear()
    for n in range(100):
        now[0] = n * sweep_workers.CHECK_INTERVAL_SECONDS / 10
        assert not pace.is_slow
    assert len(looks) == 10


def test_it_is_too_early_to_say(monkeypatch):
    now = [100.0]  # what the process did before does not count
    monkeypatch.setattr(sweep_workers, "process_time", lambda: now[0])
    monkeypatch.setattr(sweep_workers, "monotonic", lambda: now[0])
    pace = sweep_workers.RemainingTimeForPoolStart(100)
    pace.record_run(1)
    pace.record_run(1)
    now[0] = 100 + sweep_workers.FIRST_CHECK_SECONDS / 2
    assert not pace.is_slow
    now[0] = 100 + sweep_workers.FIRST_CHECK_SECONDS
    assert pace.is_slow


def test_the_remaining_time_is_that_of_the_other_runs(monkeypatch):
    def is_slow(left):
        """Ten calls are read and run until second 12, ten more until second 14."""
        now = [10.0]
        monkeypatch.setattr(sweep_workers, "process_time", lambda: now[0])
        monkeypatch.setattr(sweep_workers, "monotonic", lambda: now[0])
        pace = sweep_workers.RemainingTimeForPoolStart(20 + left)
        now[0] = 12.0
        pace.record_run(10)
        now[0] = 14.0
        pace.record_run(10)
        return pace.is_slow

    # 0.2 s a call, so 20 calls take the four seconds that do not suffice
    assert [is_slow(left) for left in (20, 21)] == [False, True]


def ended() -> bool:
    """Wait until all workers have ended."""
    return wait_until(lambda: not multiprocessing.active_children())
