"""`plots.frontier` and `plots.heatmap`: settings by cost and loss, one figure over two settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.chart_style import PLOTLY_LAYOUT, TEXT_COLOUR, choose_text_colour
from ctxkit._internal.formatting_and_sanitizing import format_percent, pluralize
from ctxkit.errors import BadArguments
from ctxkit.metrics.bootstrap_and_paired_tests import (
    average_cost_uncertainty_usd,
    find_pareto_front,
    summarise_runs,
)
from ctxkit.plots.chart import (
    Chart,
    Drawing,
    add_session_notes,
    escape_plotly_label,
)
from ctxkit.plots.plotly_axes_and_traces_as_numbers import COLOUR_SCALE, interpolate_colours
from ctxkit.plots.xy_figure import AXIS_STYLE, Trace, XyDrawing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


_MAX_NAME_LETTERS = 30
"""Letters of a name in the static picture."""
_LEAST_UNEXPLAINED = 0.0005
"""Share of unexplained cache misses from which on a chart's note states it."""
_SHARE_ENDINGS = (
    "loss",
    "lost",
    "gone",
    "retained",
    "recoverable",
    "savings",
    "regret",
    "rate",
    "is_thrashing",
    "refilled_share",
)
"""Endings of the names of columns that hold shares."""
_SHARE_COLUMNS = ("needed_later_loss", "needed_later_unrecoverable", "lost", "regret")


class FrontierPoint(NamedTuple):
    """One setting: its means over the sessions that every setting has figures for, with 90 %
    intervals.
    """

    rules: str
    x: float
    y: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    sessions: int
    few: bool
    """Fewer than five sessions."""
    on_front: bool
    over: bool = False
    """True where one of its runs does not fit into the window: such a setting is on no front."""
    near: bool = False
    """True where it is on no front, but one that loses no more is cheaper by less than the error
    with which the cache model knows dollars.
    """
    alike: tuple[str, ...] = ()
    """Others with the same two figures."""

    @property
    def name(self) -> str:
        """The label beside the point."""
        return (
            self.rules
            if not self.alike
            else f"{_shorten_name(self.rules)} and {len(self.alike)} more"
        )


def frontier_data(
    runs: pd.DataFrame, x: str = "cost_usd", y: str = "needed_later_loss", *, by: str = "rules"
) -> tuple[FrontierPoint, ...]:
    """Return one point for each setting that has both figures, the cheapest first.

    Args:
        runs: what `sweep` or `compare` returned.
        x: column on the horizontal axis; lower is better.
        y: column on the vertical axis; lower is better.
        by: column that names a setting.

    Raises:
        BadArguments: there is no such column, or no run has both figures.
    """
    rows = summarise_runs(runs, by, (x, y)).dropna(subset=[x, y]).sort_values([x, y])
    if rows.empty:
        raise BadArguments(
            f"No run has both {x} and {y}: sweep with loss=True, over sessions with usage and"
            " prices."
        )
    over = rows[by].isin(
        set(runs.loc[runs["first_call_over_window"].notna(), by])
        if "first_call_over_window" in runs.columns
        else set()
    )
    # NaN masks a setting that exceeds the window: it is on no front and beats no other.
    best = find_pareto_front(*(rows[c].where(~over).tolist() for c in (x, y)))
    uncertainty = average_cost_uncertainty_usd(runs, by) if x == "cost_usd" else {}
    points: dict[Any, FrontierPoint] = {}
    for r, out, is_best in zip(rows.to_dict("records"), over.tolist(), best.tolist(), strict=True):
        point = FrontierPoint(
            str(r[by]),
            float(r[x]),
            float(r[y]),
            (float(r[f"{x}_low"]), float(r[f"{x}_high"])),
            (float(r[f"{y}_low"]), float(r[f"{y}_high"])),
            int(r["sessions_n"]),
            bool(r["few_sessions"]),
            bool(is_best),
            bool(out),
        )
        point = point._replace(
            near=not is_best and not out and _is_near_front(point, rows[best], uncertainty, x, y)
        )
        first = points.setdefault((point.x, point.y, out), point)
        if first is not point:
            points[point.x, point.y, out] = first._replace(alike=(*first.alike, point.rules))
    return tuple(points.values())


