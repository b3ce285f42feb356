"""The break-even forms give the published check values."""

from __future__ import annotations

from math import inf

import pytest

from ctxkit.errors import BadArguments
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
