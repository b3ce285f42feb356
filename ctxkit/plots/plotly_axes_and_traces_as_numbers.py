"""Geometry of plotly figures: axes, ticks, ranges, stacks and cells in numbers, placement of
labels, thinning of points.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.chart_style import TEXT_COLOUR, pick_colour
from ctxkit._internal.formatting_and_sanitizing import escape_html, format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Json = Mapping[str, Any]
    Floats = NDArray[np.float64]
    Point = tuple[float, float]


MAX_RECTANGLES = 3_000
"""Bars, or cells of heat maps, in one picture."""
SEQUENTIAL_COLOURS = ("#d7e8f3", "#9cc6e0", "#5fa2cc", "#2b7db3", "#0b5a8c")
"""From small to large: one hue, which the colour-blind read, and no red or green that judges."""
COLOUR_SCALE = [[i / (len(SEQUENTIAL_COLOURS) - 1), c] for i, c in enumerate(SEQUENTIAL_COLOURS)]
"""The same as plotly's `colorscale`."""
FEW_MARKERS = 20
"""Points of a line up to which its markers are drawn."""
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}|rgba?\([\d\s.,%]{5,40}\)|[a-zA-Z]{3,24}")
_HEX = re.compile("#[0-9a-fA-F]{6}")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def choose_ticks(low: float, high: float, n: int = 4) -> list[float]:
    """Return about `n` round numbers between two (Heckbert's nice numbers).

    Args:
        low: lower end of the axis.
        high: upper end of the axis.
        n: number of intervals to aim at.
    """
    raw = (high - low) / n
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    # Heckbert's nice numbers: the smallest of 1, 2, 5, 10 times a power of ten that suffices.
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= raw)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def format_tick(value: float) -> str:
    """Format a number as it is on an axis: 1.5M, 20k, 300, 0.25."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{sign}"
    return f"{value:.4g}"


def read_trace_column(trace: Json, path: str) -> Any:
    """Return a column of a trace; arrays that plotly packed as base64 are unpacked.

    Args:
        trace: a trace of a plotly figure, as JSON.
        path: dotted path of the column, such as `marker.size`.
    """
    values = get_json_path(trace, path, ())
    if isinstance(values, Mapping) and "bdata" in values:
        flat = np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])
        return flat.reshape([int(n) for n in str(values.get("shape", len(flat))).split(",")])
    return values


def get_json_path(json: Any, path: str, default: Any = None) -> Any:
    """Return the value at a path of keys.

    Args:
        json: nested mappings.
        path: keys joined by dots.
        default: the value where a key is missing or None.
    """
    for key in path.split("."):
        json = json.get(key) if isinstance(json, Mapping) else None
    return default if json is None else json


def to_float(value: Any) -> float:
    """Return a value as a number; NaN where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def to_floats(values: Any) -> Floats:
    """Return a column, or a table, as numbers; NaN where a value is no number."""
    array = np.asarray(values)
    if array.dtype.kind in "iufb":
        return array.astype(float)
    return np.array([to_float(v) for v in array.ravel().tolist()], dtype=float).reshape(array.shape)


def _to_dates(values: Any) -> Floats | None:
    """Return a column of dates as seconds; None where it is none."""
    try:
        moments = np.array([str(v) for v in values], dtype="datetime64[ms]")
    except ValueError:
        return None
    return moments.astype("int64") / 1000.0


def escape_plotly_text(text: Any, limit: int = 60) -> str:
    """Return a text of plotly, which may hold tags and entities, as safe text for HTML.

    Args:
        text: the text; its tags are removed.
        limit: maximum characters before escaping.
    """
    return escape_html(html.unescape(_TAG.sub(" ", str(text or ""))).strip(), limit)


def sanitize_colour(value: Any, fallback: str = TEXT_COLOUR) -> str:
    """Return a colour that may stand in an attribute.

    Args:
        value: untrusted value of a figure.
        fallback: the colour where `value` is none.
    """
    return value if isinstance(value, str) and _COLOUR.fullmatch(value) else fallback


