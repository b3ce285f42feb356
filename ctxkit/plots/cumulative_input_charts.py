"""`plots.budget` and `plots.views`: cumulative input tokens per agent, with thresholds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ctxkit._internal.chart_style import COLOURS, DASHES, STOP_COLOUR, TEXT_COLOUR, WARN_COLOUR
from ctxkit._internal.formatting_and_sanitizing import format_percent, pluralize
from ctxkit.errors import BadArguments
from ctxkit.metrics.frames import frame
from ctxkit.metrics.team_agent_logs_and_turns import tabulate_recorded_turns
from ctxkit.plots.chart import Chart, add_session_notes
from ctxkit.plots.small_multiples import Panel, PanelGrid
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ctxkit.session.session import Session


_NEEDED_COLUMNS = (
    "agent",
    "turn",
    "turn_input_tokens",
    "turn_output_tokens",
    "cumulative_input_tokens",
)
_MAX_MARKS, _MAX_MARK_LABELS = 60, 12
_LABEL_SHARE = 0.1
"""Width of a compaction's label, as a share of the width of a chart of 700 pixels."""
_NOT_AN_AGENT = "system"
"""fuseraft's name for its compaction markers, which are not turns."""


class CumulativeAgentTokens(NamedTuple):
    """One agent's running sum, turn by turn."""

    name: str
    turns: NDArray[np.int64]
    cumulative: NDArray[np.int64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]
    """Output tokens; 0 if the log has none."""


class CumulativeInputAndThresholds(NamedTuple):
    """The data of `plots.budget`: running sums of input tokens, thresholds and compactions."""

    agents: tuple[CumulativeAgentTokens, ...]
    compactions: tuple[float, ...]
    """Places on the axis of turns, between the turn after which each fired and the next turn."""
    warn_at: int | None
    cutover_at: int | None
    handed: tuple[HandoffMark, ...] = ()
    hides_compactions: bool = False
    """True where the log cannot record compactions."""


class HandoffMark(NamedTuple):
    """A hand-off from one agent of a team to another."""

    turn: int
    height: int
    """The running sum of the agent that hands the work on."""
    to: str


def get_cumulative_input_data(
    of: Session | Iterable[Session] | pd.DataFrame,
) -> CumulativeInputAndThresholds:
    """Return the running sums of every agent of sessions, a turn frame, or a frame of snapshots.

    The thresholds come from the first row that has one, as in fuseraft's own chart.

    Args:
        of: a session, several, a frame of `per='turn'`, or one of snapshots.

    Returns:
        One running sum an agent, with thresholds in tokens (None: not set) and compactions.

    Raises:
        BadArguments: a frame lacks the columns of a turn frame.
    """
    import pandas as pd

    table = of if isinstance(of, pd.DataFrame) else _turn_table(of)
    missing = [c for c in _NEEDED_COLUMNS if c not in table.columns]
    if missing:
        raise BadArguments(f"plots.budget takes a turn frame; this one lacks {', '.join(missing)}.")
    names, codes, marker = _agent_names(table)
    turn, cumulative = (
        _column_floats(table["turn"]),
        _column_floats(table["cumulative_input_tokens"]),
    )
    has_numbers = ~marker & np.isfinite(cumulative) & np.isfinite(turn)
    inputs, outputs = (
        _column_floats(table["turn_input_tokens"]),
        _column_floats(table["turn_output_tokens"]),
    )
    agents = []
    for code, name in enumerate(names):
        rows = np.flatnonzero(has_numbers & (codes == code))
        if len(rows):
            columns = (
                np.nan_to_num(c[rows]).astype(np.int64) for c in (turn, cumulative, inputs, outputs)
            )
            agents.append(CumulativeAgentTokens(name, *columns))
    fired, hides_compactions = np.zeros(len(table), dtype=bool), False
    if "compaction_occurred" in table.columns:
        hides_compactions = bool(len(table)) and bool(table["compaction_occurred"].isna().all())
        fired = table["compaction_occurred"].fillna(False).to_numpy(dtype=bool)  # noqa: FBT003
    # A marker row has the number of the turn after the compaction; a flag in a turn's row belongs
    # to the turn before the compaction.
    compactions = np.where(marker, turn - 0.5, turn + 0.5)[fired & np.isfinite(turn)]
    return CumulativeInputAndThresholds(
        tuple(agents),
        tuple(compactions.tolist()),
        _first_positive(table, "warn_at"),
        _first_positive(table, "cutover_at"),
        _find_hand_offs(table),
        hides_compactions,
    )


