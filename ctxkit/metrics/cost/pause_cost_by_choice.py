"""Costs of pauses: do nothing, keep the cache warm, compact before it expires, or cache an hour."""

# Four choices at a pause
#
# After a reply its prompt P (with the reply) is in the cache for `life` seconds. At 0.9 of that
# time it is unknown whether the user will come back. With p_r, p_w, p_h the prices of a read, a
# write and a one-hour write, p_o that of output, and g the seconds until the next call:
#
#   nothing   p_r P if g < life, else p_w (P - K) + p_r K; K stays cached for other reasons
#   warm      p_r P for each refresh, one every 0.9 life, at most `refreshes` of them, then as above
#   compact   p_r P + p_o S for the summary, then p_w F to write what the compaction leaves
#   hour      (p_h - p_w) W for the tokens written since the last pause, then p_r P or p_h (P - K)
#
# W leaves out what the call after an expired cache sends again: the choice at that pause has paid
# for it, with p_h (P - K) after more than an hour and with p_r P before, as it is then not written.
#
# A session's end is a pause without a return: "nothing" costs nothing there, the other choices have
# already spent their part. Growth of the prompt by the user's next words is equal for all choices
# and left out. Neither the savings nor the losses of a smaller context on later calls are counted.

from __future__ import annotations

from functools import partial
from math import ceil, exp, inf, log
from statistics import NormalDist, median, stdev
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_usd,
    pluralize,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.engine.cache_model.call_features import HOUR, get_call_features
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.compaction_formulas import keep_alive_limit
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price


__all__ = ["CHOICES", "Pause", "PauseCostReport", "PauseTokenPrices", "find_pauses", "idle"]
__dir__ = make_dunder_dir(__all__)

READY_SHARE = 0.9
"""Share of the cache's life after which a gap counts as a pause: the last moment to act."""
SUMMARY_TOKENS = 4_000
"""Tokens of a summary, if the session has none of its own."""
MAX_REFRESHES = 200
MIN_SPREAD_GAPS = 3
"""Fewest pauses with a return whose lengths are smoothed."""
_KERNEL = tuple(NormalDist().inv_cdf((k + 0.5) / 7) for k in range(7))
"""Deviations of equal probability of a standard normal distribution."""
CHOICES = {
    "nothing": "do nothing",
    "warm": "keep the cache warm",
    "compact": "compact before it expires",
    "hour": "pay for the one-hour cache",
}
"""The choices and their names in texts."""


class PauseTokenPrices(NamedTuple):
    """What is known before a pause ends: dollars per token, and the cache's life in seconds."""

    read: float
    write: float
    hour_write: float | None
    """None: the provider has no longer lifetime, or the session already pays for it."""
    output: float
    life: float
    refreshes: int
    """Refreshes of a warm cache after which writing again is cheaper."""


class Pause(NamedTuple):
    """A pause of a session, or its end."""

    session: str
    call: int
    """The call before it."""
    gap: float
    """Seconds until the next call; infinite: the session ended."""
    prefix: int
    """Tokens that are in the cache."""
    still_cached: int
    """Estimated tokens that stay cached after it expires, because other sessions use them."""
    compacted_tokens: int
    """Tokens that a compaction would leave."""
    summary: int
    """Tokens of its summary."""
    written_tokens_since_previous_pause: int
    """Tokens written since the previous pause, without those that an expired cache sent again."""
    prices: PauseTokenPrices
    recorded_write: int | None = None
    """Tokens that the next call did not read, as billed; None: the session ended."""
    growth_tokens: int = 0
    """Tokens by which the next prompt is longer: the user's words."""

    def cost(self, choice: str, gap: float | None = None) -> float | None:
        """Return the dollars of a choice.

        Args:
            choice: a key of `CHOICES`.
            gap: seconds until the return; None: the recorded gap.

        Returns:
            Dollars spent in the pause and on the prefix at the next call; None if the choice is not
            available.
        """
        return _COSTS[choice](self, self.gap if gap is None else gap)

    def predict_write(self) -> int:
        """Return the tokens that the next call writes after an expired cache, without growth."""
        return max(self.prefix - self.still_cached, 0)


