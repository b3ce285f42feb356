"""When to compact: trigger size, floor and whether to wait for a pause, worked out from a log.

Dollars alone would compact far too early: each token carried costs. So what must stay bounds the
floor from below, and what compactions of a size would lose bounds the ceiling.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, isinf
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit._internal.formatting import NO_MATHJAX, escape_html
from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.breakeven import best_trigger, requests_until_reset_pays
from ctxkit.metrics.growth_profile import ContextFloor, GrowthProfile, LossRisk, estimate_floor
from ctxkit.metrics.item_index import ItemIndex
from ctxkit.metrics.items import MessageItemCache

if TYPE_CHECKING:
    from ctxkit.session.session import Session


__all__ = ["CompactionTiming", "TriggerCost", "when_to_compact"]
__dir__ = public_dir(__all__)


EXTRA_LOSS = 0.05
"""Share of what is used again that a ceiling may put at stake above what the window itself does."""
_HEADS = ("tokens", "calls between", "a call", "at stake")


class CompactionTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The answer and what it rests on. Sizes are tokens, prices dollars a token; None: the log
    cannot say.
    """

    session: str
    model: str
    window: int
    window_source: str
    growth: float
    """Mean growth of the prompt a call, compactions left out."""
    floor: int
    """What a compaction leaves."""
    floor_source: str
    reset_usd: float
    """A compaction at the best ceiling: the call for the summary, and writing the floor anew."""
    read_price: float
    write_price: float
    carry_price: float
    """What a token costs that is carried for one more call: mostly read, but written again after
    a pause.
    """
    missed: float | None
    """Share of what is carried that the cache did not find again, compactions left out."""
    cold_every: float | None
    """Mean number of calls until the next one that finds the cache dead; infinite: none did."""
    wait_at_most: float
    """For how many calls a due compaction may wait for a cold one before waiting costs more than it
    saves.
    """
    best: int
    """The size at which a compaction is cheapest among those that put little more at stake than the
    window does, at most the window.
    """
    low: int
    """The smallest such size at which a call costs at most `NEAR` times as much as at
    the best.
    """
    high: int
    """The largest."""
    cheapest: int
    """The size that is best in dollars alone, whatever it loses."""
    stays: ContextFloor
    """What no compaction can take out."""
    most_loss: float | None
    """The share of what is used again that may be at stake; None: that cannot be said."""
    pays_after: float
    """Calls after which a compaction there has paid for itself."""
    kept_usd: float
    """What 1,000 more tokens in the floor cost, a call."""
    ceilings: tuple[TriggerCost, ...]
    """The best one beside others, by size."""
    notes: tuple[str, ...] = ()
    """What the session's log cannot say or says wrongly."""

    @property
    def wait(self) -> bool | None:
        """Whether a due compaction should wait for a cold call; None without times."""
        return None if self.cold_every is None else self.cold_every <= self.wait_at_most

    def sentences(self) -> tuple[str, ...]:
        """Return the answer in plain words."""
        return (
            (
                f"A call adds {self.growth:,.0f} tokens; a compaction leaves {self.floor:,}"
                f" ({self.floor_source})."
            ),
            self._ceiling(),
            (
                f"There a compaction costs {_usd(self.reset_usd)} and has paid for itself after"
                f" {_calls(self.pays_after)}."
            ),
            f"Floor: {self.stays.total:,} must stay ({self.stays}).",
            f"1,000 tokens more kept cost {_usd(self.kept_usd)} a call.",
            self._waiting(),
        )

    def _ceiling(self) -> str:
        """Return the ceiling, its interval, and why it is not that of dollars alone."""
        window = " (the window)" if self.best == self.window else ""
        told = f"Ceiling: compact at {self.best:,} tokens{window}"
        if self.low < self.high:
            told += f"; {self.low:,} to {self.high:,} cost about the same"
        at = {c.name: c.loss for c in self.ceilings}
        alone, most = at.get("dollars alone"), self.most_loss
        if alone is not None and most is not None:
            told += (
                f". In dollars alone {self.cheapest:,}, but there {alone:.0%} of what is used again"
                f" would be taken before its use (at most {most:.0%} may be)"
            )
        return told + "."

    def _waiting(self) -> str:
        if self.cold_every is None:
            return (
                "Pauses: the log has no times that can be used, so whether to wait for one cannot "
                "be said."
            )
        if isinf(self.cold_every):
            return (
                "Pauses: none was longer than the cache lives, so there is no cold call to wait"
                " for."
            )
        verdict = "wait for it" if self.wait else "do not wait"
        return (
            f"Pauses: the next cold call is {_calls(self.cold_every)} away on average, and waiting"
            f" pays for up to {_calls(self.wait_at_most)}: {verdict}."
        )

    def assumptions(self) -> str:
        """Return what the figures rest on."""
        unknown = "nothing, as no cache split and no times are known"
        lost = unknown if self.missed is None else f"{self.missed:.1%}"
        return (
            f"Prices of {self.model}; window {self.window:,} ({self.window_source}). Of what is"
            f" carried the cache missed {lost}. Growth is taken as even and the trajectory as"
            " recorded; the summary's call sends what it summarises. What is taken before its use"
            f" is at stake: a summary may still say it. One session carries this, {self.session}:"
            " ask others, or advise for many." + "".join(f" Note: {note}" for note in self.notes)
        )

    def __repr__(self) -> str:
        rows = [
            f"{c.name:<14}{c.tokens:>10,}{c.calls:>10,.0f}{_usd(c.usd):>12}{_share(c.loss):>10}"
            for c in self.ceilings
        ]
        head = f"{'ceiling':<14}{'tokens':>10}{'calls':>10}{'a call':>12}{'at stake':>10}"
        return "\n".join([*self.sentences(), head, *rows, self.assumptions()])

    def _repr_html_(self) -> str:
        right = 'style="text-align:right;padding:2px 10px"'
        left = 'style="text-align:left;padding:2px 10px 2px 0"'
        rows = "".join(
            f'<tr><th scope="row" {left}>{escape_html(c.name)}</th><td {right}>{c.tokens:,}</td>'
            f"<td {right}>{c.calls:,.0f}</td><td {right}>{_usd(c.usd)}</td>"
            f"<td {right}>{_share(c.loss)}</td></tr>"
            for c in self.ceilings
        )
        heads = "".join(f'<th scope="col" {right}>{h}</th>' for h in _HEADS)
        return (
            f'<div class="ctxkit-when {NO_MATHJAX}"'
            ' style="color:var(--jp-content-font-color1,inherit)"><ul>'
            + "".join(f"<li>{escape_html(s)}</li>" for s in self.sentences())
            + '</ul><table style="border-collapse:collapse"><thead><tr><th scope="col"'
            f" {left}>ceiling</th>{heads}</tr>"
            f"</thead><tbody>{rows}</tbody></table>"
            f"<p>{escape_html(self.assumptions(), 1500)}</p></div>"
        )


