"""Columns of frames: names, dtypes, units and meanings."""

from __future__ import annotations

from typing import NamedTuple

INT, FLOAT, BOOL, TEXT, TIME = "Int64", "Float64", "boolean", "string", "datetime64[ns, UTC]"


class FrameColumn(NamedTuple):
    """One column of a frame."""

    name: str
    dtype: str
    unit: str
    meaning: str