def _turn_table(of: Session | Iterable[Session]) -> pd.DataFrame:
    team = tabulate_recorded_turns(of)
    return frame(of, per="turn") if team is None else team


def _find_hand_offs(table: pd.DataFrame) -> tuple[HandoffMark, ...]:
    """Return the hand-offs of a team, from the column `to`."""
    if "to" not in table.columns:
        return ()
    rows = table[table["to"].astype(str) != ""]
    columns = (rows["turn"], rows["cumulative_input_tokens"], rows["to"])
    return tuple(
        HandoffMark(int(n), int(sum_), str(to)) for n, sum_, to in zip(*columns, strict=True)
    )


@add_session_notes
def budget(of: Session | Iterable[Session] | pd.DataFrame) -> Chart:
    """Chart each agent's cumulative input tokens by turn, with compactions, warning and cut-over.

    This is fuseraft's chart; for a team, points name the agent that takes over the work. The sums
    are billed tokens, not tokens in the window: a turn with ten tool rounds counts its prompt ten
    times.

    Args:
        of: a session, several, a team, a turn frame, or a frame of `read_snapshots`.

    Returns:
        The chart; its table has one row per agent: input, output and highest tokens.

    Raises:
        BadArguments: a frame lacks the columns of a turn frame.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.budget(ck.samples.path()).head
        ('agent', 'turns', 'input', 'output', 'highest', 'of cutover')
    """
    return draw_cumulative_input_chart(get_cumulative_input_data(of))


def draw_cumulative_input_chart(
    data: CumulativeInputAndThresholds, cutover_counts: Mapping[str, int] | None = None
) -> Chart:
    """Return the chart of running sums.

    Args:
        data: the running sums.
        cutover_counts: turns at which each agent would have been compacted, by its name, for the
            table.
    """
    limits = [(data.warn_at, "warn at", WARN_COLOUR), (data.cutover_at, "cutover at", STOP_COLOUR)]
    turns = [int(turn) for agent in data.agents for turn in agent.turns]
    axes = XyDrawing(
        x="turn",
        y="input tokens, summed",
        traces=(
            *(_agent_trace(agent, i) for i, agent in enumerate(data.agents)),
            *make_hand_off_traces(data),
        ),
        limits=tuple(
            LimitLine(y=n, label=f"{word} {n:,}", colour=ink) for n, word, ink in limits if n
        ),
        marks=_compaction_marks(data.compactions, float(np.ptp(turns)) if turns else 0.0),
    )
    head = ("agent", "turns", "input", "output", "highest", "of cutover")
    more = ("cutovers",) if cutover_counts is not None else ()
    return Chart(
        title="Context budget",
        caption=_describe_budget(data),
        drawing=axes,
        head=(*head, *more),
        rows=tuple(
            _agent_row(agent, data.cutover_at)
            + ((f"{cutover_counts[agent.name]:,}",) if cutover_counts is not None else ())
            for agent in data.agents
        ),
    )


def _compaction_marks(places: Sequence[float], extent: float) -> tuple[VerticalMark, ...]:
    """Return a line for each compaction, with fuseraft's label where it covers no other label.

    Empty if there are very many. `extent` is the length of the axis.
    """
    if len(places) > _MAX_MARKS:
        return ()
    marks, labelled_x = list[VerticalMark](), -inf
    for x in sorted(places):
        has_label = len(places) <= _MAX_MARK_LABELS and x - labelled_x >= _LABEL_SHARE * extent
        labelled_x = x if has_label else labelled_x
        marks.append(VerticalMark(x=x, label="⚡ compact" * has_label, dash="dash"))
    return tuple(marks)


