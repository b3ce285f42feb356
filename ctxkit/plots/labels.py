"""Names beside points, as far as they find room: one that would cover another is left out."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LETTER, _LINE, _GAP, _DOT = 5.8, 11.0, 7.0, 3.0
"""Pixels of a letter, of a line, between a point and its name, and of a point to each side."""


_SIDES = ("middle right", "top center", "bottom center", "middle left", "top right", "top left")


class Label(NamedTuple):
    """A name and where its text begins, ends or has its middle."""

    x: float
    y: float
    text: str
    anchor: str
    """`start`, `end` or `middle`, as SVG has it."""


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
) -> list[Label]:
    """Return the names that find room beside their points: to the right, above, below or to the
    left, else above and to one side.

    Args:
        points: where the points stand, in pixels.
        names: one a point; the first find room first.
        others: points without names that are not to be covered.
        width: of the picture.
        height: of the picture.
    """
    found = _placed(points, names, others, width=width, height=height)
    return [label for label, _ in filter(None, found)]


def along(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return places along a line, so close that no name crosses it between two of them."""
    out = []
    for (x0, y0), (x1, y1) in pairwise(points):
        n = max(int(max(abs(x1 - x0), abs(y1 - y0)) // (2 * _DOT)), 1)
        out += [(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n) for i in range(n)]
    return out


def beside(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Iterable[tuple[float, float]],
    *,
    width: float,
    height: float,
) -> list[str | None]:
    """Return for each point on which side its name finds room, as plotly says it; None:
    on no side.
    """
    found = _placed(points, names, others, width=width, height=height)
    return [None if each is None else _SIDES[each[1]] for each in found]


def _placed(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Iterable[tuple[float, float]],
    *,
    width: float,
    height: float,
) -> list[tuple[Label, int] | None]:
    """Return for each point its label and the side that it stands on; None where there
    is no room.
    """
    taken = [_LabelBox(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in (*points, *others)]
    out: list[tuple[Label, int] | None] = []
    for (x, y), name in zip(points, names, strict=True):
        wide, room = _LETTER * len(name), None
        for side, (label, left) in enumerate((
            (Label(x + _GAP, y + 4, name, "start"), x + _GAP),
            (Label(x, y - _GAP, name, "middle"), x - wide / 2),
            (Label(x, y + _GAP + 9, name, "middle"), x - wide / 2),
            (Label(x - _GAP, y + 4, name, "end"), x - _GAP - wide),
            (Label(x - _DOT, y - _GAP, name, "start"), x - _DOT),
            (Label(x + _DOT, y - _GAP, name, "end"), x + _DOT - wide),
        )):  # fmt: skip
            box = _LabelBox(left, label.y - _LINE + 2, left + wide, label.y + 2)
            inside = box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
            if inside and not any(box.meets(b) for b in taken):
                taken.append(box)
                room = label, side
                break
        out.append(room)
    return out
