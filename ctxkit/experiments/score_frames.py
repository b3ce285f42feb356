"""DataFrame and Series of scores that still find renamed columns (a shim to be deleted)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from warnings import warn

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

RENAMED_COLUMNS = {"reproduction_error": "closure_error"}
"""Old names of columns, and what they are called."""


def resolve_column(key: Any) -> Any:
    """Return the key of a column, or several, under the names of this version."""
    if isinstance(key, list):
        return [resolve_column(k) for k in key]
    if not isinstance(key, str) or key not in RENAMED_COLUMNS:
        return key
    warn(f"The column {key} is {RENAMED_COLUMNS[key]} now.", DeprecationWarning, stacklevel=3)
    return RENAMED_COLUMNS[key]


class ScoreFrame(pd.DataFrame):
    """A frame of scores; what its verbs return are plain frames."""

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(resolve_column(key))


class ScoreSeries(pd.Series):
    """One row of scores; what its verbs return are plain series."""

    @property
    def _constructor(self) -> Callable[..., Any]:
        return pd.Series

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(resolve_column(key))