@accepts_session
def when_to_compact(
    session: Session,
    *,
    context_window: int | None = None,
    floor: int | None = None,
    summary_tokens: int | None = None,
    memory: ItemIndex | None = None,
) -> CompactionTiming:
    """Return at which size to compact, to which, and whether to wait for a pause.

    In dollars, the cost of a call that is compacted at `h` and comes down to `s` is
    ``c (s + h) / 2 + A g / (h - s)``: `g` is the growth a call, `A` the dollars of a compaction
    whatever it is made from, `c` the price of a carried token. The cheapest `h` is
    context-compaction-lab's (`breakeven.best_trigger`) with `c` in place of the read price: after a
    pause what is carried is written again. Of the `s` tokens the front, system and tools, stays as
    it was, so the cache still has its `f` tokens: `A` is the summary and ``(p_w - p_r) (s - f)``.

    Two things bound it. The floor is at least what must stay (`unremovable.stays`: system and
    tools, the last turn, the items needed later). And the ceiling puts at most `MORE_LOSS` more of
    what is used again at stake than compacting at the window does, by replays of the record that
    compact at that size to that floor (`unremovable.Risk`).

    A due compaction may wait for a cold call for ``(p_w - p_r) (s - f) / (p_r (h - s) - p_w g)``
    calls: so many extra reads cost what writing twice would what a compaction leaves behind the
    front. It waits no longer than to the next compaction, nor past the window.

    Args:
        session: a recorded session with usage, of a model that has a price.
        context_window: tokens of the window asked about; None: the one that the session ran in.
        floor: tokens that a compaction leaves; None: what the log's own left (median), else its
            smallest prompt and a summary; but at least what must stay.
        summary_tokens: tokens of a summary; None: those of the log's own (median), else 1,000.
        memory: the items of the session, where they are known.

    Raises:
        BadArguments: the log has no usage or no price, its prompts do not grow, the floor is no
            smaller than the window, or the summary is negative.
    """
    pace = GrowthProfile(session)
    summary = pace.summary if summary_tokens is None else summary_tokens
    if summary < 0:
        raise BadArguments(f"A summary has 0 tokens or more, not {summary:,}.")
    if memory is None and session.has_text:
        memory = ItemIndex(session, MessageItemCache(pace.anchored))
    must = estimate_floor(session, pace.anchored, memory)
    kept, source = _floor_with_source(pace, must, summary) if floor is None else (floor, "given")
    window, window_source = pace.window if context_window is None else (context_window, "given")
    if not 0 <= kept < window:
        raise BadArguments(
            f"A floor of {kept:,} tokens does not lie in a window of {window:,}: give a lower one."
        )
    front = min(must.fixed, kept)
    costs = TriggerCostModel(pace, kept, front, summary)
    cheapest = costs.cheapest(window)
    risk = LossRisk(memory, pace.anchored, kept, front) if memory is not None else None
    most, best = _bounded_trigger(risk, cheapest, window)
    low, high = costs.near(best, window, least=best if best > cheapest else kept + 1)
    others = {"best": best, "half": (best + kept) // 2, "double": 2 * best - kept}
    others |= {"window": window, **pace.recorded}
    others |= {"dollars alone": cheapest} if cheapest < best else {}
    rows = [
        costs.at(name, size)._replace(loss=None if risk is None else risk.at(size))
        for name, size in others.items()
        if kept < size <= window
    ]
    return CompactionTiming(
        session=session.id,
        notes=session.notes,
        model=pace.model,
        window=window,
        window_source=window_source,
        growth=pace.growth,
        floor=kept,
        floor_source=source,
        stays=must,
        reset_usd=costs.reset(best),
        read_price=costs.read,
        write_price=costs.write,
        carry_price=costs.carry,
        missed=pace.missed,
        cold_every=None if _clock_runs_backwards(session) else pace.cold_every,
        wait_at_most=costs.wait_at_most(best, window),
        best=best,
        low=low,
        high=high,
        cheapest=cheapest,
        most_loss=most,
        pays_after=costs.pays_after(best),
        kept_usd=costs.kept_usd(best),
        ceilings=tuple(sorted(rows, key=lambda c: (c.tokens, c.name))),
    )


def _clock_runs_backwards(session: Session) -> bool:
    """Say whether the clock of a log runs backwards, so that its pauses mean nothing."""
    times = [c.message.time for c in session.calls if c.message.time is not None]
    return len(times) > 1 and sum(b < a for a, b in pairwise(times)) * 2 > len(times) - 1


def _bounded_trigger(risk: LossRisk | None, cheapest: int, window: int) -> tuple[float | None, int]:
    """Return the share that may be at stake, and the ceiling that keeps to it."""
    lost = None if risk is None else risk.at(window)
    if risk is None or lost is None:
        return None, cheapest
    most = lost + EXTRA_LOSS
    fits = (risk.at(cheapest) or 0.0) <= most
    return most, cheapest if fits else risk.find_smallest_size(cheapest, window, most)


def _floor_with_source(pace: GrowthProfile, must: ContextFloor, summary: int) -> tuple[int, str]:
    """Return what a compaction leaves, and who says so: no less than what must stay."""
    kept, source = pace.floor(summary)
    return (kept, source) if kept >= must.total else (must.total, "what must stay")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _usd(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def _calls(value: float) -> str:
    if isinf(value):
        return "any number of calls"
    return f"{value:,.0f} calls" if value >= 10 else f"{value:,.1f} calls"


NEAR_OPTIMAL = 1.05
"""Ceilings that cost at most so many times the best are about as good."""
SEARCH_STEPS = 200
"""Sizes on either side of the best that are looked at for about the same cost."""


class TriggerCost(NamedTuple):
    """What a call costs on average if the context is compacted at this size."""

    name: str
    tokens: int
    calls: float
    """From one compaction to the next."""
    usd: float
    loss: float | None = None
    """Share of what is used again that compactions at this size would take before its use: at most
    so much is lost, by summaries that keep nothing. None: nothing is used again, or no text.
    """


class TriggerCostModel:
    """The prices of one session, and what a ceiling costs at them.

    Args:
        pace: what the session's log says.
        floor: tokens that a compaction leaves.
        front: those of them that stay as they were, so that the cache still has them.
        summary: tokens of a summary.
    """

    def __init__(self, pace: GrowthProfile, floor: int, front: int, summary: int) -> None:
        p = pace.price
        self.growth, self.floor, self.front, self.input = pace.growth, floor, front, p.input
        self.read, self.write = p.read, p.write(hour=pace.hour)
        self.carry = self.read + (pace.missed or 0.0) * max(self.write - self.read, 0.0)
        self.rewrite = (self.write - self.read) * (floor - front)
        self.floor_usd = summary * (p.input + p.output) + self.rewrite
        """What a compaction costs at any ceiling; to this comes what the summary is made from."""

    def reset(self, size: int) -> float:
        """Return the dollars of a compaction: its summary is made from all that it stands for."""
        return self.floor_usd + self.input * (size - self.floor)

    def cheapest(self, window: int) -> int:
        """Return the size that is best in dollars alone, at most the window."""
        size = best_trigger(
            floor=self.floor,
            start=self.floor,
            growth=self.growth,
            cost_usd=self.floor_usd,
            read_price=self.carry,
        )
        return min(max(round(size), self.floor + 1), window)

    def pays_after(self, size: int) -> float:
        """Return the calls after which a compaction at a size has paid for itself."""
        return requests_until_reset_pays(
            size,
            self.floor,
            cost_usd=self.reset(size) - self.rewrite,
            read_price=self.carry,
            write_price=self.write,
            front=self.front,
        )

    def wait_at_most(self, size: int, window: int) -> float:
        """Return for how many calls a compaction that is due at a size may wait for a cold one."""
        slack = self.read * (size - self.floor) - self.write * self.growth
        cost = self.rewrite / slack if slack > 0 else inf
        return min(cost, (size - self.floor) / self.growth, (window - size) / self.growth)

    def kept_usd(self, size: int) -> float:
        """Return what 1,000 more tokens in the floor cost, a call."""
        grown = self.growth / max(size - self.floor, 1)
        return 1_000 * (self.carry + (self.write - self.read) * grown)

    def near(self, best: int, window: int, *, least: int) -> tuple[int, int]:
        """Return the smallest and the largest size, from the least on, that cost about the same."""
        most = NEAR_OPTIMAL * self.at("", best).usd
        below = [least + (best - least) * k // SEARCH_STEPS for k in range(SEARCH_STEPS)]
        above = [best + (window - best) * k // SEARCH_STEPS for k in range(SEARCH_STEPS + 1)]
        fits = [n for n in (*below, *above) if self.at("", n).usd <= most]
        return min(fits), max(fits)

    def at(self, name: str, size: int) -> TriggerCost:
        """Return what a call costs on average with compactions at a size."""
        cycle = max((size - self.floor) / self.growth, 1.0)
        grown = (self.write - self.read) * self.growth
        usd = self.carry * (self.floor + size) / 2 + grown + self.reset(size) / cycle
        return TriggerCost(name, size, cycle, usd)
