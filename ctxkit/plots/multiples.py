"""Growth as small multiples: a panel for each session, behind a replay what was recorded."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.plots.mosaics import Panel
from ctxkit.plots.palette import COLOURS, STOP, TEXT, dash
from ctxkit.plots.panel_grid import Panels
from ctxkit.plots.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.growth_lines import CompactionMark, GrowthLine

DRAWN = 60
"""Panels of one chart; more would be too small or too far down to be compared."""
_INKS = tuple(c for c in COLOURS if c != STOP)


class PanelGroup(NamedTuple):
    """The lines of one session, and of the session of which it is a replay."""

    name: str
    lines: tuple[GrowthLine, ...]
    recorded: tuple[GrowthLine, ...] = ()


def panels(groups: Sequence[PanelGroup]) -> Panels:
    """Return the picture: one panel a session, all on the same scales."""
    peak = max(
        (max(x.tokens) for g in groups for x in (*g.lines, *g.recorded) if x.tokens), default=0
    )
    return Panels(
        panels=tuple(_panel(g, peak) for g in groups[:DRAWN]),
        x="call",
        y="tokens in the prompt",
        limit="the window",
    )


def _panel(group: PanelGroup, peak: int) -> Panel:
    behind = [_line(x, "as recorded", "line", TEXT, "dot") for x in group.recorded]
    several = len(group.lines) > 1
    front = [
        _line(
            x,
            x.name if several else "prompt",
            "line" if several else "area",
            _INKS[i % len(_INKS)],
            dash(i),
        )
        for i, x in enumerate(group.lines)
    ]
    cuts = [_cuts(x, "compaction", x.cuts) for x in group.lines if x.cuts]
    cuts += [_cuts(x, "fall without a mark", x.falls) for x in group.lines if x.falls]
    n = sum(len(x.cuts) for x in group.lines)
    limits = [x.limit for x in group.lines if x.limit]
    limit = max(limits, default=None)
    # a window far above everything would press all lines to the ground
    near = limit if limit is not None and limit <= 1.5 * peak else None
    return Panel(
        title=group.name, corner=f"▼ {n}" if n else "", traces=(*behind, *front, *cuts), limit=near
    )


def _line(line: GrowthLine, name: str, kind: str, ink: str, dash: str) -> Trace:
    return Trace(name=name, x=line.calls, y=line.tokens, kind=kind, colour=ink, dash=dash)  # type: ignore[arg-type]


def _cuts(line: GrowthLine, name: str, cuts: tuple[CompactionMark, ...]) -> Trace:
    return Trace(
        name=name,
        x=[cut.call - 0.5 for cut in cuts],
        y=[_height(line, cut) for cut in cuts],
        kind="points",
        hollow=cuts is line.falls,
        colour=STOP,
        hover=lambda k: cuts[k].told(),
    )


def _height(line: GrowthLine, cut: CompactionMark) -> int:
    """Return the prompt before the cut: where results are pruned besides, what the cut itself saw
    was larger.
    """
    i = bisect_left(line.calls, cut.call) - 1
    return line.tokens[i] if i >= 0 else cut.height
