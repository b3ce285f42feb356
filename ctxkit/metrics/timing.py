"""The best trigger, floor and wait for compactions of a session, computed from its log."""

# Cost model of a trigger
#
# A context that is compacted at h tokens and comes down to s grows by g tokens a call, so a cycle
# lasts (h - s) / g calls. One call costs on average
#
#   c (s + h) / 2  +  (p_w - p_r) g  +  (A + p_in (h - s)) g / (h - s)
#
# with c the price of a carried token (mostly read, written again after a miss), p_r, p_w and p_in
# the prices of a read, a write and fresh input, and A the part of a compaction's cost that does not
# depend on h: the summary and writing the floor behind its unchanged front anew. The minimum over h
# has a closed form (`breakeven.best_trigger`) within one price tier; across tiers, and for the
# range of near-optimal triggers, 200 sizes are evaluated. A recorded session has an end, so the
# range is narrowed to triggers whose replays cost about the same (`trigger_replays`).
#
# Dollars alone would compact far too early, as each carried token costs. So two bounds apply: what
# must stay bounds the floor from below (`growth_profile.estimate_floor`), and what replays of the
# record would lose bounds the trigger from below (`growth_profile.LossRisk`).

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
from ctxkit.metrics.trigger_replays import NEAR_OPTIMAL, TriggerReplays

if TYPE_CHECKING:
    from ctxkit.session.session import Session


__all__ = ["CompactionTiming", "TriggerCost", "when", "when_to_compact"]
__dir__ = public_dir(__all__)


EXTRA_LOSS = 0.05
"""Share of reused items that a trigger may put at stake beyond what compacting at the window does.
"""
_HEADS = ("tokens", "calls between", "a call", "at stake")


