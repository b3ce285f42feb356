"""Static SVG of any plotly figure: axes, traces, shapes, annotations, and a legend in HTML."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit._internal.chart_style import GRID_COLOUR, SVG_DASHES, TEXT_COLOUR, choose_text_colour
from ctxkit._internal.formatting_and_sanitizing import escape_html
from ctxkit._internal.tables import SCROLL_BOX_CSS
from ctxkit.plots.label_placement_and_thinning import (
    decimate_points,
    place_labels,
    sample_points_along_line,
)
from ctxkit.plots.plotly_axes_and_traces_as_numbers import (
    MAX_RECTANGLES,
    FigureAxis,
    RectangleTrace,
    ScatterTrace,
    TraceReader,
    convert_histogram_to_bars,
    convert_treemap_to_bars,
    escape_plotly_text,
    get_json_path,
    read_trace_column,
    sanitize_colour,
    to_float,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Json = Mapping[str, Any]
    Floats = NDArray[np.float64]

MAX_TRACES, MAX_POINTS, MAX_LABELS, MAX_LEGEND_KEYS = 400, 12_000, 64, 24
"""Limits that, with `MAX_RECTANGLES`, bound the bytes of a picture."""
_FEWEST, _MOST = 60, 600
"""Points of a trace at least and at most: a picture is 650 pixels wide."""
_MIN_SHARE = 0.86
"""A picture shrinks to this share, so that its smallest text has 9.5 pixels; then it scrolls."""
_MAX_SCALE = 1000 / 720
"""A picture grows by this factor at most: one of 720 pixels to the width of a page."""
_LETTER = 6.2
"""Pixels of a letter of 11 pixels."""
_INK = "var(--jp-content-font-color2,currentColor)"
_HALO = (
    ";paint-order:stroke;stroke:var(--jp-layout-color0,var(--vscode-editor-background,transparent))"
    ";stroke-width:3px"
)
"""Keeps a text apart from the lines that it is on."""
_LINES, _BARS = ("scatter", "scattergl"), ("bar", "heatmap")
_PARTS = ("treemap", "sunburst", "icicle", "pie", "funnelarea")
_ANCHORS = {"left": "start", "right": "end"}


def render_svg_html(figure: Any, *, width: int = 720, height: int | None = None) -> str:
    """Render a plotly figure as a static picture: SVG and a legend, without scripts or links.

    Lines, areas, points, bars and heat maps are drawn over any number of axes; the outer parts of
    treemaps, sunbursts and pies as bars, the longest first. Traces of other types are counted
    below the picture. Texts and colours are escaped, and points are thinned.

    Args:
        figure: a plotly ``go.Figure``, or its JSON with `data` and `layout`.
        width: width of the picture, in pixels; it is shown as wide as its place, but no wider than
            1.4 times that. In a place that is much narrower it scrolls sideways, with a shadow at
            the edge.
        height: height of the picture, in pixels; None: 63 % of the figure's own.

    Returns:
        HTML.

    Example:
        >>> picture = render_svg_html({"data": [{"x": [1, 2], "y": [3, 5], "name": "<b>a</b>"}]})
        >>> "<svg" in picture, "<b>" in picture
        (True, False)
    """
    raw = figure.to_plotly_json() if hasattr(figure, "to_plotly_json") else figure
    layout = raw.get("layout") or {}
    traces = [t for t in raw.get("data") or () if t.get("visible", True) is True]
    if any(t.get("type") in _PARTS for t in traces):
        traces = [convert_treemap_to_bars(t) for t in traces if t.get("type") in _PARTS]
        height = height or 16 + 20 * max(len(t["y"]) for t in traces)
    traces = [convert_histogram_to_bars(t) if t.get("type") == "histogram" else t for t in traces]
    drawn = [t for t in traces if t.get("type", "scatter") in _LINES + _BARS][:MAX_TRACES]
    height = height or round(0.63 * min(max(layout.get("height") or 380, 120), 1200))
    picture = _Picture(drawn, layout, width, height).render()
    left_out = len(traces) - len(drawn)
    note = f"<div><small>{left_out:,} more traces are not drawn here.</small></div>"
    return picture + (note if left_out else "")


# -- the picture --------------------------------------------------------------------------------


# The order of a drawing: traces become numbers, axes get their ranges, ticks give the margins, and
# margins the pixels; only then shapes are written. Names of points come last, for they avoid what
# is there already. What bounds the bytes: each trace has an equal part of `MAX_POINTS` or
# `MAX_RECTANGLES`, of which `decimate_points` keeps the extremes; bars of one colour are one path,
# the markers of a trace another, and areas are written in steps of a tenth of a pixel. Nothing of a
# figure is written unescaped: texts go through `escape_plotly_text`, colours through
# `sanitize_colour`, and all else is a number or a word of ours.
class _Picture:
    """A figure over axes: numbers first, then ranges and margins, then shapes."""

    def __init__(self, traces: list[Json], layout: Json, width: int, height: int) -> None:
        reader = TraceReader(traces, layout)
        self.layout, self.width, self.height = layout, width, height
        self.x_axes, self.y_axes = reader.x_axes, reader.y_axes
        self.traces = [reader.read_trace(i, trace) for i, trace in enumerate(traces)]
        self.labels: list[tuple[tuple[float, float], str]] = []
        """Names of points that are still to be placed."""
        for k, axes in enumerate((self.x_axes, self.y_axes)):
            for axis in axes.values():
                traces_of_axis = [t for t in self.traces if t.axes[k] is axis]
                pad = 0.02 * any(t.mode == "markers" for t in traces_of_axis)
                axis.choose_range(np.concatenate([[], *(t.ends[k] for t in traces_of_axis)]), pad)
        lines = sum(isinstance(t, ScatterTrace) for t in self.traces)
        self.points = min(max(MAX_POINTS // max(lines, 1), _FEWEST), _MOST)
        self.boxes = max(MAX_RECTANGLES // max(len(traces) - lines, 1), _FEWEST)
        self._set_margins()

    def _set_margins(self) -> None:
        """Choose the plot area, so that texts beside it have room, and span the axes over it."""
        sides = [12.0, 12.0]
        for axis in self.y_axes.values():
            texts = [len(text) for _, text in axis.list_ticks()] if axis.has_labels else []
            margin = 10 + _LETTER * min(max(texts, default=0), 28) + 17 * bool(axis.get_title())
            right = axis.spec.get("side") == "right"
            sides[right] = max(sides[right], margin)
        notes = [n for n in self.layout.get("annotations") or () if n.get("yref") == "paper"]
        if any(n.get("textangle") for n in notes):
            sides[0] = max(sides[0], 52.0)
        below = any(n.get("y") == 0 for n in notes) or any(
            a.get_title() for a in self.x_axes.values()
        )
        ticked = any(a.has_labels for a in self.x_axes.values())
        # Values at the ends of bars need width at the right.
        valued = (
            any(isinstance(t, RectangleTrace) and len(t.texts) for t in self.traces) and not ticked
        )
        self.left, self.right = sides[0], self.width - sides[1] - 68 * valued
        self.top, self.bottom = 14.0, self.height - (4.0 + 16 * ticked + 15 * below)
        for axes, start, end in (
            (self.x_axes, self.left, self.right),
            (self.y_axes, self.bottom, self.top),
        ):
            for axis in axes.values():
                first, last = axis.spec.get("domain") or (0, 1)
                axis.start = start + first * (end - start)
                axis.end = start + last * (end - start)

    def render(self) -> str:
        """Return the SVG, and its legend below."""
        # Boxes, then lines, then markers: a small mark is never covered by a large one.
        drawn = sorted(
            self.traces, key=lambda t: isinstance(t, ScatterTrace) + (t.mode == "markers")
        )
        parts = [*self._draw_grid(), *self._draw_shapes()]
        for one in drawn:
            parts += (
                self._draw_boxes(one) if isinstance(one, RectangleTrace) else self._draw_line(one)
            )
        parts += [*self._draw_annotations(), *self._place_labels()]
        spoken = any("<title>" in part for part in parts)
        hidden = "" if spoken else ' aria-hidden="true"'  # a table says the same to who hears
        least, most = round(_MIN_SHARE * self.width), round(_MAX_SCALE * self.width)
        return (
            f'<div style="{SCROLL_BOX_CSS};font-size:0">'  # see `_svg_text`
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
            f' style="width:100%;min-width:{least}px;max-width:{most}px;height:auto"{hidden}>'
            f"{''.join(parts)}</svg></div>{self._render_legend()}"
        )

    def _crossing_axis(self, axis: FigureAxis, name: str) -> FigureAxis:
        """Return the axis that an axis crosses."""
        others = self.y_axes if axis.horizontal else self.x_axes
        usual = f"{'y' if axis.horizontal else 'x'}{name[1:]}"
        return others.get(axis.spec.get("anchor") or usual) or next(iter(others.values()))

    def _draw_grid(self) -> Iterator[str]:
        for name, axis in self.y_axes.items():
            across, right = self._crossing_axis(axis, name), axis.spec.get("side") == "right"
            grid = axis.kind != "category" and axis.spec.get("showgrid", not right) is not False
            for value, text in axis.list_ticks():
                y = float(axis.to_pixels(value))
                if grid:
                    yield _svg_line((across.start, y), (across.end, y), GRID_COLOUR)
                if axis.has_labels:
                    place = (across.end + 6, "start") if right else (across.start - 6, "end")
                    yield _svg_text(place[0], y + 4, escape_plotly_text(text, 28), place[1])
            x = self.width - 5 if right else 11.0
            yield _svg_text(x, (axis.start + axis.end) / 2, axis.get_title(), "middle", turned=True)
        for name, axis in self.x_axes.items():
            bottom, ticks = (
                self._crossing_axis(axis, name).start,
                axis.list_ticks() if axis.has_labels else [],
            )
            longest = max((min(len(text), 24) for _, text in ticks), default=0)
            needed = len(ticks) * _LETTER * (longest + 1) / max(abs(axis.end - axis.start), 1.0)
            # Where the texts would overlap, only every n-th tick has one.
            for value, text in ticks[:: max(math.ceil(needed), 1)]:
                x = min(float(axis.to_pixels(value)), self.width - 0.5 * _LETTER * len(text))
                yield _svg_text(x, bottom + 16, escape_plotly_text(text, 24), "middle")
            middle = (axis.start + axis.end) / 2
            yield _svg_text(middle, bottom + (31 if ticks else 16), axis.get_title(), "middle")

    def _place_in_pixels(self, mark: Json, letter: str, key: str) -> float:
        """Return a place of a shape or an annotation in pixels."""
        axes = self.x_axes if letter == "x" else self.y_axes
        ref, value = str(mark.get(f"{letter}ref") or letter), mark.get(key)
        axis = axes.get(ref.split(" ", maxsplit=1)[0])
        if axis is not None and not ref.endswith("domain"):
            return float(axis.to_pixels(axis.to_numbers([value])[0]))
        # In paper coordinates, or those of an axis domain, a place is a share between two ends.
        ends = (self.left, self.right) if letter == "x" else (self.bottom, self.top)
        start, end = ends if axis is None else (axis.start, axis.end)
        return start + to_float(value) * (end - start)

    def _draw_shapes(self) -> Iterator[str]:
        for shape in (self.layout.get("shapes") or ())[:MAX_TRACES]:
            x0, y0, x1, y1 = (
                self._place_in_pixels(shape, k[0], k) for k in ("x0", "y0", "x1", "y1")
            )
            if not math.isfinite(x0 + x1 + y0 + y1):
                continue
            if shape.get("type") == "rect":
                box = f"M{x0:.1f} {y0:.1f}H{x1:.1f}V{y1:.1f}H{x0:.1f}z"
                yield f'<path d="{box}" {_area_fill(shape, TEXT_COLOUR)}/>'
            elif shape.get("type") == "line":
                ink, dash = (
                    sanitize_colour(get_json_path(shape, "line.color")),
                    get_json_path(shape, "line.dash"),
                )
                yield _svg_line((x0, y0), (x1, y1), ink, dash)

    def _draw_annotations(self) -> Iterator[str]:
        for note in (self.layout.get("annotations") or ())[:MAX_TRACES]:
            x, y = self._place_in_pixels(note, "x", "x"), self._place_in_pixels(note, "y", "y")
            text = escape_plotly_text(note.get("text"), 80)
            if not math.isfinite(x + y):
                continue
            if note.get("showarrow", True) is not False:
                self.labels.append(((x, y), text))
                continue
            x, y = x + to_float(note.get("xshift", 0)), y - to_float(note.get("yshift", 0))
            anchor = _ANCHORS.get(str(note.get("xanchor")), "middle")
            down = {"top": 11.0, "bottom": -3.0}.get(str(note.get("yanchor")), 4.0)
            if note.get("textangle"):
                yield _svg_text(x, y, text, "middle", turned=True)
            else:
                yield _svg_text(x, y + down, text, anchor, _HALO)

    def _draw_line(self, one: ScatterTrace) -> Iterator[str]:
        index = decimate_points(one.y, self.points)
        points = self._to_pixels(one, index)
        finite = [point for point in points if point is not None]
        stacked = bool(one.trace.get("stackgroup"))
        if one.base is not None and finite:
            below = [p for p in self._to_pixels(one._replace(y=one.base), index) if p is not None]
            fill = f'fill="{one.ink}"' if stacked else _area_fill(one.trace, one.ink)
            yield f'<path d="{_closed_path([*finite, *below[::-1]])}" {fill}/>'
        if "lines" in one.mode and finite and not stacked:
            yield f'<path d="{_broken_path(points)}" fill="none" {_line_style(one)}/>'
        if "markers" in one.mode:
            yield _marker_path(one, finite)
        if "text" in one.mode:
            yield from self._draw_texts(one, index, points)

    def _to_pixels(self, one: ScatterTrace, index: Any) -> list[tuple[float, float] | None]:
        """Return points in pixels; None for one that is unknown or outside the figure's range."""
        x_axis, y_axis = one.axes
        xs, ys = x_axis.to_pixels(one.x[index]), y_axis.to_pixels(one.y[index])
        left, right = sorted((x_axis.start, x_axis.end))
        top, bottom = sorted((y_axis.start, y_axis.end))
        # Nine pixels of tolerance keep a marker whose middle is on the edge.
        inside = (xs > left - 9) & (xs < right + 9) & (ys > top - 9) & (ys < bottom + 9)
        rows = zip(xs.tolist(), ys.tolist(), inside.tolist(), strict=True)
        return [(x, y) if fits else None for x, y, fits in rows]

    def _draw_texts(self, one: ScatterTrace, index: Any, points: Sequence[Any]) -> Iterator[str]:
        """Yield the texts of points where plotly puts them; names of markers are placed later."""
        texts, sides = (
            read_trace_column(one.trace, "text"),
            get_json_path(one.trace, "textposition"),
        )
        for i, point in zip(index.tolist(), points, strict=True):
            raw_text = texts if isinstance(texts, str) else texts[i] if i < len(texts) else ""
            if point is None or not (text := escape_plotly_text(raw_text)):
                continue
            if "markers" in one.mode:
                self.labels.append((point, text))
                continue
            down, side = f"{sides or 'middle center'} center".split(" ")[:2]
            x, y = point[0], point[1] + {"top": -3, "bottom": 12}.get(down, 4)
            x += {"left": -4, "right": 4}.get(side, 0)
            yield _svg_text(
                x, y, text, {"left": "end", "right": "start"}.get(side, "middle"), _HALO
            )

    def _boxes_in_pixels(
        self, one: RectangleTrace
    ) -> Iterator[tuple[int, float, float, float, float]]:
        """Yield the index, corner, width and height of each box that is drawn."""
        x0, x1 = map(one.axes[0].to_pixels, one.x)
        y0, y1 = map(one.axes[1].to_pixels, one.y)
        sizes = np.abs(x1 - x0) * np.abs(y1 - y0)
        # Decimation by area keeps the largest box of each bin.
        for i in decimate_points(sizes, self.boxes).tolist():
            if math.isfinite(sizes[i]) and sizes[i] > 0:
                wide, high = max(abs(x1[i] - x0[i]), 0.5), max(abs(y1[i] - y0[i]), 0.5)
                yield i, min(x0[i], x1[i]), min(y0[i], y1[i]), wide, high

    def _draw_boxes(self, one: RectangleTrace) -> Iterator[str]:
        titles = one.trace.get("hovertext") if one.trace.get("hoverinfo") == "text" else None
        edge = 0.6 * bool(get_json_path(one.trace, "marker.line.width"))
        shared = []
        for i, x, y, wide, high in self._boxes_in_pixels(one):
            ink = one.colours[i] if i < len(one.colours) else one.ink
            if titles is None and not one.colours:
                shared.append(f"M{x:.1f} {y:.1f}h{wide:.1f}v{high:.1f}h-{wide:.1f}z")
            else:
                title = f"<title>{escape_plotly_text(titles[i], 200)}</title>" if titles else ""
                yield (
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(wide - edge, 0.4):.1f}"'
                    f' height="{high:.1f}" fill="{ink}">{title}</rect>'
                )
            if i < len(one.texts) and (text := escape_plotly_text(one.texts[i], 24)):
                yield self._box_text(one, text, ink, (x, y, wide, high))
        if shared:
            yield f'<path d="{"".join(shared)}" fill="{one.ink}"/>'

    def _box_text(self, one: RectangleTrace, text: str, fill: str, box: tuple[float, ...]) -> str:
        """Return the text of a cell, in an ink that can be read on it, or of a bar at its end."""
        x, y, wide, high = box
        if one.trace.get("type") == "heatmap":
            return _svg_text(
                x + wide / 2, y + high / 2 + 4, text, "middle", ink=choose_text_colour(fill)
            )
        if one.trace.get("orientation") == "h":
            return _svg_text(x + wide + 6, y + high / 2 + 4, text)
        return _svg_text(x + wide / 2, y - 3, text, "middle")

    def _place_labels(self) -> Iterator[str]:
        """Yield the names of points, each where it covers nothing."""
        labels, obstacles = self.labels[:MAX_LABELS], []
        for one in self.traces if labels else ():
            # Only traces of few points are obstacles; a long one would leave no place for names.
            if isinstance(one, ScatterTrace) and len(one.x) < _FEWEST:
                points = [p for p in self._to_pixels(one, np.arange(len(one.x))) if p is not None]
                obstacles += sample_points_along_line(points) if one.mode == "lines" else points
        placed = place_labels(
            [point for point, _ in labels],
            [html.unescape(text) for _, text in labels],
            obstacles,
            width=self.width,
            height=self.bottom + 6,
            left=self.left,
        )
        for label in filter(None, placed):
            if not label.side:
                yield _svg_line(label.point, label.end, TEXT_COLOUR)
            gap = {"start": 2, "middle": 0, "end": -2}[label.anchor] * (not label.side)
            yield _svg_text(label.x + gap, label.y, escape_html(label.text, 60), label.anchor)

    def _render_legend(self) -> str:
        if self.layout.get("showlegend") is False:
            return ""
        keys = [
            '<span style="display:inline-block;margin-right:14px;white-space:nowrap">'
            f"{_legend_key(t)} {escape_plotly_text(t.trace['name'])}</span>"
            for t in self.traces
            if t.trace.get("name")
            and t.trace.get("type") != "heatmap"
            and t.trace.get("showlegend", True)
            and not ("lines+text" in t.mode and any(t.trace["text"]))  # its name is on it
        ]
        legend = " ".join(keys[:MAX_LEGEND_KEYS])
        return f'<div style="font-size:12px">{legend}</div>' if legend else ""