def _is_near_front(
    point: FrontierPoint, best: pd.DataFrame, within: dict[Any, float], x: str, y: str
) -> bool:
    """Return whether a point is beaten by no more than noise."""
    # Each point of the front that loses no more must be cheaper by less than the uncertainty.
    no_worse = best[best[y] <= point.y]
    return bool((point.x - no_worse[x] < within.get(point.rules, 0.0)).all())


@add_session_notes
def frontier(
    runs: pd.DataFrame, x: str = "cost_usd", y: str = "needed_later_loss", *, by: str = "rules"
) -> Chart:
    """Chart settings by their dollars and their needed-later loss, with the Pareto front.

    Args:
        runs: what `sweep` or `compare` returned.
        x: column on the horizontal axis; lower is better.
        y: column on the vertical axis; lower is better.
        by: column that names a setting.

    Returns:
        The chart; its table has a row a setting, with means over sessions and 90 % intervals.

    Raises:
        BadArguments: there is no such column, or no run has both figures.

    Example:
        >>> import ctxkit as ck
        >>> runs = ck.compare(ck.samples.path(), ["none", "pi"])
        >>> ck.plots.frontier(runs).title
        'Needed-later loss against cost in dollars'
    """
    return _frontier_chart(frontier_data(runs, x, y, by=by), x, y, _describe_prediction_error(runs))


def _frontier_chart(points: Sequence[FrontierPoint], x: str, y: str, checked: str) -> Chart:
    best = [p for p in points if p.on_front]
    rest = [p for p in points if not p.on_front and not p.over]
    over = [p for p in points if p.over]
    traces = [
        _front_line(best),
        replace(_points_trace("Pareto front", best, 0, x, y), follows=True),
        _points_trace("dominated", rest, 1, x, y),
        replace(
            _points_trace("does not fit into the window", over, 2, x, y),
            colour=TEXT_COLOUR,
            hollow=True,
        ),
    ]
    n = max((p.sessions for p in points), default=0)
    few = ""
    if any(p.few for p in points):
        few = " Fewer than five sessions: the order may change with the next one."
    outside = " Hollow: does not fit into the window, so on no front." if over else ""
    return Chart(
        title=f"{_column_words(y)} against {_column_words(x)}".capitalize(),
        caption=(
            f"Each point is a setting, its mean over {pluralize(n, 'session')}. Settings on the"
            " line are the best: none is lower in one figure without being higher in the other."
            f"{outside}{_near_note(points)}{few}"
        ),
        notes=("Replays tell the bill and the chance of loss, not the outcome.", checked),
        drawing=XyDrawing(
            x=_column_words(x),
            y=_column_words(y),
            traces=tuple(t for t in traces if len(t.x)),
            y_share=y in _SHARE_COLUMNS,
            x_dollars=x.endswith("_usd"),
        ),
        head=(
            "setting",
            _column_words(x),
            "90 %",
            _column_words(y),
            "90 %",
            "sessions",
            "Pareto front",
        ),
        rows=tuple(
            (
                p.name,
                _format_column_value(x, p.x),
                _format_range(x, p.x_range),
                _format_column_value(y, p.y),
                _format_range(y, p.y_range),
                _session_count(p),
                _front_label(p),
            )
            for p in points
        ),
        shown=24,
    )


