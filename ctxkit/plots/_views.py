"""What each agent of a team is billed under several views: a panel an agent, a line a view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ctxkit.errors import BadArguments
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.mosaics import Panel
from ctxkit.plots.palette import COLOURS, DASHES, STOP, TEXT
from ctxkit.plots.panel_grid import Panels
from ctxkit.plots.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_INKS = tuple(c for c in COLOURS if c != STOP)
_DASHED = tuple(d for d in DASHES if d != "dot")
_RECORDED = "recorded"
_NEAR = 1.5
"""A threshold further above the highest sum than this would press all lines to the ground."""


class Viewed(Protocol):
    """What ``ck.compare`` returns for a team and views."""

    turns: pd.DataFrame
    title: str
    limits: dict[str, int]


@noted
def views(of: Viewed) -> Chart:
    """Chart each agent's cumulative input tokens under each view, as fuseraft charts one of them.

    The sums are what is billed. The triangles are turns after which the work is handed on; the line
    across is the cut-over, else the warning, where it is near.

    Args:
        of: what ``ck.compare(team, "views")`` returned.

    Raises:
        BadArguments: it is something else.
    """
    turns = getattr(of, "turns", None)
    if turns is None or "view" not in turns:
        raise BadArguments("plots.views takes what ck.compare(team, 'views') returned.")
    agents = list(dict.fromkeys(turns["agent"]))
    name, limit = _limit(of.limits, int(turns["cumulative_input_tokens"].max()))
    end = int(turns["turn"].max())
    panels = [_panel(agent, turns[turns["agent"] == agent], limit, end) for agent in agents]
    return Chart(
        title=f"What each agent of {of.title} is sent, by view",
        caption="Input tokens billed to each agent, summed turn by turn under each view; dotted is "
        "what was recorded, triangles are hand-offs. All panels have the same scales.",
        drawing=Panels(
            panels=tuple(panels), x="turn of the team", y="input tokens, summed", limit=name
        ),
        head=("agent", "view", "turns", "input", "of recorded"),
        rows=tuple(_rows(turns)),
        shown=24,
    )


def _limit(limits: dict[str, int], peak: int) -> tuple[str, float | None]:
    for key, name in (("cutover_at", "cut over at"), ("warn_at", "warn at")):
        at = limits.get(key)
        if at and at <= _NEAR * peak:
            return f"{name} {at:,}", at
    return "limit", None


def _panel(agent: str, turns: pd.DataFrame, limit: float | None, end: int) -> Panel:
    seen = [v for v in dict.fromkeys(turns["view"]) if v != _RECORDED]
    told = turns[(turns["view"] == _RECORDED) & (turns["to"] != "")]
    to = told["to"].tolist()
    points = Trace(
        name="hand-off", kind="points", colour=TEXT, x=told["turn"].tolist(),
        y=told["cumulative_input_tokens"].tolist(), hover=lambda k: f"hands on to {to[k]}",
    )  # fmt: skip
    return Panel(
        title=agent,
        corner=f"▼ {len(to)}" if to else "",
        limit=limit,
        traces=(
            *(_line(turns, v, i, end) for i, v in enumerate(seen)),
            _line(turns, _RECORDED, -1, end),
            *((points,) if to else ()),
        ),
    )


def _line(turns: pd.DataFrame, view: str, i: int, end: int) -> Trace:
    """Return the sum after each turn of the team; it stands while others work."""
    rows = turns[turns["view"] == view]
    at = dict(zip(rows["turn"].tolist(), rows["cumulative_input_tokens"].tolist(), strict=True))
    sums, now = [0], 0
    for turn in range(end + 1):
        now = at.get(turn, now)
        sums.append(now)
    look = (TEXT, "dot") if i < 0 else (_INKS[i % len(_INKS)], _DASHED[i % len(_DASHED)])
    return Trace(name=view, x=list(range(-1, end + 1)), y=sums, colour=look[0], dash=look[1])


def _rows(turns: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    recorded: dict[str, int] = {}
    for agent, of in turns.groupby("agent", sort=False):
        for view, rows in of.groupby("view", sort=False):
            total = int(rows["turn_input_tokens"].sum())
            first = recorded.setdefault(str(agent), total)  # the record's rows come first
            share = f"{total / first:.0%}" if first else ""
            yield str(agent), str(view), f"{len(rows):,}", f"{total:,}", share
