"""Static SVG of charts over two axes: ticks, paths, labels, decimation."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.formatting import escape_html
from ctxkit._internal.palette import GRID_COLOUR, SVG_DASHES, TEXT_COLOUR, pick_colour, pick_dash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.plots.figure_data import AxesData, Trace


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 240, 56, 12, 14, 34
_AXIS_LETTER = 6
"""Pixels of a letter below the axis."""
_HALO = (
    ";paint-order:stroke;stroke:var(--jp-layout-color0,var(--vscode-editor-background,Canvas))"
    ";stroke-width:3px"
)
"""Keeps a text apart from the lines that it lies on."""


class _Scale(NamedTuple):
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: Any) -> Any:
        return _LEFT + (value - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: Any) -> Any:
        return (
            _HEIGHT - _BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (_HEIGHT - _TOP - _BOTTOM)
        )


def draw_axes(axes: AxesData) -> str:
    """Return an SVG picture of the axes and all on them; nothing of it is a script or a link."""
    shapes = _shapes(axes)
    limits = [limit for limit in axes.limits if limit.shown]
    scale = _scale(axes, shapes)
    parts = [_grid(axes, scale)]
    parts += [
        make_svg_line((scale.x(m.x), _TOP), (scale.x(m.x), _HEIGHT - _BOTTOM), TEXT_COLOUR, "dot")
        for m in axes.marks
    ]
    for limit in limits:
        y = scale.y(limit.y)
        parts.append(make_svg_line((_LEFT, y), (_WIDTH - _RIGHT, y), limit.colour, "longdash"))
    below = np.zeros(0)
    for trace, x, y in shapes:
        ink = trace.colour or pick_colour(trace.look)
        if axes.is_band(trace):
            below = below if len(below) else np.zeros(len(y))
            parts.append(
                _band(scale, x, below, below + np.nan_to_num(y), ink, bars=trace.kind == "bar")
            )
            below = below + np.nan_to_num(y)
        elif trace.kind == "bar":
            parts.append(_band(scale, x, np.zeros(len(y)), np.nan_to_num(y), ink, bars=True))
        elif trace.kind == "points":
            parts += [_svg_point(trace, ink, a, b) for a, b in _finite(scale, x, y)]
        else:
            parts.append(_path(scale, trace, x, y, ink))
    for limit in limits:
        left = axes.free_end(limit) == "left"
        place = (_LEFT + 4, "start") if left else (_WIDTH - _RIGHT, "end")
        parts.append(make_svg_text(place[0], scale.y(limit.y) - 3, limit.label, place[1], _HALO))
    parts += _names(scale, shapes)
    return f"{make_svg(parts, _WIDTH, _HEIGHT)}{_legend(axes)}"


def _names(scale: _Scale, shapes: list[tuple[Trace, Any, Any]]) -> list[str]:
    """Return the names of points, those of the first trace first."""
    places = [(t, _finite(scale, x, y)) for t, x, y in shapes if t.kind == "points"]
    named = [
        (point, name)
        for t, points in places
        if len(t.names) == len(points)
        for point, name in zip(points, t.names, strict=True)
    ]
    others = [point for t, points in places if len(t.names) != len(points) for point in points]
    if not named:
        return []
    lines = (_finite(scale, x, y) for t, x, y in shapes if t.kind == "line" and not t.marked)
    others += [point for each in lines for point in sample_line(each)]
    found = place_labels(
        [p for p, _ in named],
        [n for _, n in named],
        others,
        width=_WIDTH,
        height=_HEIGHT - _BOTTOM + 6,
        left=_LEFT,
    )
    out = []
    for label in filter(None, found):
        if not label.side:
            out.append(make_svg_line(label.point, label.end, TEXT_COLOUR))
        gap = {"start": 2, "middle": 0, "end": -2}[label.anchor] * (not label.side)
        out.append(make_svg_text(label.x + gap, label.y, label.text, label.anchor))
    return out


def _shapes(axes: AxesData) -> list[tuple[Trace, Any, Any]]:
    """Return each trace with the places and heights of the points that are drawn."""
    heights = [t.heights().astype(float) for t in axes.traces]
    rows = zip(
        axes.traces,
        heights,
        axes.select_points(heights, axes.points, axes.circles),
        strict=True,
    )
    return [(t, _places(t)[drawn], y[drawn]) for t, y, drawn in rows]


def _places(trace: Trace) -> Any:
    x = np.asarray(trace.x)
    return x.astype(float) if x.dtype.kind in "iuf" else np.arange(len(x), dtype=float)


def _scale(axes: AxesData, shapes: list[tuple[Trace, Any, Any]]) -> _Scale:
    bands = [np.nan_to_num(y) for t, _, y in shapes if axes.is_band(t)]
    tops = np.sum(bands, axis=0) if bands else []
    xs = [v for t, x, _ in shapes if len(x) for v in (x.min(), x.max())] or [0.0, 1.0]
    ys = [v for t, _, y in shapes if np.isfinite(y).any() for v in (np.nanmin(y), np.nanmax(y))]
    ys += [limit.y for limit in axes.limits if limit.shown] + list(tops)
    kinds = {t.kind for t, _, _ in shapes}
    apart = "bar" in kinds or (axes.whole and "points" in kinds)
    pad = 0.5 if apart or min(xs) == max(xs) else 0.0
    low, high = min([0.0, *ys]), max([0.0, *ys])
    return _Scale(min(xs) - pad, max(xs) + pad, low, high if high > low else low + 1)


def _grid(axes: AxesData, scale: _Scale) -> str:
    out = []
    for tick in choose_ticks(scale.y0, scale.y1):
        y = scale.y(tick)
        out.append(make_svg_line((_LEFT, y), (_WIDTH - _RIGHT, y), GRID_COLOUR))
        out.append(
            make_svg_text(
                _LEFT - 6, y + 4, f"{tick:.0%}" if axes.y_share else format_tick(tick), "end"
            )
        )
    if axes.ticks:
        names = [name[:10] for name in axes.ticks]
        needed = len(names) * _AXIS_LETTER * (max(map(len, names)) + 1)
        every = math.ceil(needed / (_WIDTH - _LEFT - _RIGHT))
        below = [(float(i), name) for i, name in enumerate(names) if not i % every]
    else:
        ticks = choose_ticks(scale.x0, scale.x1, 6)
        whole = [
            t for t in ticks if float(t).is_integer()
        ]  # x counts something: half a call is no place
        sign = "$" * axes.x_dollars
        below = [
            (tick, sign + format_tick(tick))
            for tick in (ticks if axes.x_dollars else whole or ticks)
        ]
    places = [min(scale.x(x), _WIDTH - 3.5 * len(text)) for x, text in below]
    down = _HEIGHT - _BOTTOM + 17
    out += [
        make_svg_text(at, down, text, "middle") for at, (_, text) in zip(places, below, strict=True)
    ]
    out.append(
        make_svg_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, axes.x, "middle", limit=80)
    )
    return "".join(out)


def choose_ticks(low: float, high: float, n: int = 4) -> list[float]:
    """About `n` round numbers between two."""
    raw = (high - low) / n
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def format_tick(value: float) -> str:
    """A number as it stands on an axis: 1.5M, 20k, 300, 0.25."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{sign}"
    return f"{value:.4g}"