def _return_cost(
    pause: Pause, gap: float, life: float | None = None, write: float | None = None
) -> float:
    """Return the dollars of the prefix at the next call if nothing was done in the pause.

    Args:
        pause: the pause.
        gap: seconds until the return.
        life: seconds that the cache lives; None: those of the pause's prices.
        write: dollars per token written; None: those of the pause's prices.
    """
    p = pause.prices
    if gap == inf:
        return 0.0
    if gap < (p.life if life is None else life):
        return p.read * pause.prefix
    cached = min(pause.still_cached, pause.prefix)
    written = pause.prefix - cached
    return (p.write if write is None else write) * written + p.read * cached


def _warm_cost(pause: Pause, gap: float) -> float:
    p = pause.prices
    step = READY_SHARE * p.life
    refreshes = p.refreshes if gap == inf else min(int(gap // step), p.refreshes)
    refreshed = refreshes * (p.read * pause.prefix + p.output)
    return refreshed + _return_cost(pause, inf if gap == inf else gap - refreshes * step)


def _compact_cost(pause: Pause, gap: float) -> float:
    p = pause.prices
    if gap < READY_SHARE * p.life:
        return _return_cost(pause, gap)
    summary = p.read * pause.prefix + p.output * pause.summary
    return summary + (0.0 if gap == inf else p.write * min(pause.compacted_tokens, pause.prefix))


def _hour_cost(pause: Pause, gap: float) -> float | None:
    p = pause.prices
    if p.hour_write is None:
        return None
    dearer = (p.hour_write - p.write) * pause.written_tokens_since_previous_pause
    return dearer + _return_cost(pause, gap, life=HOUR, write=p.hour_write)


_COSTS = {"nothing": _return_cost, "warm": _warm_cost, "compact": _compact_cost, "hour": _hour_cost}


def find_pauses(session: Session) -> list[Pause]:
    """Return the pauses of a session that last 0.9 of the cache's life or more, and its end.

    Args:
        session: a recorded session; the result is empty without usage, cache reads or times.
    """
    features = [f for f in get_call_features(session) if not f.subagent]
    if not features or all(f.gap is None for f in features):
        return []
    usages = {c.index: c.message.usage for c in session.calls}
    models = {c.index: c.message.model or session.model for c in session.calls}
    floor = min(f.prompt for f in features)
    pauses: list[Pause] = []
    expired_reads: list[int] = []
    make_pause = partial(_make_pause, session, floor=floor, expired_reads=expired_reads)
    written = 0
    for i, feature in enumerate(features):
        model_price = price(models[feature.call])
        usage = usages[feature.call]
        if model_price is None or usage is None:
            continue
        resent = 0
        is_pause = feature.gap is not None and feature.gap >= READY_SHARE * feature.life
        if is_pause and feature.before and not feature.edited:
            prefix = feature.before + feature.reply
            read = usage.cache_read_tokens or 0
            pauses.append(
                make_pause(features[i - 1], model_price, written=written)._replace(
                    gap=float(feature.gap or 0.0),
                    prefix=prefix,
                    recorded_write=max(feature.prompt - read, 0),
                    growth_tokens=feature.prompt - prefix,
                )
            )
            if feature.expired:
                expired_reads.append(read)
                resent = max(prefix - read, 0)
            written = 0
        written += max((usage.cache_write_tokens or 0) + (usage.input_tokens or 0) - resent, 0)
    last_price = price(models[features[-1].call])
    if last_price is not None:
        pauses.append(make_pause(features[-1], last_price, written=written))
    return pauses


def _make_pause(
    session: Session,
    before: CallFeatures,
    model_price: Price,
    *,
    floor: int,
    written: int,
    expired_reads: Sequence[int],
) -> Pause:
    p, life = model_price.at(before.prompt), before.life
    has_hour = p.cache_write_1h is not None and life < HOUR
    limit = keep_alive_limit(life_seconds=life, write_share=p.write(), read_share=p.read)
    prices = PauseTokenPrices(
        read=p.read,
        write=p.write(hour=life >= HOUR),
        hour_write=p.cache_write_1h if has_hour else None,
        output=p.output,
        life=life,
        refreshes=min(ceil(limit / life), MAX_REFRESHES),
    )
    return Pause(
        session=session.id,
        call=before.call,
        gap=inf,
        prefix=before.prompt,
        still_cached=round(median(expired_reads)) if expired_reads else 0,
        compacted_tokens=floor + SUMMARY_TOKENS,
        summary=SUMMARY_TOKENS,
        written_tokens_since_previous_pause=written,
        prices=prices,
    )


def estimate_expected_cost(pause: Pause, choice: str, gaps: Sequence[float]) -> float | None:
    """Return the expected dollars of a choice, with gap lengths estimated from earlier pauses.

    Args:
        pause: the current pause.
        choice: a key of `CHOICES`.
        gaps: lengths of earlier pauses in seconds; infinite: no return.

    Returns:
        Dollars, or None where a price is missing.
    """
    return average_cost_over_gaps(pause, choice, smooth_gaps(gaps, READY_SHARE * pause.prices.life))


def average_cost_over_gaps(pause: Pause, choice: str, gaps: Sequence[float]) -> float | None:
    """Return the mean dollars of a choice over pauses of given lengths.

    Args:
        pause: the pause whose prefix and prices count.
        choice: a key of `CHOICES`.
        gaps: lengths of pauses in seconds; infinite: no return.

    Returns:
        Dollars, or None where no length is that of a pause that has a price.
    """
    costs = [pause.cost(choice, gap) for gap in gaps if gap >= READY_SHARE * pause.prices.life]
    priced = [c for c in costs if c is not None]
    return sum(priced) / len(priced) if priced else None


def smooth_gaps(gaps: Sequence[float], least: float) -> list[float]:
    """Return lengths of pauses, each finite one smoothed (kernel density estimate).

    A few dozen pauses say little about how many users come back just before or after a cache
    expires, so the logarithms are smoothed by a normal kernel with the bandwidth for normal data
    (standard deviation times n ** -0.2). Values below the shortest length are mirrored at it. The
    share of pauses without a return is unchanged.

    Args:
        gaps: lengths of pauses in seconds; infinite: no return.
        least: seconds of the shortest pause.

    Example:
        >>> [round(gap) for gap in smooth_gaps([600.0, 600.0, 600.0], 270.0)[:2]]
        [600, 600]
    """
    logs = [log(gap) for gap in gaps if least <= gap < inf]
    if len(logs) < MIN_SPREAD_GAPS:
        return list(gaps)
    width = stdev(logs) * len(logs) ** -0.2
    floor = log(least)
    spread = [exp(floor + abs(value + width * z - floor)) for value in logs for z in _KERNEL]
    return spread + [inf] * (len(_KERNEL) * sum(gap == inf for gap in gaps))


def rank_choices_by_cost(costs: dict[str, float | None]) -> tuple[str, ...]:
    """Return the choices that have a cost, the cheapest first.

    Args:
        costs: dollars by choice; None: unknown.

    Returns:
        Keys of `costs`; choices of equal cost stay in their order.
    """
    priced = {name: cost for name, cost in costs.items() if cost is not None}
    return tuple(sorted(priced, key=lambda name: (priced[name], list(CHOICES).index(name))))


def idle(sessions: SessionsLike) -> PauseCostReport:
    """Price the pauses of sessions: do nothing, keep warm, compact ahead, or cache an hour.

    Args:
        sessions: recorded sessions, paths of logs, or a folder, all of one person, because
            people's pauses differ.

    Returns:
        The US dollars of all pauses under each choice; `answer` names the cheapest one.

    Raises:
        BadArguments: no session has times, cache reads and a model with a price.

    Example:
        >>> import ctxkit as ck
        >>> print(ck.metrics.idle(ck.samples.path("billing")).choices_usd["nothing"] > 0)
        True
    """
    pauses = tuple(p for session in as_sessions(sessions) for p in find_pauses(session))
    if not pauses:
        raise BadArguments(
            "No session has times, cache reads and a model with a known price, so its pauses cannot"
            " be priced."
        )
    return PauseCostReport(pauses)


_COLUMNS = (
    Column("choice", "what is done at a pause", number=False, firm=True),
    Column("all pauses", "dollars of all pauses and ends"),
    Column("a pause", "dollars of one, with the chance of coming back"),
    Column("in vain", "of it, spent where nobody came back"),
)


class PauseCostReport(NamedTuple):
    """The pauses of some sessions, and their costs under each choice."""

    pauses: tuple[Pause, ...]

    @property
    def returns(self) -> tuple[Pause, ...]:
        """The pauses that ended with a call."""
        return tuple(p for p in self.pauses if p.gap < inf)

    @property
    def choices_usd(self) -> dict[str, float | None]:
        """Dollars of all pauses by choice; None if a choice is never available."""
        return {name: self._total(name, self.pauses) for name in CHOICES}

    @property
    def order(self) -> tuple[str, ...]:
        """The choices, the cheapest first."""
        return rank_choices_by_cost(self.choices_usd)

    @staticmethod
    def _total(choice: str, pauses: Sequence[Pause]) -> float | None:
        costs = [p.cost(choice) for p in pauses]
        if all(c is None for c in costs):
            return None
        # a pause without this choice (the hour is already paid for) counts as "nothing"
        return sum(
            (p.cost("nothing") or 0.0) if c is None else c
            for p, c in zip(pauses, costs, strict=True)
        )

    @property
    def answer(self) -> str:
        """The cheapest choice, in one sentence."""
        returns, costs = self.returns, self.choices_usd
        # Ends of sessions alone: to do nothing costs nothing at an end.
        if not returns:
            return "No pause came near the life of the cache, so there is nothing to do about one."
        best, nothing = self.order[0], costs["nothing"] or 0.0
        lives = sorted({round(p.prices.life) for p in self.pauses})
        life = " or ".join(f"{n:,} s" for n in lives)
        start = (
            f"The user came back after {len(returns):,} of {pluralize(len(self.pauses), 'pause')}"
            f" of about {life} (the cache's life) or more, ends of sessions included: doing nothing"
            f" cost {format_usd(nothing)}"
        )
        if best == "nothing":
            return f"{start}, and no other choice costs less."
        return f"{start}; to {CHOICES[best]} would have cost {format_usd(costs[best] or 0.0)}."

    @property
    def table(self) -> Table:
        """One row per choice, the cheapest first."""
        ends = [p for p in self.pauses if p.gap == inf]
        rows = []
        for name in self.order:
            usd, in_vain = self.choices_usd[name] or 0.0, self._total(name, ends) or 0.0
            texts = format_usd(usd), format_usd(usd / len(self.pauses)), format_usd(in_vain)
            rows.append((Cell(CHOICES[name]), *map(Cell, texts)))
        return Table(_COLUMNS, tuple(rows))

    @property
    def note(self) -> str:
        """The limits of the figures."""
        return (
            "By list prices; only the prefix at the next call is counted. Compacting also makes all"
            " later calls cheaper, and loses what ctxkit when and ctxkit exam can tell. The choices"
            " that were not taken are modelled."
        )

    def to_text(self, *, why: bool = False) -> str:
        """Return the answer, the table and their basis."""
        lines = [self.answer, "", self.table.to_text(), ""]
        lines += [self._describe(p) for p in self.returns[-12:]] + [""] if why else []
        return "\n".join([*lines, self.note])

    @staticmethod
    def _describe(pause: Pause) -> str:
        costs = ", ".join(
            f"{name} {format_usd(cost)}"
            for name in CHOICES
            if (cost := pause.cost(name)) is not None
        )
        return (
            f"After call {pause.call}, {pause.gap / 60:,.0f} min, {pause.prefix:,} tokens: {costs}."
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        answer, note = escape_html(self.answer), escape_html(self.note)
        return f'<div class="{NO_MATHJAX}"><p>{answer}</p>{self.table.to_html()}<p>{note}</p></div>'
