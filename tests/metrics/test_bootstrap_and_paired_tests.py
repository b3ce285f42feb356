"""Cells speak of the same sessions, their intervals come from sessions, and small ones are marked; a front is not beaten."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.metrics import (
    compare_settings,
    find_pareto_front,
    summarise_runs,
)


def runs(n: int = 6, **more):
    rows = [
        {"session": f"s{i}", "rules": r, "cost_usd": i + d, "k": k}
        for i in range(n)
        for r, d, k in (("a", 0.0, 1), ("b", 0.5, 2))
    ]
    return pd.DataFrame(rows).astype({"cost_usd": "Float64", "rules": "string"}).assign(**more)


def test_a_cell_has_its_mean_its_sessions_and_its_interval():
    row = summarise_runs(runs(), columns="cost_usd").iloc[0]
    assert (row["rules"], row["cost_usd"], row["sessions_n"], row["few_sessions"]) == (
        "a",
        2.5,
        6,
        False,
    )
    assert row["cost_usd_low"] < 2.5 < row["cost_usd_high"]
    assert summarise_runs(runs(4), columns="cost_usd")["few_sessions"].all()


def test_a_session_that_misses_a_cell_counts_in_none():
    frame = runs()
    frame.loc[0, "cost_usd"] = pd.NA  # s0 has no figure under a
    assert summarise_runs(frame, columns="cost_usd")["sessions_n"].tolist() == [5, 5]
    assert summarise_runs(frame, columns="cost_usd")["cost_usd"].tolist() == [3.0, 3.5]


def test_pairs_are_taken_session_by_session():
    told = compare_settings(runs(), "b", "a")
    assert (told["mean"], told["low"], told["high"], told["sessions_n"]) == (0.5, 0.5, 0.5, 6)


def test_two_keys_make_a_cell_and_the_same_seed_the_same_interval():
    assert summarise_runs(runs(), ["rules", "k"], "cost_usd").equals(
        summarise_runs(runs(), ["rules", "k"], "cost_usd")
    )
    assert list(summarise_runs(runs(), ["k"], "cost_usd")["k"]) == [1, 2]


@pytest.mark.parametrize("column", ["cost", "rule"])
def test_an_unknown_column_is_refused(column):
    with pytest.raises(ck.BadArguments, match="no column"):
        summarise_runs(runs(), column)


def test_an_unknown_setting_is_refused():
    with pytest.raises(ck.BadArguments, match="No run of 'c'"):
        compare_settings(runs(), "a", "c")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_nothing_on_the_front_is_beaten_and_all_else_is(points):
    on = find_pareto_front([p[0] for p in points], [p[1] for p in points])
    for i, (x, y) in enumerate(points):
        beaten = any(a <= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert on[i] != beaten


def test_what_is_missing_is_never_on_the_front():
    assert find_pareto_front([1, None, 2], [1, 0, np.nan]).tolist() == [True, False, False]
