"""Statistics over runs: bootstrap means, paired differences, McNemar's test, the Pareto front."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray


FEW_SESSIONS = 5
"""Cells with fewer sessions are marked: their means say little about other sessions."""
RESAMPLES = 2000
"""Bootstrap samples of a mean."""


def summarise_runs(
    runs: pd.DataFrame,
    by: str | Sequence[str] = "rules",
    columns: str | Sequence[str] = ("cost_usd", "needed_later_loss", "not_paid_back_n"),
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the means of columns over sessions, with bootstrap intervals.

    Sessions are resampled, not calls, because calls of one session are alike. Only sessions with a
    figure in every cell count, so that all cells describe the same sessions; several runs of a
    session in a cell count as their mean.

    Args:
        runs: the result of `sweep` or `compare`.
        by: columns whose values define a cell.
        columns: columns to average.
        seed: seed of the resampling.

    Returns:
        One row per cell: the columns of `by`, `sessions_n`, `few_sessions` (fewer than five
        sessions), and for each column `c` its mean, `c_low` and `c_high`, the 5th and 95th
        percentile of resampled means.

    Raises:
        BadArguments: there is no such column.

    Example:
        >>> import ctxkit as ck
        >>> runs = ck.compare(ck.read(ck.samples.path("chat")), ["pi", "ai"])
        >>> means = ck.experiments.summarise_runs(runs, columns="cost_usd")
        >>> list(means.columns)
        ['rules', 'sessions_n', 'few_sessions', 'cost_usd', 'cost_usd_low', 'cost_usd_high']
        >>> int(means.sessions_n[0]), bool(means.few_sessions[0])
        (1, True)
    """
    import pandas as pd

    keys, values = _as_list(by), _as_list(columns)
    if not isinstance(runs, pd.DataFrame):
        raise BadArguments(f"Give what sweep or compare returned, not {type(runs).__name__}.")
    for name in (*keys, *values, "session"):
        if name not in runs.columns:
            raise BadArguments(
                "The runs have no column"
                f" {name!r}.{did_you_mean(name, [str(c) for c in runs.columns])}"
            )
    session_means = {name: _session_means(runs, keys, name) for name in values}
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    cells = dict.fromkeys(runs[keys].itertuples(index=False, name=None))
    for cell in cells:
        row: dict[str, Any] = dict(zip(keys, cell, strict=True))
        means_by_column = [table.get(cell, np.zeros(0)) for table in session_means.values()]
        row["sessions_n"] = max(map(len, means_by_column), default=0)
        row["few_sessions"] = row["sessions_n"] < FEW_SESSIONS
        for name, means in zip(values, means_by_column, strict=True):
            row[name], row[f"{name}_low"], row[f"{name}_high"] = bootstrap_mean(means, rng)
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
    """Return the mean difference of two settings on the same sessions, with its interval.

    Args:
        runs: the result of `sweep` or `compare`.
        one: a value of the column `by`.
        other: another value, which is subtracted.
        column: the figure to compare.
        by: the column of settings.
        seed: seed of the resampling.

    Returns:
        `mean`, `low` and `high` of one - other, `sessions_n` and `few_sessions`, as in
        `summarise_runs`.

    Raises:
        BadArguments: one of the settings has no runs.

    Example:
        >>> import pandas as pd
        >>> from ctxkit.experiments import compare_settings
        >>> runs = pd.DataFrame({
        ...     "session": ["a", "b", "a", "b"],
        ...     "rules": ["pi", "pi", "ai", "ai"],
        ...     "cost_usd": [0.40, 0.60, 0.30, 0.45],
        ... })
        >>> difference = compare_settings(runs, "pi", "ai")
        >>> round(difference["mean"], 3), difference["sessions_n"]
        (0.125, 2)
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
        "few_sessions": len(differences) < FEW_SESSIONS,
    }


def average_cost_uncertainty_usd(runs: pd.DataFrame, by: str = "rules") -> dict[Any, float]:
    """Return the uncertainty of each setting's mean cost, in dollars in both directions.

    For one session it is half the distance from `cost_low_usd` to `cost_high_usd`, the interval of
    the cache model. Errors of sessions of one tool and provider have the same sign: the model is
    too cheap or too expensive for all of them. So the uncertainty of the mean is the mean of the
    uncertainties, however many sessions there are. Empty if the runs lack these columns.

    Args:
        runs: one row per run, as `ctxkit.sweep` returns.
        by: the column that names the setting.

    Returns:
        US dollars by setting.
    """
    ends = ("cost_low_usd", "cost_high_usd")
    if not {*ends, "session"} <= set(runs.columns):
        return {}
    low, high = (_session_means(runs, [by], name) for name in ends)
    halves = {cell[0]: (high[cell] - low[cell]) / 2 for cell in low if len(low[cell])}
    return {name: float(half.mean()) for name, half in halves.items()}


def bootstrap_mean(
    values: NDArray[Any], rng: np.random.Generator
) -> tuple[float | None, float | None, float | None]:
    """Return the mean of values, and the 5th and 95th percentile of bootstrapped means.

    All three are None without values.

    Args:
        values: the sample.
        rng: draws the `RESAMPLES` resamples.
    """
    if not len(values):
        return None, None, None
    means = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [5, 95])
    return float(values.mean()), float(low), float(high)


def _session_means(runs: pd.DataFrame, keys: list[str], column: str) -> dict[Any, NDArray[Any]]:
    """Return the session means of each cell, for the sessions that have a figure in every cell."""
    values_by_cell: dict[Any, dict[str, list[float]]] = {}
    cells = runs[keys].itertuples(index=False, name=None)
    for cell, session, value in zip(
        cells, runs["session"], runs[column].astype(object), strict=True
    ):
        if _is_number(value):
            values_by_cell.setdefault(cell, {}).setdefault(str(session), []).append(float(value))
    common = sorted(set.intersection(*map(set, values_by_cell.values()))) if values_by_cell else []
    return {
        cell: np.array([np.mean(values[s]) for s in common], float)
        for cell, values in values_by_cell.items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and value == value  # noqa: PLR0124  NaN


def _as_list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def find_pareto_front(*columns: Sequence[float | None]) -> NDArray[Any]:
    """Return a mask of the rows on the Pareto front; smaller is better in every column.

    A row is on it if no other row is at most as large in every column and smaller in one. Rows with
    a missing value are never on it. O(n^2) for n rows.

    Returns:
        A boolean a row.
    """
    values = np.array([[np.nan if v is None else float(v) for v in c] for c in columns], float)
    is_complete = ~np.isnan(values).any(axis=0)
    is_on_front: NDArray[Any] = is_complete.copy()
    for i in np.flatnonzero(is_complete):
        no_worse = (values[:, is_complete] <= values[:, [i]]).all(axis=0)
        better = (values[:, is_complete] < values[:, [i]]).any(axis=0)
        is_on_front[i] = not (no_worse & better).any()
    return is_on_front


class McNemarTest(NamedTuple):
    """Counts of paired outcomes of two settings over the same facts, and McNemar's p-value."""

    both: int
    only_one: int
    only_other: int
    neither: int
    p: float
    """Two-sided, exact: probability of a split at least as uneven if both retain equally well."""


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> McNemarTest:
    """Compare two lists of paired outcomes by the exact McNemar test.

    Args:
        one: outcomes of one setting, one per fact.
        other: outcomes of the other setting for the same facts.

    Returns:
        The four counts of pairs, and the two-sided p-value.

    Raises:
        BadArguments: the lists differ in length.

    Example:
        >>> mcnemar([True] * 8, [False] * 8).p
        0.0078125
    """
    if len(one) != len(other):
        raise BadArguments(f"Outcomes are paired: {len(one)} and {len(other)} do not match.")
    pairs = list(zip(one, other, strict=True))
    b, c = pairs.count((True, False)), pairs.count((False, True))
    n = b + c
    tail = sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n if n else 1.0
    return McNemarTest(
        pairs.count((True, True)), b, c, pairs.count((False, False)), min(2 * tail, 1.0)
    )
