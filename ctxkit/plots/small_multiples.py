"""Small multiples on shared scales, as a plotly figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ctxkit._internal.chart_style import PLOTLY_LAYOUT, TEXT_COLOUR, make_translucent
from ctxkit.plots.chart import Drawing, escape_plotly_label, escape_plotly_label_lines
from ctxkit.plots.label_placement_and_thinning import decimate_points
from ctxkit.plots.xy_figure import AXIS_STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.xy_figure import Trace


MAX_PANEL_POINTS = 200
"""Points of a line: more than a panel is wide."""
CROWDED_MARKS = 20
"""Marks above which they are drawn smaller."""
_LETTERS = 76
"""Letters of all titles of a row together."""
_PLOTLY_ROW, _ABOVE, _BELOW = 112, 56, 64
_PLOTLY_GAP, _PLOTLY_HEAD = 0.014, 22
_STILL_ROW = 100


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    corner: str = ""
    """Short text at the right end of the title."""
    traces: tuple[Trace, ...] = ()
    """Lines, areas and points; traces with the same name share an entry in the legend."""
    limit: float | None = None
    """Height of a horizontal line; None: no line."""


@dataclass(frozen=True, kw_only=True)
class PanelGrid(Drawing):
    """Panels row by row, all on the same two scales."""

    still_width: ClassVar = 900
    panels: tuple[Panel, ...]
    x: str
    y: str
    limit: str = "limit"
    """Name of the horizontal line."""

    @property
    def columns(self) -> int:
        """Number of panels side by side: as many as leave a title its width; of four two."""
        n = len(self.panels)
        if n == 4:
            return 2
        return 4 if n > 9 else min(max(n, 1), 3)

    def letters(self, panel: Panel) -> int:
        """Return the maximum letters of a panel's title on a page of 700 pixels."""
        return _LETTERS // self.columns - (len(panel.corner) + 1 if panel.corner else 0)

    @property
    def rows(self) -> int:
        """Number of rows of panels."""
        return max(-(-len(self.panels) // self.columns), 1)

    @property
    def traces(self) -> list[Trace]:
        """The traces of all panels."""
        return [t for p in self.panels for t in p.traces]

    def reach(self) -> tuple[float, float, float]:
        """Return the ends of x and the top of y that all panels share; y begins at 0."""
        xs = [float(v) for t in self.traces if len(t.x) for v in (t.x[0], t.x[-1])] or [0.0]
        heights = [np.array(t.y, dtype=float) for t in self.traces]
        tops = [float(np.nanmax(y)) for y in heights if np.isfinite(y).any()]
        tops += [p.limit for p in self.panels if p.limit]
        # Half a call at both sides and 6 % at the top leave space for markers.
        return min(xs) - 0.5, max(xs) + 0.5, max(tops, default=0.0) * 1.06 or 1.0

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: every panel has axes of its own that move together."""
        data: list[dict[str, Any]] = []
        layout = self._layout()
        named: set[str] = set()
        reach = self.reach()
        for i, panel in enumerate(self.panels):
            place = {"xaxis": _axis_name("x", i), "yaxis": _axis_name("y", i)}
            for trace in panel.traces:
                data.append(
                    _plotly_panel_trace(trace, panel.title, first=trace.name not in named) | place
                )
                named.add(trace.name)
            if panel.limit:
                across = _plotly_panel_limit(
                    self.limit, panel.limit, reach[:2], first=self.limit not in named
                )
                data.append(across | place)
                named.add(self.limit)
            layout |= self._axes(i, reach)
            layout["annotations"] += _panel_title(panel, i, self.letters(panel))
        return {"data": data, "layout": layout}

    @property
    def still_height(self) -> int:
        """Pixels of the static picture."""
        return self.rows * _STILL_ROW + 40

    def _layout(self) -> dict[str, Any]:
        axis = {
            "xref": "paper",
            "yref": "paper",
            "showarrow": False,
            "font": {"size": 12, "color": TEXT_COLOUR},
        }
        return {
            **PLOTLY_LAYOUT,
            "font": {"color": TEXT_COLOUR, "size": 11},
            "height": self.rows * _PLOTLY_ROW + _ABOVE + _BELOW,
            "margin": {"l": 64, "r": 12, "t": _ABOVE, "b": _BELOW},
            "hovermode": "closest",
            "hoverlabel": {"align": "left", "namelength": -1},
            "legend": {
                "orientation": "h",
                "yref": "container",
                "y": 0,
                "yanchor": "bottom",
                "x": 0,
                "xanchor": "left",
            },
            "annotations": [
                {
                    **axis,
                    "text": escape_plotly_label(self.x),
                    "x": 0,
                    "y": 0,
                    "xanchor": "left",
                    "yanchor": "top",
                    "yshift": -18,
                },
                {
                    **axis,
                    "text": escape_plotly_label(self.y),
                    "x": 0,
                    "y": 0.5,
                    "xanchor": "right",
                    "xshift": -38,
                    "textangle": -90,
                },
            ],
        }

    def _axes(self, i: int, reach: tuple[float, float, float]) -> dict[str, Any]:
        """Return the axes of a panel; only those at the left and at the bottom are labelled."""
        row, column = divmod(i, self.columns)
        x0, x1, top = reach
        wide, high = 1 / self.columns, 1 / self.rows
        head = _PLOTLY_HEAD / (self.rows * _PLOTLY_ROW)
        axis = {**AXIS_STYLE, "nticks": 4}
        x = {
            **axis,
            "domain": [
                column * wide + (_PLOTLY_GAP / 2 if column else 0),
                (column + 1) * wide - _PLOTLY_GAP / 2,
            ],
            "anchor": _axis_name("y", i),
            "range": [x0, x1],
            "showgrid": False,
            "showline": True,
            "showticklabels": i + self.columns >= len(self.panels),
        }
        y = {
            **axis,
            "domain": [1 - (row + 1) * high + head / 4, 1 - row * high - head],
            "anchor": _axis_name("x", i),
            "range": [0, top],
            "tickformat": "~s",
            "showticklabels": column == 0,
        }
        # The first axis has no number; all others follow its range through `matches`.
        number = str(i + 1) if i else ""
        follow = {"matches": "x"} if i else {}, {"matches": "y"} if i else {}
        return {f"xaxis{number}": x | follow[0], f"yaxis{number}": y | follow[1]}


def thin_panel_points(trace: Trace) -> tuple[Any, Any, Any]:
    """Return the places, the heights and the indices of the points of a trace that are drawn."""
    y = np.array(trace.y, dtype=float)
    indices = decimate_points(y, MAX_PANEL_POINTS)
    return np.asarray(trace.x)[indices], y[indices], indices


def _plotly_panel_trace(trace: Trace, title: str, *, first: bool) -> dict[str, Any]:
    x, y, indices = thin_panel_points(trace)
    out: dict[str, Any] = {
        "type": "scatter",
        "name": escape_plotly_label(trace.name),
        "legendgroup": escape_plotly_label(trace.name),
        "showlegend": first,
        "x": x.tolist(),
        "y": [int(v) if math.isfinite(v) else None for v in y.tolist()],
    }
    if trace.kind == "points":
        size = 9 if len(y) <= CROWDED_MARKS else 6
        sign = (trace.symbol or "triangle-down") + "-open" * trace.hollow
        out |= {"mode": "markers", "marker": {"color": trace.colour, "size": size, "symbol": sign}}
    else:
        wide = 1.8 if trace.kind == "area" else 1.6
        mode = "lines" if len(y) > 1 else "lines+markers"
        out |= {
            "mode": mode,
            "line": {"color": trace.colour, "width": wide, "dash": trace.dash or "solid"},
        }
    if trace.kind == "area":
        out |= {"fill": "tozeroy", "fillcolor": make_translucent(trace.colour or TEXT_COLOUR)}
    if trace.hover is not None:
        out["hovertext"] = [escape_plotly_label_lines(trace.hover(i)) for i in indices.tolist()]
        out["hovertemplate"] = f"{escape_plotly_label(title)}<br>%{{hovertext}}<extra></extra>"
    else:
        out["hovertemplate"] = (
            f"{escape_plotly_label(title)}<br>{escape_plotly_label(trace.name)}<br>%{{x:,}}: "
            f"%{{y:,}}<extra></extra>"
        )
    return out


def _plotly_panel_limit(
    name: str, y: float, ends: tuple[float, float], *, first: bool
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape_plotly_label(name),
        "legendgroup": escape_plotly_label(name),
        "showlegend": first,
        "x": list(ends),
        "y": [y, y],
        "line": {"color": TEXT_COLOUR, "width": 1, "dash": "longdash"},
        "hovertemplate": f"{escape_plotly_label(name)} %{{y:,}}<extra></extra>",
    }


def _panel_title(panel: Panel, i: int, letters: int) -> Sequence[dict[str, Any]]:
    place: dict[str, Any] = {
        "xref": _axis_name("x", i) + " domain",
        "yref": _axis_name("y", i) + " domain",
    }
    place |= {"y": 1, "yanchor": "bottom", "showarrow": False}
    name = {
        **place,
        "text": escape_plotly_label(panel.title, letters),
        "x": 0,
        "xanchor": "left",
        "font": {"size": 11, "color": TEXT_COLOUR},
    }
    if not panel.corner:
        return [name]
    return [
        name,
        {
            **place,
            "text": escape_plotly_label(panel.corner, 8),
            "x": 1,
            "xanchor": "right",
            "font": {"size": 11},
        },
    ]


def _axis_name(name: str, i: int) -> str:
    return name + (str(i + 1) if i else "")
