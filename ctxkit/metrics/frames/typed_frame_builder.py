"""DataFrames of exactly the columns and dtypes of a definition."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.metrics.frames.frame_column import FrameColumn

_NUMPY_TYPES = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}
_VALUE_TYPES: dict[str, set[type]] = {
    INT: {int, type(None)},
    FLOAT: {float, int, type(None)},
    BOOL: {bool, type(None)},
    TEXT: {str, type(None)},
}
"""Types whose values need no check before Arrow converts them to the dtype."""
_MAX_FLOAT = 2.0**1000  # no figure of a log is larger
_MAX_TIME = (
    9_223_000_000.0  # the year 2262, where nanoseconds end: what lies beyond is a broken clock
)


def build_frame(columns: Sequence[FrameColumn], data: dict[str, list[Any]]) -> pd.DataFrame:
    """Return a frame of exactly these columns, in this order; None and NaN become missing.

    Args:
        columns: the columns.
        data: a list of values for each column by name, all of one length; a column without a list
            is missing throughout.

    Returns:
        A frame of nullable dtypes, one row an item of the lists.
    """
    import pandas as pd

    n = len(next(iter(data.values()))) if data else 0
    arrays = {c.name: _make_array(c.dtype, data.get(c.name, [None] * n)) for c in columns}
    return pd.DataFrame(arrays, index=pd.RangeIndex(n), copy=False)


def _make_array(dtype: str, values: list[Any]) -> Any:
    import pandas as pd
    import pyarrow as pa

    n = len(values)
    is_all_missing = n > 0 and values[0] is None and values.count(None) == n
    if dtype == TIME:
        return _make_time_array(np.full(n, math.nan) if is_all_missing else values)
    if is_all_missing and dtype != TEXT:
        return _get_masked_class(dtype)(np.zeros(n, _NUMPY_TYPES[dtype]), np.ones(n, np.bool_))
    if not _VALUE_TYPES[dtype].issuperset(map(type, values)):
        # Arrow would cut 0.5 to the integer 0, and take True for 1 and bytes for text
        values = [_sanitize_value(dtype, v) for v in values]
    try:
        array = _make_constant_array(values, _get_arrow_type(dtype))
        if array is None:
            array = pa.array(values, type=_get_arrow_type(dtype), from_pandas=True)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError):
        array = pa.array([_sanitize_value(dtype, v) for v in values], type=_get_arrow_type(dtype))
    if dtype == TEXT:
        return pd.arrays.ArrowStringArray(array)
    data, missing = _to_numpy(array, dtype)
    if dtype == FLOAT:
        missing |= ~(np.abs(data) < _MAX_FLOAT)
    return _get_masked_class(dtype)(data, missing)


@cache
def _get_arrow_type(dtype: str) -> Any:
    import pyarrow as pa

    return {INT: pa.int64, FLOAT: pa.float64, BOOL: pa.bool_, TEXT: pa.large_string}[dtype]()


@cache
def _get_masked_class(dtype: str) -> Any:
    from pandas import arrays

    return {
        INT: arrays.IntegerArray,
        FLOAT: arrays.FloatingArray,
        BOOL: arrays.BooleanArray,
    }[dtype]


@cache
def _get_utc_dtype() -> Any:
    import pandas as pd

    return pd.DatetimeTZDtype("ns", "UTC")


def _make_constant_array(values: list[Any], arrow: Any) -> Any:
    """Return the Arrow array of a column that holds one value throughout; else None."""
    import pyarrow as pa

    n = len(values)
    if n < 2 or values[0] is not values[-1] or values.count(values[0]) < n:
        return None
    if values[0] is None:
        return pa.nulls(n, arrow)
    return pa.repeat(pa.scalar(values[0], type=arrow, from_pandas=True), n)


def _to_numpy(array: Any, dtype: str) -> tuple[Any, Any]:
    """Return the values of an Arrow array, with arbitrary numbers where missing, and their mask."""
    n, (valid, data) = len(array), array.buffers()
    missing = ~_unpack_bits(valid, n) if array.null_count else np.zeros(n, np.bool_)
    if not n or data is None:
        return np.zeros(n, _NUMPY_TYPES[dtype]), missing
    if dtype == BOOL:
        return _unpack_bits(data, n), missing
    return np.frombuffer(data, _NUMPY_TYPES[dtype], n).copy(), missing


def _unpack_bits(data: Any, n: int) -> Any:
    packed = np.frombuffer(data, np.uint8)
    return np.unpackbits(packed, count=n, bitorder="little").view(np.bool_)


def _sanitize_value(dtype: str, value: Any) -> Any:
    """Return a value of the dtype: None for wrong types, lone surrogates replaced."""
    if dtype == TEXT:
        return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None
    if dtype == BOOL or isinstance(value, (bool, np.bool_)):
        return bool(value) if isinstance(value, (bool, np.bool_)) and dtype == BOOL else None
    if not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    if dtype == FLOAT:
        return float(value) if -_MAX_FLOAT < value < _MAX_FLOAT else None
    return int(value) if value % 1 == 0 and -(2**63) <= value < 2**63 else None


def _make_time_array(values: Any) -> Any:
    import pandas as pd

    try:
        seconds = np.array(values, dtype="float64")
        seconds[~(np.abs(seconds) < _MAX_TIME)] = math.nan
    except (ValueError, TypeError, OverflowError):
        seconds = np.array([_to_seconds(v) for v in values], dtype="float64")
    is_valid = np.isfinite(seconds)
    nanos = np.full(len(seconds), np.iinfo("int64").min)  # the value of NaT
    nanos[is_valid] = (
        np.round(seconds[is_valid] * 1e6).astype("int64") * 1000
    )  # a float of today holds no more than micros
    return pd.array(nanos.view("datetime64[ns]"), dtype=_get_utc_dtype(), copy=False)


def _to_seconds(value: Any) -> float:
    if isinstance(value, (int, float)) and -_MAX_TIME < value < _MAX_TIME:
        return float(value)
    return math.nan
