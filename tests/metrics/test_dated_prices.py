"""Prices of the date of the call, in each view that weighs a session in dollars."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, usage, user

import ctxkit as ck
from ctxkit.metrics import when_to_compact

MODEL = "claude-sonnet-5-5"
"""Its reads cost 0.1 of input until 7 October 2026, then 0.05."""
BEFORE, AFTER = 1_789_000_000.0, 1_792_500_000.0
TIMES = pytest.mark.parametrize("begin", [BEFORE, AFTER])


def working(begin: float, n: int = 40):
    log = [user("Mend it.")]
    for i in range(n):
        size, before = 20_000 + 1_000 * i, 19_000 + 1_000 * i if i else 0
        spent = usage(0, read=before, write=size - before)
        reply = assistant("", tool_call(path=f"f{i}"), usage=spent, model=MODEL, time=begin + i)
        log += [reply, result("word " * 900, reply)]
    return session(*log)


def test_the_two_dates_have_two_prices():
    assert ck.prices.price(MODEL, at=BEFORE).read == 2 * ck.prices.price(MODEL, at=AFTER).read
    assert (
        ck.prices.price(MODEL, at=AFTER)
        == ck.prices.price(MODEL)
        == ck.prices.price(MODEL, at=None)
    )
    assert ck.prices.price("no-such-model", at=BEFORE) is None


@TIMES
def test_when_break_even_and_the_strip_go_by_the_date_of_the_calls(begin):
    recorded, read = working(begin), ck.prices.price(MODEL, at=begin).read
    assert when_to_compact(recorded, floor=25_000).read_price == read
    assert ck.break_even(recorded, 30).price.read == read
    strip = ck.plots.strip(recorded, 30)
    _, tokens, _, dollars = strip.rows[0]
    assert dollars == ck._internal.formatting_and_sanitizing.format_usd(
        int(tokens.replace(",", "")) * read
    )


@TIMES
def test_the_break_even_call_costs_what_the_record_paid(begin):
    recorded = working(begin)
    removal = ck.break_even(recorded, 30).removal
    spent = recorded.call(30).message.usage
    assert removal.dollars(removal.before()) == pytest.approx(
        ck.prices.price(MODEL, at=begin).prompt_usd(spent)
    )


@TIMES
def test_the_books_close_at_the_prices_of_the_date(begin):
    """The record and the modelled reads are billed by one price, so no date opens a gap."""
    row = ck.score(working(begin), loss=False)
    assert abs(row["closure_error"]) < 1e-9
