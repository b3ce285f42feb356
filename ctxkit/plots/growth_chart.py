"""`plots.growth`: context size at every call, one line or panel per session, with marks of
compactions.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit._internal.chart_style import COLOURS, STOP_COLOUR, TEXT_COLOUR, pick_dash
from ctxkit._internal.formatting_and_sanitizing import (
    MISSING,
    format_count,
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames import per_compaction
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes
from ctxkit.plots.chart import (
    Chart,
    HasReplays,
    add_session_notes,
    format_exact_token_count,
    map_sessions_by_name,
)
from ctxkit.plots.small_multiples import Panel, PanelGrid
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing
from ctxkit.session.compactions_and_prunings import hides_compactions
from ctxkit.session.titles import get_title
from ctxkit.tokens.context_windows import get_context_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ctxkit.formats.sessions_from_arguments import SessionLike, SessionsLike
    from ctxkit.session.messages import Provenance
    from ctxkit.session.session import Session


FAILED_SYMBOL = "x"
"""Shape of the mark of a compaction that failed."""
FAILED_DASH: Literal["dash"] = "dash"
"""Its line; that of a compaction is dotted."""


class CompactionMark(NamedTuple):
    """A compaction on the chart: the call after it, and the sizes before and after it."""

    number: int | None
    """Number of the compaction; None: a drop of the prompt without a mark in the log, or an attempt
    that changed nothing.
    """
    call: int
    agent: str
    before: int | None
    after: int | None
    why: str
    kind: str = ""
    """As in the compaction frame."""
    error: str | None = None
    """Why its summary failed, or why it changed nothing."""

    @property
    def is_failed(self) -> bool:
        """True where its summary failed or it changed nothing."""
        return self.error is not None

    @property
    def height(self) -> int:
        """Height of its mark, in tokens."""
        return self.before if self.before is not None else 0

    def describe(self) -> str:
        """Return its effect as lines of text."""
        before, after = map(format_exact_token_count, (self.before, self.after))
        sizes = f"{before} → {after} tokens"
        what = f"compaction {self.number}"
        if self.number is None:
            what = f"compaction {self.kind}" if self.is_failed else "no mark in the log"
        failed = self.error and f"failed: {sanitize_line(self.error, 200)}"
        return "\n".join(filter(None, [what, sizes, self.why, failed]))


def collect_compaction_marks(session: Session) -> tuple[CompactionMark, ...]:
    """Return the compactions of a session, its unmarked drops, and the attempts that failed."""
    n = len(session.calls)
    data = dict(per_compaction.rows([session], unmarked=True, attempts=True, summaries=False))
    # A compaction without a following call is placed after the last call.
    data["call"] = [n if call is None else call for call in data["call"]]
    columns = (
        *("compaction", "call", "agent", "tokens_before", "tokens_after", "kind", "error"),
        *("method", "trigger"),
    )
    return tuple(
        CompactionMark(k, call, agent, before, after, " · ".join(filter(None, why)), kind, error)
        for k, call, agent, before, after, kind, error, *why in zip(
            *(data[c] for c in columns), strict=True
        )
        if kind != "skipped"  # there was nothing to compact
    )


def describe_failed_compactions(n: int) -> str:
    """Return what the marks of failed compactions are, to be put behind a caption."""
    if not n:
        return ""
    return (
        f" {pluralize(n, 'compaction')} failed (crosses, dashed lines): no summary was made, or"
        " nothing was changed."
    )


_MAX_MARKS = 40
"""Maximum number of compactions that get a line each; more would hide the chart."""
_TABLE_HEAD = ("context", "calls", "first", "peak", "last", "of limit", "compactions", "source")
_PANELS_NOTE = "All panels have the same scales; triangles are compactions, dashes the window."
_PANELS_NOTE_WITH_RECORD = (
    "All panels have the same scales; dotted is what was recorded, triangles are compactions,"
    " dashes the window."
)


def growth_data(
    sessions: SessionsLike | Mapping[str, SessionLike] | HasReplays,
) -> tuple[GrowthLine, ...]:
    """Return one line for each agent of each session, without calls of unknown size."""
    session_by_name = map_sessions_by_name(sessions)
    return tuple(
        x for name, session in session_by_name.items() for x in build_growth_lines(name, session)
    )


@add_session_notes
def growth(
    sessions: SessionsLike | Mapping[str, SessionLike] | HasReplays, *, small: bool | None = None
) -> Chart:
    """Chart the size of the context at every call of one or several sessions.

    Args:
        sessions: a session, the path of a log, a list or folder of them, a dictionary from the
            names in the legend to sessions, or the result of ``ck.compare``.
        small: draw a panel for each session on common scales, with the record behind each replay;
            None: if there are more sessions than colours.

    Returns:
        The chart; its table has a row for each agent of each session, in tokens.

    Raises:
        BadArguments: an item is no session.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.growth(ck.samples.path()).rows[0][1:5]
        ('343', '1,625', '39,313', '19,536')
    """
    session_by_name = map_sessions_by_name(sessions)
    if small or (small is None and len(session_by_name) > len(COLOURS)):
        return _small_multiples(session_by_name)
    return _draw_growth(_describe_sessions(session_by_name), growth_data(session_by_name))


def _small_multiples(session_by_name: Mapping[str, Session]) -> Chart:
    # Several replays may have the same record, whose lines are made once.
    origins = {id(s.origin): s.origin for s in session_by_name.values() if s.origin is not None}
    recorded = {key: tuple(build_growth_lines("", s)) for key, s in origins.items()}
    groups = [
        SessionAndRecordLines(n, tuple(build_growth_lines(n, s)), recorded.get(id(s.origin), ()))
        for n, s in session_by_name.items()
    ]
    every = [line for group in groups for line in group.lines]
    more = len(groups) - MAX_PANELS
    left = f" {more} more are not drawn." if more > 0 else ""
    return Chart(
        title=_describe_sessions(session_by_name),
        caption=_describe_prompts(every, _PANELS_NOTE_WITH_RECORD if recorded else _PANELS_NOTE)
        + left,
        drawing=build_growth_panels(groups),
        head=_TABLE_HEAD,
        rows=tuple(map(_growth_row, every)),
        shown=MAX_PANELS,
    )


def _describe_sessions(session_by_name: Mapping[str, Session]) -> str:
    if len(session_by_name) == 1:
        return f"Context of {next(iter(session_by_name))}"
    replays = [s for s in session_by_name.values() if s.origin is not None]
    origin = replays[0].origin if replays else None
    if origin is not None and all((s.origin or s) is origin for s in session_by_name.values()):
        return f"Context of {get_title(origin)} under {pluralize(len(replays), 'setting')}"
    return f"Context of {len(session_by_name)} sessions"


def _draw_growth(title: str, lines: Sequence[GrowthLine]) -> Chart:
    is_single = len(lines) == 1
    traces = [_prompt_trace(line, i) for i, line in enumerate(lines)]
    traces += [
        _compaction_points(line, i, kind, is_single=is_single)
        for kind in _MARK_KINDS
        for i, line in enumerate(lines)
        if kind.select(line)
    ]
    marks = [
        VerticalMark(x=mark.call - 0.5, dash=FAILED_DASH if mark.is_failed else "dot")
        for line in lines
        for mark in (*line.compaction_marks, *line.attempts)
    ]
    peak = max((max(line.tokens) for line in lines if line.tokens), default=0)
    limits = sorted({line.limit for line in lines if line.limit})
    limit_lines = [LimitLine(y=n, label=f"limit {n:,}", shown=4 * peak >= n) for n in limits]
    axes = XyDrawing(
        x="call",
        y="tokens in the prompt",
        traces=tuple(traces),
        limits=tuple(limit_lines),
        marks=tuple(marks) if is_single and len(marks) <= _MAX_MARKS else (),
    )
    return Chart(
        title=title,
        caption=_describe_prompts(lines),
        drawing=axes,
        head=_TABLE_HEAD,
        rows=tuple(map(_growth_row, lines)),
    )


def _prompt_trace(line: GrowthLine, i: int) -> Trace:
    def hover(k: int) -> str:
        when = line.times[k]
        where = f"call {line.calls[k]} · turn {line.turns[k]}"
        lines = [line.name, where, f"{line.tokens[k]:,} tokens ({line.source})"]
        return "\n".join([*lines, *filter(None, [line.models[k], _format_utc_time(when)])])

    return Trace(name=line.name, x=line.calls, y=line.tokens, hover=hover, look=i)


def _format_utc_time(seconds: float | None) -> str | None:
    """Return a time of a log as text in UTC; None if it is missing or out of range."""
    if seconds is None or not 0 <= seconds < 253_402_300_799:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


class _MarkKind(NamedTuple):
    """Compactions that are drawn with one mark and have one entry in the legend."""

    name: str
    select: Callable[[GrowthLine], Sequence[CompactionMark]]
    symbol: str | None = None
    """Shape of the marks; None: that of other points."""
    is_hollow: bool = False


class GrowthLine(NamedTuple):
    """One agent's context in one session."""

    name: str
    calls: tuple[int, ...]
    tokens: tuple[int, ...]
    turns: tuple[int, ...]
    models: tuple[str | None, ...]
    times: tuple[float | None, ...]
    compaction_marks: tuple[CompactionMark, ...]
    unmarked_drops: tuple[CompactionMark, ...]
    """Drops of the prompt without a mark in the log."""
    limit: int | None
    source: Provenance | None
    calls_n: int
    """Number of its calls, including those of unknown size."""
    last_tokens: int | None
    """Size of its last call; None: unknown."""
    hides_compactions: bool
    """True where the log has no compaction and its format cannot record one."""
    attempts: tuple[CompactionMark, ...] = ()
    """Compactions that failed or were refused, and changed nothing."""

    @property
    def failed(self) -> tuple[CompactionMark, ...]:
        """Compactions whose summary failed, and those that changed nothing."""
        failed = [c for c in (*self.compaction_marks, *self.attempts) if c.is_failed]
        return tuple(sorted(failed, key=lambda c: c.call))

    @property
    def compactions(self) -> str:
        """The number of its compactions as text for a table; missing where it is unknown."""
        if self.hides_compactions:
            return MISSING
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"{len(self.compaction_marks):,}{failed}"