def _describe_prediction_error(runs: pd.DataFrame) -> str:
    """Return a note on the error of a sweep's cost model; empty if the runs do not have it."""
    if not {"session", "prediction_error", "unexplained_miss_share"} <= set(runs.columns):
        return ""
    each = runs.drop_duplicates("session")
    errors, riddles = (
        each["prediction_error"].dropna().abs(),
        each["unexplained_miss_share"].dropna(),
    )
    if errors.empty:
        return (
            "No session tells cached from uncached input, or none has prices: the cost model"
            " could not be checked."
        )
    middle = format_percent(float(errors.median()), 1)
    if len(each) == 1:
        error = f"this session's input cost with an error of {middle}"
    else:
        most = format_percent(float(errors.max()), 1)
        error = (
            f"the input cost of {len(errors)} of {len(each)} sessions with an error of {middle} in"
            f" the median, {most} at most"
        )
    unexplained = ""
    if riddles.mean() >= _LEAST_UNEXPLAINED:
        share = format_percent(float(riddles.mean()), 1)
        unexplained = f"; {share} of the calls missed the cache without an explanation"
    return f"The cost model, which does not see cache reads, predicts {error}{unexplained}."


def _near_note(points: Sequence[FrontierPoint]) -> str:
    near = [p for p in points if p.near]
    if not near:
        return ""
    one = len(near) == 1
    return (
        f" {len(near)} more {'lies' if one else 'lie'} within noise of it: what beats "
        f"{'it is' if one else 'them is'} cheaper by less than the error of the dollars."
    )


def _front_line(points: Sequence[FrontierPoint]) -> Trace:
    """Return the front as the stairs that it is: between two settings nothing better is known."""
    xs, ys = [], []
    for before, p in zip([None, *points], points, strict=False):
        if before is not None:
            # A step: across at the height of the setting before, then down.
            xs.append(p.x)
            ys.append(before.y)
        xs.append(p.x)
        ys.append(p.y)
    return Trace(name="Pareto front", x=xs, y=ys, marked=False)


def _points_trace(name: str, points: Sequence[FrontierPoint], look: int, x: str, y: str) -> Trace:
    def hover(k: int) -> str:
        p = points[k]
        alike = [f"the same: {', '.join(p.alike)}"] if p.alike else []
        figures = [
            f"{_column_words(x)} {_format_column_value(x, p.x)}",
            f"{_column_words(y)} {_format_column_value(y, p.y)}",
            f"{_session_count(p)} sessions",
        ]
        return "\n".join([p.rules, *figures, *alike])

    names = tuple(_shorten_name(p.name) for p in points)
    return Trace(
        name=name,
        x=[p.x for p in points],
        y=[p.y for p in points],
        kind="points",
        names=names,
        hover=hover,
        look=look,
    )


def _shorten_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LETTERS else name[: _MAX_NAME_LETTERS - 1] + "…"


def _column_words(column: str) -> str:
    names = {"cost_usd": "cost in dollars", "needed_later_loss": "needed-later loss"}
    return names.get(column, column.replace("_", " "))