def convert_treemap_to_bars(trace: Json) -> Json:
    """Return the outermost parts of a treemap, sunburst or pie as lying bars, the longest first."""
    columns = [
        read_trace_column(trace, key) for key in ("labels", "parents", "ids", "marker.colors")
    ]
    labels, parents, ids, colours = (list(map(str, column)) for column in columns)
    numbers = np.nan_to_num(to_floats(read_trace_column(trace, "values")))
    values = numbers.tolist() or [1.0] * len(labels)
    parents = parents or [""] * len(labels)
    roots = [i for i, parent in enumerate(parents) if not parent]
    # A single root stands for the whole, so its children are the outermost parts.
    inner = [i for i, p in enumerate(parents) if roots and p == (ids or labels)[roots[0]]]
    sums: dict[str, float] = defaultdict(float)
    inks: dict[str, str] = {}
    for i in inner if len(roots) == 1 and inner else roots:
        sums[labels[i]] += values[i]
        inks.setdefault(labels[i], sanitize_colour(colours[i] if colours else "", pick_colour(i)))
    names = sorted((name for name in sums if sums[name] > 0), key=lambda name: sums[name])[-24:]
    return {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [sums[name] for name in names],
        "text": [f"{sums[name]:,.6g}" for name in names],
        "marker": {"color": [inks[name] for name in names]},
        "xaxis": "x hidden",
    }


def convert_histogram_to_bars(trace: Json) -> Json:
    """Return a histogram over numbers as bars."""
    values = to_floats(read_trace_column(trace, "x"))
    finite = values[np.isfinite(values)]
    # The square-root rule gives the number of bins, from 1 to 50.
    counts, edges = np.histogram(finite, bins=min(max(round(len(finite) ** 0.5), 1), 50))
    return {**trace, "type": "bar", "x": (edges[:-1] + edges[1:]) / 2, "y": counts}


