"""Summaries of many runs: means with bootstrap intervals, paired differences, the Pareto front."""

from __future__ import annotations

from math import fsum
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    from numpy.typing import NDArray


FEW_SESSIONS = 5
"""Cells of fewer sessions are marked: their means say little about other sessions."""
RESAMPLES = 2000


def summarise_runs(
    runs: pd.DataFrame,
    by: str | Sequence[str] = "rules",
    columns: str | Sequence[str] = ("cost_usd", "needed_later_loss", "unpaid_cuts_n"),
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a cell: number of sessions, and of each column the mean with its 90 %
    interval.

    Columns: those of `by`, `sessions_n`, `few` (fewer than five), and for each column `c` also
    `c_low` and `c_high`: 5th and 95th percentile of the mean over resampled sessions (not calls:
    calls of one session are alike). Only the sessions count that have a figure in every cell, so
    that all cells speak of the same ones; a session with several runs in a cell counts with their
    mean.

    Args:
        runs: what `sweep` returned.
        by: columns that make a cell.
        columns: columns that are summed up.
        seed: of the resampling.

    Raises:
        BadArguments: there is no such column.
    """
    import pandas as pd

    keys, values = _list(by), _list(columns)
    if not isinstance(runs, pd.DataFrame):
        raise BadArguments(f"Give what sweep or compare returned, not {type(runs).__name__}.")
    for name in (*keys, *values, "session"):
        if name not in runs.columns:
            raise BadArguments(
                "The runs have no column"
                f" {name!r}.{did_you_mean(name, [str(c) for c in runs.columns])}"
            )
    data = {name: _session_means(runs, keys, name) for name in values}
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    cells = dict.fromkeys(runs[keys].itertuples(index=False, name=None))
    for cell in cells:
        row: dict[str, Any] = dict(zip(keys, cell, strict=True))
        known = [table.get(cell, np.zeros(0)) for table in data.values()]
        row["sessions_n"] = max(map(len, known), default=0)
        row["few"] = row["sessions_n"] < FEW_SESSIONS
        for name, found in zip(values, known, strict=True):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = bootstrap_mean(found, rng)
        rows.append(row)
    return pd.DataFrame(rows)


def compare_settings(
    runs: pd.DataFrame,
    one: str,
    other: str,
    column: str = "cost_usd",
    *,
    by: str = "rules",
    seed: int = 0,
) -> dict[str, Any]:
    """Return by how much two settings differ on the same sessions.

    The figures are `mean`, `low` and `high` of one - other, `sessions_n` and `few`, as in
    `summary`.

    Raises:
        BadArguments: one of the settings has no runs.
    """
    table = _session_means(runs[runs[by].isin([one, other])], [by], column)
    for name in (one, other):
        if (name,) not in table:
            nearest = did_you_mean(name, [str(n) for n in runs[by].unique()])
            raise BadArguments(f"No run of {name!r} has a {column}.{nearest}")
    differences = table[(one,)] - table[(other,)]
    mean, low, high = bootstrap_mean(differences, np.random.default_rng(seed))
    return {
        "mean": mean,
        "low": low,
        "high": high,
        "sessions_n": len(differences),
        "few": len(differences) < FEW_SESSIONS,
    }


def estimate_cost_uncertainty(runs: pd.DataFrame, by: str = "rules") -> dict[Any, float]:
    """Return within how many dollars the mean cost of each setting is known: a smaller difference
    is not told apart.

    Half of what lies between `cost_low_usd` and `cost_high_usd`, what the cache model says of each
    session; sessions err by themselves, so of n of them the mean errs by the root of the sum of
    squares over n. No setting where the runs have no such columns.
    """
    ends = ("cost_low_usd", "cost_high_usd")
    if not {*ends, "session"} <= set(runs.columns):
        return {}
    low, high = (_session_means(runs, [by], name) for name in ends)
    halves = {cell[0]: (high[cell] - low[cell]) / 2 for cell in low if len(low[cell])}
    return {name: float(np.sqrt((half**2).sum()) / len(half)) for name, half in halves.items()}


def bootstrap_mean(
    values: NDArray[Any], rng: np.random.Generator
) -> tuple[float | None, float | None, float | None]:
    """Return mean, 5th and 95th percentile of the mean of resampled values; None without values."""
    if not len(values):
        return None, None, None
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [5, 95])
    return float(values.mean()), float(low), float(high)


def _session_means(runs: pd.DataFrame, keys: list[str], column: str) -> dict[Any, NDArray[Any]]:
    """Return for each cell the means of the sessions that have a figure in every cell
    that has any.
    """
    found: dict[Any, dict[str, list[float]]] = {}
    cells = runs[keys].itertuples(index=False, name=None)
    for cell, session, value in zip(
        cells, runs["session"], runs[column].astype(object), strict=True
    ):
        if _known(value):
            found.setdefault(cell, {}).setdefault(str(session), []).append(float(value))
    common = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {cell: np.array([np.mean(of[s]) for s in common], float) for cell, of in found.items()}


def _known(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and value == value  # noqa: PLR0124  NaN


def _list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is not None; None where all is."""
    known = [v for v in values if v is not None]
    return fsum(known) / len(known) if known else None


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Return the median of what is not None; None where all is."""
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None


def sum_if_complete(values: Iterable[float | None]) -> float | None:
    """Return the sum of some values; None where one is None."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def find_pareto_front(*columns: Sequence[float | None]) -> NDArray[Any]:
    """Return a mask of the rows on the front: no other row is at most as large everywhere and
    smaller somewhere.

    Rows with a missing value are never on it. Smaller is better in every column.
    """
    values = np.array([[np.nan if v is None else float(v) for v in c] for c in columns], float)
    known = ~np.isnan(values).any(axis=0)
    best: NDArray[Any] = known.copy()
    for i in np.flatnonzero(known):
        no_worse = (values[:, known] <= values[:, [i]]).all(axis=0)
        better = (values[:, known] < values[:, [i]]).any(axis=0)
        best[i] = not (no_worse & better).any()
    return best
