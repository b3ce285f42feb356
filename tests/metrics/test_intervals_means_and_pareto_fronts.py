"""Intervals of the next value, means over sessions and fronts, worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from ctxkit.errors import BadArguments
from ctxkit.metrics import (
    PredictionInterval,
    average_cost_uncertainty_usd,
    compare_settings,
    find_pareto_front,
    mean_or_none,
    median_or_none,
    predict_interval,
    sum_if_complete,
    summarise_runs,
)


def test_three_values_have_a_middle_and_no_interval():
    assert predict_interval([]) is None
    assert predict_interval([3, 1, 2]) == PredictionInterval(2)
    assert PredictionInterval(2).contains(2) is None


def test_nine_values_leave_a_tenth_on_each_side():
    # the next of ten values is below all nine in one case of ten
    assert predict_interval(range(1, 10)) == PredictionInterval(5, 1.0, 9.0)
    assert predict_interval([7, 1, 5, 3], share=0.5) == PredictionInterval(4, 1.5, 6.5)


def test_an_interval_holds_its_ends():
    interval = PredictionInterval(2, 1, 3)
    assert [interval.contains(v) for v in (0.9, 1, 3, 3.1)] == [False, True, True, False]


def test_few_values_above_zero_are_taken_as_lognormal():
    # logarithms 0, 0, 0, 4 to base 2: mean 1, deviation 2; Student's t of 3 degrees is 1.638
    found = predict_interval([1, 1, 1, 16])
    half = 1.638 * 2 * (1 + 1 / 4) ** 0.5
    assert found.middle == 1
    assert found.low == pytest.approx(2 ** (1 - half), rel=0.01)
    assert found.high == pytest.approx(2 ** (1 + half), rel=0.01)
    assert predict_interval([0, 2, 2, 4]) == PredictionInterval(2)


def test_means_leave_out_what_is_unknown_and_sums_do_not():
    assert mean_or_none([1, None, 3]) == 2
    assert mean_or_none([None]) is mean_or_none([]) is None
    assert median_or_none([5, None, 1, 3]) == 3
    assert median_or_none([None]) is None
    assert sum_if_complete([1.0, 2.0]) == 3.0
    assert sum_if_complete([1.0, None]) is None
    assert sum_if_complete([]) == 0


FRONTS = {
    "one point is best of all": ([1, 2, 3], [1, 2, 3], [True, False, False]),
    "each is best in a column": ([1, 2, 3], [3, 2, 1], [True, True, True]),
    "equal rows are both on it": ([1, 1, 2], [2, 2, 2], [True, True, False]),
    "one is worse in a column only": ([1, 1], [2, 3], [True, False]),
    "a row without a value is not on it": ([None, 2], [1, 2], [False, True]),
}


@pytest.mark.parametrize(("first", "second", "mask"), FRONTS.values(), ids=FRONTS)
def test_a_front_is_of_rows_that_no_other_is_as_good_as_in_every_column(first, second, mask):
    assert find_pareto_front(first, second).tolist() == mask


def make_runs():
    """Three sessions under two settings: one session has no figure under the second."""
    rows = [("a", "x", 1.0), ("a", "x", 3.0), ("b", "x", 4.0), ("c", "x", 100.0),
            ("a", "y", 1.0), ("b", "y", 1.5), ("c", "y", None)]  # fmt: skip
    runs = pd.DataFrame(rows, columns=["session", "rules", "cost_usd"])
    return runs.assign(cost_low_usd=runs["cost_usd"] - 1, cost_high_usd=runs["cost_usd"] + 3)


def test_sessions_with_a_figure_in_every_cell_are_averaged_each_once():
    table = summarise_runs(make_runs(), columns="cost_usd").set_index("rules")
    assert table["cost_usd"].to_dict() == {"x": 3.0, "y": 1.25}
    assert table["sessions_n"].to_list() == [2, 2]
    assert table["few_sessions"].all()
    # of two sessions a quarter of the resamples are one of them twice: beyond the fifth percentile
    assert table.loc["x", ["cost_usd_low", "cost_usd_high"]].to_list() == [2.0, 4.0]


def test_five_sessions_are_not_few():
    runs = pd.DataFrame({"session": list("abcde"), "rules": "x", "cost_usd": 1.0})
    assert not summarise_runs(runs, columns=["cost_usd"])["few_sessions"].any()
    assert summarise_runs(runs[:4], columns=["cost_usd"])["few_sessions"].all()


def test_a_difference_is_of_the_first_less_the_second_on_the_same_sessions():
    found = compare_settings(make_runs(), "x", "y")
    assert found == {"mean": 1.75, "low": 1.0, "high": 2.5, "sessions_n": 2, "few_sessions": True}
    assert compare_settings(make_runs(), "y", "x")["mean"] == -1.75
    with pytest.raises(BadArguments, match="'z'"):
        compare_settings(make_runs(), "x", "z")


def test_the_model_is_as_uncertain_of_a_mean_as_of_its_sessions():
    assert average_cost_uncertainty_usd(make_runs()) == {"x": 2.0, "y": 2.0}
    assert average_cost_uncertainty_usd(make_runs().drop(columns="cost_low_usd")) == {}


def test_what_is_no_table_and_what_is_no_column_are_refused():
    with pytest.raises(BadArguments, match="not list"):
        summarise_runs([])
    with pytest.raises(BadArguments, match="no column 'cost'"):
        summarise_runs(make_runs(), columns="cost")