_MARK_KINDS = (
    _MarkKind("compactions", lambda line: [m for m in line.compaction_marks if not m.is_failed]),
    _MarkKind("failed compactions", lambda line: line.failed, FAILED_SYMBOL),
    _MarkKind("unmarked drops", lambda line: line.unmarked_drops, is_hollow=True),
)


def _compaction_points(line: GrowthLine, i: int, kind: _MarkKind, *, is_single: bool) -> Trace:
    """Return the marks of one kind on the i-th line, each half a call before its call."""
    marks = kind.select(line)
    return Trace(
        name=kind.name if is_single else f"{kind.name} of {line.name}",
        follows=not is_single,
        x=[mark.call - 0.5 for mark in marks],
        y=[mark.height for mark in marks],
        kind="points",
        symbol=kind.symbol,
        hollow=kind.is_hollow,
        hover=lambda k: marks[k].describe(),
        look=i + 1 if is_single else i,  # a single line's marks differ from the line
    )


def _growth_row(line: GrowthLine) -> tuple[str, ...]:
    calls = f"{line.calls_n:,}"
    if not line.tokens:
        return (line.name, calls, "", "", "", "", line.compactions, "the log has no sizes")
    peak = max(line.tokens)
    full = format_percent(peak / line.limit) if line.limit else "unknown"
    ends = f"{line.tokens[0]:,}", f"{peak:,}", format_count(line.last_tokens)
    return (line.name, calls, *ends, full, line.compactions, str(line.source))


