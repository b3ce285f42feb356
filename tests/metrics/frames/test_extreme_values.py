"""The largest values that a column of a frame holds; what is beyond, or of another kind, is missing."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from ctxkit.metrics import build_frame
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn

YEAR_2262 = 9_223_000_000.0
"""Seconds; nanoseconds of 64 bits end in that year."""


def hold(dtype: str, *values):
    """Return the values of a column made of them; None where one is missing."""
    column = build_frame([FrameColumn("x", dtype, "", "any")], {"x": list(values)})["x"]
    return [None if pd.isna(v) else v for v in column]


@pytest.mark.parametrize("odd", [None, b"odd"])
@pytest.mark.parametrize(
    ("dtype", "holds", "is_missing"),
    [
        (INT, [2**63 - 1, -(2**63), 0], [2**63, -(2**63) - 1, True, 0.5, -0.5, np.float64(1.5)]),
        (FLOAT, [2.0**999, -(2.0**999), 1.5, 3], [2.0**1001, -(2.0**1001), math.nan, math.inf]),
        (FLOAT, [0.0], [True, "1"]),
        (BOOL, [True, False], [1, 0, 0.5]),
        (TEXT, ["a"], [b"a", 1]),
    ],
)
def test_what_a_column_cannot_hold_is_missing(dtype, holds, is_missing, odd):
    assert hold(dtype, *holds, odd) == [*holds, None]
    for value in is_missing:
        assert hold(dtype, value) == [None], value
        assert hold(dtype, value, holds[0], odd) == [None, holds[0], None], value
        assert hold(dtype, holds[0], value, holds[0]) == [holds[0], None, holds[0]], value


def test_whole_numbers_of_other_types_are_held_by_a_column_of_integers():
    assert hold(INT, 1.0, np.int64(2), np.float64(3), None) == [1, 2, 3, None]
    assert hold(FLOAT, np.int64(2), np.float64(0.5), None) == [2.0, 0.5, None]
    assert hold(BOOL, np.bool_(True), None) == [True, None]


def test_a_time_beyond_the_clock_is_missing():
    near, beyond = YEAR_2262 - 1, YEAR_2262 + 1
    for odd in (None, "text"):
        held = hold(TIME, near, beyond, -near, -beyond, math.nan, odd)
        assert [v is None for v in held] == [False, True, False, True, True, True]
        assert held[0].timestamp() == near


def test_a_lone_surrogate_of_a_text_is_replaced():
    assert hold(TEXT, "a\ud800b", "plain", 3) == ["a?b", "plain", None]
