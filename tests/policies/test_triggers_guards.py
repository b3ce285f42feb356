# ruff: noqa: PT018  settings read best as keywords, twins of a rule in one line
"""What each trigger and guard means at one call; that `first` says the same is the engine's contract test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from builders import assistant, step, system, user
from msgspec.structs import replace
from talks_by_chance import Fours, shown

from ctxkit.policies import History, LastUsageOverBudget, MessageLog, Rules, UnprunedForecast
from ctxkit.policies import guards as g
from ctxkit.policies import triggers as t
from ctxkit.policies.triggers import as_trigger
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(200, 50, Fours())


def due(trigger, *log, **more):
    return trigger(shown(*log), ROOM)


def test_a_reply_that_was_broken_off_counts_as_nothing_where_the_system_takes_it_so():
    """Pi before 1.5.2 looks at the last reply alone; one that was aborted tells no tokens."""
    talk = [user("x" * 400), assistant("y" * 800), user("more"), assistant("b", stop="aborted")]
    talk[-1] = replace(talk[-1], is_error=True)
    log = [*talk, user("again"), assistant("c")]
    history = History.start(MessageLog.of(log, Fours()), 2)
    assert LastUsageOverBudget()(history, ROOM)
    assert not LastUsageOverBudget(waits=True)(history, ROOM)
    assert LastUsageOverBudget(waits=True)(history.at(1), ROOM)


def test_sizes_compare_as_they_say():
    log = [user("x" * 400)]  # 100 tokens
    assert not due(t.Above(100), *log)
    assert (
        due(t.Above(99), *log)
        and due(t.Above(99.5), *log)
        and due(t.Above(100, or_equal=True), *log)
    )
    assert not due(t.Share(0.5), *log) and due(t.Share(0.5, or_equal=True), *log)
    assert due(t.Share(0.6, of="budget"), *log) and not due(t.Share(0.7, of="budget"), *log)
    assert not due(t.Overflow(), *log) and due(t.Overflow(), *log, user("y" * 404))


def test_counts_are_of_what_is_shown():
    log = [system(), user(), *step(), assistant()]
    assert due(t.Count(5), *log) and not due(t.Count(6), *log)
    assert due(t.Count(3, ("user", "assistant")), *log) and not due(t.Count(2, ("user",)), *log)


def test_the_reply_before_may_have_failed():
    overflow = assistant(
        "", error="prompt is too long: 210000 tokens > 200000 maximum", stop="error"
    )
    assert due(t.Overflow(recorded=True), user(), overflow)
    assert not due(t.Overflow(recorded=True), user(), assistant("fine"))
    assert due(t.ReplyCutShort(), user(), assistant("and so", stop="length"))
    assert not due(t.ReplyCutShort(), user(), assistant("and so", stop="length"), assistant("on"))


def test_a_pause_outlives_the_cache():
    log = [user(time=0.0), assistant(time=10.0), user(time=400.0)]
    assert due(t.Idle(300), *log) and not due(t.Idle(400), *log)
    assert not due(t.Idle(300), user(time=0.0))  # the first call is no pause


def test_triggers_join():
    log = [user("x" * 400)]
    yes, no = t.Above(9), t.Above(999)
    assert due(yes | no, *log) and not due(yes & no, *log) and due(yes & ~no, *log)
    assert due(no | (lambda h, budget: True), *log) and due((lambda h, budget: True) & yes, *log)
    assert not due(t.Never(), *log) and due(t.Always(), *log)
    assert due(t.AtCalls((0,)), *log) and not due(t.AtCalls((1,)), *log)


def test_a_trigger_must_answer_yes_or_no():
    from ctxkit.errors import BadArguments

    h = shown(user())
    with pytest.raises(BadArguments, match="must return True or False"):
        as_trigger(lambda h, budget: "perhaps").first(UnprunedForecast(h, ROOM), 0, 1)


def cut(call, before=100, after=50, messages_before=10, messages_after=5):
    return SimpleNamespace(
        call=call,
        before=before,
        after=after,
        messages_before=messages_before,
        messages_after=messages_after,
    )


def first(guard, *cuts, calls=20, start=10, life=None):
    log = MessageLog.of(
        [
            m
            for n in range(calls)
            for m in (user("x" * 40, time=100.0 * n), assistant("y" * 40, time=100.0 * n + 50))
        ],
        Fours(),
    )
    past = SimpleNamespace(compactions=cuts, log=log, begin=0)
    return guard.first(past, UnprunedForecast(History.start(log, start), ROOM), start, calls)


def test_thrash_is_told_by_messages_or_by_tokens():
    poor = [cut(n, after=95, messages_after=3) for n in range(3)]
    assert first(g.AntiThrash(0.1, 3), *poor) == 20
    assert first(g.AntiThrash(0.1, 3, "messages"), *poor) == 10
    assert first(g.AntiThrash(0.1, 3), cut(0), *poor[1:]) == 10
    assert first(g.AntiThrash(0.1, 4), *poor) == 10
    assert first(g.AntiThrash(0, 3), *poor) == first(g.AntiThrash(0.1, 0), *poor) == 10


def test_grace_is_in_calls_or_turns():
    assert first(g.GraceAfterCompaction(calls=3), cut(9)) == 13
    assert first(g.GraceAfterCompaction(calls=3)) == 10
    assert first(g.GraceAfterCompaction(turns=1), cut(9)) == 11  # the next turn is let pass, too


def test_attempts_are_counted():
    assert first(g.CompactionCountLimit(2, "run"), cut(1)) == 10
    assert first(g.CompactionCountLimit(2, "run"), cut(1), cut(2)) == 20
    assert first(g.CompactionCountLimit(1), cut(10)) == 11


def test_waits_end():
    assert (
        first(g.Hysteresis(tokens=100), cut(8, after=110)) == 11
    )  # 20 tokens a call; 210 at call 10
    assert first(g.UntilCold(10_000)) == 20
    assert first(g.UntilCold(10_000, life=40)) == 10
    assert first(g.UntilCold(300)) == 15
    assert first(g.Cooldown(300), cut(9)) == 12


def test_results_are_refused_with_a_reason():
    h = shown(*(user("x" * 400) for _ in range(4)))
    less = h.drop(1)
    assert g.Smaller().refuses(None, h, less) is None
    assert (
        g.Smaller().refuses(None, less, h)
        == "after it the prompt would have 400 tokens, before it 300 (both as counted here)"
    )
    assert g.MinProgress(0.5).refuses(None, h, less) == "it saves 100 tokens, and 200 are asked for"
    assert g.MinProgress(tokens=100).refuses(None, h, less) is None


def test_turns_since_the_last_compaction():
    rules = Rules(lambda h, budget: h.drop(h.safe(len(h) - 1)), t.Turns(2), counter=Fours())
    from ctxkit.engine import run_rules

    log = MessageLog.of([m for _ in range(7) for m in (user(), assistant())], Fours())
    assert [c.call for c in run_rules(log, rules).compactions] == [2, 4, 6]
