"""Decimation of points: of each bin the first, smallest, largest and last point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_POINTS = 2000
"""Maximum points of all traces of a chart: more than the width of a screen in pixels."""


# Min-max decimation: a line is divided into bins of equal width; each bin retains its first,
# smallest, largest and last point, so a peak of one call is never lost, and the picture equals that
# of all points if a bin is narrower than a pixel. The last bin may be shorter and is handled
# separately. Cost: linear, without a loop over points. Invariants: indices are ascending, and they
# include the first and the last point and the extremes of the whole line.
def decimate(y: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return ascending indices of about `n` points of `y`, with the extremes of every bin.

    NaN is never an extreme.

    Args:
        y: values at equal steps.
        n: points that a chart can show; 2 or more.

    Returns:
        Indices into `y`; all of them where there are at most `n`.
    """
    size = len(y)
    if size <= n:
        return np.arange(size)
    bins = max(n // 4, 1)
    width = -(-size // bins)
    full = size // width
    body = np.asarray(y)[: full * width].reshape(full, width)
    low, high = body, body
    if body.dtype.kind == "f" and np.isnan(body).any():
        # In each comparison NaN is replaced by the value that cannot win.
        low, high = np.where(np.isnan(body), np.inf, body), np.where(np.isnan(body), -np.inf, body)
    base = np.arange(full) * width
    picks = np.stack([base, base + low.argmin(1), base + high.argmax(1), base + width - 1], 1)
    picks.sort(1)
    indices = picks.ravel()
    tail = np.arange(full * width, size)
    if len(tail):
        rest = np.asarray(y)[tail].astype(float)
        ends = [0, len(tail) - 1]
        if not np.isnan(rest).all():
            ends += [int(np.nanargmin(rest)), int(np.nanargmax(rest))]
        indices = np.concatenate([indices, tail[np.unique(ends)]])
    # An extreme at the end of its bin, or equal values, give the same index several times.
    is_first: NDArray[np.bool_] = np.concatenate([[True], indices[1:] != indices[:-1]])
    return np.asarray(indices[is_first], dtype=np.int64)


def decimate_stack(bands: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """Return common indices for all bands of a stack: about `n` points of their sum, and the
    extremes of each band; NaN counts as 0.
    """
    heights = [np.nan_to_num(band) for band in bands]
    # An extreme of a band is not necessarily an extreme of the sum.
    ends = [int(i) for y in heights if len(y) for i in (y.argmin(), y.argmax())]
    return np.union1d(decimate(np.sum(heights, axis=0), n), np.array(ends, dtype=np.int64))
