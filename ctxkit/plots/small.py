"""The static twin of many small pictures: one inline SVG that takes its ink from the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.display.markup import escape
from ctxkit.plots.mosaics import CROWD, points
from ctxkit.plots.palette import GRID, SVG_DASHES, TEXT, faint
from ctxkit.plots.strokes import keys, picture, stroke, way, words
from ctxkit.plots.svg import nice, short

if TYPE_CHECKING:
    from ctxkit.plots.mosaics import Mosaic, Panel
    from ctxkit.plots.traces import Trace

_WIDTH, _LEFT, _BOTTOM = 900, 44, 22
_ROW, _HEAD, _GAP = 100, 18, 10


class _Place(NamedTuple):
    """Where a panel stands in the picture, and what its edges mean."""

    left: float
    top: float
    wide: float
    high: float
    x0: float
    x1: float
    y1: float

    def x(self, value: Any) -> Any:
        return self.left + (value - self.x0) / (self.x1 - self.x0) * self.wide

    def y(self, value: Any) -> Any:
        return self.top + self.high - value / self.y1 * self.high


_DASHED = {"solid": "&#9472;", "dash": "&#9476;", "dashdot": "&#9472;&#183;", "longdash": "&#9477;",
           "longdashdot": "&#9477;&#183;"}  # fmt: skip
"""A line of each dash, in a legend; dots where it is dotted."""


def draw(drawn: Mosaic) -> str:
    """Return an SVG picture of all panels with one legend; nothing of it is a script or a link."""
    x0, x1, top = drawn.reach()
    step = (_WIDTH - _LEFT) / drawn.columns
    height = drawn.rows * _ROW + _BOTTOM
    parts = []
    for i, panel in enumerate(drawn.panels):
        row, column = divmod(i, drawn.columns)
        place = _Place(
            _LEFT + column * step, row * _ROW + _HEAD, step - _GAP, _ROW - _HEAD - 6, x0, x1, top
        )
        parts.append(_grid(place, left=column == 0, last=i + drawn.columns >= len(drawn.panels)))
        parts.append(_panel(place, panel, drawn.letters(panel)))
    return f"{picture(parts, _WIDTH, height)}{_legend(drawn)}"


def _grid(place: _Place, *, left: bool, last: bool) -> str:
    right, out = place.left + place.wide, []
    for tick in nice(0, place.y1, 2):
        y = place.y(tick)
        out.append(stroke((place.left, y), (right, y), GRID))
        out.append(words(place.left - 5, y + 4, short(tick), "end") if left else "")
    if last:
        below = place.top + place.high + 14
        ticks = [t for t in nice(place.x0, place.x1, 3) if float(t).is_integer()]
        out += [words(place.x(t), below, short(t), "middle") for t in ticks]
    return "".join(out)


def _panel(place: _Place, panel: Panel, letters: int) -> str:
    right, above = place.left + place.wide, place.top - 5
    out = [words(place.left, above, panel.title, "start", limit=letters)]
    out += [words(right, above, panel.corner, "end", limit=8)] if panel.corner else []
    if panel.limit:
        y = place.y(panel.limit)
        out.append(stroke((place.left, y), (right, y), TEXT, "longdash"))
    return "".join([*out, *(_trace(place, t) for t in panel.traces)])


def _trace(place: _Place, trace: Trace) -> str:
    x, y, _ = points(trace)
    known = np.isfinite(y)
    spots = list(zip(place.x(x[known]).tolist(), place.y(y[known]).tolist(), strict=True))
    ink = trace.colour or TEXT
    if trace.kind == "points":
        r = 4 if len(spots) <= CROWD else 2.5
        sign = f"h{2 * r}l-{r} {1.8 * r}z"
        fill = f'fill="none" stroke="{ink}"' if trace.hollow else f'fill="{ink}"'
        return "".join(f'<path d="M{a - r:.1f} {b - r:.1f}{sign}" {fill}/>' for a, b in spots)
    if len(spots) == 1:
        return f'<circle cx="{spots[0][0]:.1f}" cy="{spots[0][1]:.1f}" r="2.5" fill="{ink}"/>'
    drawn = way(spots)
    wide, dashes = (
        ("1.8", "") if trace.kind == "area" else ("1.2", SVG_DASHES[trace.dash or "solid"])
    )
    path = (
        f'<path d="{drawn}" fill="none" stroke="{ink}" stroke-width="{wide}"'
        f' stroke-dasharray="{dashes}"/>'
    )
    if trace.kind != "area" or not spots:
        return path
    ground = place.y(0)
    under = f"{drawn}L{spots[-1][0]:.1f} {ground:.1f}L{spots[0][0]:.1f} {ground:.1f}z"
    return f'<path d="{under}" fill="{faint(ink)}"/>{path}'


def _sign(trace: Trace) -> str:
    """Return how a trace looks, as a letter or two."""
    if trace.kind == "line":
        return _DASHED.get(trace.dash or "solid", "&#8943;")
    return "&#9632;" if trace.kind == "area" else "&#9661;" if trace.hollow else "&#9660;"


def _legend(drawn: Mosaic) -> str:
    traces = [t for t in drawn.traces if t.kind in ("area", "line", "points")]
    looks = {t.name: (t.colour or TEXT, _sign(t)) for t in traces}
    if any(p.limit for p in drawn.panels):
        looks[drawn.limit] = (TEXT, "&#8212;")
    signs = (
        (f'<span aria-hidden="true" style="color:{ink}">{sign}</span>', name)
        for name, (ink, sign) in looks.items()
    )
    return (
        f'<div style="font-size:12px">{keys(signs)}; across: {escape(drawn.x, 40)}, upward:'
        f" {escape(drawn.y, 40)}</div>"
    )
