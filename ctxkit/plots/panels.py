"""Small multiples on shared scales, as a plotly figure and as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.formatting import escape_html
from ctxkit._internal.palette import (
    GRID_COLOUR,
    PLOTLY_LAYOUT,
    SVG_DASHES,
    TEXT_COLOUR,
    make_translucent,
)
from ctxkit.plots.chart import escape_label, escape_label_lines
from ctxkit.plots.decimation import decimate
from ctxkit.plots.svg import (
    choose_ticks,
    format_tick,
    make_svg,
    make_svg_line,
    make_svg_path,
    make_svg_text,
    render_legend_keys,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.figure_data import Trace


MAX_PANEL_POINTS = 200
"""Points of a line: more than a panel is wide."""
CROWDED_MARKS = 20
"""Marks above which they are drawn smaller."""
_LETTERS = 76
"""Letters of all titles of a row together."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    corner: str = ""
    """A few signs at the right end of the title."""
    traces: tuple[Trace, ...] = ()
    """Lines, areas and points; those of one name have one place in the legend of all panels."""
    limit: float | None = None
    """A line across."""


@dataclass(frozen=True, kw_only=True)
class PanelGridData:
    """Pictures row by row, all on the same two scales; `Panels` draws it."""

    panels: tuple[Panel, ...]
    x: str
    y: str
    limit: str = "limit"
    """What the line across is called."""

    @property
    def columns(self) -> int:
        """How many stand side by side: as many as still have room for a title."""
        n = len(self.panels)
        return 4 if n > 9 else min(max(n, 1), 3)

    def letters(self, panel: Panel) -> int:
        """Return how long the title of a panel may be, so that it ends before the next on a page
        of 700 pixels beside the bars of a notebook.
        """
        return _LETTERS // self.columns - (len(panel.corner) + 1 if panel.corner else 0)

    @property
    def rows(self) -> int:
        """How many stand one below another."""
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
        return min(xs) - 0.5, max(xs) + 0.5, max(tops, default=0.0) * 1.06 or 1.0


def thin_panel_points(trace: Trace) -> tuple[Any, Any, Any]:
    """Return the places, the heights and the indices of the points of a trace that are drawn."""
    y = np.array(trace.y, dtype=float)
    kept = decimate(y, MAX_PANEL_POINTS)
    return np.asarray(trace.x)[kept], y[kept], kept


_PLOTLY_ROW, _ABOVE, _BELOW = 112, 56, 64
_PLOTLY_GAP, _PLOTLY_HEAD = 0.014, 22