def _describe_prompts(
    lines: Sequence[GrowthLine],
    marks: str = (
        "Dotted lines and markers are compactions, each as high as the prompt that was due and was"
        " not sent."
    ),
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
    sources_text = "; ".join(words[s] for s in sorted(sources) if s in words)
    more = describe_failed_compactions(sum(len(x.failed) for x in lines))
    if any(x.unmarked_drops for x in lines):
        more += " Hollow ones are falls that no mark in the log explains."
    if any(x.hides_compactions for x in lines):
        more += f" {MISSING}: the log cannot tell of compactions."
    return f"Prompt tokens of each call, {sources_text}. {marks}{more}"


MAX_PANELS = 60
"""Maximum number of panels; more would be too small or too far apart to be compared."""
_PANEL_COLOURS = tuple(c for c in COLOURS if c != STOP_COLOUR)


class SessionAndRecordLines(NamedTuple):
    """The lines of one session, and of its record if it is a replay."""

    name: str
    lines: tuple[GrowthLine, ...]
    recorded: tuple[GrowthLine, ...] = ()


def build_growth_panels(groups: Sequence[SessionAndRecordLines]) -> PanelGrid:
    """Return one panel per session, all on the same scales."""
    peak = max(
        (max(x.tokens) for g in groups for x in (*g.lines, *g.recorded) if x.tokens), default=0
    )
    return PanelGrid(
        panels=tuple(_session_panel(g, peak) for g in groups[:MAX_PANELS]),
        x="call",
        y="tokens in the prompt",
        limit="the window",
    )


def _session_panel(group: SessionAndRecordLines, peak: int) -> Panel:
    behind = [_panel_line(x, "as recorded", "line", TEXT_COLOUR, "dot") for x in group.recorded]
    several = len(group.lines) > 1
    front = [
        _panel_line(
            x,
            x.name if several else "prompt",
            "line" if several else "area",
            _PANEL_COLOURS[i % len(_PANEL_COLOURS)],
            pick_dash(i),
        )
        for i, x in enumerate(group.lines)
    ]
    marks = [_panel_compactions(x, k) for k in _MARK_KINDS for x in group.lines if k.select(x)]
    n = sum(len(x.compaction_marks) for x in group.lines)
    limits = [x.limit for x in group.lines if x.limit]
    limit = max(limits, default=None)
    # a window far above all prompts would flatten the lines
    near = limit if limit is not None and limit <= 1.5 * peak else None
    return Panel(
        title=group.name, corner=f"▼ {n}" if n else "", traces=(*behind, *front, *marks), limit=near
    )


def _panel_line(line: GrowthLine, name: str, kind: str, ink: str, dash: str) -> Trace:
    return Trace(name=name, x=line.calls, y=line.tokens, kind=kind, colour=ink, dash=dash)  # type: ignore[arg-type]


def _panel_compactions(line: GrowthLine, kind: _MarkKind) -> Trace:
    marks = kind.select(line)
    return Trace(
        name=kind.name.removesuffix("s"),
        x=[mark.call - 0.5 for mark in marks],
        y=[_height_before(line, mark) for mark in marks],
        kind="points",
        symbol=kind.symbol,
        hollow=kind.is_hollow,
        colour=STOP_COLOUR,
        hover=lambda k: marks[k].describe(),
    )


def _height_before(line: GrowthLine, mark: CompactionMark) -> int:
    """Return the prompt before a compaction; with a pruning, the compaction saw a larger one."""
    i = bisect_left(line.calls, mark.call) - 1
    return line.tokens[i] if i >= 0 else mark.height


def build_growth_lines(name: str, session: Session) -> Iterator[GrowthLine]:
    """Yield a line for each agent of a session, without calls of unknown size.

    Args:
        name: name of the session in the legend; agents are named behind it.
        session: any session.
    """
    sizes, source = get_prompt_sizes(session)
    agents = dict.fromkeys(c.agent for c in session.calls)
    marks, first = collect_compaction_marks(session), next(iter(agents), None)
    for agent in agents:
        agent_calls = [c for c in session.calls if c.agent == agent]
        calls = [c for c in agent_calls if sizes[c.index] is not None]
        models = [c.message.model or session.model for c in calls]
        limits = [
            get_context_window(session, m, c.message).tokens
            for c, m in zip(calls, models, strict=True)
        ]
        # A compaction of an agent without calls is shown with the first agent.
        agent_marks = [
            c for c in marks if c.agent == agent or (c.agent not in agents and agent == first)
        ]
        yield GrowthLine(
            name if len(agents) == 1 else f"{name} · {agent}" if name != agent else agent,
            tuple(c.index for c in calls),
            tuple(n for c in calls if (n := sizes[c.index]) is not None),
            tuple(c.turn for c in calls),
            tuple(models),
            tuple(c.message.time for c in calls),
            tuple(c for c in agent_marks if c.number is not None),
            tuple(c for c in agent_marks if c.number is None and not c.is_failed),
            next((limit for limit in reversed(limits) if limit is not None), None),
            source if calls else None,
            len(agent_calls),
            sizes[agent_calls[-1].index],
            hides_compactions(session),
            tuple(c for c in agent_marks if c.number is None and c.is_failed),
        )


@register_view_values("plots.growth")
def _read_figures(session: Session) -> dict[str, Any]:
    """Return the figures of the chart's table; without usage its sizes are estimates."""
    every = list(build_growth_lines("", session))
    lines = [line for line in every if line.tokens]
    if not session.has_usage or not lines:
        return {}
    newest = max(lines, key=lambda line: line.calls[-1])
    figures: dict[str, Any] = {"peak_tokens": max(max(line.tokens) for line in lines)}
    figures["calls_n"] = len(session.calls)
    if newest.last_tokens is not None and newest.calls[-1] == len(session.calls) - 1:
        figures["last_prompt_tokens"] = newest.last_tokens
    numbers = {mark.number for line in every for mark in line.compaction_marks} - {None}
    return {**figures, "compactions_n": None if hides_compactions(session) else len(numbers)}
