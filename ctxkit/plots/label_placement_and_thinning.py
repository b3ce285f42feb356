"""Labels placed beside points without overlap, and lines thinned to few points."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Json = Mapping[str, Any]
    Floats = NDArray[np.float64]
    Point = tuple[float, float]


_LETTER, _LINE, _GAP, _DOT = 6.6, 13.0, 7.0, 3.0
"""Pixels of a letter, of a line, between a point and its name, and of a point to each side."""
_BESIDE = {
    "middle right": (_GAP, 4, "start"),
    "top center": (0, -_GAP, "middle"),
    "bottom center": (0, _GAP + 9, "middle"),
    "middle left": (-_GAP, 4, "end"),
    "top right": (-_DOT, -_GAP, "start"),
    "top left": (_DOT, -_GAP, "end"),
}
"""Offset and anchor of a name beside its point, by plotly's `textposition`, the best first."""
# Pairs of (up, across) in units of the distance; y grows downwards, so a negative `up` is above.
_DIRECTIONS = ((-0.6, 0.8), (0.6, 0.8), (-1, 0.3), (1, 0.3), (-0.25, 1), (0.25, 1), (0, 1))
_FAR = [
    ("", (side * across * far, 4 + up * far, "start" if side > 0 else "end"))
    for far in (20, 34, 48, 64, 82, 104, 130, 160, 200)
    for up, across in _DIRECTIONS
    for side in (1, -1)
]
"""Offsets of a name that a thin line joins to its point."""


class PointLabel(NamedTuple):
    """A name, and where its text begins, ends or has its middle (pixels)."""

    x: float
    y: float
    text: str
    anchor: str
    """`start`, `end` or `middle`, as SVG has it."""
    point: Point
    side: str = ""
    """Plotly's `textposition`; empty: farther off, joined to its point by a line."""

    @property
    def end(self) -> Point:
        """End of the line from the point to the name, in pixels."""
        return self.x, self.y - 4


class _Box(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: _Box) -> bool:
        return (
            self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1
        )


# Point-feature labelling, greedy. A label is a box of 6.6 x 13 pixels a letter. Occupied are all
# points, what the caller names, the texts placed so far, and the leader lines that join far names
# to their points. A leader may cross points that touch its own (a heap of them), but no text.
# Which names find room so depends on their order alone: a figure is always labelled alike.
def place_labels(
    points: Sequence[Point],
    names: Sequence[str],
    obstacles: Iterable[Point] = (),
    *,
    width: float,
    height: float,
    left: float = 0.0,
) -> list[PointLabel | None]:
    """Place the name of each point beside it, else farther away.

    The method is greedy: each name takes the first free of some 130 candidate places, which are
    tried from the nearest to the farthest. The cost is names x places x boxes.

    Args:
        points: x and y of the points, in pixels.
        names: one a point; the first are placed first.
        obstacles: points without names that are not to be covered.
        width: width of the picture, in pixels.
        height: height of the picture, in pixels.
        left: x of the vertical axis, in pixels; no name covers what is left of it.

    Returns:
        One label per name; None where it fits nowhere.
    """
    dots = [_box_of_point(x, y) for x, y in points]
    occupied = [*dots, *(_box_of_point(x, y) for x, y in obstacles)]
    texts: list[_Box] = []
    labels: list[PointLabel | None] = []
    for i, (point, name) in enumerate(zip(points, names, strict=True)):
        other_dots = [d for d in dots if not d.meets(dots[i])]
        placed = None
        for side, (across, down, anchor) in (*_BESIDE.items(), *_FAR):
            label = PointLabel(point[0] + across, point[1] + down, name, anchor, point, side)
            box = _box_of_label(label)
            if box.x0 < left or box.x1 > width or box.y0 < 0 or box.y1 > height:
                continue
            leader = [] if side else sample_points_along_line([point, label.end])
            leader_boxes = [_Box(x, y, x, y) for x, y in leader]
            if any(box.meets(b) for b in occupied + texts):
                continue
            if any(one.meets(b) for one in leader_boxes for b in texts + other_dots):
                continue
            placed = label
            texts.append(box)
            occupied += leader_boxes
            break
        labels.append(placed)
    return labels


def sample_points_along_line(points: Sequence[Point]) -> list[Point]:
    """Return points along a line, so close that no name crosses it between two of them."""
    samples = []
    for (x0, y0), (x1, y1) in pairwise(points):
        # One to two dots apart: less than the height of a text. The last point is left out.
        n = max(int(max(abs(x1 - x0), abs(y1 - y0)) // (2 * _DOT)), 1)
        samples += [(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n) for i in range(n)]
    return samples


def _box_of_point(x: float, y: float) -> _Box:
    return _Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT)


def _box_of_label(label: PointLabel) -> _Box:
    width = _LETTER * len(label.text)
    left = label.x - {"start": 0.0, "middle": width / 2, "end": width}[label.anchor]
    return _Box(left, label.y - _LINE + 2, left + width, label.y + 2)


MAX_POINTS = 2000
"""Maximum points of all traces of a chart: more than the width of a screen in pixels."""


# Min-max decimation: a line is divided into bins of equal width; each bin retains its first,
# smallest, largest and last point, so a peak of one call is never lost, and the picture equals that
# of all points if a bin is narrower than a pixel. The last bin may be shorter and is handled
# separately. Cost: linear, without a loop over points. Invariants: indices are ascending, and they
# include the first and the last point and the extremes of the whole line.
def decimate_points(y: NDArray[Any], n: int) -> NDArray[np.int64]:
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


# The sum of a stack hides a call where two bands change places: an expired cache turns all that was
# read into writes of the same height. So half of the points are the sharpest bends of any band or
# of the sum (second differences: a peak of one call is three of them, its feet included, and stays
# as narrow as it is); the other half are the extremes of equal bins, one part of it for the sum and
# one for the bands, so that no stretch is left without points. Cost: one sort.
def decimate_stacked_bands(bands: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """Return common indices of about `n` points for all bands of a stack.

    Args:
        bands: the heights of each band at equal steps; NaN counts as 0.
        n: points that a chart can show; 2 or more.

    Returns:
        Ascending indices, with the sharpest bends and the extremes of each band; all of them where
        there are at most `n`.
    """
    heights = np.nan_to_num(np.array(bands, dtype=float))
    total, size = heights.sum(axis=0), heights.shape[1]
    if size <= n:
        return np.arange(size)
    bends = np.abs(np.diff(np.vstack([heights, total]), n=2)).max(axis=0)
    chosen = [np.argsort(-bends, kind="stable")[: n // 2] + 1, decimate_points(total, n // 4)]
    chosen += [decimate_points(band, n // (4 * len(heights))) for band in heights]
    return np.unique(np.concatenate(chosen)).astype(np.int64)
