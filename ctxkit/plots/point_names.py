"""Names of points in a plotly figure: beside them, or joined to them by a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.plots.chart import safe
from ctxkit.plots.labels import Label, along, labels
from ctxkit.plots.palette import TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.traces import Trace

_WIDE, _TALL, _ABOVE = 580.0, 246.0, 24.0
"""Pixels within the axes of a chart on a page of 700, and above them where a name may stand."""
_SIDE, _BELOW, _OVER = 0.04, 0.03, 0.08
"""Room on both sides of the points, below and over them, as shares of what they span."""
_MOST = 64
"""Points that are named; of more only the hover tells."""
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def name_points(
    traces: Sequence[Trace], drawn: Sequence[dict[str, Any]], layout: dict[str, Any]
) -> None:
    """Write the names of points into plotly's traces and layout, which gets the ranges for which
    they are placed: those of the narrowest page; on a wider one the points are further apart.
    """
    named = [i for i, t in enumerate(traces) if t.kind == "points" and len(t.names) == len(t.x)]
    points = [(i, k) for i in named for k in range(len(traces[i].x))]
    if not 0 < len(points) <= _MOST:
        return
    places = [(float(traces[i].x[k]), float(traces[i].y[k] or 0.0)) for i, k in points]
    low, high = min(x for x, _ in places), max(x for x, _ in places)
    wide, top = (high - low) or 1.0, max(*(y for _, y in places), 0.0) or 1.0
    layout["xaxis"]["range"] = [low - _SIDE * wide, high + _SIDE * wide]
    layout["yaxis"]["range"] = [-_BELOW * top, (1 + _OVER) * top]

    def pixel(x: float, y: float) -> tuple[float, float]:
        across = (x - low + _SIDE * wide) / (wide * (1 + 2 * _SIDE))
        up = (y / top + _BELOW) / (1 + _BELOW + _OVER)
        return _WIDE * across, _ABOVE + _TALL * (1 - up)

    written = labels(
        [pixel(*place) for place in places],
        [traces[i].names[k] for i, k in points],
        [at for t in traces if t.kind == "line" and not t.marked
         for at in along([pixel(x, y) for x, y in zip(t.x, t.y, strict=True)])],
        width=_WIDE, height=_TALL + _ABOVE + 8,
    )  # fmt: skip
    for i in named:
        own = [w for (j, _), w in zip(points, written, strict=True) if j == i]
        drawn[i].update(_texts([w if w and w.side else None for w in own]))
    layout["annotations"] += [
        _lead(label, place)
        for place, label in zip(places, written, strict=True)
        if label is not None and not label.side
    ]


def _texts(beside: list[Label | None]) -> dict[str, Any]:
    return {
        "mode": "markers+text",
        "text": [safe(w.text, 40) if w else "" for w in beside],
        "textposition": [w.side if w else "middle right" for w in beside],
        "textfont": {"size": 10, "color": TEXT},
        "cliponaxis": False,  # else a point on an axis is cut in half
    }


def _lead(label: Label, place: tuple[float, float]) -> dict[str, Any]:
    line = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": TEXT}
    return {
        **line,
        "x": place[0],
        "y": place[1],
        "ax": label.end[0] - label.point[0],
        "ay": label.end[1] - label.point[1],
        "xanchor": _ANCHORS[label.anchor],
        "yanchor": "middle",
        "text": safe(label.text, 40),
        "font": {"size": 10, "color": TEXT},
    }