# -- pieces of SVG ------------------------------------------------------------------------------


def _svg_text(
    x: float, y: float, safe_text: str, anchor: str = "start", style: str = "",
    *, ink: str = _INK, turned: bool = False,
) -> str:  # fmt: skip
    # Of a notebook that is not trusted a lab strips the tags of a picture and leaves its words.
    # There the box around them makes them vanish; in a picture each has a size of its own.
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return safe_text and (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}'
        f' style="fill:{ink};font:11px system-ui,sans-serif{style}">{safe_text}</text>'
    )


def _svg_line(
    start: tuple[float, float], end: tuple[float, float], ink: str, dash: Any = None
) -> str:
    style = f'stroke="{ink}" stroke-width="1" stroke-dasharray="{SVG_DASHES.get(str(dash), "")}"'
    (x0, y0), (x1, y1) = start, end
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" {style}/>'


def _line_style(one: ScatterTrace) -> str:
    dashes = SVG_DASHES.get(get_json_path(one.trace, "line.dash", ""), "")
    width = to_float(get_json_path(one.trace, "line.width", 2))
    return f'stroke="{one.ink}" stroke-width="{width:g}" stroke-dasharray="{dashes}"'


def _area_fill(mark: Json, ink: str) -> str:
    """Return the fill of an area: the figure's own, else a colour that all shines through."""
    fill = sanitize_colour(get_json_path(mark, "fillcolor"), "")
    return f'fill="{fill or ink}"' + ("" if fill.startswith("rgba") else ' fill-opacity="0.16"')