@dataclass(frozen=True, kw_only=True)
class PanelGrid(PanelGridData):
    """Many small pictures and how they are drawn; implements `Drawing`."""

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: every panel has axes of its own that move together."""
        data: list[dict[str, Any]] = []
        layout = self._layout()
        told: set[str] = set()
        reach = self.reach()
        for i, panel in enumerate(self.panels):
            place = {"xaxis": _axis_name("x", i), "yaxis": _axis_name("y", i)}
            for trace in panel.traces:
                data.append(
                    _plotly_panel_trace(trace, panel.title, first=trace.name not in told) | place
                )
                told.add(trace.name)
            if panel.limit:
                across = _plotly_panel_limit(
                    self.limit, panel.limit, reach[:2], first=self.limit not in told
                )
                data.append(across | place)
                told.add(self.limit)
            layout |= self._axes(i, reach)
            layout["annotations"] += _panel_title(panel, i, self.letters(panel))
        return {"data": data, "layout": layout}

    def svg(self) -> str:
        """Return the static picture."""
        return draw_panels(self)

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
                    "text": escape_label(self.x),
                    "x": 1,
                    "y": 0,
                    "xanchor": "right",
                    "yanchor": "top",
                    "yshift": -18,
                },
                {
                    **axis,
                    "text": escape_label(self.y),
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
        axis = {
            "gridcolor": GRID_COLOUR,
            "zeroline": False,
            "linecolor": GRID_COLOUR,
            "tickcolor": GRID_COLOUR,
            "nticks": 4,
        }
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
        number = str(i + 1) if i else ""
        follow = {"matches": "x"} if i else {}, {"matches": "y"} if i else {}
        return {f"xaxis{number}": x | follow[0], f"yaxis{number}": y | follow[1]}


def _plotly_panel_trace(trace: Trace, title: str, *, first: bool) -> dict[str, Any]:
    x, y, kept = thin_panel_points(trace)
    out: dict[str, Any] = {
        "type": "scatter",
        "name": escape_label(trace.name),
        "legendgroup": escape_label(trace.name),
        "showlegend": first,
        "x": x.tolist(),
        "y": [int(v) if math.isfinite(v) else None for v in y.tolist()],
    }
    if trace.kind == "points":
        size = 7 if len(y) <= CROWDED_MARKS else 5
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
        out |= {"fill": "tozeroy", "fillcolor": make_translucent(trace.colour or TEXT_COLOUR)}
    if trace.hover is not None:
        out["hovertext"] = [escape_label_lines(trace.hover(i)) for i in kept.tolist()]
        out["hovertemplate"] = f"{escape_label(title)}<br>%{{hovertext}}<extra></extra>"
    else:
        out["hovertemplate"] = (
            f"{escape_label(title)}<br>{escape_label(trace.name)}<br>%{{x:,}}: "
            f"%{{y:,}}<extra></extra>"
        )
    return out


def _plotly_panel_limit(
    name: str, y: float, ends: tuple[float, float], *, first: bool
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape_label(name),
        "legendgroup": escape_label(name),
        "showlegend": first,
        "x": list(ends),
        "y": [y, y],
        "line": {"color": TEXT_COLOUR, "width": 1, "dash": "longdash"},
        "hovertemplate": f"{escape_label(name)} %{{y:,}}<extra></extra>",
    }


def _panel_title(panel: Panel, i: int, letters: int) -> Sequence[dict[str, Any]]:
    place: dict[str, Any] = {
        "xref": _axis_name("x", i) + " domain",
        "yref": _axis_name("y", i) + " domain",
    }
    place |= {"y": 1, "yanchor": "bottom", "showarrow": False}
    name = {
        **place,
        "text": escape_label(panel.title, letters),
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
            "text": escape_label(panel.corner, 8),
            "x": 1,
            "xanchor": "right",
            "font": {"size": 11},
        },
    ]


def _axis_name(name: str, i: int) -> str:
    return name + (str(i + 1) if i else "")


_WIDTH, _LEFT, _BOTTOM = 900, 44, 22
_SVG_ROW, _SVG_HEAD, _SVG_GAP = 100, 18, 10


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


def draw_panels(drawn: PanelGridData) -> str:
    """Return an SVG picture of all panels with one legend; nothing of it is a script or a link."""
    x0, x1, top = drawn.reach()
    step = (_WIDTH - _LEFT) / drawn.columns
    height = drawn.rows * _SVG_ROW + _BOTTOM
    parts = []
    for i, panel in enumerate(drawn.panels):
        row, column = divmod(i, drawn.columns)
        place = _Place(
            _LEFT + column * step,
            row * _SVG_ROW + _SVG_HEAD,
            step - _SVG_GAP,
            _SVG_ROW - _SVG_HEAD - 6,
            x0,
            x1,
            top,
        )
        parts.append(
            _svg_panel_grid(place, left=column == 0, last=i + drawn.columns >= len(drawn.panels))
        )
        parts.append(_svg_panel(place, panel, drawn.letters(panel)))
    return f"{make_svg(parts, _WIDTH, height)}{_legend(drawn)}"


def _svg_panel_grid(place: _Place, *, left: bool, last: bool) -> str:
    right, out = place.left + place.wide, []
    for tick in choose_ticks(0, place.y1, 2):
        y = place.y(tick)
        out.append(make_svg_line((place.left, y), (right, y), GRID_COLOUR))
        out.append(make_svg_text(place.left - 5, y + 4, format_tick(tick), "end") if left else "")
    if last:
        below = place.top + place.high + 14
        ticks = [t for t in choose_ticks(place.x0, place.x1, 3) if float(t).is_integer()]
        out += [make_svg_text(place.x(t), below, format_tick(t), "middle") for t in ticks]
    return "".join(out)


def _svg_panel(place: _Place, panel: Panel, letters: int) -> str:
    right, above = place.left + place.wide, place.top - 5
    out = [make_svg_text(place.left, above, panel.title, "start", limit=letters)]
    out += [make_svg_text(right, above, panel.corner, "end", limit=8)] if panel.corner else []
    if panel.limit:
        y = place.y(panel.limit)
        out.append(make_svg_line((place.left, y), (right, y), TEXT_COLOUR, "longdash"))
    return "".join([*out, *(_svg_panel_trace(place, t) for t in panel.traces)])


def _svg_panel_trace(place: _Place, trace: Trace) -> str:
    x, y, _ = thin_panel_points(trace)
    known = np.isfinite(y)
    spots = list(zip(place.x(x[known]).tolist(), place.y(y[known]).tolist(), strict=True))
    ink = trace.colour or TEXT_COLOUR
    if trace.kind == "points":
        r = 4 if len(spots) <= CROWDED_MARKS else 2.5
        sign = f"h{2 * r}l-{r} {1.8 * r}z"
        fill = f'fill="none" stroke="{ink}"' if trace.hollow else f'fill="{ink}"'
        return "".join(f'<path d="M{a - r:.1f} {b - r:.1f}{sign}" {fill}/>' for a, b in spots)
    if len(spots) == 1:
        return f'<circle cx="{spots[0][0]:.1f}" cy="{spots[0][1]:.1f}" r="2.5" fill="{ink}"/>'
    drawn = make_svg_path(spots)
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
    return f'<path d="{under}" fill="{make_translucent(ink)}"/>{path}'


def _sign(trace: Trace) -> str:
    """Return how a trace looks, as a letter or two."""
    if trace.kind == "line":
        return _DASHED.get(trace.dash or "solid", "&#8943;")
    return "&#9632;" if trace.kind == "area" else "&#9661;" if trace.hollow else "&#9660;"


def _legend(drawn: PanelGridData) -> str:
    traces = [t for t in drawn.traces if t.kind in ("area", "line", "points")]
    looks = {t.name: (t.colour or TEXT_COLOUR, _sign(t)) for t in traces}
    if any(p.limit for p in drawn.panels):
        looks[drawn.limit] = (TEXT_COLOUR, "&#8212;")
    signs = (
        (f'<span aria-hidden="true" style="color:{ink}">{sign}</span>', name)
        for name, (ink, sign) in looks.items()
    )
    return (
        f'<div style="font-size:12px">{render_legend_keys(signs)}; across: '
        f"{escape_html(drawn.x, 40)}, upward:"
        f" {escape_html(drawn.y, 40)}</div>"
    )
