"""Lines, points, areas and bars over two axes, with limits and marks, as a plotly figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.chart_style import (
    GRID_COLOUR,
    PLOTLY_LAYOUT,
    TEXT_COLOUR,
    pick_colour,
    pick_dash,
    pick_symbol,
)
from ctxkit.plots.chart import Drawing, escape_plotly_label, escape_plotly_label_lines
from ctxkit.plots.label_placement_and_thinning import (
    MAX_POINTS,
    PointLabel,
    decimate_points,
    decimate_stacked_bands,
    place_labels,
    sample_points_along_line,
)
from ctxkit.plots.plotly_to_svg import render_svg_html

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


_COUNTS = ("call", "turn")
"""Names of an x axis that counts from 0."""
_HEIGHT, _STILL_HEIGHT = 380, 240
_ROW_HEIGHT, _ROW_LETTERS = 20, 25
"""Pixels of height that each row of named rows takes at least, and letters of its name."""
_FEW_STEPS = 12
"""A whole axis that is shorter has a tick at each step."""
_FEW = 64
"""Lines of fewer points get markers, else a single point would not be seen."""
_NEAR_LIMIT, _NAME_WIDTH = 0.1, 0.25
"""How near to a limit a line is, of the height, where its name stands, which is a quarter of the
width long."""
AXIS_STYLE = {
    "gridcolor": GRID_COLOUR,
    "zeroline": False,
    "linecolor": GRID_COLOUR,
    "tickcolor": GRID_COLOUR,
}


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A series of points; `y` may contain None or NaN for unknown values."""

    name: str
    x: Sequence[float] | Any
    y: Sequence[float | None] | Any
    kind: Literal["line", "points", "area", "bar"] = "line"
    hover: Callable[[int], str] | None = None
    """Lines of text for the i-th point, joined by newlines; not called for points left out."""
    look: int = 0
    """Index of the colour, dash and symbol in the palette."""
    colour: str | None = None
    dash: str | None = None
    names: tuple[str, ...] = ()
    """Names of its points, drawn beside them if there is enough space."""
    symbol: str | None = None
    """Shape of its points; None: that of its look in the palette."""
    hollow: bool = False
    """True where its points are drawn as outlines, because they are inferred, not recorded."""
    marked: bool = True
    """False: a line without markers, however few its points."""
    follows: bool = False
    """True where it is toggled with the trace of the same look, without its own legend entry."""

    def heights(self) -> NDArray[Any]:
        """Return `y` as numbers; unknown values are NaN, which is drawn as a gap."""
        return self.y if isinstance(self.y, np.ndarray) else np.array(self.y, dtype=float)


@dataclass(frozen=True, kw_only=True)
class LimitLine:
    """A horizontal line across the chart."""

    y: float
    label: str
    colour: str = TEXT_COLOUR
    shown: bool = True
    """False: only in the legend, for a limit far above everything."""


@dataclass(frozen=True, kw_only=True)
class VerticalMark:
    """A vertical line at a place of the x axis."""

    x: float
    label: str = ""
    dash: Literal["dot", "dash"] = "dot"


