"""Fewer points that look the same: of each bin the first, smallest, largest and last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_POINTS = 2000
"""Points of one chart, all traces together: more than a screen is wide."""


# Min-max decimation: a line is parted into bins of equal width; of each bin stay the first, the
# smallest, the largest and the last point, so a peak of one call is never lost, and the picture is
# that of all points where a bin is narrower than a pixel. The last bin may be shorter and is done
# apart. Cost: linear, without a loop over points. Invariants: indices ascend, the first and the
# last point stay, and so do the extremes of the whole.
def decimate(y: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return indices of about `n` points of `y`, in order, with the extremes of every bin; NaN is
    never an extreme.
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
        # In each comparison NaN gets the value that cannot win.
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
    # An extreme at the end of its bin, or equal values, yield an index more than once.
    is_first: NDArray[np.bool_] = np.concatenate([[True], indices[1:] != indices[:-1]])
    return np.asarray(indices[is_first], dtype=np.int64)


def decimate_stack(bands: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """Return indices that all bands of a stack share: about `n` points of their sum, and the
    extremes of each band; NaN counts as nothing.
    """
    heights = [np.nan_to_num(band) for band in bands]
    # An extreme of a band need not be an extreme of the sum.
    ends = [int(i) for y in heights if len(y) for i in (y.argmin(), y.argmax())]
    return np.union1d(decimate(np.sum(heights, axis=0), n), np.array(ends, dtype=np.int64))
