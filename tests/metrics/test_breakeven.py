"""The break-even forms give the published check values."""

from __future__ import annotations

import math
from math import inf

import pytest

from ctxkit.errors import BadArguments
from ctxkit.metrics import compaction_formulas
from ctxkit.metrics import compaction_formulas as b

MILLION = 1e-6


@pytest.mark.parametrize(("after", "expected"), [(20_000, 4.96), (60_000, 21.4)])
def test_requests_until_a_reset_pays(after, expected):
    n = b.requests_until_reset_pays(
        100_000, after, cost_usd=0.05, read_price=0.3 * MILLION, write_price=3.75 * MILLION
    )
    assert n == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("saved", "suffix", "expected"), [(2_000, 50_000, 287.5), (50_000, 10_000, 2.3)]
)
def test_reads_until_a_mutation_pays(saved, suffix, expected):
    assert b.reads_until_mutation_pays(saved, suffix) == pytest.approx(expected)


def test_the_gain_of_a_mutation_changes_sign_where_it_breaks_even():
    """The two headroom forms agree: the gain is zero one read after the suffix and the saved part are paid."""
    even = b.reads_until_mutation_pays(2_000, 50_000)
    assert b.mutation_gain(2_000, 50_000, even) == pytest.approx(0, abs=1e-6)
    assert b.mutation_gain(2_000, 50_000, even - 1) < 0 < b.mutation_gain(2_000, 50_000, even + 1)
    assert b.mutation_gain(2_000, 50_000, 1, alive=0.0) == 2_000 * 1.25


def test_a_warm_turn_is_an_order_cheaper_than_a_bust():
    costs = b.price_turn_after_hit_expiry_or_compaction(200_000, 20_000, input_price=2 * MILLION)
    assert costs["warm"] == pytest.approx(0.04)
    assert costs["bust"] == pytest.approx(0.50)
    assert costs["compaction"] == pytest.approx(0.05)


def test_keeping_alive_pays_for_an_hour():
    assert b.keep_alive_limit() / 60 == pytest.approx(62.5)


def test_the_best_trigger_minimises_the_cost_a_request():
    """Checked against a search over whole cycles: reads of a sawtooth plus the cost of a reset, a request."""
    price, growth, cost, start = 0.3 * MILLION, 800.0, 0.08, 20_000.0

    def mean(top: float) -> float:
        n = (top - start) / growth
        return price * (start + top) / 2 + cost / n

    best = min(range(25_000, 300_000, 500), key=mean)
    requests = b.best_interval(cost_usd=cost, read_price=price, growth=growth)
    assert start + requests * growth == pytest.approx(best, rel=0.02)
    exact = b.best_trigger(floor=0, start=start, growth=growth, cost_usd=cost, read_price=price)
    assert exact == pytest.approx(best, rel=0.02)


def test_nothing_saved_never_pays_and_nonsense_is_refused():
    assert b.requests_until_reset_pays(10, 10, cost_usd=1, read_price=1, write_price=1) == inf
    assert b.reads_until_mutation_pays(0, 10) == inf
    with pytest.raises(BadArguments):
        b.best_interval(cost_usd=1, read_price=0, growth=1)


# -- Requests until a reset of the context is paid back, in round numbers.


PRICES = {"cost_usd": 0.0, "read_price": 1.0, "write_price": 11.0}
"""A written token costs ten more than a read one."""


@pytest.mark.parametrize(
    ("more", "requests"),
    [
        ({}, 20 * 10 / 80),  # 20 tokens are written again, and each request saves 80
        ({"front": 4}, 16 * 10 / 80),
        ({"front": 20}, 0.0),
        ({"cost_usd": 160.0}, (160 + 20 * 10) / 80),
        ({"cached_tokens": 90}, 10 * 10 / 80),  # 10 of the 100 would have been written anyway
        ({"cached_tokens": 0}, 0.0),
        ({"cached_tokens": 2, "front": 4}, 0.0),
    ],
)
def test_a_reset_is_paid_back_by_what_each_request_saves(more, requests):
    assert compaction_formulas.requests_until_reset_pays(100, 20, **PRICES | more) == pytest.approx(
        requests
    )


def test_a_reset_that_saves_nothing_is_never_paid_back():
    assert compaction_formulas.requests_until_reset_pays(20, 20, **PRICES) == math.inf
    assert compaction_formulas.requests_until_reset_pays(10, 20, **PRICES) == math.inf


SHARES = {"write_share": 2.0, "read_share": 0.5}


def test_an_edit_is_weighed_by_the_shares_that_are_given():
    assert (
        compaction_formulas.reads_until_mutation_pays(10, 30, **SHARES)
        == (2.0 - 0.5) / 0.5 * 30 / 10
    )
    assert compaction_formulas.reads_until_mutation_pays(-1, 30, **SHARES) == math.inf
    assert compaction_formulas.reads_until_mutation_pays(0, 30, **SHARES) == math.inf
    assert compaction_formulas.reads_until_mutation_pays(1, 30, **SHARES) == 90
    # 10 tokens are not written once and not read twice; 40 are written that would have been read
    gain = 10 * (2.0 + 0.5 * 2) - (2.0 - 0.5) * 40
    assert compaction_formulas.mutation_gain(10, 30, 3, **SHARES) == gain
    assert compaction_formulas.mutation_gain(10, 30, 3, alive=0.5, **SHARES) == gain + 0.75 * 40
    assert compaction_formulas.keep_alive_limit(life_seconds=60, **SHARES) == 240
    costs = compaction_formulas.price_turn_after_hit_expiry_or_compaction(
        100, 10, input_price=3.0, **SHARES
    )
    assert costs == {"warm": 150.0, "bust": 600.0, "compaction": 60.0}


def test_one_share_that_is_given_goes_with_the_models_other():
    assert compaction_formulas.keep_alive_limit(life_seconds=1, read_share=0.5) == 1.25 / 0.5
    assert compaction_formulas.keep_alive_limit(life_seconds=1, write_share=1.0) == 1.0 / 0.1
    with pytest.raises(BadArguments, match="'llama-4'"):
        compaction_formulas.keep_alive_limit(life_seconds=1, model="llama-4")


def test_intervals_and_triggers_in_round_numbers():
    assert compaction_formulas.best_interval(cost_usd=8, read_price=1, growth=4) == 2
    prices = {"growth": 3, "cost_usd": 8, "read_price": 3}  # the root of 9 + 16 is 5
    assert compaction_formulas.best_trigger(floor=0, start=10, **prices) == 10 - 3 + 5
    assert compaction_formulas.best_trigger(floor=99, start=10, **prices) == 99


@pytest.mark.parametrize("name", ["read_price", "growth", "cost_usd"])
def test_a_price_and_a_growth_are_above_nothing_and_a_cost_may_be_nothing(name):
    taken = {"cost_usd": 0, "read_price": 0.1, "growth": 0.1}
    assert compaction_formulas.best_interval(**taken) == 0
    refused = taken | {name: -1 if name == "cost_usd" else 0}
    with pytest.raises(BadArguments, match="above 0"):
        compaction_formulas.best_interval(**refused)
    with pytest.raises(BadArguments, match="above 0"):
        compaction_formulas.best_trigger(floor=0, start=0, **refused)