@dataclass(frozen=True, kw_only=True)
class XyDrawing(Drawing):
    """Traces over two axes, with horizontal limits and vertical marks."""

    x: str
    y: str
    traces: tuple[Trace, ...] = ()
    limits: tuple[LimitLine, ...] = ()
    marks: tuple[VerticalMark, ...] = ()
    stacked: bool = False
    whole: bool = False
    """True where x counts things: only whole numbers on its axis."""
    y_share: bool = False
    """True where y is a share, shown in per cent."""
    y_small: bool = False
    """True where y is about 1: 0.5 is written so, and not as 500m."""
    x_dollars: bool = False
    y_dollars: bool = False
    """True where x or y is an amount: `$` on its ticks."""
    ticks: tuple[str, ...] = ()
    """Names for the places 0, 1, 2 ... of the x axis."""
    y_ticks: tuple[str, ...] = ()
    """Names for the rows 1, 2, 3 ... of the y axis, the first on top."""
    points: int = 600
    """Points of each line in the static picture, at most about."""
    circles: int = 600
    """The same for traces of points by themselves."""

    @property
    def is_empty(self) -> bool:
        """True where no trace has a point."""
        return not any(len(t.x) for t in self.traces)

    def is_band(self, trace: Trace) -> bool:
        """Return whether a trace is on the one before it."""
        return self.stacked and trace.kind in ("area", "bar")

    def select_points(
        self, heights: Sequence[NDArray[Any]], points: int, circles: int
    ) -> list[NDArray[np.int64]]:
        """Return for each trace the indices of the points that are drawn; the bands of a stack,
        which are summed, share theirs.

        Args:
            heights: the y of each trace.
            points: about how many of a line, an area or bars.
            circles: the same for a trace of points.
        """
        pairs = list(zip(self.traces, heights, strict=True))
        bands = [y for trace, y in pairs if self.is_band(trace)]
        shared = decimate_stacked_bands(bands, points) if bands else None
        return [
            shared
            if shared is not None and self.is_band(trace)
            else decimate_points(y, circles if trace.kind == "points" else points)
            for trace, y in pairs
        ]

    # The name of a limit is at its right or left end and takes `_NAME_WIDTH` of the width. An
    # end is taken where a mark is in it, or where a line comes nearer than `_NEAR_LIMIT` of the
    # height. Each line is sampled at 50 places by linear interpolation. The test is on intervals:
    # between two samples the distance takes all values between theirs, so a steep line that crosses
    # the limit between them is found too. Cost: 100 samples a trace.
    def free_end(self, limit: LimitLine) -> str:
        """Return the end of a limit at which its name covers no line: `right`, else `left`.

        Empty where lines run through both ends.
        """
        lines = [t for t in self.traces if t.kind in ("line", "area") and len(t.x) > 1]
        rows = [(np.asarray(t.x), np.array(t.y, dtype=float)) for t in lines]
        rows = [(x.astype(float), y) for x, y in rows if x.dtype.kind in "iuf"]
        if not rows:
            return "right"
        low, high = min(x[0] for x, _ in rows), max(x[-1] for x, _ in rows)
        tops = [limit.y, *(float(np.nanmax(y)) for _, y in rows if np.isfinite(y).any())]
        near, part = _NEAR_LIMIT * max(tops), _NAME_WIDTH * (high - low)

        def meets(start: float, end: float) -> bool:
            if any(start < m.x < end for m in self.marks):
                return True
            at = np.linspace(start, end, 50)
            for x, y in rows:
                # Outside its own range a line is NaN, and a comparison with NaN is false.
                way = np.interp(at, x, y, left=np.nan, right=np.nan) - limit.y
                least, most = np.fmin(way[:-1], way[1:]), np.fmax(way[:-1], way[1:])
                if bool(((least < near) & (most > -near)).any()):
                    return True
            return False

        if not meets(high - part, high):
            return "right"
        return "" if meets(low, low + part) else "left"

    def plotly(self) -> dict[str, Any]:
        """Return data and layout; at most about 2,000 points, the extremes of each trace exact."""
        values = [t.heights() for t in self.traces]
        known_n = sum(int(np.isfinite(y).sum()) for y in values)
        share = MAX_POINTS // max(len(self.traces), 1)
        points_n = MAX_POINTS if known_n <= MAX_POINTS else max(share, _FEW)
        return self._figure(points_n, points_n)

    def svg(self) -> str:
        """Return the static picture."""
        # without hover texts, which take most of the time: this is drawn while a turn runs
        figure = self._figure(self.points, self.circles, hover=False)
        return render_svg_html(
            figure, height=max(_STILL_HEIGHT, _ROW_HEIGHT * len(self.y_ticks) + 50)
        )

    def _figure(self, points: int, circles: int, *, hover: bool = True) -> dict[str, Any]:
        values = [t.heights() for t in self.traces]
        picked = self.select_points(values, points, circles)
        rows = list(zip(self.traces, values, picked, strict=True))
        data = [_plotly_trace(t, y, indices, stacked=self.stacked) for t, y, indices in rows]
        if hover:
            for (trace, y, indices), drawn in zip(rows, data, strict=True):
                drawn.update(_plotly_hover(trace, y, indices, stacked=self.stacked))
        layout = self._layout()
        _name_points(self, data, layout)
        data += [_plotly_limit(n, self._span(), self.free_end(n)) for n in self.limits]
        return {"data": data, "layout": layout}

    def _span(self) -> tuple[float, float]:
        places = [np.asarray(t.x, dtype=float) for t in self.traces if len(t.x)]
        ends = [float(end) for xs in places for end in (np.nanmin(xs), np.nanmax(xs))]
        return (min(ends), max(ends)) if ends else (0.0, 1.0)

    def _layout(self) -> dict[str, Any]:
        x: dict[str, Any] = {
            **AXIS_STYLE,
            "title": {"text": escape_plotly_label(self.x), "standoff": 6},
            "showgrid": False,
        }
        if self.whole:
            start, end = self._span()
            x |= {"tickformat": "d"} | ({"dtick": 1} if end - start < _FEW_STEPS else {})
        if self.x in _COUNTS and not self.ticks and all(t.kind != "bar" for t in self.traces):
            start, end = self._span()  # else it begins below 0, to make room for markers
            pad = max(0.01 * (end - start), 0.5)
            x |= {"range": [start - pad, end + pad]} | (
                {"dtick": 1} if end - start < _FEW_STEPS else {}
            )
        if self.x_dollars:
            x |= {"tickprefix": "$"}
        if self.ticks:
            x |= {
                "tickvals": list(range(len(self.ticks))),
                "ticktext": [escape_plotly_label(t, 24) for t in self.ticks],
            }
        y = {
            **AXIS_STYLE,
            "title": {"text": escape_plotly_label(self.y)},
            "rangemode": "tozero",
            "tickformat": ".0%" if self.y_share else "~f" if self.y_small else "~s",
        }
        if self.y_ticks:
            n = len(self.y_ticks)
            y |= {
                "tickvals": list(range(1, n + 1)),
                "ticktext": [escape_plotly_label(t, _ROW_LETTERS) for t in self.y_ticks],
                "range": [n + 0.5, 0.5],
                "automargin": True,
            }
        if self.y_dollars:
            y |= {"tickprefix": "$"} | ({} if self.y_small else {"tickformat": ".2f"})
        return {
            **PLOTLY_LAYOUT,
            "height": max(_HEIGHT, _ROW_HEIGHT * len(self.y_ticks) + 130),
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


def _plotly_trace(trace: Trace, y: Any, indices: Any, *, stacked: bool) -> dict[str, Any]:
    x = np.asarray(trace.x)[indices]
    ink = trace.colour or pick_colour(trace.look)
    out: dict[str, Any] = {
        "name": escape_plotly_label(trace.name),
        "x": _plain_numbers(x),
        "y": _plain_numbers(y[indices]),
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
            "symbol": (trace.symbol or pick_symbol(trace.look)) + "-open" * trace.hollow,
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
    return out


def _plotly_hover(trace: Trace, y: Any, indices: Any, *, stacked: bool) -> dict[str, Any]:
    if stacked and trace.hover is None:
        return {"hovertemplate": "%{y:,}"}  # the heads of a shared box name the traces
    if trace.hover is None or len(indices) < len(y):
        return {}
    texts = [escape_plotly_label_lines(trace.hover(i)) for i in indices.tolist()]
    # `text` would be written on the bars
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}


def _plain_numbers(values: Any) -> list[Any]:
    """Plain numbers: whole ones as integers, what is not finite as None."""
    if values.dtype.kind in "iub":
        return values.tolist()  # type: ignore[no-any-return]
    if values.dtype.kind != "f":
        return [v if isinstance(v, str) else str(v) for v in values.tolist()]
    return [None if not math.isfinite(v) else int(v) if v == int(v) else v for v in values.tolist()]


def _plotly_limit(limit: LimitLine, span: tuple[float, float], free: str) -> dict[str, Any]:
    """Return the line of a limit; where both ends are taken, the legend alone names it."""
    start, end = span
    name = escape_plotly_label(limit.label) + "<br> "
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": escape_plotly_label(limit.label),
        "x": [start, end if end > start else start + 1],
        "y": [limit.y, limit.y],
        "text": [name if free == "left" else "", name if free == "right" else ""],
        "textposition": "top right" if free == "left" else "top left",
        "cliponaxis": False,  # else the label of a limit near the top is cut off
        "textfont": {"color": TEXT_COLOUR, "size": 10},
        "line": {"color": limit.colour, "width": 1.2, "dash": "longdash"},
        "hovertemplate": escape_plotly_label(limit.label) + "<extra></extra>",
        "visible": True if limit.shown else "legendonly",
    }