def _format_column_value(column: str, value: float | None) -> str:
    """Return a number as text for a table: dollars, per cent or a count, by the name of its column.

    Args:
        column: name of the column, such as `cost_usd` or `loss`.
        value: the number; None or NaN is "unknown".
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if column.endswith("_usd"):
        return f"${value:,.2f}" if abs(value) >= 0.1 else f"${value:.4f}"
    if column.endswith(_SHARE_ENDINGS):
        return format_percent(value, 1)
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def _format_range(column: str, ends: tuple[float, float]) -> str:
    return "–".join(_format_column_value(column, e) for e in ends)


def _front_label(point: FrontierPoint) -> str:
    if point.over:
        return "over the window"
    return "yes" if point.on_front else "within noise" if point.near else ""


def _session_count(point: FrontierPoint) -> str:
    return f"{point.sessions}{' (few)' if point.few else ''}"


class HeatmapCell(NamedTuple):
    """One pair of settings; `z` is None where no run has the figure."""

    x: Any
    y: Any
    z: float | None
    low: float | None
    high: float | None
    sessions: int
    few: bool


def heatmap_data(
    runs: pd.DataFrame, x: str, y: str, z: str = "cost_usd"
) -> tuple[HeatmapCell, ...]:
    """Return one cell for each pair of settings: mean of `z` with its 90 % interval, over resampled
    sessions.

    Args:
        runs: what `sweep` returned.
        x: setting on the horizontal axis.
        y: setting on the vertical axis.
        z: column that is shown.

    Raises:
        BadArguments: there is no such column, or x and y are one.
    """
    if x == y:
        raise BadArguments(f"A heat map needs two settings: x and y are both {x!r}.")
    # A run whose rules lack one of the two settings belongs to no cell.
    has_columns = {x, y} <= _list_columns(runs).keys()
    complete = runs[runs[x].notna() & runs[y].notna()] if has_columns else runs
    rows = summarise_runs(complete, (x, y), z).to_dict("records")
    return tuple(
        HeatmapCell(
            r[x],
            r[y],
            _to_number(r[z]),
            _to_number(r[f"{z}_low"]),
            _to_number(r[f"{z}_high"]),
            int(r["sessions_n"]),
            bool(r["few_sessions"]),
        )
        for r in rows
    )


def _list_columns(runs: object) -> dict[str, None]:
    """Return the names of the columns of runs, in order; none if `runs` is no table."""
    return dict.fromkeys(map(str, getattr(runs, "columns", ())))


def _choose_settings(runs: object, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the settings of both axes; one that is not named is the only other one that varies."""
    named = [name for name in (x, y) if name is not None]
    if not all(isinstance(name, str) for name in named):
        raise BadArguments("A heat map takes the names of two settings as x and y.")
    if len(named) == 2:
        return named[0], named[1]
    columns = list(_list_columns(runs))
    if not {"rules", "calls_n"} <= set(columns):
        raise BadArguments(
            "A heat map needs what ck.sweep returned for a ck.grid of two settings, not"
            f" {type(runs).__name__}."
        )
    varied = columns[columns.index("rules") + 1 : columns.index("calls_n")]
    free = [name for name in varied if name not in named]
    if len(named) + len(free) != 2:
        raise BadArguments(
            f"A heat map needs two settings as x and y; in these runs vary: "
            f"{', '.join(varied) or 'none'}."
        )
    first = x if x is not None else free.pop(0)
    return first, y if y is not None else free.pop(0)


@add_session_notes
def heatmap(
    runs: pd.DataFrame, x: str | None = None, y: str | None = None, z: str = "cost_usd"
) -> Chart:
    """Chart one figure of a sweep over two of its settings.

    Args:
        runs: what `sweep` returned.
        x: setting on the horizontal axis; None: where two settings vary, the first of them.
        y: setting on the vertical axis; None: where two settings vary, the other one.
        z: column that is shown, as a mean over sessions.

    Returns:
        The chart; its table has the same cells.

    Raises:
        BadArguments: there is no such column, x and y are one, or more than two settings vary and
            none is named.

    Example:
        >>> import ctxkit as ck
        >>> rules = ck.grid("pi", reserve_tokens=[4000, 9000], keep_recent_tokens=[2000, 8000])
        >>> runs = ck.sweep(ck.samples.path(), rules)
        >>> ck.plots.heatmap(runs).title
        'cost_usd over reserve_tokens and keep_recent_tokens'
    """
    x, y = _choose_settings(runs, x, y)
    data = heatmap_data(runs, x, y, z)
    across, upward = (sorted({c[i] for c in data}, key=_sort_key) for i in (0, 1))
    cell_by_place = {(c.x, c.y): c for c in data}
    cells = [[cell_by_place.get((a, b)) for a in across] for b in upward]
    checked = _describe_prediction_error(runs) if z.endswith("_usd") else ""
    few = " * fewer than five sessions." if any(c.few for c in data) else ""
    return Chart(
        title=f"{z} over {x} and {y}",
        caption=f"{_column_words(z)} of each pair of settings".capitalize()
        + f", mean over sessions; empty where no run has it.{few}",
        notes=(checked,),
        drawing=HeatmapDrawing(
            x=x,
            y=y,
            z=z,
            across=tuple(map(_setting_text, across)),
            upward=tuple(map(_setting_text, upward)),
            values=tuple(tuple(None if c is None else c.z for c in row) for row in cells),
            texts=tuple(tuple("" if c is None else _heat_text(z, c) for c in row) for row in cells),
        ),
        head=(f"{y} \\ {x}", *map(_setting_text, across)),
        rows=tuple(
            (_setting_text(b), *("" if c is None else _heat_text(z, c) for c in row))
            for b, row in reversed(list(zip(upward, cells, strict=True)))
        ),
        shown=30,
    )


