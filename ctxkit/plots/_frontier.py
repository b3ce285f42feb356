"""What settings cost against what they lose; those that no other one beats in both are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.metrics.cells import summary
from ctxkit.metrics.fronts import front
from ctxkit.plots.axes import Axes, Trace
from ctxkit.plots.chart import Chart
from ctxkit.plots.words import figure, noted, trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

_LONG = 24
"""Letters of a name in the static picture."""
_SHARES = ("needed_later_loss", "needed_later_gone", "lost", "regret")


class Point(NamedTuple):
    """One setting: its means over the sessions that every setting has figures for, with 90 % intervals."""

    rules: str
    x: float
    y: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    sessions: int
    few: bool
    """Fewer than five sessions."""
    on_front: bool


def frontier_data(
    runs: pd.DataFrame, x: str = "cost_usd", y: str = "needed_later_loss", *, by: str = "rules"
) -> tuple[Point, ...]:
    """Return one point for each setting that has both figures, the cheapest first.

    Args:
        runs: what `sweep` or `compare` returned.
        x: column across; small is good.
        y: column upward; small is good.
        by: column that names a setting.

    Raises:
        BadArguments: there is no such column, or no run has both figures.
    """
    rows = summary(runs, by, (x, y)).dropna(subset=[x, y]).sort_values([x, y])
    if rows.empty:
        raise BadArguments(f"No run has both {x} and {y}: sweep with loss=True, over sessions with usage and prices.")
    best = front(rows[x].tolist(), rows[y].tolist())
    found = zip(rows.to_dict("records"), best.tolist(), strict=True)
    return tuple(
        Point(
            str(r[by]),
            float(r[x]),
            float(r[y]),
            (float(r[f"{x}_low"]), float(r[f"{x}_high"])),
            (float(r[f"{y}_low"]), float(r[f"{y}_high"])),
            int(r["sessions_n"]),
            bool(r["few"]),
            bool(on),
        )
        for r, on in found
    )


@noted
def frontier(runs: pd.DataFrame, x: str = "cost_usd", y: str = "needed_later_loss", *, by: str = "rules") -> Chart:
    """Chart settings by their dollars and their needed-later loss, the Pareto front drawn; see `frontier_data`."""
    return _chart(frontier_data(runs, x, y, by=by), x, y, trust(runs))


def _chart(points: Sequence[Point], x: str, y: str, checked: str) -> Chart:
    best = [p for p in points if p.on_front]
    rest = [p for p in points if not p.on_front]
    traces = [
        _trace("on the front", best, 0, x, y, line=True),
        replace(_trace("on the front", best, 0, x, y), follows=True),
        _trace("beaten by another", rest, 1, x, y),
    ]
    n = max((p.sessions for p in points), default=0)
    few = " Fewer than five sessions: the order may change with the next one." if any(p.few for p in points) else ""
    return Chart(
        title=f"{_words(y)} against {_words(x)}".capitalize(),
        caption=f"Each point is a setting, its mean over {n} session{'s' if n != 1 else ''}; one on the line is "
        f"beaten by no other in both.{few} Replays tell the bill and the chance of loss, not the outcome.{checked}",
        drawing=Axes(x=_words(x), y=_words(y), traces=tuple(t for t in traces if len(t.x)), y_share=y in _SHARES),
        head=("setting", _words(x), "90 %", _words(y), "90 %", "sessions", "front"),
        rows=tuple(
            (
                p.rules,
                figure(x, p.x),
                _range(x, p.x_range),
                figure(y, p.y),
                _range(y, p.y_range),
                _count(p),
                "yes" * p.on_front,
            )
            for p in points
        ),
        shown=24,
    )


def _trace(name: str, points: Sequence[Point], look: int, x: str, y: str, *, line: bool = False) -> Trace:
    def hover(k: int) -> str:
        p = points[k]
        return f"{p.rules}\n{_words(x)} {figure(x, p.x)}\n{_words(y)} {figure(y, p.y)}\n{_count(p)} sessions"

    places = [p.x for p in points], [p.y for p in points]
    names = () if line else tuple(_short(p.rules) for p in points)
    return Trace(
        name=name, x=places[0], y=places[1], kind="line" if line else "points", names=names, hover=hover, look=look
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONG else name[: _LONG - 1] + "…"


def _words(column: str) -> str:
    known = {"cost_usd": "cost in dollars", "needed_later_loss": "needed-later loss"}
    return known.get(column, column.replace("_", " "))


def _range(column: str, ends: tuple[float, float]) -> str:
    return "–".join(figure(column, e) for e in ends)


def _count(point: Point) -> str:
    return f"{point.sessions}{' (few)' if point.few else ''}"
