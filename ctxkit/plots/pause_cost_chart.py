"""`plots.idle`: what a pause costs by its length, under each choice."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ctxkit._internal.formatting import format_usd, pluralize
from ctxkit.metrics.cost.idle_ledger import CHOICES, Pause
from ctxkit.metrics.cost.idle_ledger import idle as price_pauses
from ctxkit.plots.chart import Chart, with_notes
from ctxkit.plots.xy_figure import Axes, Trace

if TYPE_CHECKING:
    from ctxkit.formats.session_conversion import SessionsLike

MINUTES = 90
"""Longest pause of the chart."""
_STEPS = 4
"""Lengths of a minute that are drawn."""


@with_notes
def idle(sessions: SessionsLike) -> Chart:
    """Chart the dollars of a typical pause by its length, for each choice.

    Args:
        sessions: sessions of one person, as for `ck.metrics.idle`.

    Returns:
        The chart; its table has the dollars of all pauses by choice.

    Raises:
        BadArguments: no pause can be priced.

    Example:
        >>> import ctxkit as ck
        >>> [row[0] for row in ck.plots.idle(ck.samples.path("billing")).rows][0]
        'do nothing'
    """
    ledger = price_pauses(sessions)
    pause = _get_typical_pause(ledger.returns or ledger.pauses)
    minutes = [i / _STEPS for i in range(1, MINUTES * _STEPS + 1)]
    traces = []
    for look, (name, words) in enumerate(CHOICES.items()):
        costs = [pause.cost(name, 60 * m) for m in minutes]
        if costs[0] is not None:
            traces.append(Trace(name=words, x=minutes, y=costs, look=look, marked=False))
    returns = [p.gap / 60 for p in ledger.returns if p.gap <= 60 * MINUTES]
    if returns:
        traces.append(
            Trace(name="your pauses", x=returns, y=[0.0] * len(returns), kind="points", look=4)
        )
    totals = ledger.choices_usd
    return Chart(
        title="What a pause costs",
        caption=(
            f"Dollars of one pause with {pause.prefix:,} tokens in the cache, by its length;"
            f" {pluralize(len(ledger.returns), 'pause')}. {ledger.answer}"
        ),
        drawing=Axes(
            x="minutes until the next call", y="dollars", traces=tuple(traces), y_small=True
        ),
        head=("choice", "all pauses"),
        rows=tuple((CHOICES[name], format_usd(totals[name] or 0.0)) for name in ledger.order),
    )


def _get_typical_pause(pauses: tuple[Pause, ...]) -> Pause:
    """Return the last pause with the median prefix of all."""
    return pauses[-1]._replace(
        prefix=round(median(p.prefix for p in pauses)),
        still_cached=round(median(p.still_cached for p in pauses)),
        written=round(median(p.written for p in pauses)),
        compacted_tokens=round(median(p.compacted_tokens for p in pauses)),
    )
