"""What the window is made of: stacked over the calls of a session, or as tiles for one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ctxkit.composition import GROUPS, layers, report
from ctxkit.composition.groups import UNSEEN
from ctxkit.frames import per_compaction
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.palette import GROUP_COLOURS
from ctxkit.plots.tiles import Tile, Tiles
from ctxkit.plots.traces import Mark, Trace
from ctxkit.readers.given import of_session
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from ctxkit.composition import ContextReport, Layers
    from ctxkit.session import Session
    from ctxkit.tokens.counters import Counter

_BARS = 60
"""Up to so many calls each gets a bar; more become areas."""
_MARKS = 40


class Composition(NamedTuple):
    """What the stacked chart shows."""

    session: str
    layers: Layers
    compactions: tuple[float, ...]
    """Places on the axis of calls: half a call before the first that was shown the outcome."""


@of_session
def composition_data(session: Session, *, counter: Counter | None = None) -> Composition:
    """Return the tokens of each group at each call, and where compactions fired."""
    n = len(session.calls)
    cuts = per_compaction.rows([session])["call"]
    places = tuple((n if call is None else call) - 0.5 for call in cuts)
    return Composition(session.id, layers(session, counter), places)


@of_session
@noted
def composition(
    session: Session, call: int | None = None, *, counter: Counter | None = None
) -> Chart:
    """Chart what fills the window: at every call, stacked; or at one call, as tiles.

    Args:
        session: any session.
        call: number of the call for the tiles, negatives from the end; None for the stacked chart.
        counter: counts what usage does not tell; by default the exact o200k_base where its
            vocabulary is here.

    Raises:
        BadArguments: the session has no such call.
    """
    if call is not None:
        return _tiled(report(session, call, counter=counter))
    return _stacked(title_of(session), composition_data(session, counter=counter))


def _stacked(name: str, data: Composition) -> Chart:
    found = data.layers
    kind: Literal["bar", "area"] = "bar" if len(found.calls) <= _BARS else "area"
    traces = tuple(
        Trace(name=group, x=found.calls, y=tokens, kind=kind, colour=colour_of(group))
        for group, tokens in sorted(
            found.groups.items(), key=lambda item: item[0] != UNSEEN
        )  # the floor stays below
    )
    marks = data.compactions if len(data.compactions) <= _MARKS else ()
    axes = Axes(
        x="call",
        y="tokens in the prompt",
        traces=traces,
        marks=tuple(Mark(x=x) for x in marks),
        stacked=True,
    )
    how = "counted, as no usage was recorded"
    if found.source == "derived":
        how = "scaled to recorded usage"
    return Chart(
        title=f"What fills the window of {name}",
        caption=(
            f"Tokens of each part of the prompt at every call, {how}. Dotted lines are compactions."
            if traces
            else "The log holds neither content nor the size of a prompt."
        ),
        drawing=axes,
        head=("part", "first call", "largest", "last call", "of the last"),
        rows=tuple(_row(group, tokens, found) for group, tokens in found.groups.items()),
    )


def _row(group: str, tokens: tuple[int, ...], found: Layers) -> tuple[str, ...]:
    last = sum(t[-1] for t in found.groups.values())
    return (
        group,
        f"{tokens[0]:,}",
        f"{max(tokens):,}",
        f"{tokens[-1]:,}",
        f"{tokens[-1] / last:.0%}" if last else "",
    )


def _tiled(shown: ContextReport) -> Chart:
    tiles: list[Tile] = []
    groups, whole = shown.groups().items(), shown.prompt_tokens
    for group, tokens in groups:
        at, ink = len(tiles), colour_of(group)
        tiles.append(Tile(name=group, tokens=tokens, colour=ink))
        named = [p for p in shown.parts if p.group == group and p.name]
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
    where = "before the next call" if shown.call is None else f"at call {shown.call}"
    return Chart(
        title=f"The window of {shown.title or shown.session} {where}",
        caption=(
            f"{shown.prompt_tokens:,} tokens ({shown.prompt_source}), {shown.full:.0%} of"
            f" {shown.limit:,}."
        ),
        drawing=Tiles(whole="the window", tiles=tuple(tiles)),
        head=("part", "tokens", "share"),
        rows=tuple((name, f"{n:,}", f"{n / whole:.1%}" if whole else "") for name, n in groups),
    )


def colour_of(group: str) -> str:
    """The colour of a group, the same in every chart."""
    return GROUP_COLOURS[GROUPS.index(group) % len(GROUP_COLOURS)]
