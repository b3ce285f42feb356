"""The best trigger, floor and waiting time for compactions of a session, computed from its log."""

# Cost model of a trigger
#
# A context is compacted from h to s tokens and grows by g tokens a call, so a cycle lasts
# (h - s) / g calls. One call costs on average
#
#   c (s + h) / 2  +  (p_w - p_r) g  +  (A + p_in (h - s)) g / (h - s)
#
# with c the price of a carried token (mostly read, written again after a miss), p_r, p_w and p_in
# the prices of a read, a write and fresh input, and A the part of a compaction's cost that does not
# depend on h: the summary and rewriting the floor behind its unchanged front. The minimum over h
# has a closed form (`compaction_formulas.best_trigger`) within one price tier; across tiers, and
# for the range of near-optimal triggers, 200 sizes are evaluated. A recorded session has an end, so
# the range is narrowed to triggers whose replays cost about the same (`threshold_replays`).
#
# Dollars alone would compact far too early, as each carried token costs. So two lower bounds apply:
# the tokens that must stay bound the floor (`context_growth_and_floor.estimate_floor`), and the
# loss that replays of the record measure bounds the trigger
# (`context_growth_and_floor.LossBoundByThreshold`).

from __future__ import annotations

from itertools import pairwise
from math import inf, isinf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_percent,
    format_usd,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.tables import TERMINAL_COLUMNS, TEXT_COLOR_CSS, Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_formulas import best_trigger, requests_until_reset_pays
from ctxkit.metrics.context_growth_and_floor import (
    ContextFloor,
    GrowthProfile,
    estimate_floor,
    get_compaction_floor,
)
from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
from ctxkit.metrics.losable_items import MessageItemCache
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.loss_tables import make_loss_columns
from ctxkit.metrics.message_visibility import get_visibility
from ctxkit.metrics.threshold_replays import (
    NEAR_OPTIMAL,
    LossBoundByThreshold,
    ReplayCostByThreshold,
)
from ctxkit.metrics.trigger_setting_instructions_by_agent import describe_trigger_setting
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from ctxkit.session.session import Session


__all__ = ["TriggerCost", "TriggerFloorWaitAdvice", "when_to_compact"]
__dir__ = make_dunder_dir(__all__)


EXTRA_LOSS = 0.05
"""Share of reused items that a trigger may put at stake, in addition to the share that compacting
at the window puts at stake.
"""
_TABLE_COLUMNS = (
    Column("trigger", "where the context is compacted", number=False),
    Column("tokens", "of the prompt at which it is compacted"),
    Column("calls between", "from one compaction to the next"),
    Column("a call", "average dollars of a call"),
    Column("at stake", "share of what is used again that is removed before its use"),
)


class TriggerFloorWaitAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The recommended trigger, floor and wait, and the figures that they follow from.

    Sizes are tokens, prices dollars per token; None: the log cannot say.
    """

    session: str
    title: str
    """A readable name of the session: its title, else its first prompt."""
    format: str
    """The format of its log, which identifies the tool that wrote it."""
    model: str
    calls_n: int
    """Calls with recorded usage."""
    peak: int
    """Tokens of the largest prompt."""
    recorded: int | None
    """Tokens at which the log's own compactions came (median); None: it has none."""
    saved_usd: float
    """Dollars that the best trigger saves on this session's calls by the cost model, compared with
    the recorded trigger, or with no compaction where the log has none; negative: it costs more.
    """
    window: int
    window_source: str
    growth: float
    """Mean growth of the prompt per call in tokens, without compactions."""
    floor: int
    """Tokens that a compaction leaves."""
    floor_source: str
    reset_usd: float
    """Dollars of a compaction at the best trigger: the summary call, and rewriting the floor."""
    read_price: float
    write_price: float
    carry_price: float
    """Price of carrying a token for one more call: mostly read, but written again after a miss."""
    missed_share: float | None
    """Share of the carried tokens that the cache missed, without compactions."""
    calls_to_cold: float | None
    """Mean calls until the next call that finds the cache expired; infinite: none did."""
    wait_at_most: float
    """Most calls that a due compaction may wait for a cold call; more would cost more than they
    save.
    """
    best: int
    """The cheapest trigger, at most the window, that puts little more at stake than compacting at
    the window.
    """
    low: int
    """The smallest such trigger around the best whose calls cost about the same, in a session that
    continues and in replays of this one (see `threshold_replays`).
    """
    high: int
    """The largest such trigger."""
    cheapest: int
    """The trigger that is cheapest in dollars, regardless of loss."""
    session_usd: float | None
    """Dollars of this session, replayed with compactions at the best trigger."""
    uncompacted_usd: float | None
    """Dollars of this session, replayed without a compaction and without a window limit."""
    context_floor: ContextFloor
    """The tokens that no compaction can remove."""
    max_loss: float | None
    """Share of reused items that may be at stake; None: unknown."""
    record_at_stake: float | None = None
    """Share of reused items that the record's own compactions put at stake; None: it has no
    compactions or no text, or nothing is used again.
    """
    record_loss: float | None = None
    """Share of reused items that the record lost, its summaries read: `needed_later_loss`."""
    pays_after: float
    """Calls after which a compaction at the best trigger is paid back."""
    floor_usd_per_1000_tokens: float
    """Dollars per call of 1,000 more tokens in the floor."""
    trigger_costs: tuple[TriggerCost, ...]
    """The best trigger and others, by size."""
    notes: tuple[str, ...] = ()
    """Sentences on what the session's log lacks or states wrongly."""

    @property
    def keep(self) -> int:
        """Tokens of the newest messages and the summary that a compaction leaves."""
        return self.floor - self.context_floor.fixed

    @property
    def wait(self) -> bool | None:
        """True where a due compaction should wait for a cold call; None without times."""
        return None if self.calls_to_cold is None else self.calls_to_cold <= self.wait_at_most

    @property
    def answer(self) -> str:
        """The recommendation in one sentence, with its price and its loss."""
        usd, loss = format_usd(abs(self.saved_usd)), self._loss_at("best")
        stake_clause = f"; {loss} of what is used again would be at stake" if loss else ""
        if not self.is_change:
            return self._describe_no_change()
        if self.recorded is None and self.saved_usd < 0:
            return (
                f"Compaction does not pay on this session: at best, at {self.best:,} tokens, it"
                f" costs about {usd} more{stake_clause}."
            )
        if self.recorded is None:
            return (
                f"Compact at {self.best:,} tokens: about {usd} less on this session than without"
                f" compaction{stake_clause}."
            )
        start = f"Compact at {self.best:,} tokens, not {self.recorded:,}: about {usd}"
        before = self._loss_at("recorded")
        stake_clause += f", not {before}" if stake_clause and before and before != loss else ""
        if self.saved_usd >= 0:
            return f"{start} less on this session{stake_clause}."
        return f"{start} more on this session{stake_clause.replace('; ', ', but ', 1)}."

    @property
    def is_change(self) -> bool:
        """True where the best trigger differs from the session's own."""
        if self.recorded is None:
            return self.peak > self.best
        return not self.low <= self.recorded <= self.high

    def _describe_no_change(self) -> str:
        compaction = f"{format_usd(self.reset_usd)} a compaction"
        if self.recorded is None:
            return (
                f"Nothing to compact: the largest prompt had {self.peak:,} tokens, and compacting"
                f" is due from {self.best:,} on, at {compaction}."
            )
        loss = self._loss_at("recorded")
        stake_clause = f"; {loss} of what is used again is at stake" if loss else ""
        return (
            f"Keep compacting at about {self.recorded:,} tokens: {self.low:,} to {self.high:,} cost"
            f" about the same, {compaction}{stake_clause}."
        )

    def _loss_at(self, name: str) -> str:
        """Return the loss at a trigger of the table as text; empty where it is unknown."""
        loss = {c.name: c.loss for c in self.trigger_costs}.get(name)
        return "" if loss is None else format_percent(loss)

    @property
    def setting(self) -> str:
        """The setting to change, in the syntax of the tool that wrote the log; empty: no change."""
        does_not_pay = self.recorded is None and self.saved_usd < 0
        if does_not_pay or not self.is_change:
            return ""
        return describe_trigger_setting(self.format, self.best, self.window)

    def sentences(self) -> tuple[str, ...]:
        """Return the reasons for the recommendation as sentences."""
        return (
            (
                f"A call adds {self.growth:,.0f} tokens; a compaction leaves {self.floor:,}"
                f" ({self.floor_source})."
            ),
            self._describe_trigger(),
            *self._describe_stake(),
            *self._describe_short_session(),
            (
                f"There a compaction costs {format_usd(self.reset_usd)} and has paid for itself"
                f" after {_calls(self.pays_after)}."
            ),
            self._describe_wait(),
        )

    def reservations(self) -> tuple[str, ...]:
        """Return the basis of the figures and their limits as sentences."""
        return (
            f"Floor: {self.context_floor.total:,} must stay ({self.context_floor}).",
            f"1,000 tokens more kept cost {_usd(self.floor_usd_per_1000_tokens)} a call.",
            self.assumptions(),
        )

    def _describe_trigger(self) -> str:
        """Return the trigger, its interval, and why it differs from the cheapest in dollars."""
        window = " (the window)" if self.best == self.window else ""
        sentence = f"Trigger: compact at {self.best:,} tokens{window}"
        if self.low < self.high:
            sentence += f"; {self.low:,} to {self.high:,} cost about the same, also in replays"
        loss_by_name = {c.name: c.loss for c in self.trigger_costs}
        loss, max_loss = loss_by_name.get("dollars alone"), self.max_loss
        if loss is not None and max_loss is not None:
            sentence += (
                f". In dollars alone {self.cheapest:,}, but there {format_percent(loss)} of what is"
                f" used again would be at stake (the bound is {format_percent(max_loss)}:"
                f" {100 * EXTRA_LOSS:g} points above the window's)"
            )
        return sentence + "."

    def _describe_stake(self) -> tuple[str, ...]:
        """Return what "at stake" means, and what the record itself had at stake and lost."""
        if all(c.loss is None for c in self.trigger_costs):
            return ()
        sentence = "At stake is what a compaction removes before its use: its summary may state it."
        if self.record_at_stake is not None and self.record_loss is not None:
            sentence += (
                " By the record's own compactions"
                f" {format_percent(self.record_at_stake)} was at stake and"
                f" {format_percent(self.record_loss)} lost; the rows below are replays with one"
                " floor."
            )
        return (sentence,)

    def _describe_short_session(self) -> tuple[str, ...]:
        """Return a sentence if the session is cheaper without a compaction; else nothing."""
        best, uncompacted = self.session_usd, self.uncompacted_usd
        if best is None or uncompacted is None or best <= uncompacted:
            return ()
        sentence = (
            "The rates are those of a session that goes on: this one, replayed with compactions at"
            f" the ceiling, costs {format_usd(best)}, and {format_usd(uncompacted)} without any."
        )
        return (sentence,)

    def _describe_wait(self) -> str:
        if self.calls_to_cold is None:
            return (
                "Pauses: the log has no times that can be used, so whether to wait for one cannot "
                "be said."
            )
        if isinf(self.calls_to_cold):
            return (
                "Pauses: none was longer than the cache lives, so there is no cold call to wait"
                " for."
            )
        verdict = "wait for it" if self.wait else "do not wait"
        return (
            f"Pauses: the next cold call is {_calls(self.calls_to_cold)} away on average, and"
            f" waiting pays for up to {_calls(self.wait_at_most)}: {verdict}."
        )

    def assumptions(self) -> str:
        """Return the assumptions behind the figures as one paragraph."""
        unknown = "nothing, as no cache split and no times are known"
        miss_share = unknown if self.missed_share is None else format_percent(self.missed_share, 1)
        return (
            f"Prices of {self.model}; window {self.window:,} ({self.window_source}). Of what is"
            f" carried the cache missed {miss_share}. Growth is taken as even and the trajectory as"
            " recorded; the summary's call sends what it summarises."
            f" One session carries this, {self.session}: ask others, or advise for many."
            + "".join(f" Note: {note}" for note in self.notes)
        )

    @property
    def table(self) -> Table:
        """The best trigger and others, by size."""
        rows = tuple(
            (
                Cell(c.name, None, "", "good" if c.name == "best" else ""),
                Cell(f"{c.tokens:,}", c.tokens),
                Cell(f"{c.calls:,.0f}", c.calls),
                Cell(_usd(c.usd), c.usd),
                Cell(_share(c.loss), c.loss),
            )
            for c in self.trigger_costs
        )
        return Table(_TABLE_COLUMNS, rows)

    def to_text(self, *, why: bool = False) -> str:
        """Return the answer, its reasons and the table as lines of 80 columns.

        Args:
            why: add the basis of the figures.
        """
        title = f"{sanitize_line(self.title, 40)}: {self.calls_n:,} calls, {self.model}"
        lines = [*wrap_lines(self.answer, TERMINAL_COLUMNS), *self.setting.splitlines(), "", title]
        lines += [line for s in self.sentences() for line in wrap_lines(s, TERMINAL_COLUMNS)]
        lines += ["", self.table.to_text()]
        if why:
            lines += [
                "",
                *(w for s in self.reservations() for w in wrap_lines(s, TERMINAL_COLUMNS)),
            ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return cast("dict[str, Any]", msgspec.to_builtins(self))

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{escape_html(s)}</li>" for s in self.sentences())
        basis = "".join(f"<li>{escape_html(s, 1500)}</li>" for s in self.reservations())
        return (
            f'<div class="ctxkit-when {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">'
            f'<strong style="font-size:120%">{escape_html(self.answer, 600)}</strong>'
            f'<div style="white-space:pre-wrap">{escape_html(self.setting, 400)}</div>'
            f"<ul>{reasons}</ul>"
            f"{self.table.to_html(is_sortable=False)}"
            "<details><summary>What these figures rest on</summary>"
            f"<ul>{basis}</ul></details></div>"
        )


@accepts_session
def when_to_compact(
    session: Session,
    *,
    context_window: int | None = None,
    floor: int | None = None,
    summary_tokens: int | None = None,
    item_index: ItemIndex | None = None,
    progress: bool = True,
) -> TriggerFloorWaitAdvice:
    """Compute at which prompt size to compact, to which size, and whether to wait for a pause.

    The trigger is the cheapest in dollars among those that put at most 5 percentage points more of
    the reused items at stake than compacting at the window does. A due compaction may wait for a
    cold call, which writes the prompt again in any case, as long as the extra reads of waiting cost
    less than that write; it waits at most until the next compaction or until the window is full.

    Args:
        session: a recorded session with usage, of a model that has a price.
        context_window: tokens of the window; None: the window that the session ran in.
        floor: tokens that a compaction leaves; None: the median of the log's own compactions, else
            its smallest prompt plus a summary; never less than what must stay (system prompt,
            tools, the running turn and items needed later).
        summary_tokens: tokens of a summary; None: the median of the log's own, else 1,000.
        item_index: index of the session's items; None: built here.
        progress: show a progress bar of the replays where they take longer than a second.

    Returns:
        The trigger and its near-optimal range (at most 5 % dearer, in replays too), the floor, the
        wait, and the costs of other triggers. It prints as sentences and a table.

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
    if item_index is None and session.has_text:
        item_index = ItemIndex(session, MessageItemCache(profile.message_sizes))
    context_floor = estimate_floor(session, profile.message_sizes, item_index)
    floor, floor_source = (
        get_compaction_floor(profile, context_floor, summary) if floor is None else (floor, "given")
    )
    window, window_source = profile.window if context_window is None else (context_window, "given")
    if not 0 <= floor < window:
        raise BadArguments(
            f"A floor of {floor:,} tokens does not lie in a window of {window:,}: give a lower one."
        )
    front = min(context_floor.fixed, floor)
    costs = TriggerCostModel(profile, floor, front, summary)
    cheapest = costs.find_cheapest(window)
    risk = (
        LossBoundByThreshold(item_index, profile.message_sizes, floor, front)
        if item_index is not None
        else None
    )
    max_loss, best = _bounded_trigger(risk, cheapest, window)
    low, high = costs.find_near_optimal(
        best, window, smallest=best if best > cheapest else floor + 1
    )
    replays = ReplayCostByThreshold(
        session, profile.message_sizes, floor - front - summary, summary
    )
    low, high = replays.find_alike(best, low, high, profile.growth / 2, progress=progress)
    rates = costs.rates(best)
    triggers = {"best": best, "twice as often": (best + floor) // 2}
    triggers |= {"half as often": 2 * best - floor}
    triggers |= {"window": window, **profile.recorded_trigger}
    triggers |= {"dollars alone": cheapest} if cheapest < best else {}
    triggers = {name: size for name, size in triggers.items() if floor < size <= window}
    recorded = profile.recorded_trigger.get("recorded")
    return TriggerFloorWaitAdvice(
        session=session.id,
        title=get_title(session),
        format=(session.origin or session).format,
        calls_n=len(profile.billed),
        peak=profile.peak,
        recorded=recorded,
        saved_usd=len(profile.billed) * costs.estimate_saving(best, recorded, profile.peak),
        notes=session.notes,
        model=profile.model,
        window=window,
        window_source=window_source,
        growth=profile.growth,
        floor=floor,
        floor_source=floor_source,
        context_floor=context_floor,
        reset_usd=costs.cost_compaction(best),
        read_price=rates.read,
        write_price=rates.write,
        carry_price=rates.carry,
        missed_share=profile.miss_share,
        calls_to_cold=None if _clock_runs_backwards(session) else profile.calls_to_cold,
        wait_at_most=costs.count_wait_calls(best, window),
        best=best,
        low=low,
        high=high,
        cheapest=cheapest,
        session_usd=replays.bill(best),
        uncompacted_usd=replays.bill(None),
        max_loss=max_loss,
        **_measure_record_loss(session, item_index if recorded is not None else None),
        pays_after=costs.count_calls_to_break_even(best),
        floor_usd_per_1000_tokens=costs.cost_floor(best),
        trigger_costs=_price_triggers(triggers, costs, risk),
    )


def _measure_record_loss(session: Session, item_index: ItemIndex | None) -> dict[str, float | None]:
    """Return the loss by the record's own compactions; nothing where there is none to measure."""
    if item_index is None or not len(item_index.reused_items):
        return {}
    columns = make_loss_columns(LossAnalysis(item_index, get_visibility(item_index, session)))
    return {
        "record_at_stake": columns["at_stake_items_n"] / columns["reused_items_n"],
        "record_loss": columns["needed_later_loss"],
    }


def _price_triggers(
    triggers: dict[str, int], costs: TriggerCostModel, risk: LossBoundByThreshold | None
) -> tuple[TriggerCost, ...]:
    """Return the average cost of a call and the loss under each trigger, by size, then by name."""
    rows = [
        costs.cost_trigger(name, size)._replace(loss=None if risk is None else risk.at(size))
        for name, size in triggers.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.tokens, row.name)))


