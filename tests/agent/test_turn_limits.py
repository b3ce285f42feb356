"""Limits of a turn: which values are allowed, what counts, which limit a call would exceed, and warnings."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user

from ctxkit.agent import Limits, SpentInTurn, TokenBudgetMonitor
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules
from ctxkit.session import Usage

CLAUDE = "anthropic/claude-sonnet-4-5"
"""Dollars for a million tokens: 3 uncached, 0.30 read, 3.75 written, 15 of replies."""
USAGE = Usage(input_tokens=100, cache_read_tokens=1_000, cache_write_tokens=10, output_tokens=7)
DOLLARS = (100 * 3 + 1_000 * 0.3 + 10 * 3.75 + 7 * 15) / 1e6


@pytest.mark.parametrize(
    "name", ["calls", "tokens", "cost_usd", "seconds", "payload_bytes", "messages"]
)
def test_a_limit_is_above_0(name):
    assert getattr(Limits(**{name: 1}), name) == 1
    assert getattr(Limits(**{name: None}), name) is None
    for value in (0, -1, float("nan")):
        with pytest.raises(
            BadArguments, match=rf"^The limit {name} is above 0, or None for none; not {value}"
        ):
            Limits(**{name: value})


def test_no_attempts_are_a_limit_too():
    assert Limits(attempts=0).attempts == 0
    with pytest.raises(BadArguments, match=r"^The limit attempts is 0 or more, not -1"):
        Limits(attempts=-1)


def test_limits_as_text():
    assert str(Limits()) == "40 calls"
    assert str(Limits(tokens=5, cost_usd=0.5, seconds=9.0)) == "40 calls, 5 tokens, 0.5 $, 9 s"
    assert str(Limits(calls=None)) == "no limits"


@pytest.mark.parametrize(
    ("own", "of_rules", "expected"),
    [(None, None, None), (500, None, 500), (None, 400, 400), (500, 400, 400), (300, 400, 300), (300, 0, 300)],
)  # fmt: skip
def test_the_smaller_payload_limit_holds(own, of_rules, expected):
    rules = Rules(parameters={} if of_rules is None else {"max_payload_bytes": of_rules})
    limits = Limits(payload_bytes=own, calls=3).within(rules)
    assert limits == Limits(payload_bytes=expected, calls=3)


def test_what_a_turn_has_spent():
    spent = SpentInTurn()
    spent.add(USAGE, CLAUDE, counted_prompt=5_000)
    assert (spent.calls, spent.fresh, spent.cached, spent.output) == (1, 110, 1_000, 7)
    assert spent.tokens == 1_117
    assert spent.cost_usd == pytest.approx(DOLLARS)
    spent.add_summary(USAGE, CLAUDE, free=False)
    assert (spent.calls, spent.tokens) == (1, 2 * 1_117)  # a summary is no call of the conversation
    assert spent.cost_usd == pytest.approx(2 * DOLLARS)
    spent.add_summary(USAGE, "own/model", free=True)
    assert (spent.tokens, spent.cost_usd) == (3 * 1_117, pytest.approx(2 * DOLLARS))
    assert spent.unbilled == 0
    spent.add(None, CLAUDE, counted_prompt=400)
    spent.add(Usage(output_tokens=5), CLAUDE, counted_prompt=30)  # says nothing of the prompt
    assert (spent.calls, spent.unbilled, spent.tokens) == (3, 430, 3 * 1_117)


def test_what_a_provider_bills_goes_before_the_table():
    spent = SpentInTurn()
    spent.add(Usage(input_tokens=10, cost_usd=0.25), CLAUDE)
    spent.add(Usage(input_tokens=10, cost_usd=0.25), "own/model")
    assert spent.cost_usd == 0.5
    spent.add(Usage(input_tokens=10), "own/model")
    assert spent.cost_usd is None
    spent.add(Usage(input_tokens=10, cost_usd=0.25), CLAUDE)
    assert spent.cost_usd is None  # it stays unknown
    assert spent.fresh == 40


LIMITS = Limits(calls=3, tokens=2_000, seconds=9.5, cost_usd=0.01)


@pytest.mark.parametrize(
    ("spent", "prompt", "expected"),
    [
        ({"calls": 2}, 100, None),
        ({"calls": 3}, 100, "the limit of 3 calls"),
        ({"fresh": 1_000, "cached": 500, "output": 200}, 300, None),
        ({"fresh": 1_000, "cached": 500, "output": 200}, 301, "the limit of 2,000 tokens"),
        ({"unbilled": 1_901}, 100, "the limit of 2,000 tokens"),
        ({"seconds": 9.4}, 100, None),
        ({"seconds": 9.5}, 100, "the limit of 9.5 seconds"),
        # 100 tokens at 3.75 dollars for a million, as if all of them were written
        ({"cost_usd": 0.01 - 380e-6}, 100, None),
        ({"cost_usd": 0.01 - 370e-6}, 100, "the limit of $0.01"),
        ({"cost_usd": 0.01 - 750e-6, "unbilled": 101}, 100, "the limit of $0.01"),
        ({"cost_usd": 0.02, "free": True}, 100, None),
    ],
)
def test_the_limit_that_a_call_would_exceed(spent, prompt, expected):
    assert SpentInTurn(**spent).exceeded_limit(LIMITS, CLAUDE, prompt) == expected
    assert SpentInTurn(**spent).exceeded_limit(Limits(calls=None), CLAUDE, prompt) is None


def test_a_limit_in_dollars_needs_a_price():
    spent = SpentInTurn()
    for more in ({}, {"free": False}):
        with pytest.raises(
            BadArguments, match=r"^No price is known for own/model, so a limit in dollars"
        ):
            spent.exceeded_limit(Limits(cost_usd=1.0), "own/model", 10, **more)
    assert spent.exceeded_limit(Limits(cost_usd=1.0), "own/model", 10, free=True) is None
    assert spent.exceeded_limit(Limits(), "own/model", 10) is None
    with pytest.raises(BadArguments, match=r"^No price is known"):  # of an earlier call
        SpentInTurn(cost_usd=None).exceeded_limit(Limits(cost_usd=1.0), CLAUDE, 10)
    with pytest.raises(
        BadArguments, match=r"^No price is known"
    ):  # the model's own, in a free turn
        SpentInTurn(free=True).exceeded_limit(Limits(cost_usd=1.0), "own/model", 10, free=False)


def make_monitor(past=(), **parameters):
    events = []
    rules = Rules(parameters=parameters)
    return TokenBudgetMonitor(rules, session(*past), lambda *e: events.append(e)), events


def test_tokens_are_counted_from_the_last_compaction_on():
    first = user("first")
    past = [first, assistant(usage=USAGE), summarised([first]), assistant(usage=USAGE), assistant()]
    monitor, events = make_monitor(past, warn_at=100, cutover_at=2_000)
    assert (monitor.cumulative, monitor.turn) == (1_110, 0)
    monitor.add_call(USAGE)
    monitor.add_call(None)
    assert (monitor.cumulative, monitor.turn) == (2_220, 1_110)
    monitor.emit_warning("spent", 77, 5)
    assert events == [
        ("context_budget_warn", {"cumulative_input_tokens": 2_220, "warn_at": 100, "cutover_at": 2_000,
                                 "trigger": "spent", "tokens": 77}),
    ]  # fmt: skip
    monitor.begin_turn()
    assert (monitor.cumulative, monitor.turn) == (2_220, 0)
    monitor.begin_cycle()
    assert monitor.cumulative == 0


def test_the_budget_that_was_exceeded_is_named():
    monitor, events = make_monitor(cutover_at=2_000, max_single_turn_input_tokens=1_110)

    def cut_over():
        monitor.emit_cutover("spent", 77, 9_000)
        kind, payload = events.pop()
        assert kind == "context_budget_cutover"
        return payload

    assert cut_over() == {"input_tokens": 77, "context_window": 9_000, "reason": "spent"}
    monitor.add_call(USAGE)
    assert cut_over() == {"input_tokens": 1_110, "cutover_at": 1_110, "reason": "single_turn_limit"}
    monitor.begin_turn()
    monitor.cumulative = 1_999
    assert cut_over()["reason"] == "spent"
    monitor.cumulative = 2_000
    assert cut_over() == {"cumulative_input_tokens": 2_000, "cutover_at": 2_000}


def test_the_cap_on_messages_is_warned_of_once_a_cycle():
    monitor, events = make_monitor()
    limits = Limits(messages=11, messages_share=0.75)  # 8.25
    monitor.warn_near_message_cap(8, limits)
    monitor.warn_near_message_cap(99, Limits())
    assert events == []
    expected = {"messages": 9, "cap": 11, "fraction": 0.75, "threshold": 8}
    for _ in range(2):
        monitor.warn_near_message_cap(9, limits)
        monitor.warn_near_message_cap(10, limits)
        assert events == [("context_cap_warning", expected)]
        events.clear()
        monitor.begin_cycle()


def test_the_cap_of_the_rules_is_warned_of_by_their_trigger():
    monitor, events = make_monitor(max_tail_messages=40, context_cap_fraction=0.9)
    monitor.emit_warning("message_cap", 77, 37)
    assert events == [
        ("context_cap_warning", {"messages": 37, "cap": 40, "fraction": 0.9, "threshold": 36})
    ]
