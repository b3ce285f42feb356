"""The largest values that a column of a frame holds; what is beyond, or of another kind, is missing."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from ctxkit.metrics.frames.building import build_frame
from ctxkit.metrics.frames.columns import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn

YEAR_2262 = 9_223_000_000.0
"""Seconds; nanoseconds of 64 bits end in that year."""


def hold(dtype: str, *values):
    """Return the values of a column made of them; None where one is missing."""
    column = build_frame([FrameColumn("x", dtype, "", "any")], {"x": list(values)})["x"]
    return [None if pd.isna(v) else v for v in column]


@pytest.mark.parametrize(
    ("dtype", "holds", "is_missing"),
    [
        (INT, [2**63 - 1, -(2**63), 0], [2**63, -(2**63) - 1, True, 0.5]),
        (FLOAT, [2.0**999, -(2.0**999), 1.5, 3], [2.0**1001, -(2.0**1001), math.nan, math.inf]),
        (BOOL, [True, False], [1, 0, 0.5]),
    ],
)
def test_what_a_column_cannot_hold_is_missing(dtype, holds, is_missing):
    assert hold(dtype, *holds, None) == [*holds, None]
    assert hold(dtype, *holds, "text") == [*holds, None]
    for value in is_missing:
        assert hold(dtype, holds[0], value, "text") == [holds[0], None, None], value


def test_a_time_beyond_the_clock_is_missing():
    near, beyond = YEAR_2262 - 1, YEAR_2262 + 1
    for odd in (None, "text"):
        held = hold(TIME, near, beyond, -near, -beyond, math.nan, odd)
        assert [v is None for v in held] == [False, True, False, True, True, True]
        assert held[0].timestamp() == near


def test_a_lone_surrogate_of_a_text_is_replaced():
    assert hold(TEXT, "a\ud800b", "plain", 3) == ["a?b", "plain", None]