def _clock_runs_backwards(session: Session) -> bool:
    """Return True if most times of a log run backwards, so that its pauses mean nothing."""
    times = [c.message.time for c in session.calls if c.message.time is not None]
    return len(times) > 1 and sum(b < a for a, b in pairwise(times)) * 2 > len(times) - 1


def _bounded_trigger(
    risk: LossBoundByThreshold | None, cheapest: int, window: int
) -> tuple[float | None, int]:
    """Return the share of reused items that may be at stake, and the cheapest trigger within it."""
    loss_at_window = None if risk is None else risk.at(window)
    if risk is None or loss_at_window is None:
        return None, cheapest
    max_loss = loss_at_window + EXTRA_LOSS
    fits = (risk.at(cheapest) or 0.0) <= max_loss
    return max_loss, cheapest if fits else risk.find_smallest_size(cheapest, window, max_loss)


def _share(value: float | None) -> str:
    return "" if value is None else format_percent(value)


def _usd(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def _calls(value: float) -> str:
    if isinf(value):
        return "any number of calls"
    return f"{value:,.0f} calls" if value >= 10 else f"{value:,.1f} calls"


SEARCH_STEPS = 200
"""Sizes evaluated on either side of the best trigger."""


class TriggerCost(NamedTuple):
    """Average cost of a call if the context is compacted at a trigger."""

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


class ReadWriteCarryPrices(NamedTuple):
    """Dollars per token of a prompt of some size."""

    read: float
    write: float
    carry: float
    """Carrying a token for one more call: mostly read, but written again after a miss."""


class TriggerCostModel:
    """Costs of compactions as a function of the trigger, for a session that never ends.

    Prices are those of the session's model, by prompt size and by the cache lifetime of its writes.

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
        """Dollars of writing the floor again behind its front."""

    def rates(self, size: int) -> ReadWriteCarryPrices:
        """Return the prices of a prompt of a size."""
        p = self.price.at(size)
        read, write = p.read, p.write(hour=self.hour)
        return ReadWriteCarryPrices(read, write, read + self.miss_share * max(write - read, 0.0))

    def cost_compaction(self, size: int) -> float:
        """Return the dollars of a compaction whose summary reads all that it replaces."""
        source = size - self.floor + self.summary
        return self.price.request_usd(source, self.summary) + self.rewrite

    def find_cheapest(self, window: int) -> int:
        """Return the trigger, at most the window, that is cheapest in dollars."""
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

        Each call of waiting reads tokens that the compaction would have removed, and saves writing
        its growth. At a cold call the compaction saves a second write of what it leaves behind the
        front. Waiting ends at the next compaction and at the window.

        Args:
            size: tokens of the prompt at which the compaction is due.
            window: tokens of the model's context window.
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
        """Return the range of triggers in ``smallest..window`` of about the best cost.

        Args:
            best: the trigger of the lowest cost, in tokens.
            window: the largest trigger, in tokens.
            smallest: the smallest trigger, in tokens.

        Returns:
            The smallest and the largest trigger whose cost is at most `NEAR_OPTIMAL` times the
            best.
        """
        max_usd = NEAR_OPTIMAL * self.cost_trigger("", best).usd
        below = [smallest + (best - smallest) * k // SEARCH_STEPS for k in range(SEARCH_STEPS)]
        above = [best + (window - best) * k // SEARCH_STEPS for k in range(SEARCH_STEPS + 1)]
        fits = [n for n in (*below, *above) if self.cost_trigger("", n).usd <= max_usd]
        return min(fits), max(fits)

    def estimate_saving(self, best: int, recorded: int | None, peak: int) -> float:
        """Return the dollars per call that a trigger saves compared with the record.

        Args:
            best: the trigger.
            recorded: the trigger of the record; None: it was never compacted.
            peak: tokens of the record's largest prompt.
        """
        if recorded is not None:
            return self.cost_trigger("", recorded).usd - self.cost_trigger("", best).usd
        grown = self.cost_trigger("", max(peak, self.floor + 1))
        uncompacted_usd = grown.usd - self.cost_compaction(grown.tokens) / grown.calls
        return uncompacted_usd - self.cost_trigger("", best).usd

    def cost_trigger(self, name: str, size: int) -> TriggerCost:
        """Return the average cost of a call with compactions at a size.

        Args:
            name: name of the trigger in the result.
            size: tokens of the prompt at which it compacts.

        Returns:
            US dollars per call, and the calls from one compaction to the next.
        """
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