def _describe_budget(data: CumulativeInputAndThresholds) -> str:
    if not data.agents:
        return "The log has no input tokens of any turn."
    compactions_n = len(data.compactions)
    markers = pluralize(compactions_n, "compaction") + ", dashed" * (
        0 < compactions_n <= _MAX_MARKS
    )
    if data.hides_compactions:
        markers = "the log cannot tell of compactions"
    return f"Input tokens billed to each agent, summed since the last compaction; {markers}."


def _agent_trace(agent: CumulativeAgentTokens, i: int) -> Trace:
    def hover(k: int) -> str:
        spent = f"this turn: in {agent.inputs[k]:,}, out {agent.outputs[k]:,}"
        return f"{agent.name}, turn {agent.turns[k]}\n{agent.cumulative[k]:,} cumulative\n{spent}"

    return Trace(name=agent.name, x=agent.turns, y=agent.cumulative, hover=hover, look=i)


def make_hand_off_traces(data: CumulativeInputAndThresholds) -> tuple[Trace, ...]:
    """Return the points of the hand-offs, each with the name of the agent that takes over."""
    if not data.handed:
        return ()
    return (
        Trace(
            name="handoff to",
            x=[h.turn for h in data.handed],
            kind="points",
            hollow=True,
            y=[h.height for h in data.handed],
            names=tuple(h.to for h in data.handed),
            hover=lambda k: f"handoff to {data.handed[k].to}",
            colour=TEXT_COLOUR,
        ),
    )


def _agent_row(agent: CumulativeAgentTokens, cutover: int | None) -> tuple[str, ...]:
    peak = int(agent.cumulative.max())
    sums = f"{int(agent.inputs.sum()):,}", f"{int(agent.outputs.sum()):,}"
    return (
        agent.name,
        f"{len(agent.turns):,}",
        *sums,
        f"{peak:,}",
        format_percent(peak / cutover) if cutover else "no limit",
    )


def _agent_names(table: pd.DataFrame) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """Names of the agents (with their session where there are several), each row's, and which rows
    are markers.
    """
    import pandas as pd

    codes, agents = pd.factorize(table["agent"])
    words = [str(a) for a in agents]
    marker = (
        codes == words.index(_NOT_AN_AGENT)
        if _NOT_AN_AGENT in words
        else np.zeros(len(codes), dtype=bool)
    )
    if "session" not in table.columns:
        return words, codes, marker
    rows, sessions = pd.factorize(table["session"])
    if len(sessions) <= 1:
        return words, codes, marker
    # Session and agent are one number, which `divmod` splits again. Rows without an agent keep the
    # code -1, as in a single session: they belong to no total.
    has_agent = codes >= 0
    pairs = np.full(len(codes), -1, dtype=np.int64)
    pairs[has_agent], both = pd.factorize(
        rows[has_agent].astype(np.int64) * len(words) + codes[has_agent]
    )
    places = [divmod(int(p), len(words)) for p in both]
    return [f"{sessions[s]} · {words[a]}" for s, a in places], pairs, marker


def _column_floats(column: pd.Series[Any]) -> NDArray[np.float64]:
    return column.to_numpy(dtype=float, na_value=np.nan)


def _first_positive(table: pd.DataFrame, name: str) -> int | None:
    if name not in table.columns:
        return None
    values = _column_floats(table[name])
    positive = values[values > 0]
    return int(positive[0]) if len(positive) else None


_PANEL_COLOURS = tuple(c for c in COLOURS if c != STOP_COLOUR)
_DASHED = tuple(d for d in DASHES if d != "dot")
_RECORDED = "recorded"
_NEAR_PEAK = 1.5
"""Largest ratio of a threshold to the highest sum; a higher one would flatten all lines."""


class HasTurnsByView(Protocol):
    """The result of ``ck.compare`` for a team and views."""

    turns: pd.DataFrame
    title: str
    limits: dict[str, int]