def _broken_path(points: Iterable[tuple[float, float] | None]) -> str:
    """Return an SVG path through points, with a gap where one is unknown."""
    path, pen = [], "M"
    for point in points:
        if point is not None:
            path.append(f"{pen}{point[0]:.1f} {point[1]:.1f}")
        pen = "M" if point is None else "L"
    # A single point becomes a line of 0.1 pixels, since a move alone draws nothing.
    return "".join(path) if len(path) > 1 else f"{path[0]}h0.1"


def _closed_path(points: Iterable[tuple[float, float]]) -> str:
    """Return a closed SVG path in steps of tenths of a pixel, half as long as one in places."""
    steps, last = [], (0, 0)
    for x, y in points:
        # Positions are rounded, not steps, so that rounding errors do not add up.
        here = (round(10 * x), round(10 * y))
        steps.append(f"{(here[0] - last[0]) / 10:g} {(here[1] - last[1]) / 10:g}")
        last = here
    return f"m{steps[0]}l{' '.join(steps[1:])}z".replace(" -", "-")


def _marker_path(one: ScatterTrace, points: Iterable[tuple[float, float]]) -> str:
    """Return the markers of a trace as one path; a dot is a line of no length with round ends."""
    size, symbol = (
        get_json_path(one.trace, f"marker.{key}", "circle") for key in ("size", "symbol")
    )
    r = 0.45 * float(size if isinstance(size, (int, float)) else 6)
    d, shape, hollow = 2 * r, str(symbol).removesuffix("-open"), str(symbol).endswith("-open")
    h = 1.3 * r  # half a diagonal: the diamond has about the area of the other markers
    outlines = {
        "circle": f"m-{r:g} 0a{r:g} {r:g} 0 1 0 {d:g} 0a{r:g} {r:g} 0 1 0-{d:g} 0z",
        "diamond": f"m0-{h:g}l{h:g} {h:g}l-{h:g} {h:g}l-{h:g}-{h:g}z",
        "triangle-up": f"m-{r:g} {r:g}h{d:g}l-{r:g}-{d:g}z",
        "triangle-down": f"m-{r:g}-{r:g}h{d:g}l-{r:g} {d:g}z",
        "cross": f"m-{r:g} 0h{d:g}m-{r:g}-{r:g}v{d:g}",
        "x": f"m-{r:g}-{r:g}l{d:g} {d:g}m0-{d:g}l-{d:g} {d:g}",
    }
    outline = outlines.get(shape, f"m-{r:g}-{r:g}h{d:g}v{d:g}h-{d:g}z")
    style = f'fill="{one.ink}"'
    if hollow or shape in ("cross", "x"):
        style = f'fill="none" stroke="{one.ink}" stroke-width="1.6"'
    elif shape == "circle":
        outline = "h0"
        style = f'stroke="{one.ink}" stroke-width="{d:g}" stroke-linecap="round"'
    path = "".join(f"M{x:.1f} {y:.1f}{outline}" for x, y in points)
    return f'<path d="{path}" {style}/>'


def _legend_key(one: ScatterTrace | RectangleTrace) -> str:
    """Return a piece of a trace as it is drawn."""
    body = f'<path d="M7 0h10v10h-10z" fill="{one.ink}"/>'
    if isinstance(one, ScatterTrace) and not one.trace.get("stackgroup"):
        veil = _area_fill(one.trace, one.ink)
        body = f'<path d="M0 5h24v5h-24z" {veil}/>' if one.base is not None else ""
        body += f'<path d="M0 5h24" {_line_style(one)}/>' if "lines" in one.mode else ""
        body += _marker_path(one, [(12.0, 5.0)]) if "markers" in one.mode else ""
    return f'<svg width="24" height="10" aria-hidden="true">{body}</svg>'
