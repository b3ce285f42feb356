"""Lines, points, areas and bars over two axes, with limits and marks: as plotly and as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.plots.chart import safe, safe_lines
from ctxkit.plots.decimation import POINTS
from ctxkit.plots.palette import GRID, LAYOUT, TEXT, colour, dash, symbol
from ctxkit.plots.point_names import name_points
from ctxkit.plots.svg import draw
from ctxkit.plots.traces import Plane

if TYPE_CHECKING:
    from ctxkit.plots.traces import Limit, Mark, Trace

_COUNTS = ("call", "turn")
"""Names of an x axis that counts from 0."""
_HEIGHT = 380
_FEW = 64
"""Lines of fewer points get markers, else a single point would not be seen."""


@dataclass(frozen=True, kw_only=True)
class Axes(Plane):
    """A plane and how it is drawn; implements `Drawing`."""

    def plotly(self) -> dict[str, Any]:
        """Return data and layout; at most about 2,000 points, the extremes of each trace exact."""
        room = max(POINTS // max(len(self.traces), 1), _FEW)
        values = [t.heights() for t in self.traces]
        rows = zip(self.traces, values, self.select_points(values, room, room), strict=True)
        data = [_trace(t, y, kept, stacked=self.stacked) for t, y, kept in rows]
        layout = self._layout()
        name_points(self.traces, data, layout)
        data += [_limit(n, self._span(), self.free_end(n)) for n in self.limits]
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture."""
        return draw(self)

    def _span(self) -> tuple[float, float]:
        ends = [float(v) for t in self.traces if len(t.x) for v in (t.x[0], t.x[-1])]
        return (min(ends), max(ends)) if ends else (0.0, 1.0)

    def _layout(self) -> dict[str, Any]:
        axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickcolor": GRID}
        x: dict[str, Any] = {
            **axis,
            "title": {"text": safe(self.x), "standoff": 6},
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
                "ticktext": [safe(t, 24) for t in self.ticks],
            }
        y = {
            **axis,
            "title": {"text": safe(self.y)},
            "rangemode": "tozero",
            "tickformat": ".0%" if self.y_share else "~f" if self.y_small else "~s",
        }
        return {
            **LAYOUT,
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
            "shapes": [_mark(m) for m in self.marks],
            "annotations": [_note(m) for m in self.marks if m.label],
        }


def _trace(trace: Trace, y: Any, kept: Any, *, stacked: bool) -> dict[str, Any]:
    x = np.asarray(trace.x)[kept]
    ink = trace.colour or colour(trace.look)
    out: dict[str, Any] = {"name": safe(trace.name), "x": _numbers(x), "y": _numbers(y[kept])}
    if trace.kind == "bar":
        out |= {"type": "bar", "marker": {"color": ink, "line": {"width": 0}}}
    else:
        out |= {
            "type": "scatter",
            "line": {"color": ink, "width": 2, "dash": trace.dash or dash(trace.look)},
        }
        out["marker"] = {
            "color": ink,
            "size": 9 if trace.kind == "points" else 5,
            "symbol": symbol(trace.look) + "-open" * trace.hollow,
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
            safe_lines(trace.hover(i)) for i in kept.tolist()
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


def _limit(limit: Limit, span: tuple[float, float], free: str) -> dict[str, Any]:
    """Return the line of a limit; where both ends are taken, the legend alone names it."""
    start, end = span
    name = safe(limit.label) + "<br> "
    return {
        "type": "scatter",
        "mode": "lines+text",
        "name": safe(limit.label),
        "x": [start, end if end > start else start + 1],
        "y": [limit.y, limit.y],
        "text": [name if free == "left" else "", name if free == "right" else ""],
        "textposition": "top right" if free == "left" else "top left",
        "cliponaxis": False,  # else the label of a limit near the top is cut off
        "textfont": {"color": TEXT, "size": 10},
        "line": {"color": limit.colour, "width": 1.2, "dash": "longdash"},
        "hovertemplate": safe(limit.label) + "<extra></extra>",
        "visible": True if limit.shown else "legendonly",
    }


def _mark(mark: Mark) -> dict[str, Any]:
    line = {"color": TEXT, "width": 1, "dash": "dot"}
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


def _note(mark: Mark) -> dict[str, Any]:
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
        "text": safe(mark.label, 24),
        "showarrow": False,
        "font": {"size": 10, "color": TEXT},
    }
