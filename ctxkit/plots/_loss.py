"""What stood after each compaction of what had been removed, by family of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.fates import FATES
from ctxkit.metrics.items import FAMILIES
from ctxkit.metrics.loss import lost
from ctxkit.plots.axes import Axes, Trace
from ctxkit.plots.chart import Chart
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.metrics.fates import Loss
    from ctxkit.session import Session


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
    """Items that this cut took and that the record used at any time after, each charged to one cut."""


@of_session
def loss_data(session: Session) -> tuple[Family, ...]:
    """Return one row for each cut and each family of which something had been removed."""
    return _families(lost(session))


def _families(found: Loss) -> tuple[Family, ...]:
    out = []
    for c in found.cuts:
        for family in FAMILIES:
            n = c.count(family=family)
            if not n:
                continue
            kept, back, gone = (c.count(fate, family) for fate in FATES)
            needed = c.count(family=family, needed=True)
            unseen = needed - c.count("retained", family, needed=True)
            out.append(Family(c.number, c.call, family, n, kept, back, gone, needed, unseen, c.missed(family)))
    return tuple(out)


@of_session
def loss(session: Session) -> Chart:
    """Chart over the compactions of a session which share of each family was still shown; the table has the figures.

    Raises:
        BadArguments: it is no session.
    """
    name = session.id
    return _chart(name, lost(session), text=session.has_text)


def _chart(name: str, found: Loss, *, text: bool) -> Chart:
    data = _families(found)
    traces = []
    for i, family in enumerate(FAMILIES):
        rows = [r for r in data if r.family == family]
        if rows:
            y = [r.retained / r.items for r in rows]
            traces.append(Trace(name=family, x=[r.cut for r in rows], y=y, hover=_hover(rows), look=i))
    told = "The session holds no text, so nothing can be said." if not text else "Nothing was compacted."
    if data:
        told = (
            "Share of what had been removed that still stood word for word in what was shown after each compaction. "
            f"{len(found.missed):,} of {found.used_again:,} items that the record used again, at any time, had been "
            "cut away."
        )
    return Chart(
        title=f"What was lost in {name}",
        caption=told,
        drawing=Axes(x="compaction", y="still shown", traces=tuple(traces), whole=True, y_share=True),
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
            f"{r.family}, compaction {r.cut}\n{r.retained:,} of {r.items:,} shown\n{r.recoverable:,} recoverable, "
            f"{r.lost:,} lost\n{r.missed:,} taken here and needed later"
        )

    return hover
