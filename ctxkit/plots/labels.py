"""Names beside points, as far as they find room: one that would cover another is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LETTER, _LINE, _GAP, _DOT = 5.8, 11.0, 7.0, 4.0
"""Pixels of a letter, of a line, between a point and its name, and of a point to each side."""


class Label(NamedTuple):
    """A name and where its text begins, ends or has its middle."""

    x: float
    y: float
    text: str
    anchor: str
    """`start`, `end` or `middle`, as SVG has it."""


class _Box(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: _Box) -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1


def labels(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    others: Iterable[tuple[float, float]] = (),
    *,
    width: float,
    height: float,
) -> list[Label]:
    """Return the names that find room beside their points: to the right, above, below or to the left.

    Args:
        points: where the points stand, in pixels.
        names: one a point; the first find room first.
        others: points without names that are not to be covered.
        width: of the picture.
        height: of the picture.
    """
    taken = [_Box(x - _DOT, y - _DOT, x + _DOT, y + _DOT) for x, y in (*points, *others)]
    out = []
    for (x, y), name in zip(points, names, strict=True):
        wide = _LETTER * len(name)
        for label, left in (
            (Label(x + _GAP, y + 4, name, "start"), x + _GAP),
            (Label(x, y - _GAP, name, "middle"), x - wide / 2),
            (Label(x, y + _GAP + 9, name, "middle"), x - wide / 2),
            (Label(x - _GAP, y + 4, name, "end"), x - _GAP - wide),
        ):
            box = _Box(left, label.y - _LINE + 2, left + wide, label.y + 2)
            inside = box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
            if inside and not any(box.meets(b) for b in taken):
                taken.append(box)
                out.append(label)
                break
    return out