@add_session_notes
def views(of: HasTurnsByView) -> Chart:
    """Chart each agent's cumulative input tokens under each view, as fuseraft charts one of them.

    The sums are billed tokens. Triangles are turns after which the work is handed on; the
    horizontal line is the cut-over, else the warning, if it is near.

    Args:
        of: the result of ``ck.compare(team, "views")``.

    Returns:
        The chart with a panel per agent; its table has a row for each agent and view.

    Raises:
        BadArguments: the argument is something else.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.session.messages import Message, Text, Usage
        >>> parts = (Text("Done."),)
        >>> replies = [Message(id=str(n), role="assistant", parts=parts, agent="ab"[n % 2],
        ...                 usage=Usage(input_tokens=90)) for n in range(4)]
        >>> ask = Message(id="ask", role="user", parts=(Text("Write it, then test it."),))
        >>> log = ck.Session(id="team", log=(ask, *replies))
        >>> ck.plots.views(ck.compare(log, "views")).head
        ('agent', 'view', 'turns', 'input', 'of recorded')
    """
    turns = getattr(of, "turns", None)
    if turns is None or "view" not in turns:
        raise BadArguments("plots.views takes what ck.compare(team, 'views') returned.")
    agents = list(dict.fromkeys(turns["agent"]))
    name, limit = _nearest_threshold(of.limits, int(turns["cumulative_input_tokens"].max()))
    end = int(turns["turn"].max())
    panels = [_agent_panel(agent, turns[turns["agent"] == agent], limit, end) for agent in agents]
    return Chart(
        title=f"What each agent of {of.title} is sent, by view",
        caption="Input tokens billed to each agent, summed turn by turn under each view; dotted is "
        "what was recorded, triangles are hand-offs (▼: their number). All panels have the same"
        " scales.",
        drawing=PanelGrid(
            panels=tuple(panels), x="turn of the team", y="input tokens, summed", limit=name
        ),
        head=("agent", "view", "turns", "input", "of recorded"),
        rows=tuple(_view_rows(turns)),
        shown=24,
    )


def _nearest_threshold(limits: dict[str, int], peak: int) -> tuple[str, float | None]:
    for key, name in (("cutover_at", "cutover at"), ("warn_at", "warn at")):
        at = limits.get(key)
        if at and at <= _NEAR_PEAK * peak:
            return f"{name} {at:,}", at
    return "limit", None


def _agent_panel(agent: str, turns: pd.DataFrame, limit: float | None, end: int) -> Panel:
    seen = [v for v in dict.fromkeys(turns["view"]) if v != _RECORDED]
    hand_offs = turns[(turns["view"] == _RECORDED) & (turns["to"] != "")]
    to = hand_offs["to"].tolist()
    points = Trace(
        name="handoff", kind="points", colour=TEXT_COLOUR, x=hand_offs["turn"].tolist(),
        y=hand_offs["cumulative_input_tokens"].tolist(), hover=lambda k: f"handoff to {to[k]}",
    )  # fmt: skip
    return Panel(
        title=agent,
        corner=f"▼ {len(to)}" if to else "",
        limit=limit,
        traces=(
            *(_view_line(turns, v, i, end) for i, v in enumerate(seen)),
            _view_line(turns, _RECORDED, -1, end),
            *((points,) if to else ()),
        ),
    )


def _view_line(turns: pd.DataFrame, view: str, i: int, end: int) -> Trace:
    """Return the sum after each turn of the team; it is constant while others work."""
    rows = turns[turns["view"] == view]
    at = dict(zip(rows["turn"].tolist(), rows["cumulative_input_tokens"].tolist(), strict=True))
    sums, now = [], 0
    for turn in range(end + 1):
        now = at.get(turn, now)
        sums.append(now)
    look = (
        (TEXT_COLOUR, "dot")
        if i < 0
        else (_PANEL_COLOURS[i % len(_PANEL_COLOURS)], _DASHED[i % len(_DASHED)])
    )
    return Trace(name=view, x=list(range(end + 1)), y=sums, colour=look[0], dash=look[1])


def _view_rows(turns: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each agent and its views with the same figures."""
    for agent, of in turns.groupby("agent", sort=False):
        first = None
        views_by_figures: dict[tuple[str, ...], list[str]] = {}
        for view, rows in of.groupby("view", sort=False):
            total = int(rows["turn_input_tokens"].sum())
            first = total if first is None else first  # the record's rows come first
            share = format_percent(total / first) if first else ""
            figures = (f"{len(rows):,}", f"{total:,}", share)
            views_by_figures.setdefault(figures, []).append(str(view))
        for row, names in views_by_figures.items():
            yield str(agent), ", ".join(names), *row