def _heat_text(z: str, cell: HeatmapCell) -> str:
    return "" if cell.z is None else _format_column_value(z, cell.z) + "*" * cell.few


def _to_number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)  # noqa: PLR0124  NaN


def _sort_key(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (0, float(value), "") if number else (1, 0.0, str(value))


def _setting_text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_LETTER = 9
"""Pixels of height that a letter of the title beside the rows takes."""


@dataclass(frozen=True, kw_only=True)
class HeatmapDrawing(Drawing):
    """A table of cells, coloured by their figure."""

    x: str
    y: str
    z: str
    across: tuple[str, ...]
    upward: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout."""
        trace = {
            "type": "heatmap",
            "x": [escape_plotly_label(a) for a in self.across],
            "y": [escape_plotly_label(b) for b in self.upward],
            "z": [list(row) for row in self.values],
            "text": self._coloured_texts(),
            "texttemplate": "%{text}",
            "customdata": [[escape_plotly_label(t) for t in row] for row in self.texts],
            "hovertemplate": (
                f"{escape_plotly_label(self.x)} %{{x}}<br>{escape_plotly_label(self.y)} "
                f"%{{y}}<br>%{{customdata}}<extra></extra>"
            ),
            "colorscale": COLOUR_SCALE,
            "colorbar": {
                "title": {"text": escape_plotly_label(self.z)},
                "tickfont": {"color": TEXT_COLOUR},
                **self._colour_bar_format(),
            },
            "xgap": 1,
            "ygap": 1,
        }
        layout = {
            **PLOTLY_LAYOUT,
            "height": 112 + max(34 * max(len(self.upward), 3), _LETTER * len(self.y)),
            "margin": {"l": 90, "r": 16, "t": 44, "b": 60},
            "xaxis": {
                **AXIS_STYLE,
                "title": {"text": escape_plotly_label(self.x), "standoff": 8},
                "type": "category",
                "showgrid": False,
            },
            "yaxis": {
                **AXIS_STYLE,
                "title": {"text": escape_plotly_label(self.y), "standoff": 12},
                "type": "category",
                "showgrid": False,
                "automargin": True,
            },
        }
        return {"data": [trace], "layout": layout}

    def _coloured_texts(self) -> list[list[str]]:
        """Return the texts of the cells, each in the ink that can be read on its cell.

        Plotly chooses an ink whose contrast is below 4.5 on the colours in the middle.
        """
        columns = len(self.across)
        numbers = [math.nan if z is None else z for row in self.values for z in row]
        inks = [choose_text_colour(c) for c in interpolate_colours(np.array(numbers), COLOUR_SCALE)]
        return [
            [
                f"<span style='color:{ink}'>{escape_plotly_label(text)}</span>" if text else ""
                for text, ink in zip(row, inks[i * columns :], strict=False)
            ]
            for i, row in enumerate(self.texts)
        ]

    def _colour_bar_format(self) -> dict[str, str]:
        """Return how the numbers of the colour bar are written: dollars as dollars."""
        return {"tickprefix": "$", "tickformat": ".2f"} if self.z.endswith("_usd") else {}

    @property
    def still_height(self) -> int:
        """Pixels of the static picture."""
        return 56 + max(26 * len(self.upward), 7 * len(self.y))