@dataclass
class FigureAxis:
    """One axis: maps the values of its traces to numbers, and numbers to pixels."""

    spec: Json
    horizontal: bool
    kind: str = "linear"
    """linear, log, date or category."""
    places: dict[str, int] = field(default_factory=dict)
    """The place of each category."""
    low: float = 0.0
    high: float = 1.0
    is_integer: bool = True
    """True where it counts things: half a call is no place for a tick."""
    start: float = 0.0
    end: float = 1.0
    """Pixels of `low` and `high`."""

    @property
    def has_labels(self) -> bool:
        """True where its ticks have texts."""
        return self.spec.get("showticklabels", True) is not False

    def infer_kind(self, columns: Sequence[Any]) -> None:
        """Learn from the columns of its traces what kind of axis it is."""
        values = [v for c in columns if np.asarray(c).dtype.kind not in "iufb" for v in c]
        texts = [str(v) for v in values if v is not None]
        # The first 20 texts decide: numbers in text stay numbers, then dates are tried.
        if self.spec.get("type") in ("log", "date", "category"):
            self.kind = self.spec["type"]
        elif texts and all(math.isnan(to_float(t)) for t in texts[:20]):
            self.kind = "category" if _to_dates(texts[:20]) is None else "date"
        if self.kind == "category":
            self.places = {name: i for i, name in enumerate(dict.fromkeys(map(str, values)))}

    def to_numbers(self, values: Any) -> Floats:
        """Return values as numbers on this axis."""
        if self.kind == "category":
            return np.array([self.places.get(str(v), to_float(v)) for v in values], dtype=float)
        if self.kind == "date" and (dates := _to_dates(values)) is not None:
            return dates
        floats = to_floats(values)
        return np.log10(np.where(floats > 0, floats, np.nan)) if self.kind == "log" else floats

    def to_pixels(self, number: Any) -> Any:
        """Return numbers as pixels; those far outside stay near the edge."""
        share = (number - self.low) / (self.high - self.low)
        return self.start + np.clip(share, -9, 9) * (self.end - self.start)

    def choose_range(self, ends: Floats, pad: float) -> None:
        """Choose the range: the figure's own, else that of the values.

        Args:
            ends: smallest and largest values of the traces, as numbers.
            pad: free space at each end, as a share of the range.
        """
        spec, ends = self.spec, ends[np.isfinite(ends)]
        low, high = (float(ends.min()), float(ends.max())) if len(ends) else (0.0, 1.0)
        self.is_integer = bool(np.equal(ends, np.round(ends)).all())
        low, high = low - pad * (high - low), high + pad * (high - low)
        if spec.get("rangemode") == "tozero":
            low, high = min(low, 0.0), max(high, 0.0)
        if self.kind == "category":
            low, high = -0.5, max(len(self.places), 1) - 0.5
        if str(spec.get("autorange")) == "reversed":
            low, high = high, low
        if spec.get("range") is not None:
            dates = _to_dates(spec["range"]) if self.kind == "date" else None
            low, high = (to_floats(spec["range"]) if dates is None else dates).tolist()
        # An empty range has no scale, so it is widened.
        if not math.isfinite(low + high) or low == high:
            low, high = (low - 0.5, low + 0.5) if self.horizontal else (0.0, high or 1.0)
        self.low, self.high = low, high

    def list_ticks(self) -> list[tuple[float, str]]:
        """Return the places and texts of ticks."""
        spec, (low, high) = self.spec, sorted((self.low, self.high))
        if spec.get("tickvals") is not None:
            values = self.to_numbers(read_trace_column(spec, "tickvals")).tolist()
            texts = [self._format_tick(v) for v in values]
            if spec.get("ticktext") is not None:
                texts = list(map(str, read_trace_column(spec, "ticktext")))
            ticks = list(zip(values, texts, strict=False))
        elif self.kind == "category":
            ticks = [(float(i), name) for name, i in self.places.items()]
        else:
            n = max(int(spec.get("nticks") or (7 if self.horizontal else 5)) - 1, 1)
            values = choose_ticks(low, high, n)
            if self.is_integer or str(spec.get("tickformat")).endswith("d"):
                values = [v for v in values if float(v).is_integer()] or values
            ticks = [(v, self._format_tick(v)) for v in values]
        return [(v, text) for v, text in ticks if low <= v <= high]

    def _format_tick(self, value: float) -> str:
        if self.kind == "date":
            # Below two days ticks have minutes, else days.
            unit = "m" if abs(self.high - self.low) < 172_800 else "D"
            return str(np.datetime64(int(value), "s").astype(f"datetime64[{unit}]"))
        share = re.fullmatch(r"\.?(\d?)%", str(self.spec.get("tickformat", "")))
        value = 10.0**value if self.kind == "log" else value
        text = format_percent(value, int(share[1] or 0)) if share else format_tick(value)
        return f"{self.spec.get('tickprefix', '')}{text}{self.spec.get('ticksuffix', '')}"

    def get_title(self) -> str:
        """Return the title, as safe text."""
        return escape_plotly_text(get_json_path(self.spec, "title.text"), 80)


class ScatterTrace(NamedTuple):
    """A trace of lines, points or an area; `base` is the lower edge of an area."""

    trace: Json
    ink: str
    axes: tuple[FigureAxis, FigureAxis]
    x: Floats
    y: Floats
    base: Floats | None

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """All numbers on the two axes."""
        return self.x, self.y if self.base is None else np.concatenate([self.y, self.base])

    @property
    def mode(self) -> str:
        """Plotly's mode: lines, markers, text, or several of them."""
        few = len(self.x) <= FEW_MARKERS
        mode = str(self.trace.get("mode") or ("lines+markers" if few else "lines"))
        return mode if few or "lines" not in mode else mode.replace("+markers", "")


class RectangleTrace(NamedTuple):
    """A trace of bars or cells, each between two places on either axis."""

    trace: Json
    ink: str
    axes: tuple[FigureAxis, FigureAxis]
    x: tuple[Floats, Floats]
    y: tuple[Floats, Floats]
    colours: Sequence[str] = ()
    """One a box; empty: all have the ink of the trace."""
    texts: Sequence[Any] = ()
    mode: str = ""

    @property
    def ends(self) -> tuple[Floats, Floats]:
        """All numbers on the two axes."""
        return np.concatenate(self.x), np.concatenate(self.y)


