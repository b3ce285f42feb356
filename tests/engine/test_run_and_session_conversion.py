"""How a session becomes a log and a run becomes edits again: sizes, ids, times and places, worked out by hand."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user
from random_sessions import Fours

from ctxkit.engine import (
    compute_billing_offset,
    count_sizes_by_last_usage,
    estimate_call_start,
    interleave_edits,
    make_log_from_session,
    run_rules,
    with_message_ids,
)
from ctxkit.engine.run_and_session_conversion import with_recorded_calls
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, Window, triggers
from ctxkit.session import Edit, Message, Usage


def reply(text="a" * 40, prompt=None, **more):
    usage = None if prompt is None else Usage(input_tokens=prompt, output_tokens=5)
    return assistant(text, usage=usage, **more)


@pytest.mark.parametrize(
    ("prompt", "offset"),
    [(None, 7), (0, 7), (100, 0), (130, 30), (25, -75), (24, 7)],  # a quarter can be its size
)
def test_a_bill_is_off_the_count_unless_it_cannot_be_that_prompts(prompt, offset):
    assert compute_billing_offset(reply(prompt=prompt), 100, 7) == offset


def test_a_prompt_is_the_last_bill_and_what_was_counted_since():
    """Messages of 100 tokens, replies of 10: the first bill is 50 above the count."""
    log = [user("u" * 400), reply(prompt=150), user("u" * 400), reply(prompt=270), user("u" * 400), reply()]  # fmt: skip
    sizes, parts = count_sizes_by_last_usage(session(*log), Fours())
    assert sizes == [100, 10, 100, 10, 100, 10]
    # known: 100, then 210 + 50, then 320 + 60
    assert [(p.fixed, p.owed) for p in parts] == [(0, 50), (50, 10), (60, 0)]


@pytest.mark.parametrize(("trigger", "fixed"), [("window_size", 50), ("manual", 0), ("length", 0)])
def test_a_compaction_between_two_calls_forgets_the_bill_before_it(trigger, fixed):
    old = [user("u" * 400), reply(prompt=150)]
    cut = summarised(old, "s" * 80, trigger=trigger)
    log = [*old, cut, user("u" * 400), reply(prompt=125), user("u" * 400), reply(prompt=240)]
    _, parts = count_sizes_by_last_usage(session(*log), Fours())
    # counted: 100, then 20 + 100, then 230
    assert [(p.fixed, p.owed) for p in parts] == [(0, 50), (fixed, 5 - fixed), (5, 5)]


@pytest.mark.parametrize(("error", "fixed"), [("too long", 0), (None, 50)])
def test_an_overflow_forgets_the_bill_where_a_call_reported_it(error, fixed):
    old = [user("u" * 400), reply(prompt=150), user("u" * 400), reply(error=error)]
    cut = summarised(old, "s" * 80, trigger="overflow")
    _, parts = count_sizes_by_last_usage(session(*old, cut, user("u" * 400), reply()), Fours())
    assert parts[-1].fixed == fixed


@pytest.mark.parametrize(
    ("time", "latency", "input_time", "start"),
    [
        (100.0, 30.0, 90.0, 70.0),
        (100.0, None, 90.0, 90.0),
        (100.0, None, 110.0, 100.0),
        (100.0, None, None, 100.0),
        (None, 30.0, 90.0, 90.0),
        (None, None, None, None),
    ],
)
def test_a_call_was_sent_before_its_reply_and_behind_its_input(time, latency, input_time, start):
    assert estimate_call_start(reply(time=time, latency=latency), input_time) == start


def test_messages_get_ids_of_their_own_where_some_are_missing_or_twice():
    fine = session(user(id="a"), reply(id="b"))
    assert with_message_ids(fine) is fine
    log = [user(id="a"), reply(id=""), user(id="a"), reply(id="b")]
    mended = with_message_ids(session(*log))
    assert [m.id for m in mended.messages] == ["a", "message#1", "a#2", "b"]
    assert [m.text for m in mended.messages] == [m.text for m in log]


def test_a_log_has_the_calls_times_agents_and_fixed_parts_of_a_session():
    log = [
        user("u" * 400, time=10.0), reply(time=20.0, latency=4.0, agent="one"),
        user("v" * 80, time=30.0), reply(agent="two"),
        user("w" * 80), reply(time=60.0, agent="one"),
    ]  # fmt: skip
    s = session(*log)
    made = make_log_from_session(
        s, Rules(counter=Fours()), tokens=[1, 2, 3, 4, 5, 6], fixed=[7, 8, 9]
    )
    assert made.calls == 3
    assert [made.tokens.C[n] for n in range(3)] == [7 + 1, 8 + 6, 9 + 15]
    assert list(made.sent) == [16.0, 30.0, 30.0]
    assert list(made.agents) == ["one", "two", "one"]
    assert made.tokens.sizes == [1, 2, 3, 4, 5, 6]
    same = make_log_from_session(s, Rules(counter=Fours()), tokens=[1] * 6, fixed=5)
    assert [same.fixed_in(n) for n in range(3)] == [5, 5, 5]
    bare = make_log_from_session(s, Rules(counter=Fours()), tokens=[1] * 6)
    assert [bare.fixed_in(n) for n in range(3)] == [0, 0, 0]


def test_a_log_with_other_calls_as_recorded_is_one_built_so():
    """It shares the rows, and neither of the two logs can grow any more."""
    prompts = [100, 260, 200, 420, 400, 700]  # the third and the fifth prompt shrink
    log = [m for n in prompts for m in (user("u" * 400), reply(prompt=n))]
    whole = with_message_ids(session(*log))
    rules = Rules(Window(keep_tokens=150), triggers.Above(300), counter=Fours())
    base = make_log_from_session(whole, rules, recorded_calls=6)
    run_rules(base, rules)  # leaves sums of its own prompts with the log
    for calls in range(7):
        derived = with_recorded_calls(base, calls)
        built = make_log_from_session(whole, rules, recorded_calls=calls)
        assert with_recorded_calls(base, calls) is derived
        assert (derived.fixed_at, derived.fixed) == (built.fixed_at, built.fixed)
        for name in ("C", "Q", "P", "sizes", "rising", "owing"):
            assert getattr(derived.tokens, name) == getattr(built.tokens, name)
        assert derived.estimates is derived.tokens
        done, expected = run_rules(derived, rules), run_rules(built, rules)
        assert done.prompts.tolist() == expected.prompts.tolist()
        assert done.fresh_tokens.tolist() == expected.fresh_tokens.tolist()
        assert [c.call for c in done.compactions] == [c.call for c in expected.compactions]
        assert derived.messages is base.messages
    for one in (base, derived):
        with pytest.raises(BadArguments, match="shares the rows"):
            one.append(user())
        with pytest.raises(BadArguments, match="shares the rows"):
            one.open()


def test_a_log_with_other_fixed_parts_keeps_its_estimates_and_what_it_was_billed_beyond():
    s = session(user(), reply(), user(), reply())
    rules = Rules(counter=Fours(), estimator=Fours())
    log = make_log_from_session(s, rules, tokens=[10] * 4, fixed=[5, 5])
    log.bill_extra(3)
    other = log.with_fixed_parts([1, 4])
    assert (log.tokens.C, log.tokens.Q) == ([15, 35], [0, 15, 53])
    assert (other.tokens.C, other.tokens.Q, other.fixed) == ([11, 34], [0, 11, 48], 4)
    assert (other.tokens.owing, other.tokens.rising) == (True, False)
    assert other.estimates is log.estimates
    assert other.tokens.above(34, 0, 2) == 2  # no prompt has more than 34 tokens


def test_recorded_compactions_stand_beside_the_log():
    old = [user(), reply()]
    s = session(*old, summarised(old), user(), reply())
    made = make_log_from_session(s, Rules(counter=Fours()), tokens=[1] * 4, fixed=0)
    assert [(call, edit.kind) for call, edit in made.recorded] == [(1, "summarised")]
    assert len(made.messages) == 4


def test_edits_of_a_run_stand_before_the_replies_of_their_calls():
    def compact(history, _budget):
        return history.summarise(history.safe(1), "S", "full")

    log = [m for n in range(4) for m in (user("u" * 400, id=f"u{n}"), reply(id=f"a{n}"))]
    rules = Rules(compact, triggers.AtCalls((1, 3)), counter=Fours(), name="by hand")
    run = run_rules(make_log_from_session(session(*log), rules, fixed=0, tokens=[100] * 8), rules)
    out = list(interleave_edits(log, run))
    assert [e.id for e in out] == [
        *("u0", "a0", "u1", "by hand-0.0", "a1", "u2", "a2", "u3", "by hand-1.0", "a3"),
    ]
    assert [type(e) for e in out].count(Edit) == 2
    cut = list(interleave_edits(log[:5], run))
    assert [e.id for e in cut if isinstance(e, Message)] == ["u0", "a0", "u1", "a1", "u2"]
    assert [e.id for e in cut if isinstance(e, Edit)] == ["by hand-0.0"]