def _finite(scale: _Scale, x: Any, y: Any) -> list[tuple[float, float]]:
    known = np.isfinite(y)
    return list(zip(scale.x(x[known]).tolist(), scale.y(y[known]).tolist(), strict=True))


def _path(scale: _Scale, trace: Trace, x: Any, y: Any, ink: str) -> str:
    points = _finite(scale, x, y)
    if len(points) == 1:
        return f'<circle cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="3" fill="{ink}"/>'
    dashes = SVG_DASHES.get(trace.dash or pick_dash(trace.look), "")
    return (
        f'<path d="{make_svg_path(points)}" fill="none" stroke="{ink}" stroke-width="2"'
        f' stroke-dasharray="{dashes}"/>'
    )


def _band(scale: _Scale, x: Any, low: Any, high: Any, ink: str, *, bars: bool) -> str:
    if bars:
        wide = max((_WIDTH - _LEFT - _RIGHT) / max(scale.x1 - scale.x0, 1) * 0.9, 1.0)
        return "".join(
            f'<rect x="{scale.x(a) - wide / 2:.1f}" y="{min(scale.y(b), scale.y(c)):.1f}"'
            f' width="{wide:.1f}" height="{abs(scale.y(b) - scale.y(c)):.1f}" fill="{ink}"/>'
            for a, b, c in zip(x.tolist(), low.tolist(), high.tolist(), strict=True)
            if b != c
        )
    across, upward = np.append(x, x[::-1]), np.append(high, low[::-1])  # there and back
    places = zip(scale.x(across).tolist(), scale.y(upward).tolist(), strict=True)
    corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    return f'<polygon points="{corners}" fill="{ink}"/>'


def _svg_point(trace: Trace, ink: str, x: float, y: float) -> str:
    """Return a point: one of the first look is round, others are square."""
    fill = f'fill="none" stroke="{ink}" stroke-width="1.5"' if trace.hollow else f'fill="{ink}"'
    if not trace.look:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}/>'
    return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" {fill}/>'


