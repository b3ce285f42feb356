"""How the context grows, call by call, with its compactions and the window's limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames import compactions
from ctxkit.frames.costs import Costs
from ctxkit.frames.occupancy import prompts
from ctxkit.plots.axes import Axes, Limit, Mark, Trace
from ctxkit.plots.chart import Chart
from ctxkit.plots.words import clock, name_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.messages import Source
    from ctxkit.session import Session

_MARKS = 40
"""Compactions that get a line each; more would hide the chart."""


class Cut(NamedTuple):
    """A compaction on the chart: before which call, from what size to what."""

    number: int
    call: int
    agent: str
    before: int | None
    after: int | None
    why: str


class Line(NamedTuple):
    """One agent's context in one session."""

    name: str
    calls: tuple[int, ...]
    tokens: tuple[int, ...]
    turns: tuple[int, ...]
    models: tuple[str | None, ...]
    times: tuple[float | None, ...]
    cuts: tuple[Cut, ...]
    limit: int | None
    source: Source | None


def growth_data(sessions: Session | Iterable[Session] | Mapping[str, Session]) -> tuple[Line, ...]:
    """Return one line for each agent of each session; calls whose size the log cannot tell are left out."""
    named = name_all(sessions)
    costs = Costs()
    return tuple(line for name, session in named.items() for line in _lines(name, session, costs))


def growth(sessions: Session | Iterable[Session] | Mapping[str, Session]) -> Chart:
    """Chart the size of the context at every call of one or several sessions.

    Args:
        sessions: a session, a list of them, or a dictionary from the names in the legend to sessions.

    Raises:
        BadArguments: something given is no session.
    """
    return _chart(growth_data(sessions))


def _lines(name: str, session: Session, costs: Costs) -> Iterable[Line]:
    sizes, source = prompts(session)
    agents = dict.fromkeys(c.agent for c in session.calls)
    cuts, first = _cuts(session), next(iter(agents), None)
    for agent in agents:
        calls = [c for c in session.calls if c.agent == agent and sizes[c.index] is not None]
        models = [c.message.model or session.model for c in calls]
        limits = [costs.limit(session, c.message, m)[0] for c, m in zip(calls, models, strict=True)]
        yield Line(
            name if len(agents) == 1 else f"{name} · {agent}" if name != agent else agent,
            tuple(c.index for c in calls),
            tuple(n for c in calls if (n := sizes[c.index]) is not None),
            tuple(c.turn for c in calls),
            tuple(models),
            tuple(c.message.time for c in calls),
            tuple(c for c in cuts if c.agent == agent or (c.agent not in agents and agent == first)),
            next((limit for limit in reversed(limits) if limit is not None), None),
            source if calls else None,
        )


def _cuts(session: Session) -> tuple[Cut, ...]:
    data = compactions.rows([session])
    n = len(session.calls)
    columns = ("compaction", "call", "agent", "tokens_before", "tokens_after", "method", "trigger")
    return tuple(
        Cut(k, n if call is None else call, agent, before, after, " · ".join(w for w in (method, trigger) if w))
        for k, call, agent, before, after, method, trigger in zip(*(data[c] for c in columns), strict=True)
    )


def _chart(lines: Sequence[Line]) -> Chart:
    alone = len(lines) == 1
    cuts = sum(len(line.cuts) for line in lines)
    traces = [_trace(line, i) for i, line in enumerate(lines)]
    traces += [_crosses(line, i, alone=alone) for i, line in enumerate(lines) if line.cuts]
    marks = [Mark(x=cut.call - 0.5) for line in lines for cut in line.cuts] if alone and cuts <= _MARKS else []
    peak = max((max(line.tokens) for line in lines if line.tokens), default=0)
    limits = sorted({line.limit for line in lines if line.limit})
    shown = [Limit(y=n, label=f"limit {n:,}", shown=4 * peak >= n) for n in limits]
    axes = Axes(x="call", y="tokens in the prompt", traces=tuple(traces), limits=tuple(shown), marks=tuple(marks))
    title = f"Context of {lines[0].name}" if alone else f"Context of {len(lines)} agents and sessions"
    head = ("context", "calls", "first", "peak", "last", "of limit", "compactions", "source")
    return Chart(title=title, caption=_caption(lines), drawing=axes, head=head, rows=tuple(map(_row, lines)))


def _trace(line: Line, i: int) -> Trace:
    def hover(k: int) -> str:
        when = line.times[k]
        told = [
            f"{line.name}",
            f"call {line.calls[k]} · turn {line.turns[k]}",
            f"{line.tokens[k]:,} tokens ({line.source})",
        ]
        return "\n".join([*told, *filter(None, [line.models[k], clock(when)])])

    return Trace(name=line.name, x=line.calls, y=line.tokens, hover=hover, look=i)


def _crosses(line: Line, i: int, *, alone: bool) -> Trace:
    def hover(k: int) -> str:
        cut = line.cuts[k]
        sizes = f"{_size(cut.before)} → {_size(cut.after)} tokens"
        return "\n".join(filter(None, [f"compaction {cut.number}", sizes, cut.why]))

    heights = [cut.before if cut.before is not None else 0 for cut in line.cuts]
    name = "compactions" if alone else f"compactions of {line.name}"
    return Trace(
        name=name,
        follows=not alone,
        x=[c.call - 0.5 for c in line.cuts],
        y=heights,
        kind="points",
        hover=hover,
        look=i + 1 if alone else i,
    )


def _row(line: Line) -> tuple[str, ...]:
    if not line.tokens:
        return (line.name, "0", "", "", "", "", str(len(line.cuts)), "the log has no sizes")
    peak = max(line.tokens)
    full = f"{peak / line.limit:.0%}" if line.limit else "unknown"
    ends = f"{line.tokens[0]:,}", f"{peak:,}", f"{line.tokens[-1]:,}"
    return (line.name, f"{len(line.tokens):,}", *ends, full, str(len(line.cuts)), str(line.source))


def _caption(lines: Sequence[Line]) -> str:
    sources = {line.source for line in lines if line.source}
    if not sources:
        return "No size of a prompt is known: the log records neither usage of calls nor content. Try plots.budget."
    words = {
        "recorded": "as the provider billed them",
        "derived": "as a replay models them",
        "estimated": "estimated, a quarter of the characters shown",
    }
    told = "; ".join(words[s] for s in sorted(sources) if s in words)
    return f"Prompt tokens of each call, {told}. Dotted lines and markers are compactions."


def _size(n: int | None) -> str:
    return "unknown" if n is None else f"{n:,}"
