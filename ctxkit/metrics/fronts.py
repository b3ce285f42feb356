"""Settings that no other one beats in everything: the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def front(*columns: Sequence[float | None]) -> NDArray[Any]:
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
