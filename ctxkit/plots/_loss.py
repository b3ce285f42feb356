"""What stood after each compaction of what had been removed, by family of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.items import FAMILIES
from ctxkit.metrics.loss import by_family, lost
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.traces import Trace
from ctxkit.readers.given import of_session
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.metrics.forgotten import Forgotten
    from ctxkit.session import Session

_NAMED = 4
"""Compactions up to which each point is named."""


class Family(NamedTuple):
    """One family of items after one cut."""

    cut: int
    call: int
    family: str
    items: int
    """Items removed since the start."""
    retained: int
    recoverable: int
    lost: int
    needed: int
    """Those that the record used again before the next cut."""
    unseen: int
    """Those of them that were out of sight."""
    missed: int
    """Items that this cut took and the record used at any time after, each charged to one cut."""


@of_session
def loss_data(session: Session) -> tuple[Family, ...]:
    """Return one row for each cut and each family of which something had been removed."""
    return _families(lost(session))


def _families(found: Forgotten | None) -> tuple[Family, ...]:
    rows = by_family(found) if found is not None else []
    return tuple(
        Family._make((number, call, family, sum(counts[:3]), *counts[:5], counts[6]))
        for number, call, family, counts in rows
        if any(counts[:3])
    )


@of_session
@noted
def loss(session: Session) -> Chart:
    """Chart over the compactions of a session which share of each family was still shown; the table
    has the figures.

    Raises:
        BadArguments: it is no session.
    """
    return _chart(title_of(session), lost(session), text=session.has_text)


def _chart(name: str, found: Forgotten | None, *, text: bool) -> Chart:
    data = _families(found)
    traces = []
    for i, family in enumerate(FAMILIES):
        rows = [r for r in data if r.family == family]
        if rows:
            x, y = [r.cut for r in rows], [r.retained / r.items for r in rows]
            names = (family,) * len(rows) if data[-1].cut < _NAMED else ()
            traces.append(
                Trace(name=family, x=x, y=y, kind="points", hover=_hover(rows), look=i, names=names)
            )
    told = "Nothing was compacted."
    if not text:
        told = "The session holds no text, so nothing can be said."
    if data and found is not None:
        told = (
            "Share of what had been removed that still stood in what was shown after each"
            " compaction: word for word, and the user's rules in whatever words."
            f" {len(found.charged.item):,} of {len(found.memory.again):,} items that the record"
            " used again, at any time, had been cut away."
        )
        if (recall := found.recall) is not None:
            told += (
                f" Of {len(found.staked[0]):,} that only the texts put in could still say, these "
                f"said {recall:.0%} until they were named (by weight)."
            )
    return Chart(
        title=f"What was lost in {name}",
        caption=told,
        drawing=Axes(
            x="compaction", y="still shown", traces=tuple(traces), whole=True, y_share=True
        ),
        head=(
            *("compaction", "call", "family", "items", "shown", "recoverable", "lost"),
            *("needed before the next", "out of sight then", "taken, needed at any time"),
        ),
        rows=tuple(tuple(x if isinstance(x, str) else f"{x:,}" for x in row) for row in data),
        shown=40,
    )


def _hover(rows: Sequence[Family]) -> Callable[[int], str]:
    def hover(k: int) -> str:
        r = rows[k]
        return (
            f"{r.family}, compaction {r.cut}\n{r.retained:,} of {r.items:,}"
            f" shown\n{r.recoverable:,} recoverable, {r.lost:,} lost\n{r.missed:,} taken here and"
            " needed later"
        )

    return hover
