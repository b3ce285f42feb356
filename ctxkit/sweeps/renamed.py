"""Columns with another name now: the old one finds them, with a warning, for one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from warnings import warn

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = {"reproduction_error": "closure_error"}
"""Old names of columns, and what they are called."""


def now(key: Any) -> Any:
    """Return the key of a column, or several, under the names of this version."""
    if isinstance(key, list):
        return [now(k) for k in key]
    if not isinstance(key, str) or key not in NOW:
        return key
    warn(f"The column {key} is {NOW[key]} now.", DeprecationWarning, stacklevel=3)
    return NOW[key]


class Scores(pd.DataFrame):
    """A frame of scores; what its verbs return are plain frames."""

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(now(key))


class Score(pd.Series):
    """One row of scores; what its verbs return are plain series."""

    @property
    def _constructor(self) -> Callable[..., Any]:
        return pd.Series

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(now(key))