class CompactionTiming(msgspec.Struct, frozen=True, kw_only=True):
    """The recommended trigger, floor and wait, and the figures that they follow from.

    Sizes are tokens, prices dollars per token; None: the log cannot say.
    """

    session: str
    model: str
    window: int
    window_source: str
    growth: float
    """Mean growth of the prompt per call, compactions left out."""
    floor: int
    """Tokens that a compaction leaves."""
    floor_source: str
    reset_usd: float
    """Dollars of a compaction at the best trigger: the summary call, and writing the floor anew."""
    read_price: float
    write_price: float
    carry_price: float
    """Price of a token that one more call carries: mostly read, but written again after a miss."""
    missed: float | None
    """Share of the carried tokens that the cache missed, compactions left out."""
    cold_every: float | None
    """Mean calls from any call to the next that finds the cache expired; infinite: none did."""
    wait_at_most: float
    """Calls that a due compaction may wait for a cold call before waiting costs more than it
    saves.
    """
    best: int
    """The cheapest trigger among those that put little more at stake than the window does, at most
    the window.
    """
    low: int
    """The smallest such trigger around the best whose calls cost about the same, in a session that
    goes on and in replays of this one (see `trigger_replays`).
    """
    high: int
    """The largest such trigger."""
    cheapest: int
    """The trigger that is cheapest in dollars alone, whatever it loses."""
    session_usd: float | None
    """Dollars of this session, replayed with compactions at the best trigger."""
    uncompacted_usd: float | None
    """Dollars of this session, replayed without a compaction, whatever the window."""
    stays: ContextFloor
    """The tokens that no compaction can remove."""
    max_loss: float | None
    """Share of reused items that may be at stake; None: unknown."""
    pays_after: float
    """Calls after which a compaction at the best trigger is paid back."""
    kept_usd: float
    """Dollars per call of 1,000 more tokens in the floor."""
    ceilings: tuple[TriggerCost, ...]
    """The best trigger beside others, by size."""
    notes: tuple[str, ...] = ()
    """Sentences on what the session's log lacks or states wrongly."""

    @property
    def wait(self) -> bool | None:
        """True where a due compaction should wait for a cold call; None without times."""
        return None if self.cold_every is None else self.cold_every <= self.wait_at_most

    def sentences(self) -> tuple[str, ...]:
        """Return the recommendation as sentences."""
        return (
            (
                f"A call adds {self.growth:,.0f} tokens; a compaction leaves {self.floor:,}"
                f" ({self.floor_source})."
            ),
            self._describe_trigger(),
            *self._describe_short_session(),
            (
                f"There a compaction costs {_usd(self.reset_usd)} and has paid for itself after"
                f" {_calls(self.pays_after)}."
            ),
            f"Floor: {self.stays.total:,} must stay ({self.stays}).",
            f"1,000 tokens more kept cost {_usd(self.kept_usd)} a call.",
            self._describe_wait(),
        )

    def _describe_trigger(self) -> str:
        """Return the trigger, its interval, and why it is not the one of dollars alone."""
        window = " (the window)" if self.best == self.window else ""
        sentence = f"Ceiling: compact at {self.best:,} tokens{window}"
        if self.low < self.high:
            sentence += f"; {self.low:,} to {self.high:,} cost about the same, also in replays"
        loss_by_name = {c.name: c.loss for c in self.ceilings}
        loss, max_loss = loss_by_name.get("dollars alone"), self.max_loss
        if loss is not None and max_loss is not None:
            sentence += (
                f". In dollars alone {self.cheapest:,}, but there {loss:.0%} of what is used again"
                f" would be taken before its use (at most {max_loss:.0%} may be)"
            )
        return sentence + "."

    def _describe_short_session(self) -> tuple[str, ...]:
        """Return the sentence on a session that is cheaper without a compaction; else nothing."""
        best, uncompacted = self.session_usd, self.uncompacted_usd
        if best is None or uncompacted is None or best <= uncompacted:
            return ()
        sentence = (
            "The rates are those of a session that goes on: this one, replayed with compactions at"
            f" the ceiling, costs {_usd(best)}, and {_usd(uncompacted)} without any."
        )
        return (sentence,)

    def _describe_wait(self) -> str:
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
        """Return the assumptions behind the figures as one paragraph."""
        unknown = "nothing, as no cache split and no times are known"
        miss_share = unknown if self.missed is None else f"{self.missed:.1%}"
        return (
            f"Prices of {self.model}; window {self.window:,} ({self.window_source}). Of what is"
            f" carried the cache missed {miss_share}. Growth is taken as even and the trajectory as"
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
    """Compute at which prompt size to compact, to which size, and whether to wait for a pause.

    The trigger is the cheapest in dollars among those that put at most 5 % more of the reused items
    at stake than compacting at the window does. A due compaction may wait for a cold call, where
    the prompt is written anew in any case, for as many calls as their extra reads cost less than
    that write; it waits no longer than to the next compaction, nor past the window.

    Args:
        session: a recorded session with usage, of a model that has a price.
        context_window: tokens of the window asked about; None: the one that the session ran in.
        floor: tokens that a compaction leaves; None: what the log's own left (median), else its
            smallest prompt and a summary; but at least what must stay.
        summary_tokens: tokens of a summary; None: those of the log's own (median), else 1,000.
        memory: the items of the session, where they are already indexed.

    Returns:
        The trigger and its near-optimal range, the floor, the wait, and the costs of other
        triggers. It prints as sentences and a table.

    Raises:
        BadArguments: the log has no usage or no price, its prompts do not grow, the floor is no
            smaller than the window, or the summary is negative.

    Example:
        >>> import ctxkit as ck
        >>> timing = ck.metrics.when_to_compact(ck.samples.path("billing"))
        >>> timing.low <= timing.best <= timing.high <= timing.window
        True
    """
    profile = GrowthProfile(session)
    summary = profile.summary if summary_tokens is None else summary_tokens
    if summary < 0:
        raise BadArguments(f"A summary has 0 tokens or more, not {summary:,}.")
    if memory is None and session.has_text:
        memory = ItemIndex(session, MessageItemCache(profile.anchored))
    context_floor = estimate_floor(session, profile.anchored, memory)
    floor, floor_source = (
        _floor_with_source(profile, context_floor, summary) if floor is None else (floor, "given")
    )
    window, window_source = profile.window if context_window is None else (context_window, "given")
    if not 0 <= floor < window:
        raise BadArguments(
            f"A floor of {floor:,} tokens does not lie in a window of {window:,}: give a lower one."
        )
    front = min(context_floor.fixed, floor)
    costs = TriggerCostModel(profile, floor, front, summary)
    cheapest = costs.find_cheapest(window)
    risk = LossRisk(memory, profile.anchored, floor, front) if memory is not None else None
    max_loss, best = _bounded_trigger(risk, cheapest, window)
    low, high = costs.find_near_optimal(
        best, window, smallest=best if best > cheapest else floor + 1
    )
    replays = TriggerReplays(session, profile.anchored, floor - front - summary, summary)
    low, high = replays.find_alike(best, low, high, profile.growth / 2)
    rates = costs.rates(best)
    triggers = {"best": best, "half": (best + floor) // 2, "double": 2 * best - floor}
    triggers |= {"window": window, **profile.recorded_trigger}
    triggers |= {"dollars alone": cheapest} if cheapest < best else {}
    rows = [
        costs.cost_trigger(name, size)._replace(loss=None if risk is None else risk.at(size))
        for name, size in triggers.items()
        if floor < size <= window
    ]
    return CompactionTiming(
        session=session.id,
        notes=session.notes,
        model=profile.model,
        window=window,
        window_source=window_source,
        growth=profile.growth,
        floor=floor,
        floor_source=floor_source,
        stays=context_floor,
        reset_usd=costs.cost_compaction(best),
        read_price=rates.read,
        write_price=rates.write,
        carry_price=rates.carry,
        missed=profile.miss_share,
        cold_every=None if _clock_runs_backwards(session) else profile.calls_to_cold,
        wait_at_most=costs.count_wait_calls(best, window),
        best=best,
        low=low,
        high=high,
        cheapest=cheapest,
        session_usd=replays.bill(best),
        uncompacted_usd=replays.bill(None),
        max_loss=max_loss,
        pays_after=costs.count_calls_to_break_even(best),
        kept_usd=costs.cost_floor(best),
        ceilings=tuple(sorted(rows, key=lambda c: (c.tokens, c.name))),
    )


when = when_to_compact
"""The name of `when_to_compact` at the top level: `ck.when`."""


def _clock_runs_backwards(session: Session) -> bool:
    """Return True where most times of a log run backwards, so that its pauses mean nothing."""
    times = [c.message.time for c in session.calls if c.message.time is not None]
    return len(times) > 1 and sum(b < a for a, b in pairwise(times)) * 2 > len(times) - 1


def _bounded_trigger(risk: LossRisk | None, cheapest: int, window: int) -> tuple[float | None, int]:
    """Return the share of reused items that may be at stake, and the cheapest trigger within it."""
    loss_at_window = None if risk is None else risk.at(window)
    if risk is None or loss_at_window is None:
        return None, cheapest
    max_loss = loss_at_window + EXTRA_LOSS
    fits = (risk.at(cheapest) or 0.0) <= max_loss
    return max_loss, cheapest if fits else risk.find_smallest_size(cheapest, window, max_loss)


def _floor_with_source(
    profile: GrowthProfile, context_floor: ContextFloor, summary: int
) -> tuple[int, str]:
    """Return what a compaction leaves, at least what must stay, and the source of the figure."""
    floor, source = profile.estimate_floor_after(summary)
    total = context_floor.total
    return (floor, source) if floor >= total else (total, "what must stay")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _usd(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def _calls(value: float) -> str:
    if isinf(value):
        return "any number of calls"
    return f"{value:,.0f} calls" if value >= 10 else f"{value:,.1f} calls"


SEARCH_STEPS = 200
"""Sizes evaluated on either side of the best trigger."""


class TriggerCost(NamedTuple):
    """The average cost of a call if the context is compacted at a trigger."""

    name: str
    tokens: int
    """The trigger."""
    calls: float
    """Calls from one compaction to the next."""
    usd: float
    loss: float | None = None
    """Share of reused items that compactions at this trigger would remove before their use: an
    upper bound of the loss. None: no item is used again, or the log has no text.
    """


class TokenRates(NamedTuple):
    """Dollars per token of a prompt of some size."""

    read: float
    write: float
    carry: float
    """A token that one more call carries: mostly read, but written again after a miss."""


class TriggerCostModel:
    """The costs of compactions of a session that goes on for ever, as a function of the trigger.

    Prices are those of the session's model, for prompts of each size and writes of the lifetime
    that its log has.

    Args:
        profile: growth and prices of the session.
        floor: tokens that a compaction leaves.
        front: tokens at the front of the floor that do not change, so the cache still has them.
        summary: tokens of a summary.
    """

    def __init__(self, profile: GrowthProfile, floor: int, front: int, summary: int) -> None:
        self.price, self.hour, self.growth = profile.price, profile.hour, profile.growth
        self.miss_share = profile.miss_share or 0.0
        self.floor, self.front, self.summary = floor, front, summary
        self._edges = [t.above for t in self.price.tiers if t.above > floor]
        at_floor = self.rates(floor)
        self.rewrite = (at_floor.write - at_floor.read) * (floor - front)
        """Dollars of writing the floor anew behind its front."""

    def rates(self, size: int) -> TokenRates:
        """Return the prices of a prompt of a size."""
        p = self.price.at(size)
        read, write = p.read, p.write(hour=self.hour)
        return TokenRates(read, write, read + self.miss_share * max(write - read, 0.0))

    def cost_compaction(self, size: int) -> float:
        """Return the dollars of a compaction, its summary made from all that it replaces."""
        source = size - self.floor + self.summary
        return self.price.asked_usd(source, self.summary) + self.rewrite

    def find_cheapest(self, window: int) -> int:
        """Return the trigger that is cheapest in dollars alone, at most the window."""
        p = self.price.at(self.floor)
        size = best_trigger(
            floor=self.floor,
            start=self.floor,
            growth=self.growth,
            cost_usd=self.summary * (p.input + p.output) + self.rewrite,
            read_price=self.rates(self.floor).carry,
        )
        size = min(max(round(size), self.floor + 1), window)
        edges = [e for e in self._edges if e < window]
        if size <= min(edges, default=size):
            return size
        # the closed form holds within the first tier
        step = (window - self.floor) / SEARCH_STEPS
        others = (self.floor + round(step * k) for k in range(1, SEARCH_STEPS + 1))
        return min((*edges, *others), key=lambda n: (self.cost_trigger("", n).usd, n))

    def count_calls_to_break_even(self, size: int) -> float:
        """Return the calls after which a compaction at a size is paid back."""
        rates = self.rates(size)
        return requests_until_reset_pays(
            size,
            self.floor,
            cost_usd=self.cost_compaction(size) - self.rewrite,
            read_price=rates.carry,
            write_price=rates.write,
            front=self.front,
        )

    def count_wait_calls(self, size: int, window: int) -> float:
        """Return the calls that a compaction due at a size may wait for a cold call.

        Each call of waiting reads what would be gone, and saves writing its growth; at a cold call
        the compaction saves writing twice what it leaves behind the front. Waiting ends at the next
        compaction and at the window.
        """
        rates = self.rates(size)
        extra_usd = rates.read * (size - self.floor) - rates.write * self.growth
        break_even_calls = self.rewrite / extra_usd if extra_usd > 0 else inf
        return min(
            break_even_calls, (size - self.floor) / self.growth, (window - size) / self.growth
        )

    def cost_floor(self, size: int) -> float:
        """Return the dollars per call of 1,000 more tokens in the floor."""
        rates = self.rates(self.floor)
        compactions_per_call = self.growth / max(size - self.floor, 1)
        return 1_000 * (rates.carry + (rates.write - rates.read) * compactions_per_call)

    def find_near_optimal(self, best: int, window: int, *, smallest: int) -> tuple[int, int]:
        """Return the smallest and the largest trigger in ``smallest..window`` of about the best
        cost.
        """
        max_usd = NEAR_OPTIMAL * self.cost_trigger("", best).usd
        below = [smallest + (best - smallest) * k // SEARCH_STEPS for k in range(SEARCH_STEPS)]
        above = [best + (window - best) * k // SEARCH_STEPS for k in range(SEARCH_STEPS + 1)]
        fits = [n for n in (*below, *above) if self.cost_trigger("", n).usd <= max_usd]
        return min(fits), max(fits)

    def cost_trigger(self, name: str, size: int) -> TriggerCost:
        """Return the average cost of a call with compactions at a size."""
        calls = max((size - self.floor) / self.growth, 1.0)
        carried_usd = growth_usd = 0.0
        bounds = [self.floor, *(e for e in self._edges if e < size), size]
        for low, high in pairwise(bounds):
            rates = self.rates(high)
            share = (high - low) / (size - self.floor)
            carried_usd += rates.carry * (low + high) / 2 * share
            growth_usd += (rates.write - rates.read) * self.growth * share
        usd = carried_usd + growth_usd + self.cost_compaction(size) / calls
        return TriggerCost(name, size, calls, usd)
