"""Names of points: beside them where there is room, else farther off at the end of a thin line."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LETTER, _LINE, _GAP, _DOT = 6.0, 13.0, 7.0, 3.0
"""Pixels of a letter, of a line, between a point and its name, and of a point to each side."""


_NEAR = ((_GAP, 4, "start"), (0, -_GAP, "middle"), (0, _GAP + 9, "middle"), (-_GAP, 4, "end"),
         (-_DOT, -_GAP, "start"), (_DOT, -_GAP, "end"))  # fmt: skip
"""Places of a name beside its point: to the right, above, below, to the left, else above and to
one side.
"""
_SIDES = ("middle right", "top center", "bottom center", "middle left", "top right", "top left")
"""The same as plotly says them."""
_WAYS = ((-0.6, 0.8), (0.6, 0.8), (-1, 0.3), (1, 0.3), (-0.25, 1), (0.25, 1), (0, 1))
_FAR = tuple(
    (side * across * far, 4 + up * far, "start" if side > 0 else "end")
    for far in (20, 34, 48, 64, 82, 104, 130, 160, 200)
    for up, across in _WAYS
    for side in (1, -1)
)
"""Places of a name that a thin line joins to its point."""


class Label(NamedTuple):
    """A name and where its text begins, ends or has its middle."""

    x: float
    y: float
    text: str
    anchor: str
    """`start`, `end` or `middle`, as SVG has it."""
    point: tuple[float, float]
    side: str = ""
    """Where it stands, as plotly says it; empty: farther off, joined to its point by a line."""

    @property
    def end(self) -> tuple[float, float]:
        """Where a line from the point would end."""
        return self.x, self.y - 4


class _LabelBox(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: _LabelBox) -> bool:
        return (
            self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1
        )


def labels(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Iterable[tuple[float, float]] = (),
    *,
    width: float,
    height: float,
    left: float = 0.0,
) -> list[Label | None]:
    """Return each point's name where it finds room: beside the point, else farther off; None where
    there is no room at all.

    Args:
        points: where the points stand, in pixels.
        names: one a point; the first find room first.
        others: points without names that are not to be covered.
        width: of the picture.
        height: of the picture.
        left: where the picture's axis stands; what is left of it is not to be covered.
    """
    dots = [_dot(x, y) for x, y in points]
    taken = [*dots, *(_dot(x, y) for x, y in others)]
    written: list[_LabelBox] = []
    out: list[Label | None] = []
    for i, (point, name) in enumerate(zip(points, names, strict=True)):
        found = None
        strangers = [d for d in dots if not d.meets(dots[i])]
        for k, (across, down, anchor) in enumerate((*_NEAR, *_FAR)):
            side = _SIDES[k] if k < len(_NEAR) else ""
            label = Label(point[0] + across, point[1] + down, name, anchor, point, side)
            box = _box(label)
            inside = box.x0 >= left and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
            lead = [] if side else [_LabelBox(x, y, x, y) for x, y in along([point, label.end])]
            if inside and not any(box.meets(b) for b in taken + written) and not any(
                one.meets(b) for one in lead for b in written + strangers
            ):  # fmt: skip
                found = label
                written.append(box)
                taken += lead
                break
        out.append(found)
    return out


def _dot(x: float, y: float) -> _LabelBox:
    return _LabelBox(x - _DOT, y - _DOT, x + _DOT, y + _DOT)


def _box(label: Label) -> _LabelBox:
    wide = _LETTER * len(label.text)
    left = label.x - {"start": 0.0, "middle": wide / 2, "end": wide}[label.anchor]
    return _LabelBox(left, label.y - _LINE + 2, left + wide, label.y + 2)


def along(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return places along a line, so close that no name crosses it between two of them."""
    out = []
    for (x0, y0), (x1, y1) in pairwise(points):
        n = max(int(max(abs(x1 - x0), abs(y1 - y0)) // (2 * _DOT)), 1)
        out += [(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n) for i in range(n)]
    return out
