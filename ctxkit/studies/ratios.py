"""What a policy changed on the same tasks: ratios of totals with intervals from the tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.metrics.elongation import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["DRAWS", "Ratio", "paired", "ratio"]

DRAWS = 2_000
"""Times that the tasks are drawn again for an interval."""
_SEED = 1729


class Ratio(NamedTuple):
    """The total of one run over another's, its interval, and the error of its logarithm."""

    ratio: float
    low: float
    high: float
    error: float


def ratio(now: NDArray[Any], before: NDArray[Any], draws: int = DRAWS) -> Ratio:
    """Return sum(now) / sum(before) over the same tasks; the interval is a bootstrap over tasks.

    Args:
        now: one figure a task.
        before: the other run's, in the same order.
        draws: times that the tasks are drawn again.
    """
    random = np.random.default_rng(_SEED)
    drawn = random.integers(0, len(now), (draws, len(now)))
    logs = np.log(now[drawn].sum(axis=1) / before[drawn].sum(axis=1))
    low, high = np.exp(np.quantile(logs, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return Ratio(float(now.sum() / before.sum()), float(low), float(high), float(logs.std()))


def paired(before: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Return the tasks of both runs: columns `x_before` of the first, `x_now` of the other."""
    return before.merge(now, on="task", suffixes=("_before", "_now"), validate="one_to_one")
