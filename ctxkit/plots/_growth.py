"""How the context grows, call by call, with its compactions and the window's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.amounts import counted
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import Compared, clock, name_all, noted
from ctxkit.plots.growth_lines import CompactionMark, GrowthLine, lines
from ctxkit.plots.multiples import DRAWN, PanelGroup, panels
from ctxkit.plots.palette import COLOURS
from ctxkit.plots.traces import Limit, Mark, Trace
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.readers.given import Given, GivenAll
    from ctxkit.session import Session

_MARKS = 40
"""Compactions that get a line each; more would hide the chart."""
_HEAD = ("context", "calls", "first", "peak", "last", "of limit", "compactions", "source")
_SMALL = "All panels have the same scales; triangles are compactions, dashes the window."
_BEHIND = (
    "All panels have the same scales; dotted is what was recorded, triangles are compactions,"
    " dashes the window."
)


def growth_data(sessions: GivenAll | Mapping[str, Given] | Compared) -> tuple[GrowthLine, ...]:
    """Return one line for each agent of each session, without calls of which no size is known."""
    named = name_all(sessions)
    return tuple(x for name, session in named.items() for x in lines(name, session))


@noted
def growth(
    sessions: GivenAll | Mapping[str, Given] | Compared, *, small: bool | None = None
) -> Chart:
    """Chart the size of the context at every call of one or several sessions.

    Args:
        sessions: a session, the path of a log, a list or folder of them, a dictionary from the
            names in the legend to sessions, or what ``ck.compare`` returned.
        small: a panel for each session, all on the same scales, behind a replay what was recorded;
            None: where there are more sessions than colours.

    Raises:
        BadArguments: something given is no session.
    """
    named = name_all(sessions)
    if small or (small is None and len(named) > len(COLOURS)):
        return _multiples(named)
    return _chart(_title(named), growth_data(named))


def _multiples(named: Mapping[str, Session]) -> Chart:
    origins = {id(s.origin): s.origin for s in named.values() if s.origin is not None}
    recorded = {key: tuple(lines("", s)) for key, s in origins.items()}
    groups = [
        PanelGroup(n, tuple(lines(n, s)), recorded.get(id(s.origin), ())) for n, s in named.items()
    ]
    every = [line for group in groups for line in group.lines]
    more = len(groups) - DRAWN
    left = f" {more} more are not drawn." if more > 0 else ""
    return Chart(
        title=_title(named),
        caption=_caption(every, _BEHIND if recorded else _SMALL) + left,
        drawing=panels(groups),
        head=_HEAD,
        rows=tuple(map(_row, every)),
        shown=DRAWN,
    )


def _title(named: Mapping[str, Session]) -> str:
    if len(named) == 1:
        return f"Context of {next(iter(named))}"
    replays = [s for s in named.values() if s.origin is not None]
    origin = replays[0].origin if replays else None
    if origin is not None and all((s.origin or s) is origin for s in named.values()):
        return f"Context of {title_of(origin)} under {counted(len(replays), 'setting')}"
    return f"Context of {len(named)} sessions"


def _chart(title: str, lines: Sequence[GrowthLine]) -> Chart:
    alone = len(lines) == 1
    traces = [_trace(line, i) for i, line in enumerate(lines)]
    traces += [
        _crosses(line, i, line.cuts, alone=alone) for i, line in enumerate(lines) if line.cuts
    ]
    traces += [
        _crosses(line, i, line.falls, alone=alone) for i, line in enumerate(lines) if line.falls
    ]
    marks = [Mark(x=cut.call - 0.5) for line in lines for cut in line.cuts]
    peak = max((max(line.tokens) for line in lines if line.tokens), default=0)
    limits = sorted({line.limit for line in lines if line.limit})
    shown = [Limit(y=n, label=f"limit {n:,}", shown=4 * peak >= n) for n in limits]
    axes = Axes(
        x="call",
        y="tokens in the prompt",
        traces=tuple(traces),
        limits=tuple(shown),
        marks=tuple(marks) if alone and len(marks) <= _MARKS else (),
    )
    return Chart(
        title=title, caption=_caption(lines), drawing=axes, head=_HEAD, rows=tuple(map(_row, lines))
    )


def _trace(line: GrowthLine, i: int) -> Trace:
    def hover(k: int) -> str:
        when = line.times[k]
        where = f"call {line.calls[k]} · turn {line.turns[k]}"
        told = [line.name, where, f"{line.tokens[k]:,} tokens ({line.source})"]
        return "\n".join([*told, *filter(None, [line.models[k], clock(when)])])

    return Trace(name=line.name, x=line.calls, y=line.tokens, hover=hover, look=i)


def _crosses(line: GrowthLine, i: int, cuts: Sequence[CompactionMark], *, alone: bool) -> Trace:
    fallen = cuts is line.falls
    what = "falls without a mark" if fallen else "compactions"
    return Trace(
        name=what if alone else f"{what} of {line.name}",
        follows=not alone,
        x=[c.call - 0.5 for c in cuts],
        y=[cut.height for cut in cuts],
        kind="points",
        hollow=fallen,
        hover=lambda k: cuts[k].told(),
        look=i + 1 if alone else i,
    )


def _row(line: GrowthLine) -> tuple[str, ...]:
    if not line.tokens:
        return (line.name, "0", "", "", "", "", str(len(line.cuts)), "the log has no sizes")
    peak = max(line.tokens)
    full = f"{peak / line.limit:.0%}" if line.limit else "unknown"
    ends = f"{line.tokens[0]:,}", f"{peak:,}", f"{line.tokens[-1]:,}"
    return (line.name, f"{len(line.tokens):,}", *ends, full, str(len(line.cuts)), str(line.source))


def _caption(
    lines: Sequence[GrowthLine], marks: str = "Dotted lines and markers are compactions."
) -> str:
    sources = {line.source for line in lines if line.source}
    if not sources:
        return (
            "No size of a prompt is known: the log records neither usage of calls nor content. Try"
            " plots.budget."
        )
    words = {
        "recorded": "as the provider billed them",
        "derived": "as a replay models them",
        "estimated": "estimated, a quarter of the characters shown",
    }
    told = "; ".join(words[s] for s in sorted(sources) if s in words)
    fallen = ""
    if any(x.falls for x in lines):
        fallen = " Hollow ones are falls that no mark in the log explains."
    return f"Prompt tokens of each call, {told}. {marks}{fallen}"
