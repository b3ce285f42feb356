"""The static twin of a chart over two axes: inline SVG that takes its ink from the theme."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.plots.labels import along, labels
from ctxkit.plots.palette import GRID, SVG_DASHES, TEXT, colour, dash
from ctxkit.plots.strokes import keys, picture, stroke, way, words

if TYPE_CHECKING:
    from ctxkit.plots.traces import Plane, Trace

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 240, 56, 12, 14, 34
_LETTER = 6
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


def draw(axes: Plane) -> str:
    """Return an SVG picture of the axes and all on them; nothing of it is a script or a link."""
    shapes = _shapes(axes)
    limits = [limit for limit in axes.limits if limit.shown]
    scale = _scale(axes, shapes)
    parts = [_grid(axes, scale)]
    parts += [
        stroke((scale.x(m.x), _TOP), (scale.x(m.x), _HEIGHT - _BOTTOM), TEXT, "dot")
        for m in axes.marks
    ]
    for limit in limits:
        y = scale.y(limit.y)
        parts.append(stroke((_LEFT, y), (_WIDTH - _RIGHT, y), limit.colour, "longdash"))
    below = np.zeros(0)
    for trace, x, y in shapes:
        ink = trace.colour or colour(trace.look)
        if axes.is_band(trace):
            below = below if len(below) else np.zeros(len(y))
            parts.append(
                _band(scale, x, below, below + np.nan_to_num(y), ink, bars=trace.kind == "bar")
            )
            below = below + np.nan_to_num(y)
        elif trace.kind == "bar":
            parts.append(_band(scale, x, np.zeros(len(y)), np.nan_to_num(y), ink, bars=True))
        elif trace.kind == "points":
            parts += [_dot(trace, ink, a, b) for a, b in _finite(scale, x, y)]
        else:
            parts.append(_path(scale, trace, x, y, ink))
    for limit in limits:
        left = axes.free_end(limit) == "left"
        place = (_LEFT + 4, "start") if left else (_WIDTH - _RIGHT, "end")
        parts.append(words(place[0], scale.y(limit.y) - 3, limit.label, place[1], _HALO))
    parts += _names(scale, shapes)
    return f"{picture(parts, _WIDTH, _HEIGHT)}{_legend(axes)}"


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
    others += [point for each in lines for point in along(each)]
    found = labels(
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
            out.append(stroke(label.point, label.end, TEXT))
        gap = {"start": 2, "middle": 0, "end": -2}[label.anchor] * (not label.side)
        out.append(words(label.x + gap, label.y, label.text, label.anchor))
    return out


def _shapes(axes: Plane) -> list[tuple[Trace, Any, Any]]:
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


def _scale(axes: Plane, shapes: list[tuple[Trace, Any, Any]]) -> _Scale:
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


def _grid(axes: Plane, scale: _Scale) -> str:
    out = []
    for tick in nice(scale.y0, scale.y1):
        y = scale.y(tick)
        out.append(stroke((_LEFT, y), (_WIDTH - _RIGHT, y), GRID))
        out.append(words(_LEFT - 6, y + 4, f"{tick:.0%}" if axes.y_share else short(tick), "end"))
    if axes.ticks:
        names = [name[:10] for name in axes.ticks]
        needed = len(names) * _LETTER * (max(map(len, names)) + 1)
        every = math.ceil(needed / (_WIDTH - _LEFT - _RIGHT))
        below = [(float(i), name) for i, name in enumerate(names) if not i % every]
    else:
        ticks = nice(scale.x0, scale.x1, 6)
        whole = [
            t for t in ticks if float(t).is_integer()
        ]  # x counts something: half a call is no place
        sign = "$" * axes.x_dollars
        below = [
            (tick, sign + short(tick)) for tick in (ticks if axes.x_dollars else whole or ticks)
        ]
    places = [min(scale.x(x), _WIDTH - 3.5 * len(text)) for x, text in below]
    down = _HEIGHT - _BOTTOM + 17
    out += [words(at, down, text, "middle") for at, (_, text) in zip(places, below, strict=True)]
    out.append(words((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, axes.x, "middle", limit=80))
    return "".join(out)


def nice(low: float, high: float, n: int = 4) -> list[float]:
    """About `n` round numbers between two."""
    raw = (high - low) / n
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
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
    dashes = SVG_DASHES.get(trace.dash or dash(trace.look), "")
    return (
        f'<path d="{way(points)}" fill="none" stroke="{ink}" stroke-width="2"'
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


def _dot(trace: Trace, ink: str, x: float, y: float) -> str:
    """Return a point: one of the first look is round, others are square."""
    fill = f'fill="none" stroke="{ink}" stroke-width="1.5"' if trace.hollow else f'fill="{ink}"'
    if not trace.look:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}/>'
    return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" {fill}/>'


def _legend(axes: Plane) -> str:
    shown = [t for t in axes.traces if not t.follows]
    return f'<div style="font-size:12px">{keys((_key(t), t.name) for t in shown[:24])}</div>'


def _key(trace: Trace) -> str:
    """Return a piece of a trace as it is drawn."""
    ink = trace.colour or colour(trace.look)
    if trace.kind == "line":
        drawn = (
            f'<line x1="0" x2="24" y1="5" y2="5" stroke="{ink}" stroke-width="2"'
            f' stroke-dasharray="{SVG_DASHES.get(trace.dash or dash(trace.look), "")}"/>'
        )
    elif trace.kind == "points":
        drawn = _dot(trace, ink, 12, 5)
    else:
        drawn = f'<rect x="7" width="10" height="10" fill="{ink}"/>'
    return f'<svg width="24" height="10" aria-hidden="true">{drawn}</svg>'