def _smallest_step(places: Floats) -> float:
    """Return the smallest distance between two bars or cells."""
    steps = np.diff(np.unique(places[np.isfinite(places)]))
    return float(steps.min()) if len(steps) else 1.0


# How a figure becomes numbers. Each trace is read once, in the order of the figure, for a stacked
# one is on those before it:
#   1. an axis looks at the columns of all its traces and is linear, log, date or category;
#   2. columns become numbers on their axes (dates: seconds, categories: places, log: exponents);
#   3. areas of one `stackgroup` are added up, at the places of the upper one (linear interpolation
#      of the lower), and bars by place and sign, as plotly's `relative` mode does;
#   4. an axis takes the figure's own range, else what its traces span.
# Invariants: `x` and `y` of a line are of one length, what is unknown is NaN and never 0, and a box
# has its edges in any order. Cost: linear in the points, but bars, which are added up one by one.
class TraceReader:
    """The traces of a figure in numbers, the stacked ones on top of each other."""

    def __init__(self, traces: Sequence[Json], layout: Json) -> None:
        self.layout = layout
        self.x_axes, self.y_axes = (self._read_axes(traces, letter) for letter in "xy")
        self._colourway = get_json_path(layout, "colorway") or get_json_path(
            layout, "template.layout.colorway"
        )
        self._bars = [t for t in traces if t.get("type") == "bar"]
        self._tops: dict[Any, tuple[Floats, Floats]] = {}
        """The upper edge of each group of stacked areas so far."""
        self._sums: dict[Any, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
        """The ends of stacked bars so far, by place and sign."""

    def _read_axes(self, traces: Sequence[Json], letter: str) -> dict[str, FigureAxis]:
        columns: dict[str, list[Any]] = defaultdict(list)
        for trace in traces:
            columns[trace.get(f"{letter}axis") or letter].append(read_trace_column(trace, letter))
        axes = {}
        for name in columns or (letter,):
            hidden = {"showticklabels": False} if name.endswith("hidden") else {}
            spec = self.layout.get(f"{letter}axis{name[1:]}") or hidden
            axes[name] = FigureAxis(spec, horizontal=letter == "x")
            axes[name].infer_kind(columns[name])
        return axes

    def read_trace(self, i: int, trace: Json) -> ScatterTrace | RectangleTrace:
        """Return the i-th trace.

        Args:
            i: index of the trace, from 0, which decides its colour.
            trace: the trace in plotly's JSON form.
        """
        axes = self.x_axes[trace.get("xaxis") or "x"], self.y_axes[trace.get("yaxis") or "y"]
        ink = pick_colour(i)
        if self._colourway:
            ink = sanitize_colour(self._colourway[i % len(self._colourway)], ink)
        ink = sanitize_colour(
            get_json_path(trace, "line.color"),
            sanitize_colour(get_json_path(trace, "marker.color"), ink),
        )
        x, y = read_trace_column(trace, "x"), read_trace_column(trace, "y")
        if trace.get("type") == "heatmap":
            return _read_cells(trace, axes, x, y)
        x, y = (x if len(x) else range(len(y))), (y if len(y) else range(len(x)))
        xs, ys = axes[0].to_numbers(x), axes[1].to_numbers(y)
        xs, ys = xs[: len(ys)], ys[: len(xs)]
        if trace.get("type") == "bar":
            return self._read_bars(RectangleTrace(trace, ink, axes, (xs, xs), (ys, ys)))
        # Every `fill` is drawn down to 0.
        base = np.zeros(len(xs)) if str(trace.get("fill")).startswith("to") else None
        if trace.get("stackgroup"):
            key = (trace["stackgroup"], *map(id, axes))
            below = self._tops.get(key)
            base = np.interp(xs, *below) if below and len(below[0]) else np.zeros(len(xs))
            ys = base + np.nan_to_num(ys)
            self._tops[key] = (xs, ys)
        return ScatterTrace(trace, ink, axes, xs, ys, base)

    def _read_bars(self, one: RectangleTrace) -> RectangleTrace:
        """Return bars with their ends, by the bar mode of the figure."""
        trace, lying = one.trace, one.trace.get("orientation") == "h"
        places, values = (one.y[0], one.x[0]) if lying else (one.x[0], one.y[0])
        mode, base = self.layout.get("barmode", "group"), np.zeros(len(values))
        width = 0.9 * _smallest_step(places)
        if mode == "group" and len(self._bars) > 1:
            # Grouped bars share the width of a place and are side by side around its middle.
            width /= len(self._bars)
            turn = next(i for i, t in enumerate(self._bars) if t is trace)
            places = places + (turn - (len(self._bars) - 1) / 2) * width
        width = trace["width"] if isinstance(trace.get("width"), (int, float)) else width
        if trace.get("base") is not None:
            base = to_floats(read_trace_column(trace, "base"))[: len(values)]
        elif mode in ("stack", "relative"):
            sums = self._sums[tuple(map(id, one.axes))]
            # Positive and negative values are added up apart, so both grow away from 0.
            for i, (place, value) in enumerate(zip(places.tolist(), values.tolist(), strict=True)):
                if math.isfinite(value):
                    base[i] = sums[place, value < 0]
                    sums[place, value < 0] += value
        along, across = (places - width / 2, places + width / 2), (base, base + values)
        colours = get_json_path(trace, "marker.color")
        colours = (
            [sanitize_colour(c) for c in colours] if isinstance(colours, (list, tuple)) else ()
        )
        x, y = (across, along) if lying else (along, across)
        return one._replace(x=x, y=y, colours=colours, texts=read_trace_column(trace, "text"))


def _read_cells(trace: Json, axes: tuple[FigureAxis, FigureAxis], x: Any, y: Any) -> RectangleTrace:
    """Return the cells of a heat map in the colours of its scale; every n-th where too many."""
    z = np.atleast_2d(to_floats(read_trace_column(trace, "z")))
    every = max(math.ceil(math.sqrt(z.size / MAX_RECTANGLES)), 1)
    across = axes[0].to_numbers(x if len(x) else range(z.shape[1]))[: z.shape[1]]
    upward = axes[1].to_numbers(y if len(y) else range(z.shape[0]))[: z.shape[0]]
    z = z[: len(upward) : every, : len(across) : every]
    columns, rows = np.meshgrid(across[::every], upward[::every])
    scale, own_scale = COLOUR_SCALE, trace.get("colorscale")
    if isinstance(own_scale, (list, tuple)) and all(_HEX.fullmatch(str(c)) for _, c in own_scale):
        scale = list(own_scale)
    colours = interpolate_colours(z.ravel(), scale)
    half = [0.495 * every * _smallest_step(places) for places in (across, upward)]
    # A cell without a value has NaN for its place and is not drawn.
    middles = np.where(np.isfinite(z), columns, np.nan).ravel()
    texts = [t for row in read_trace_column(trace, "text") for t in row]
    cell_texts = texts if every == 1 and "text" in str(trace.get("texttemplate")) else ()
    return RectangleTrace(
        trace, TEXT_COLOUR, axes, (middles - half[0], middles + half[0]),
        (rows.ravel() - half[1], rows.ravel() + half[1]), colours, cell_texts,
    )  # fmt: skip


def interpolate_colours(values: Floats, scale: Sequence[Any]) -> list[str]:
    """Return the colour of each value of a heat map; a missing one gets the first of the scale.

    Args:
        values: numbers; NaN where there is none.
        scale: pairs of a share from 0 to 1 and a colour ``#rrggbb``, as plotly's `colorscale`.
    """
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    shares = np.nan_to_num((values - low) / ((high - low) or 1.0))
    # Each channel is interpolated linearly between the colours of the scale.
    steps = [float(share) for share, _ in scale]
    channels = [
        np.interp(shares, steps, [int(colour[i : i + 2], 16) for _, colour in scale])
        for i in (1, 3, 5)
    ]
    return ["#" + "".join(f"{round(v):02x}" for v in rgb) for rgb in zip(*channels, strict=True)]
