"""What settings cost against what they lose; those that no other one beats in both are joined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.metrics.fronts import front
from ctxkit.metrics.pooled import known_within, summary
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import figure, noted, trust
from ctxkit.plots.palette import TEXT
from ctxkit.plots.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

_LONG = 30
"""Letters of a name in the static picture."""
_SHARES = ("needed_later_loss", "needed_later_gone", "lost", "regret")


class Point(NamedTuple):
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
        """What is written beside it."""
        return self.rules if not self.alike else f"{_short(self.rules)} and {len(self.alike)} more"


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
        raise BadArguments(
            f"No run has both {x} and {y}: sweep with loss=True, over sessions with usage and"
            " prices."
        )
    over = rows[by].isin(
        set(runs.loc[runs["over_call"].notna(), by]) if "over_call" in runs.columns else set()
    )
    best = front(*(rows[c].where(~over).tolist() for c in (x, y)))
    within = known_within(runs, by) if x == "cost_usd" else {}
    found: dict[Any, Point] = {}
    for r, out, on in zip(rows.to_dict("records"), over.tolist(), best.tolist(), strict=True):
        point = Point(
            str(r[by]),
            float(r[x]),
            float(r[y]),
            (float(r[f"{x}_low"]), float(r[f"{x}_high"])),
            (float(r[f"{y}_low"]), float(r[f"{y}_high"])),
            int(r["sessions_n"]),
            bool(r["few"]),
            bool(on),
            bool(out),
        )
        point = point._replace(near=not on and not out and _near(point, rows[best], within, x, y))
        first = found.setdefault((point.x, point.y, out), point)
        if first is not point:
            found[point.x, point.y, out] = first._replace(alike=(*first.alike, point.rules))
    return tuple(found.values())


def _near(point: Point, best: pd.DataFrame, within: dict[Any, float], x: str, y: str) -> bool:
    """Say whether a point is beaten by no more than what is not told apart."""
    no_worse = best[best[y] <= point.y]
    return bool((point.x - no_worse[x] < within.get(point.rules, 0.0)).all())


@noted
def frontier(
    runs: pd.DataFrame, x: str = "cost_usd", y: str = "needed_later_loss", *, by: str = "rules"
) -> Chart:
    """Chart settings by their dollars and their needed-later loss, the Pareto front drawn; see
    `frontier_data`.
    """
    return _chart(frontier_data(runs, x, y, by=by), x, y, trust(runs))


def _chart(points: Sequence[Point], x: str, y: str, checked: str) -> Chart:
    best = [p for p in points if p.on_front]
    rest = [p for p in points if not p.on_front and not p.over]
    over = [p for p in points if p.over]
    traces = [
        _stairs(best),
        replace(_trace("on the front", best, 0, x, y), follows=True),
        _trace("beaten by another", rest, 1, x, y),
        replace(_trace("does not fit into the window", over, 2, x, y), colour=TEXT, hollow=True),
    ]
    n = max((p.sessions for p in points), default=0)
    few = ""
    if any(p.few for p in points):
        few = " Fewer than five sessions: the order may change with the next one."
    return Chart(
        title=f"{_words(y)} against {_words(x)}".capitalize(),
        caption=(
            f"Each point is a setting, its mean over {n} session{'s' if n != 1 else ''}; one on the"
            " line is beaten by no other in both; what does not fit into the window is not"
            f" asked.{_beside(points)}{few} Replays tell the bill and the chance of loss, not the"
            f" outcome.{checked}"
        ),
        drawing=Axes(
            x=_words(x),
            y=_words(y),
            traces=tuple(t for t in traces if len(t.x)),
            y_share=y in _SHARES,
            x_dollars=x.endswith("_usd"),
        ),
        head=("setting", _words(x), "90 %", _words(y), "90 %", "sessions", "front"),
        rows=tuple(
            (
                p.name,
                figure(x, p.x),
                _range(x, p.x_range),
                figure(y, p.y),
                _range(y, p.y_range),
                _count(p),
                _place(p),
            )
            for p in points
        ),
        shown=24,
    )


def _beside(points: Sequence[Point]) -> str:
    near = [p for p in points if p.near]
    if not near:
        return ""
    one = len(near) == 1
    return (
        f" {len(near)} more {'is' if one else 'are'} not told apart from it: what beats "
        f"{'it is' if one else 'them is'} cheaper by less than the error of the dollars."
    )


def _stairs(points: Sequence[Point]) -> Trace:
    """Return the front as the stairs that it is: between two settings nothing better is known."""
    xs, ys = [], []
    for before, p in zip([None, *points], points, strict=False):
        if before is not None:
            xs.append(p.x)
            ys.append(before.y)
        xs.append(p.x)
        ys.append(p.y)
    return Trace(name="on the front", x=xs, y=ys, marked=False)


def _trace(name: str, points: Sequence[Point], look: int, x: str, y: str) -> Trace:
    def hover(k: int) -> str:
        p = points[k]
        alike = [f"the same: {', '.join(p.alike)}"] if p.alike else []
        figures = [
            f"{_words(x)} {figure(x, p.x)}",
            f"{_words(y)} {figure(y, p.y)}",
            f"{_count(p)} sessions",
        ]
        return "\n".join([p.rules, *figures, *alike])

    names = tuple(_short(p.name) for p in points)
    return Trace(
        name=name,
        x=[p.x for p in points],
        y=[p.y for p in points],
        kind="points",
        names=names,
        hover=hover,
        look=look,
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONG else name[: _LONG - 1] + "…"


def _words(column: str) -> str:
    known = {"cost_usd": "cost in dollars", "needed_later_loss": "needed-later loss"}
    return known.get(column, column.replace("_", " "))


def _range(column: str, ends: tuple[float, float]) -> str:
    return "–".join(figure(column, e) for e in ends)


def _place(point: Point) -> str:
    if point.over:
        return "over the window"
    return "yes" if point.on_front else "not told apart" if point.near else ""


def _count(point: Point) -> str:
    return f"{point.sessions}{' (few)' if point.few else ''}"
