"""`plots.composition`: prompt groups stacked over calls, or as tiles for one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit._internal.chart_style import (
    GROUP_COLOURS,
    PLOTLY_LAYOUT,
    STOP_COLOUR,
    TEXT_COLOUR,
    choose_text_colour,
)
from ctxkit._internal.formatting_and_sanitizing import format_percent
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.context_window_report import report
from ctxkit.metrics.prompt_composition import GROUPS, NOT_IN_LOG, count_groups_by_call
from ctxkit.plots.chart import Chart, Drawing, add_session_notes, escape_plotly_label
from ctxkit.plots.growth_chart import (
    FAILED_DASH,
    FAILED_SYMBOL,
    CompactionMark,
    collect_compaction_marks,
    describe_failed_compactions,
)
from ctxkit.plots.xy_figure import Trace, VerticalMark, XyDrawing
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.context_window_report import ContextReport
    from ctxkit.metrics.prompt_composition import GroupTokensByCall
    from ctxkit.session.session import Session
    from ctxkit.tokens.token_counters import TokenCounter


_MAX_BARS = 60
"""Maximum number of calls that are drawn as bars; more become areas."""
_MAX_MARKS = 40


class CompositionData(NamedTuple):
    """Tokens of each group at each call, with the compactions."""

    session: str
    layers: GroupTokensByCall
    compactions: tuple[CompactionMark, ...]
    """Also those that failed; without falls of the prompt that no mark in the log explains."""


_NOTHING_KNOWN = "The log holds neither content nor the size of a prompt."


@accepts_session
def composition_data(session: Session, *, counter: TokenCounter | None = None) -> CompositionData:
    """Return the tokens of each group at each call, and the compactions.

    Args:
        session: a recorded session or a replay.
        counter: counts the tokens of messages; None: sizes that fit the recorded prompts.
    """
    marks = collect_compaction_marks(session)
    compactions = tuple(m for m in marks if m.number is not None or m.is_failed)
    return CompositionData(session.id, count_groups_by_call(session, counter), compactions)


@accepts_session
@add_session_notes
def composition(
    session: Session, call: int | None = None, *, counter: TokenCounter | None = None
) -> Chart:
    """Chart what fills the window: at every call, stacked; or at one call, as tiles.

    Args:
        session: any session.
        call: number of the call for the tiles, negative from the end; None: the stacked chart.
        counter: counts messages of a record where usage does not give their size; None: the exact
            o200k_base where its vocabulary is installed.

    Returns:
        The chart; its table has a row for each part of the prompt, in tokens.

    Raises:
        BadArguments: the session has no such call.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.composition(ck.samples.path(), -1).rows[0]
        ('system prompt', '150', '0.8 %')
    """
    if call is not None:
        return _draw_tiles(report(session, call, counter=counter))
    return _draw_stacked(get_title(session), composition_data(session, counter=counter))


def _draw_stacked(name: str, data: CompositionData) -> Chart:
    groups = data.layers
    kind: Literal["bar", "area"] = "bar" if len(groups.calls) <= _MAX_BARS else "area"
    traces = tuple(
        Trace(name=group, x=groups.calls, y=tokens, kind=kind, colour=get_group_colour(group))
        for group, tokens in sorted(
            groups.groups.items(), key=lambda item: item[0] != NOT_IN_LOG
        )  # the fixed part stays at the bottom
    )
    marks = data.compactions if len(data.compactions) <= _MAX_MARKS else ()
    failed = [m for m in data.compactions if m.is_failed]
    if traces and failed:
        traces += (_failed_points(failed),)
    axes = XyDrawing(
        x="call",
        y="tokens in the prompt",
        traces=traces,
        marks=tuple(
            VerticalMark(x=m.call - 0.5, dash=FAILED_DASH if m.is_failed else "dot") for m in marks
        ),
        stacked=True,
    )
    how = "counted, as no usage was recorded"
    if groups.source == "derived":
        how = "scaled to recorded usage"
    return Chart(
        title=f"What fills the window of {name}",
        caption=(
            f"Tokens of each part of the prompt at every call, {how}. Dotted lines are compactions."
            f"{describe_failed_compactions(len(failed))}"
            if traces
            else _NOTHING_KNOWN
        ),
        drawing=axes,
        head=("part", "first call", "largest", "last call", "of the last"),
        rows=tuple(_group_row(group, tokens, groups) for group, tokens in groups.groups.items()),
    )


def _failed_points(failed: Sequence[CompactionMark]) -> Trace:
    return Trace(
        name="failed compactions",
        x=[m.call - 0.5 for m in failed],
        y=[m.height for m in failed],
        kind="points",
        symbol=FAILED_SYMBOL,
        colour=STOP_COLOUR,
    )


def _group_row(group: str, tokens: tuple[int, ...], layers: GroupTokensByCall) -> tuple[str, ...]:
    last = sum(t[-1] for t in layers.groups.values())
    return (
        group,
        f"{tokens[0]:,}",
        f"{max(tokens):,}",
        f"{tokens[-1]:,}",
        format_percent(tokens[-1] / last) if last else "",
    )


def _draw_tiles(context: ContextReport) -> Chart:
    tiles: list[Tile] = []
    groups, whole = context.groups().items(), context.prompt_tokens
    for group, tokens in groups:
        at, ink = len(tiles), get_group_colour(group)
        tiles.append(Tile(name=group, tokens=tokens, colour=ink))
        named = [p for p in context.parts if p.group == group and p.name]
        tiles += [
            Tile(
                name=p.name,
                tokens=p.tokens,
                parent=at,
                colour=ink,
                note=f"{p.raw_tokens:,} before shortening" if p.raw_tokens != p.tokens else "",
            )
            for p in named
            if p.tokens
        ]
    where = "before the next call" if context.call is None else f"at call {context.call}"
    return Chart(
        title=f"The window of {context.title or context.session} {where}",
        caption=(
            f"{context.prompt_tokens:,} tokens ({context.prompt_source}),"
            f" {_describe_window(context)}."
            if context.is_known
            else _NOTHING_KNOWN
        ),
        drawing=TileMap(whole="the window", tiles=tuple(tiles)),
        head=("part", "tokens", "share"),
        rows=tuple(
            (name, f"{n:,}", format_percent(n / whole, 1) if whole else "") for name, n in groups
        ),
    )


def _describe_window(context: ContextReport) -> str:
    return (
        "of an unknown window"
        if context.full is None
        else f"{format_percent(context.full)} of {context.limit:,}"
    )


def get_group_colour(group: str) -> str:
    """Return the colour of a group, which is the same in every chart."""
    return GROUP_COLOURS[GROUPS.index(group) % len(GROUP_COLOURS)]


_HEIGHT = 420


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile; one without a parent is at the top level."""

    name: str
    tokens: int
    parent: int | None = None
    """Index of the enclosing tile; the tiles inside a tile sum up to its size."""
    colour: str = TEXT_COLOUR
    note: str = ""
    """Additional line of the hover text."""