def _legend(axes: AxesData) -> str:
    shown = [t for t in axes.traces if not t.follows]
    return (
        "<div "
        f'style="font-size:12px">{render_legend_keys((_key(t), t.name) for t in shown[:24])}</div>'
    )


def _key(trace: Trace) -> str:
    """Return a piece of a trace as it is drawn."""
    ink = trace.colour or pick_colour(trace.look)
    if trace.kind == "line":
        drawn = (
            f'<line x1="0" x2="24" y1="5" y2="5" stroke="{ink}" stroke-width="2"'
            f' stroke-dasharray="{SVG_DASHES.get(trace.dash or pick_dash(trace.look), "")}"/>'
        )
    elif trace.kind == "points":
        drawn = _svg_point(trace, ink, 12, 5)
    else:
        drawn = f'<rect x="7" width="10" height="10" fill="{ink}"/>'
    return f'<svg width="24" height="10" aria-hidden="true">{drawn}</svg>'


INK = "var(--jp-content-font-color2,#777777)"


def make_svg(parts: Iterable[str], width: int, height: int, *, hidden: bool = True) -> str:
    """Return an SVG picture as wide as its place; `hidden`: a table says the same to who hears."""
    told = ' aria-hidden="true"' if hidden else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' style="width:100%;max-width:{width}px;height:auto"{told}>{"".join(parts)}</svg>'
    )


def make_svg_text(
    x: float, y: float, text: str, anchor: str = "start", more: str = "", *,
    ink: str = INK, limit: int = 40,
) -> str:  # fmt: skip
    """Return a text of at most `limit` characters; `more`: what its style has besides."""
    style = f"fill:{ink};font:11px system-ui,sans-serif{more}"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' style="{style}">{escape_html(text, limit)}</text>'
    )


def make_svg_line(
    start: tuple[float, float], end: tuple[float, float], ink: str, dashes: str = "solid"
) -> str:
    """Return a line."""
    (x0, y0), (x1, y1) = start, end
    style = f'stroke="{ink}" stroke-width="1" stroke-dasharray="{SVG_DASHES[dashes]}"'
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" {style}/>'


def make_svg_path(points: Iterable[tuple[float, float]]) -> str:
    """Return what an SVG path through points is drawn by."""
    return "".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(points))


def render_legend_keys(named: Iterable[tuple[str, str]]) -> str:
    """Return the keys of a legend: what stands for each, as safe HTML, and its name."""
    return " ".join(
        '<span style="display:inline-block;margin-right:14px;white-space:nowrap">'
        f"{drawn} {escape_html(name, 60)}</span>"
        for drawn, name in named
    )


_LABEL_LETTER, _LINE, _GAP, _DOT = 6.0, 13.0, 7.0, 3.0
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


def place_labels(
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
    dots = [_point_box(x, y) for x, y in points]
    taken = [*dots, *(_point_box(x, y) for x, y in others)]
    written: list[_LabelBox] = []
    out: list[Label | None] = []
    for i, (point, name) in enumerate(zip(points, names, strict=True)):
        found = None
        strangers = [d for d in dots if not d.meets(dots[i])]
        for k, (across, down, anchor) in enumerate((*_NEAR, *_FAR)):
            side = _SIDES[k] if k < len(_NEAR) else ""
            label = Label(point[0] + across, point[1] + down, name, anchor, point, side)
            box = _label_box(label)
            inside = box.x0 >= left and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
            lead = (
                [] if side else [_LabelBox(x, y, x, y) for x, y in sample_line([point, label.end])]
            )
            if inside and not any(box.meets(b) for b in taken + written) and not any(
                one.meets(b) for one in lead for b in written + strangers
            ):  # fmt: skip
                found = label
                written.append(box)
                taken += lead
                break
        out.append(found)
    return out


def _point_box(x: float, y: float) -> _LabelBox:
    return _LabelBox(x - _DOT, y - _DOT, x + _DOT, y + _DOT)


def _label_box(label: Label) -> _LabelBox:
    wide = _LABEL_LETTER * len(label.text)
    left = label.x - {"start": 0.0, "middle": wide / 2, "end": wide}[label.anchor]
    return _LabelBox(left, label.y - _LINE + 2, left + wide, label.y + 2)


def sample_line(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return places along a line, so close that no name crosses it between two of them."""
    out = []
    for (x0, y0), (x1, y1) in pairwise(points):
        n = max(int(max(abs(x1 - x0), abs(y1 - y0)) // (2 * _DOT)), 1)
        out += [(x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n) for i in range(n)]
    return out
