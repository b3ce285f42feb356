"""Lines, points, areas and bars over two axes, with limits and marks, as a plotly figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit._internal.palette import (
    GRID_COLOUR,
    PLOTLY_LAYOUT,
    TEXT_COLOUR,
    pick_colour,
    pick_dash,
    pick_symbol,
)
from ctxkit.plots.chart import escape_label, escape_label_lines
from ctxkit.plots.decimation import MAX_POINTS
from ctxkit.plots.figure_data import AxesData
from ctxkit.plots.svg import Label, draw_axes, place_labels, sample_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.figure_data import Limit, Mark, Trace


_COUNTS = ("call", "turn")
"""Names of an x axis that counts from 0."""
_HEIGHT = 380
_FEW = 64
"""Lines of fewer points get markers, else a single point would not be seen."""


@dataclass(frozen=True, kw_only=True)
class Axes(AxesData):
    """A plane and how it is drawn; implements `Drawing`."""

    def plotly(self) -> dict[str, Any]:
        """Return data and layout; at most about 2,000 points, the extremes of each trace exact."""
        room = max(MAX_POINTS // max(len(self.traces), 1), _FEW)
        values = [t.heights() for t in self.traces]
        rows = zip(self.traces, values, self.select_points(values, room, room), strict=True)
        data = [_plotly_trace(t, y, kept, stacked=self.stacked) for t, y, kept in rows]
        layout = self._layout()
        label_points(self.traces, data, layout)
        data += [_plotly_limit(n, self._span(), self.free_end(n)) for n in self.limits]
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture."""
        return draw_axes(self)

    def _span(self) -> tuple[float, float]:
        ends = [float(v) for t in self.traces if len(t.x) for v in (t.x[0], t.x[-1])]
        return (min(ends), max(ends)) if ends else (0.0, 1.0)

    def _layout(self) -> dict[str, Any]:
        axis = {
            "gridcolor": GRID_COLOUR,
            "zeroline": False,
            "linecolor": GRID_COLOUR,
            "tickcolor": GRID_COLOUR,
        }
        x: dict[str, Any] = {
            **axis,
            "title": {"text": escape_label(self.x), "standoff": 6},
            "showgrid": False,
        }
        if self.whole:
            x |= {
                "tickformat": "d",
                "dtick": max(1, round((self._span()[1] - self._span()[0]) / 12)),
            }
        if self.x in _COUNTS and not self.ticks and all(t.kind != "bar" for t in self.traces):
            start, end = self._span()  # else it begins below 0, to make room for markers
            pad = max(0.01 * (end - start), 0.5)
            x |= {"range": [start - pad, end + pad]} | ({"dtick": 1} if end - start < 12 else {})
        if self.x_dollars:
            x |= {"tickprefix": "$"}
        if self.ticks:
            x |= {
                "tickvals": list(range(len(self.ticks))),
                "ticktext": [escape_label(t, 24) for t in self.ticks],
            }
        y = {
            **axis,
            "title": {"text": escape_label(self.y)},
            "rangemode": "tozero",
            "tickformat": ".0%" if self.y_share else "~f" if self.y_small else "~s",
        }
        return {
            **PLOTLY_LAYOUT,
            "height": _HEIGHT,
            "margin": {"l": 64, "r": 16, "t": 44, "b": 48},
            "hovermode": "x unified"
            if self.stacked and not any(t.hover for t in self.traces)
            else "closest",
            "hoverlabel": {"align": "left", "namelength": -1},
            "legend": {
                "orientation": "h",
                "y": -0.2,
                "yanchor": "top",
                "x": 0,
                "traceorder": "normal",
            },
            "barmode": "relative" if self.stacked else "overlay",
            "bargap": 0.1,
            "xaxis": x,
            "yaxis": y,
            "shapes": [_plotly_mark(m) for m in self.marks],
            "annotations": [_mark_label(m) for m in self.marks if m.label],
        }


