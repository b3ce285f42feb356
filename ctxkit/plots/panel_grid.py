"""Many small pictures of one kind side by side, all on the same two scales: as a plotly figure and
as SVG.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.plots.chart import safe, safe_lines
from ctxkit.plots.mosaics import CROWD, Mosaic, points
from ctxkit.plots.palette import GRID, LAYOUT, TEXT, faint
from ctxkit.plots.small import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.mosaics import Panel
    from ctxkit.plots.traces import Trace

_ROW, _ABOVE, _BELOW = 112, 56, 64
_GAP, _HEAD = 0.014, 22


@dataclass(frozen=True, kw_only=True)
class Panels(Mosaic):
    """Many small pictures and how they are drawn; implements `Drawing`."""

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: every panel has axes of its own that move together."""
        data: list[dict[str, Any]] = []
        layout = self._layout()
        told: set[str] = set()
        reach = self.reach()
        for i, panel in enumerate(self.panels):
            place = {"xaxis": _axis("x", i), "yaxis": _axis("y", i)}
            for trace in panel.traces:
                data.append(_trace(trace, panel.title, first=trace.name not in told) | place)
                told.add(trace.name)
            if panel.limit:
                across = _limit(self.limit, panel.limit, reach[:2], first=self.limit not in told)
                data.append(across | place)
                told.add(self.limit)
            layout |= self._axes(i, reach)
            layout["annotations"] += _title(panel, i, self.letters(panel))
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture."""
        return draw(self)

    def _layout(self) -> dict[str, Any]:
        axis = {
            "xref": "paper",
            "yref": "paper",
            "showarrow": False,
            "font": {"size": 12, "color": TEXT},
        }
        return {
            **LAYOUT,
            "font": {"color": TEXT, "size": 11},
            "height": self.rows * _ROW + _ABOVE + _BELOW,
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
                    "text": safe(self.x),
                    "x": 1,
                    "y": 0,
                    "xanchor": "right",
                    "yanchor": "top",
                    "yshift": -18,
                },
                {
                    **axis,
                    "text": safe(self.y),
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
        head = _HEAD / (self.rows * _ROW)
        axis = {
            "gridcolor": GRID,
            "zeroline": False,
            "linecolor": GRID,
            "tickcolor": GRID,
            "nticks": 4,
        }
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
        out |= {
            "mode": mode,
            "line": {"color": trace.colour, "width": wide, "dash": trace.dash or "solid"},
        }
    if trace.kind == "area":
        out |= {"fill": "tozeroy", "fillcolor": faint(trace.colour or TEXT)}
    if trace.hover is not None:
        out["hovertext"] = [safe_lines(trace.hover(i)) for i in kept.tolist()]
        out["hovertemplate"] = f"{safe(title)}<br>%{{hovertext}}<extra></extra>"
    else:
        out["hovertemplate"] = (
            f"{safe(title)}<br>{safe(trace.name)}<br>%{{x:,}}: %{{y:,}}<extra></extra>"
        )
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


def _title(panel: Panel, i: int, letters: int) -> Sequence[dict[str, Any]]:
    place: dict[str, Any] = {"xref": _axis("x", i) + " domain", "yref": _axis("y", i) + " domain"}
    place |= {"y": 1, "yanchor": "bottom", "showarrow": False}
    name = {
        **place,
        "text": safe(panel.title, letters),
        "x": 0,
        "xanchor": "left",
        "font": {"size": 11, "color": TEXT},
    }
    if not panel.corner:
        return [name]
    return [
        name,
        {**place, "text": safe(panel.corner, 8), "x": 1, "xanchor": "right", "font": {"size": 11}},
    ]


def _axis(name: str, i: int) -> str:
    return name + (str(i + 1) if i else "")
