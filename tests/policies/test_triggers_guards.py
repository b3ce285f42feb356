# ruff: noqa: PT018  settings read best as keywords, twins of a rule in one line
"""What each trigger and guard means at one call; that `first` says the same is the engine's contract test."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from builders import assistant, step, system, user
from msgspec.structs import replace
from random_sessions import Fours, shown

from ctxkit.policies import History, LastUsageOverBudget, MessageLog, Rules, UnprunedForecast
from ctxkit.policies import guards as g
from ctxkit.policies import triggers as t
from ctxkit.session import Usage
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


def test_joined_triggers_are_due_at_the_calls_of_their_sets():
    """The first call of the intersection, union or complement, from any call on."""
    chance = Random(3)
    for parts_n in (1, 2, 3, 4, 5) * 20:
        sets = [set(chance.sample(range(12), chance.choice((3, 9)))) for _ in range(parts_n)]
        parts = [t.AtCalls(tuple(calls)) for calls in sets]
        for trigger, calls in (
            (t.Both(parts), set.intersection(*sets)),
            (t.Either(parts), set.union(*sets)),
            (t.Not(parts[0]), set(range(12)) - sets[0]),
            (t.Both([*parts, t.Always()]) & ~t.Never(), set.intersection(*sets)),
        ):
            for start, stop in ((0, 12), (3, 9), (7, 7)):
                first = min((c for c in calls if start <= c < stop), default=stop)
                assert trigger.first(SimpleNamespace(), start, stop) == first


def test_a_trigger_must_answer_yes_or_no():
    from ctxkit.errors import BadArguments

    h = shown(user())
    with pytest.raises(BadArguments, match="must return True or False"):
        t.as_trigger(lambda h, budget: "perhaps").first(UnprunedForecast(h, ROOM), 0, 1)


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
        first(g.MinGrowthSinceCompaction(tokens=100), cut(8, after=110)) == 11
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


def test_a_compaction_that_saves_just_the_share_is_good_enough():
    enough, too_little = (cut(0, after=75), cut(1, after=75)), (cut(0, after=76), cut(1, after=76))
    assert first(g.AntiThrash(0.25, 2), *enough) == 10
    assert first(g.AntiThrash(0.25, 2), *too_little) == 20
    assert first(g.AntiThrash(0.25, 2), cut(0, before=0, after=0), too_little[1]) == 20
    past = SimpleNamespace(compactions=too_little)
    assert g.AntiThrash(0.25, 3).why(past) == "anti-thrash: 2 of 3 below 25%"


def test_thrash_is_over_after_the_calls_of_a_reset():
    poor = [cut(n, after=95) for n in (1, 2, 9)]
    assert first(g.AntiThrash(0.1, 2, reset=8), *poor) == 17  # nine and eight
    assert first(g.AntiThrash(0.1, 2, reset=7), *poor) == 10  # seven calls lie before the last one
    assert first(g.AntiThrash(0.1, 2, reset=40), *poor) == 20  # not in these calls
    assert first(g.AntiThrash(0.1, 2, reset=8), *(cut(n, after=95) for n in (0, 1))) == 10


def test_a_wait_ends_where_its_last_call_or_token_is_reached():
    assert first(g.GraceAfterCompaction(calls=1), cut(9)) == 11
    assert first(g.GraceAfterCompaction(turns=2), cut(9)) == 12
    assert (
        first(g.GraceAfterCompaction(turns=20), cut(9))
        == first(g.GraceAfterCompaction(calls=20), cut(9))
        == 20
    )
    # prompts of 210 tokens at call 10 and 20 more at each: 130 of growth is passed at call 12
    assert [first(g.MinGrowthSinceCompaction(tokens=n), cut(9, after=100)) for n in (109, 110)] == [
        10,
        11,
    ]
    assert [first(g.MinGrowthSinceCompaction(share=n), cut(9, after=100)) for n in (1.0, 1.25)] == [
        10,
        11,
    ]
    assert [first(g.UntilCold(n)) for n in (209, 210)] == [10, 11]
    assert [first(g.Cooldown(n), cut(9)) for n in (100, 101)] == [10, 11]
    assert first(g.Cooldown(100_000), cut(9)) == 20


def test_attempts_of_a_turn_are_used_up_in_that_turn_alone():
    log = MessageLog.of([user(), *step(), *step(), *step(), user(), assistant()], Fours())

    def first_after(guard, *calls, start):
        past = SimpleNamespace(compactions=[cut(c) for c in calls], log=log, begin=0)
        return guard.first(past, UnprunedForecast(History.start(log, 0), ROOM), start, 4)

    assert first_after(g.CompactionCountLimit(2), 0, start=1) == 1
    assert first_after(g.CompactionCountLimit(2), 0, 1, start=2) == 3
    assert first_after(g.CompactionCountLimit(1, "turn"), 0, start=3) == 3
    assert first_after(g.GraceAfterCompaction(turns=1), 0, start=1) == 4
    assert first_after(g.GraceAfterCompaction(calls=1), 0, start=1) == 2


def test_progress_is_asked_for_in_both_units():
    h = shown(*(user("x" * 400) for _ in range(4)))
    less = h.drop(1)  # 100 of 400 tokens
    asked = [g.MinProgress(0.25), g.MinProgress(0.26), g.MinProgress(0.1, tokens=101)]
    assert [one.refuses(None, h, less) is None for one in asked] == [True, False, False]
    assert g.Smaller().refuses(None, h, h) is not None


@pytest.mark.parametrize("settings", [{"share": 1.0}, {"share": -0.1}, {"tokens": -1}])
def test_no_compaction_can_save_everything_or_less_than_nothing(settings):
    from ctxkit.errors import BadArguments

    with pytest.raises(BadArguments, match="from 0 up to 1"):
        g.MinProgress(**settings)
    assert g.MinProgress(0.0, 0)


@pytest.mark.parametrize("settings", [{}, {"tokens": -1}, {"share": -0.5, "tokens": 1}])
def test_growth_is_above_nothing(settings):
    from ctxkit.errors import BadArguments

    with pytest.raises(BadArguments, match="above 0"):
        g.MinGrowthSinceCompaction(**settings)
    assert g.MinGrowthSinceCompaction(tokens=1)
    assert g.MinGrowthSinceCompaction(share=0.1)


def test_an_agents_tokens_are_spent_at_the_sum_itself():
    # three turns, whose prompts have 100, 300 and 500 tokens
    log = [m for _ in range(3) for m in (user("x" * 400), assistant("y" * 400))]
    history = History.start(MessageLog.of(log, Fours()), 0)

    def first_due(trigger):
        return trigger.first(UnprunedForecast(history, ContextBudget(9000, 0, Fours())), 0, 3)

    for agent in (None, history.log.agent):
        spent = [first_due(t.TokensSpent(n, agent)) for n in (100, 101, 400, 401)]
        assert spent == [1, 2, 2, 3]
    assert [first_due(t.TurnTokensSpent(n)) for n in (99, 100, 299, 300)] == [1, 2, 2, 3]
    assert [first_due(t.Turns(n)) for n in (1, 2, 3)] == [1, 2, 3]
    assert [first_due(t.Count(n)) for n in (1, 2, 3, 4, 5, 6)] == [0, 1, 1, 2, 2, 3]


def test_a_limit_between_two_numbers_of_tokens_is_passed_by_the_next_one():
    log = [user("x" * 400)]  # 100 tokens
    shares = [t.Share(1 / 2), t.Share(1 / 2, or_equal=True)]
    for window, dues in ((199, [True, True]), (200, [False, True]), (201, [False, False])):
        budget = ContextBudget(window, 0, Fours())
        assert [s(shown(*log), budget) for s in shares] == dues
    assert not due(t.Above(100.5), *log) and not due(t.Above(100.5, or_equal=True), *log)
    assert due(t.Above(99.5), *log) and due(t.Above(99.5, or_equal=True), *log)


def test_the_last_usage_counts_its_reply_and_what_came_after_it():
    def first_due(reply, *more, since=None):
        log = MessageLog.of([user("x" * 400), reply, *more, user("go on"), assistant()], Fours())
        calls = log.calls
        history = History.start(log, calls - 1)
        if since is not None:
            history = History.start(log, since).drop(1)
            assert history.since == since
        forecast = UnprunedForecast(history, ROOM)  # 150 tokens are left of 200
        return LastUsageOverBudget().first(forecast, 0, calls) - (calls - 1)

    assert [first_due(assistant("y" * n)) for n in (200, 204)] == [1, 0]
    bills = [Usage(input_tokens=1, output_tokens=n) for n in (50, 51)]
    assert [first_due(assistant("y" * 4, usage=bill)) for bill in bills] == [1, 0]
    assert [first_due(assistant("y" * 160), user("z" * n)) for n in (40, 44)] == [1, 0]
    assert first_due(assistant("y" * 204), since=1) == 1  # the reply is older than the compaction


def test_refusals_are_collected_by_the_innermost_block_only():
    """Both sizes are in the sentence; outside of all blocks a refusal is not collected."""
    was = shown(user("x" * 40))
    larger, largest = (was.insert(1, user("y" * n), "more") for n in (40, 80))
    with g.collect_refusals() as outer:
        with g.collect_refusals() as inner:
            assert g.keep_if_smaller(was, larger) is was
        assert g.keep_if_smaller(was, largest) is was
    assert g.keep_if_smaller(was, larger) is was
    assert [inner, outer] == [
        [g.describe_not_smaller(was, larger)],
        [g.describe_not_smaller(was, largest)],
    ]
    assert inner != outer
