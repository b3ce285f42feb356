"""Fewer points that look the same: of each bin the first, smallest, largest and last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_POINTS = 2000
"""Points of one chart, all traces together: more than a screen is wide."""


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
        low, high = np.where(np.isnan(body), np.inf, body), np.where(np.isnan(body), -np.inf, body)
    base = np.arange(full) * width
    kept = np.stack([base, base + low.argmin(1), base + high.argmax(1), base + width - 1], 1)
    kept.sort(1)
    flat = kept.ravel()
    tail = np.arange(full * width, size)
    if len(tail):
        rest = np.asarray(y)[tail].astype(float)
        ends = [0, len(tail) - 1]
        if not np.isnan(rest).all():
            ends += [int(np.nanargmin(rest)), int(np.nanargmax(rest))]
        flat = np.concatenate([flat, tail[np.unique(ends)]])
    new: NDArray[np.bool_] = np.concatenate([[True], flat[1:] != flat[:-1]])
    return np.asarray(flat[new], dtype=np.int64)


def decimate_stack(bands: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """Return indices that all bands of a stack share: about `n` points of their sum, and the
    extremes of each band; NaN counts as nothing.
    """
    heights = [np.nan_to_num(band) for band in bands]
    ends = [int(i) for y in heights if len(y) for i in (y.argmin(), y.argmax())]
    return np.union1d(decimate(np.sum(heights, axis=0), n), np.array(ends, dtype=np.int64))
