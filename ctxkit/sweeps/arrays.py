"""Values of a column as a pandas array of its type, at once where they allow it; a missing value is
none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_DTYPES: dict[str, Any] = {"Int64": np.int64, "Float64": np.float64, "boolean": np.bool_}


def array(values: list[Any], kind: str) -> Any:
    """Return values as a nullable array of `Int64`, `Float64`, `boolean` or `string`; None and NaN
    are missing.
    """
    import pandas as pd

    if kind == "string":
        return pd.array([_text(v) for v in values], dtype="string")
    arrays = pd.arrays
    make = {
        "Int64": arrays.IntegerArray,
        "Float64": arrays.FloatingArray,
        "boolean": arrays.BooleanArray,
    }[kind]
    if kind == "Float64":
        found = np.array(values, np.float64)  # None becomes NaN
        missing = np.isnan(found)
        return make(np.where(missing, 0.0, found), missing)
    missing = np.zeros(len(values), bool)
    if None in values or (kind == "Int64" and any(v != v for v in values)):  # noqa: PLR0124  NaN
        missing = np.array([v is None or v != v for v in values], bool)  # noqa: PLR0124
        values = [0 if gone else v for v, gone in zip(values, missing.tolist(), strict=True)]
    return make(np.array(values, _DTYPES[kind]), missing)


def _text(value: str | None) -> str | None:
    return (
        value
        if value is None or value.isascii()
        else value.encode("utf-8", "replace").decode("utf-8")
    )
