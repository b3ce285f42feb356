"""Values of a column as a pandas array of its type, at once where they allow it; a missing value is none."""

from __future__ import annotations

from typing import Any

import numpy as np


def array(values: list[Any], kind: str) -> Any:
    """Return values as a nullable array of `Int64`, `Float64`, `boolean` or `string`; None and NaN are missing."""
    import pandas as pd

    if kind == "string":
        return pd.array([_text(v) for v in values], dtype="string")
    whole = np.array(values, object)
    missing = np.array([v is None or v != v for v in values], bool)  # noqa: PLR0124  NaN
    whole[missing] = False if kind == "boolean" else 0
    dtype, make = {
        "Int64": (np.int64, pd.arrays.IntegerArray),
        "Float64": (np.float64, pd.arrays.FloatingArray),
        "boolean": (np.bool_, pd.arrays.BooleanArray),
    }[kind]
    return make(whole.astype(dtype), missing)


def _text(value: str | None) -> str | None:
    return value if value is None or value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
