"""Many small pictures of one kind side by side, all on the same two scales: as a plotly figure and as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.plots.axes import safe_lines
from ctxkit.plots.chart import safe
from ctxkit.plots.decimation import decimate
from ctxkit.plots.palette import GRID, TEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.axes import Trace

SHARP = 200
"""Points of a line: more than a panel is wide."""
CROWD = 20
"""Marks above which they are drawn smaller."""
_ROW, _ABOVE, _BELOW = 112, 56, 64
_GAP, _HEAD = 0.014, 22


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    corner: str = ""
    """A few signs at the right end of the title."""
    traces: tuple[Trace, ...] = ()
    """Lines, areas and points; traces of one name in several panels have one place in the legend."""
    limit: float | None = None
    """A line across."""


@dataclass(frozen=True, kw_only=True)
class Panels:
    """What is drawn, row by row; implements `Drawing`."""

    panels: tuple[Panel, ...]
    x: str
    y: str
    limit: str = "limit"
    """What the line across is called."""

    @property
    def columns(self) -> int:
        """How many stand side by side: as many as still have room for a title."""
        n = len(self.panels)
        return 5 if n > 16 else 4 if n > 9 else min(max(n, 1), 3)

    @property
    def rows(self) -> int:
        """How many stand one below another."""
        return max(-(-len(self.panels) // self.columns), 1)

    def reach(self) -> tuple[float, float, float]:
        """Return the ends of x and the top of y that all panels share; y begins at 0."""
        xs = [float(v) for t in self._traces() if len(t.x) for v in (t.x[0], t.x[-1])] or [0.0]
        tops = [float(np.nanmax(y)) for t in self._traces() if np.isfinite(y := np.array(t.y, dtype=float)).any()]
        tops += [p.limit for p in self.panels if p.limit]
        return min(xs) - 0.5, max(xs) + 0.5, max(tops, default=0.0) * 1.06 or 1.0

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: every panel has axes of its own that move together."""
        data: list[dict[str, Any]] = []
        layout = self._layout()
        told: set[str] = set()
        x0, x1, _ = self.reach()
        for i, panel in enumerate(self.panels):
            place = {"xaxis": _axis("x", i), "yaxis": _axis("y", i)}
            for trace in panel.traces:
                data.append(_trace(trace, panel.title, first=trace.name not in told) | place)
                told.add(trace.name)
            if panel.limit:
                data.append(_limit(self.limit, panel.limit, (x0, x1), first=self.limit not in told) | place)
                told.add(self.limit)
            layout |= self._axes(i)
            layout["annotations"] += _title(panel, i)
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture."""
        from ctxkit.plots.small import draw

        return draw(self)

    def _traces(self) -> list[Trace]:
        return [t for p in self.panels for t in p.traces]

    def _layout(self) -> dict[str, Any]:
        axis = {"xref": "paper", "yref": "paper", "showarrow": False, "font": {"size": 12, "color": TEXT}}
        return {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": TEXT, "size": 11},
            "height": self.rows * _ROW + _ABOVE + _BELOW,
            "margin": {"l": 64, "r": 12, "t": _ABOVE, "b": _BELOW},
            "hovermode": "closest",
            "hoverlabel": {"align": "left", "namelength": -1},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": TEXT, "activecolor": TEXT},
            "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
            "annotations": [
                {**axis, "text": safe(self.x), "x": 1, "y": 0, "xanchor": "right", "yanchor": "top", "yshift": -18},
                {**axis, "text": safe(self.y), "x": 0, "y": 0.5, "xanchor": "right", "xshift": -38, "textangle": -90},
            ],
        }

    def _axes(self, i: int) -> dict[str, Any]:
        """Return the axes of a panel; only those at the left and at the bottom are labelled."""
        row, column = divmod(i, self.columns)
        x0, x1, top = self.reach()
        wide, high = 1 / self.columns, 1 / self.rows
        head = _HEAD / (self.rows * _ROW)
        axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickcolor": GRID, "nticks": 4}
        x = {
            **axis,
            "domain": [column * wide + (_GAP / 2 if column else 0), (column + 1) * wide - _GAP / 2],
            "anchor": _axis("y", i),
            "range": [x0, x1],
            "showgrid": False,
            "showline": True,
            "showticklabels": i + self.columns >= len(self.panels),
        }
        y = {
            **axis,
            "domain": [1 - (row + 1) * high + head / 4, 1 - row * high - head],
            "anchor": _axis("x", i),
            "range": [0, top],
            "tickformat": "~s",
            "showticklabels": column == 0,
        }
        number = str(i + 1) if i else ""
        follow = {"matches": "x"} if i else {}, {"matches": "y"} if i else {}
        return {f"xaxis{number}": x | follow[0], f"yaxis{number}": y | follow[1]}


def points(trace: Trace) -> tuple[Any, Any, Any]:
    """Return the places, the heights and the indices of the points of a trace that are drawn."""
    y = np.array(trace.y, dtype=float)
    kept = decimate(y, SHARP)
    return np.asarray(trace.x)[kept], y[kept], kept


def _trace(trace: Trace, title: str, *, first: bool) -> dict[str, Any]:
    x, y, kept = points(trace)
    out: dict[str, Any] = {
        "type": "scatter",
        "name": safe(trace.name),
        "legendgroup": safe(trace.name),
        "showlegend": first,
        "x": x.tolist(),
        "y": [int(v) if math.isfinite(v) else None for v in y.tolist()],
    }
    if trace.kind == "points":
        size = 7 if len(y) <= CROWD else 5
        sign = "triangle-down" + "-open" * trace.hollow
        out |= {"mode": "markers", "marker": {"color": trace.colour, "size": size, "symbol": sign}}
    else:
        wide = 1.8 if trace.kind == "area" else 1.2
        mode = "lines" if len(y) > 1 else "lines+markers"
        out |= {"mode": mode, "line": {"color": trace.colour, "width": wide, "dash": trace.dash or "solid"}}
    if trace.kind == "area":
        out |= {"fill": "tozeroy", "fillcolor": faint(trace.colour or TEXT)}
    if trace.hover is not None:
        out["hovertext"] = [safe_lines(trace.hover(i)) for i in kept.tolist()]
        out["hovertemplate"] = f"{safe(title)}<br>%{{hovertext}}<extra></extra>"
    else:
        out["hovertemplate"] = f"{safe(title)}<br>{safe(trace.name)}<br>%{{x:,}}: %{{y:,}}<extra></extra>"
    return out


def _limit(name: str, y: float, ends: tuple[float, float], *, first: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": safe(name),
        "legendgroup": safe(name),
        "showlegend": first,
        "x": list(ends),
        "y": [y, y],
        "line": {"color": TEXT, "width": 1, "dash": "longdash"},
        "hovertemplate": f"{safe(name)} %{{y:,}}<extra></extra>",
    }


def _title(panel: Panel, i: int) -> Sequence[dict[str, Any]]:
    place: dict[str, Any] = {"xref": _axis("x", i) + " domain", "yref": _axis("y", i) + " domain"}
    place |= {"y": 1, "yanchor": "bottom", "showarrow": False}
    name = {**place, "text": safe(panel.title, 26), "x": 0, "xanchor": "left", "font": {"size": 12, "color": TEXT}}
    if not panel.corner:
        return [name]
    return [name, {**place, "text": safe(panel.corner, 8), "x": 1, "xanchor": "right", "font": {"size": 11}}]


def _axis(name: str, i: int) -> str:
    return name + (str(i + 1) if i else "")


def faint(ink: str) -> str:
    """Return a colour of the palette as a veil that both themes shine through."""
    red, green, blue = (int(ink[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"