def _plotly_mark(mark: VerticalMark) -> dict[str, Any]:
    line = {"color": TEXT_COLOUR, "width": 1, "dash": mark.dash}
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


def _mark_label(mark: VerticalMark) -> dict[str, Any]:
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
        "text": escape_plotly_label(mark.label, 24),
        "showarrow": False,
        "font": {"size": 10, "color": TEXT_COLOUR},
    }


_PLOT_WIDTH, _PLOT_HEIGHT, _ABOVE = 580.0, 246.0, 24.0
"""Pixels within the axes of a chart on a page of 700, and above them where a name may stand."""
_BESIDE, _BELOW, _OVER = 0.04, 0.03, 0.08
"""What is left free on both sides of the points, below and over them, as shares of their span."""
_MAX_NAMES = 64
"""Points that are named; of more only the hover tells."""
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


# Plotly cannot keep texts apart, so their places are chosen here, for the narrowest page: the range
# of both axes is fixed first, points become pixels of that page, and each name gets a side of its
# point or, farther off, a leader line. The static picture places the same names again for its own
# size.
def _name_points(axes: XyDrawing, drawn: Sequence[dict[str, Any]], layout: dict[str, Any]) -> None:
    """Write the names of points into plotly's traces and layout, which gets the ranges for which
    they are placed: those of the narrowest page; on a wider one the points are further apart.
    """
    traces = axes.traces
    named = [i for i, t in enumerate(traces) if t.kind == "points" and len(t.names) == len(t.x)]
    points = [(i, k) for i in named for k in range(len(traces[i].x))]
    if not 0 < len(points) <= _MAX_NAMES:
        return
    xs = np.concatenate([np.asarray(t.x, dtype=float) for t in traces])
    ys = np.concatenate([[0.0], *(t.heights() for t in traces), [n.y for n in axes.limits]])
    low, high, bottom, top = xs.min(), xs.max(), np.nanmin(ys), np.nanmax(ys)
    beside = 0.5 if axes.whole else _BESIDE * ((high - low) or 1.0)
    left, right = float(low - beside), float(high + beside)
    tall = float(top - bottom) or 1.0
    floor, ceiling = float(bottom - _BELOW * tall), float(top + _OVER * tall)
    layout["xaxis"]["range"], layout["yaxis"]["range"] = [left, right], [floor, ceiling]

    def pixel(x: float, y: float) -> tuple[float, float]:
        across, up = (x - left) / (right - left), (y - floor) / (ceiling - floor)
        return _PLOT_WIDTH * across, _ABOVE + _PLOT_HEIGHT * (1 - up)

    places = [(float(traces[i].x[k]), float(traces[i].y[k] or 0.0)) for i, k in points]
    lines = [t for t in traces if t.kind == "line" and not t.marked]
    labels = place_labels(
        [pixel(*place) for place in places],
        [traces[i].names[k] for i, k in points],
        [
            spot
            for t in lines
            for spot in sample_points_along_line(
                [pixel(x, y) for x, y in zip(t.x, t.y, strict=True)]
            )
        ],
        width=_PLOT_WIDTH,
        height=_PLOT_HEIGHT + _ABOVE + 8,
    )
    for i in named:
        labels_of_trace = [label for (j, _), label in zip(points, labels, strict=True) if j == i]
        drawn[i].update(_names_beside([w if w and w.side else None for w in labels_of_trace]))
    layout["annotations"] += [
        _name_with_leader(label, place)
        for place, label in zip(places, labels, strict=True)
        if label is not None and not label.side
    ]


def _names_beside(labels: list[PointLabel | None]) -> dict[str, Any]:
    return {
        "mode": "markers+text",
        "text": [escape_plotly_label(w.text, 40) if w else "" for w in labels],
        "textposition": [w.side if w else "middle right" for w in labels],
        "textfont": {"size": 10, "color": TEXT_COLOUR},
        "cliponaxis": False,  # else a point on an axis is cut in half
    }


def _name_with_leader(label: PointLabel, place: tuple[float, float]) -> dict[str, Any]:
    return {
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": TEXT_COLOUR,
        "x": place[0],
        "y": place[1],
        "ax": label.end[0] - label.point[0],
        "ay": label.end[1] - label.point[1],
        "xanchor": _ANCHORS[label.anchor],
        "yanchor": "middle",
        "text": escape_plotly_label(label.text, 40),
        "font": {"size": 10, "color": TEXT_COLOUR},
    }