@dataclass(frozen=True, kw_only=True)
class TileMap(Drawing):
    """Nested tiles; the static picture shows the outer ones as bars, the largest first."""

    whole: str
    tiles: tuple[Tile, ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout."""
        total = sum(t.tokens for t in self.tiles if t.parent is None)
        trace = {
            "type": "treemap",
            "name": escape_plotly_label(self.whole),
            "branchvalues": "total",
            "ids": ["whole", *(str(i) for i in range(len(self.tiles)))],
            "labels": [
                escape_plotly_label(self.whole),
                *(escape_plotly_label(t.name, 60) for t in self.tiles),
            ],
            "parents": ["", *("whole" if t.parent is None else str(t.parent) for t in self.tiles)],
            "values": [total, *(t.tokens for t in self.tiles)],
            "text": [f"{total:,}", *(f"{t.tokens:,}" for t in self.tiles)],
            "customdata": ["", *(escape_plotly_label(t.note, 120) for t in self.tiles)],
            "marker": {
                "colors": ["rgba(128,128,128,0.15)", *(t.colour for t in self.tiles)],
                "line": {"width": 1, "color": "rgba(255,255,255,0.4)"},
            },
            "textfont": {
                "color": [TEXT_COLOUR, *(choose_text_colour(t.colour) for t in self.tiles)]
            },
            "texttemplate": "%{label}<br>%{text}",
            "hovertemplate": (
                "%{label}<br>%{text} tokens, %{percentRoot:.1%}<br>%{customdata}<extra></extra>"
            ),
            "pathbar": {"visible": False},
            "tiling": {"pad": 2},
            "maxdepth": 3,
        }
        layout = {**PLOTLY_LAYOUT, "height": _HEIGHT, "margin": {"l": 8, "r": 8, "t": 44, "b": 8}}
        return {"data": [trace], "layout": layout}