def _plotly_trace(trace: Trace, y: Any, kept: Any, *, stacked: bool) -> dict[str, Any]:
    x = np.asarray(trace.x)[kept]
    ink = trace.colour or pick_colour(trace.look)
    out: dict[str, Any] = {
        "name": escape_label(trace.name),
        "x": _numbers(x),
        "y": _numbers(y[kept]),
    }
    if trace.kind == "bar":
        out |= {"type": "bar", "marker": {"color": ink, "line": {"width": 0}}}
    else:
        out |= {
            "type": "scatter",
            "line": {"color": ink, "width": 2, "dash": trace.dash or pick_dash(trace.look)},
        }
        out["marker"] = {
            "color": ink,
            "size": 9 if trace.kind == "points" else 5,
            "symbol": pick_symbol(trace.look) + "-open" * trace.hollow,
        }
        marked = len(y) < _FEW and trace.marked and not stacked
        out["mode"] = (
            "markers" if trace.kind == "points" else "lines+markers" if marked else "lines"
        )
        if trace.kind == "area":
            out |= {"stackgroup": "one", "line": {"width": 0.5, "color": ink}, "fillcolor": ink}
    if trace.follows:
        out |= {"showlegend": False}
    if trace.follows or trace.kind == "line":
        out |= {"legendgroup": str(trace.look)}
    if stacked and trace.hover is None:
        out["hovertemplate"] = "%{y:,}"  # the heads of a shared box name the traces
    elif trace.hover is not None and len(kept) == len(y):
        out["hovertext"] = [
            escape_label_lines(trace.hover(i)) for i in kept.tolist()
        ]  # `text` would be written on the bars
        out["hovertemplate"] = "%{hovertext}<extra></extra>"
    return out


def _numbers(values: Any) -> list[Any]:
    """Plain numbers: whole ones as integers, what is not finite as None."""
    if values.dtype.kind in "iub":
        return values.tolist()  # type: ignore[no-any-return]
    if values.dtype.kind != "f":
        return [v if isinstance(v, str) else str(v) for v in values.tolist()]
    return [None if not math.isfinite(v) else int(v) if v == int(v) else v for v in values.tolist()]


def _plotly_limit(limit: Limit, span: tuple[float, float], free: str) -> dict[str, Any]:
    """Return the line of a limit; where both ends are taken, the legend alone names it."""
    start, end = span
    name = escape_label(limit.label) + "<br> "
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": escape_label(limit.label),
        "x": [start, end if end > start else start + 1],
        "y": [limit.y, limit.y],
        "text": [name if free == "left" else "", name if free == "right" else ""],
        "textposition": "top right" if free == "left" else "top left",
        "cliponaxis": False,  # else the label of a limit near the top is cut off
        "textfont": {"color": TEXT_COLOUR, "size": 10},
        "line": {"color": limit.colour, "width": 1.2, "dash": "longdash"},
        "hovertemplate": escape_label(limit.label) + "<extra></extra>",
        "visible": True if limit.shown else "legendonly",
    }


def _plotly_mark(mark: Mark) -> dict[str, Any]:
    line = {"color": TEXT_COLOUR, "width": 1, "dash": "dot"}
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": mark.x,
        "x1": mark.x,
        "y0": 0,
        "y1": 1,
        "line": line,
    }


def _mark_label(mark: Mark) -> dict[str, Any]:
    place = {
        "x": mark.x,
        "y": 1,
        "xref": "x",
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "center",
    }
    return {
        **place,
        "text": escape_label(mark.label, 24),
        "showarrow": False,
        "font": {"size": 10, "color": TEXT_COLOUR},
    }


_WIDE, _TALL, _ABOVE = 580.0, 246.0, 24.0
"""Pixels within the axes of a chart on a page of 700, and above them where a name may stand."""
_SIDE, _BELOW, _OVER = 0.04, 0.03, 0.08
"""Room on both sides of the points, below and over them, as shares of what they span."""
_MOST = 64
"""Points that are named; of more only the hover tells."""
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def label_points(
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

    written = place_labels(
        [pixel(*place) for place in places],
        [traces[i].names[k] for i, k in points],
        [at for t in traces if t.kind == "line" and not t.marked
         for at in sample_line([pixel(x, y) for x, y in zip(t.x, t.y, strict=True)])],
        width=_WIDE, height=_TALL + _ABOVE + 8,
    )  # fmt: skip
    for i in named:
        own = [w for (j, _), w in zip(points, written, strict=True) if j == i]
        drawn[i].update(_texts([w if w and w.side else None for w in own]))
    layout["annotations"] += [
        _leader_line(label, place)
        for place, label in zip(places, written, strict=True)
        if label is not None and not label.side
    ]


def _texts(beside: list[Label | None]) -> dict[str, Any]:
    return {
        "mode": "markers+text",
        "text": [escape_label(w.text, 40) if w else "" for w in beside],
        "textposition": [w.side if w else "middle right" for w in beside],
        "textfont": {"size": 10, "color": TEXT_COLOUR},
        "cliponaxis": False,  # else a point on an axis is cut in half
    }


def _leader_line(label: Label, place: tuple[float, float]) -> dict[str, Any]:
    line = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": TEXT_COLOUR}
    return {
        **line,
        "x": place[0],
        "y": place[1],
        "ax": label.end[0] - label.point[0],
        "ay": label.end[1] - label.point[1],
        "xanchor": _ANCHORS[label.anchor],
        "yanchor": "middle",
        "text": escape_label(label.text, 40),
        "font": {"size": 10, "color": TEXT_COLOUR},
    }
