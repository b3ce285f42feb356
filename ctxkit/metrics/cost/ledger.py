"""Ledgers of a session by token class, as recorded and as the cache model gives them."""

# The cache model of a record, in one sentence: every call reads the prefix that it shares with the
# call before it, less a constant lag, except where the log shows a miss. Only the lag is fitted (a
# mean over hits), so the closure error, modelled / recorded input dollars - 1, is measured in
# sample: it shows that classes of misses and prices account for the bill, not that reads can be
# predicted (`engine.cache_model.prediction` is the figure that can fail).

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.cache_model.call_features import HOUR, MIN_CACHEABLE_TOKENS, get_cache_lifetime
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.cache_misses import CacheMiss, find_cache_misses
from ctxkit.metrics.cost.call_prices import pick_weakest_source, price_call
from ctxkit.metrics.frames import per_compaction
from ctxkit.metrics.stats import sum_if_complete
from ctxkit.session.messages import Usage
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session.session import ModelCall, Session

__all__ = [
    "CallInvoice",
    "SessionLedger",
    "build_modelled_ledger",
    "build_recorded_ledger",
    "closure_error",
]
__dir__ = public_dir(__all__)

MIN_CACHEABLE = MIN_CACHEABLE_TOKENS


class CallInvoice(msgspec.Struct, frozen=True, gc=False):
    """One call's tokens by disjoint class, and its dollars (None where no price is known)."""

    call: int
    fresh: int
    read: int
    write: int
    write_1h: int
    output: int
    usd: float | None

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.fresh + self.read + self.write + self.write_1h


class SessionLedger(msgspec.Struct, frozen=True):
    """The invoices of all billed calls of a session, and their sums."""

    lines: tuple[CallInvoice, ...]
    input_usd: float | None
    """Dollars of the prompts; None where a call has no price."""
    output_usd: float | None
    summaries_usd: float | None
    """Dollars of the calls that wrote summaries: recorded, else estimated as for a replay; 0.0
    where there were none, None where one has no price.
    """
    unpriced: int
    """Calls whose model has no price."""
    calls_usd: float | None = None
    """Dollars of the calls, each as the log prices it, else by the table; None: one has neither."""
    own_source: str | None = None
    """Source of `own_usd`, the weakest of its parts: recorded, derived or estimated."""

    @property
    def total_usd(self) -> float | None:
        """All dollars by the price table; None where a part is not known."""
        return sum_if_complete((self.input_usd, self.output_usd, self.summaries_usd))

    @property
    def own_usd(self) -> float | None:
        """All dollars, each call as the log prices it; None where a part is not known."""
        return sum_if_complete((self.calls_usd, self.summaries_usd))

    def sum(self, name: str) -> int:
        """Return the tokens of a class over all calls.

        Args:
            name: fresh, read, write, write_1h or output.
        """
        return sum(getattr(line, name) for line in self.lines)


@accepts_session
def build_recorded_ledger(session: Session, *, reuse: bool = False) -> SessionLedger:
    """Return the ledger of a session as the provider counted it.

    Args:
        session: any session; calls without usage are left out.
        reuse: bill a summary that the log does not price as if its call had read the cached prompt.

    Example:
        >>> import ctxkit as ck
        >>> ledger = build_recorded_ledger(ck.samples.path("billing"))
        >>> ledger.unpriced, round(ledger.total_usd, 2)
        (0, 3.29)
    """
    lines = [(call.index, usage) for call, usage, _ in _billed_calls(session)]
    usd, source = per_compaction.sum_summary_bills(
        per_compaction.bill_summaries(session, reuse=reuse)
    )
    return _with_log_prices(session, _make_ledger(session, lines, usd), source)


def _billed_calls(session: Session) -> Iterator[tuple[ModelCall, Usage, int]]:
    """Yield each call with a recorded prompt, with its usage and the tokens of the prompt."""
    for call in session.calls:
        usage = call.message.usage
        if usage is not None and usage.prompt_tokens:
            yield call, usage, usage.prompt_tokens


def _with_log_prices(
    session: Session, ledger: SessionLedger, summaries: str | None
) -> SessionLedger:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    priced = [price_call(m, m.model or session.model) for m in replies]
    if not priced and isinstance(total := session.details.get("cost_usd"), float):
        return msgspec.structs.replace(ledger, calls_usd=total, own_source="recorded")
    usd = sum_if_complete(usd for usd, _ in priced) if priced else None
    sources = [*(s for _, s in priced), *([summaries] if summaries else ())]
    source = None if usd is None else pick_weakest_source(sources)
    return msgspec.structs.replace(ledger, calls_usd=usd, own_source=source)


@accepts_session
def build_modelled_ledger(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> SessionLedger:
    """Return the ledger that the cache model gives for the recorded prompts.

    A call reads the prefix that it shares with the call before; the rest is written, or sent fresh
    where the provider bills no writes or the prompt is too short to be cached. A classified miss
    reads what it read in the log; after a compaction the median of such reads.

    Args:
        session: a recorded session with usage.
        misses: its cache misses, where they are already known.
    """
    misses = find_cache_misses(session) if misses is None else misses
    fit = CacheFit.of(session, misses)
    lines: list[tuple[int, Usage]] = []
    last: dict[tuple[str, str | None], int] = {}
    for call, u, prompt in _billed_calls(session):
        miss, key = misses[call.index], (call.agent, call.message.model)
        if miss is None:
            shared = max(last.get(key, 0) - fit.lag, 0)
        else:
            shared = fit.floor if miss.kind == "compaction" and fit.floor is not None else miss.kept
        p = price(call.message.model or session.model)
        smallest = min((p.min_cacheable if p else None) or MIN_CACHEABLE, fit.smallest)
        usage = _split_usage(
            prompt, min(shared, prompt) if prompt >= smallest else 0, u.output_tokens, fit, smallest
        )
        lines.append((call.index, usage))
        last[key] = prompt
    return _make_ledger(session, lines, 0.0)


@accepts_session
def closure_error(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> float | None:
    """Return how far modelled input dollars are off: modelled / recorded - 1.

    The model is fitted on the same session, so this is near zero even if its reads could not be
    predicted.

    Args:
        session: a recorded session.
        misses: its cache misses, where they are already known.

    Returns:
        A fraction; None without a cache split or prices.

    Example:
        >>> import ctxkit as ck
        >>> abs(closure_error(ck.samples.path("billing"))) < 0.05
        True
    """
    if not session.has_cache:
        return None
    recorded = build_recorded_ledger(session).input_usd
    modelled = build_modelled_ledger(session, misses).input_usd
    return None if not recorded or modelled is None else modelled / recorded - 1


class CacheFit(msgspec.Struct, frozen=True):
    """The parameters of the cache model that are fitted on a log."""

    lag: int
    """Mean tokens by which the read of a hit falls short of the prompt before it (providers cache
    whole blocks); negative: the reply is read too.
    """
    floor: int | None
    """Median tokens read after a compaction; None where the log has none."""
    smallest: int
    """The smallest prompt that the log shows to have been read from the cache."""
    writes: bool
    """True where the provider bills cache writes separately."""
    hour: bool
    """True where most writes live an hour."""

    @classmethod
    def of(cls, session: Session, misses: Sequence[CacheMiss | None]) -> CacheFit:
        """Fit the cache model to a session's calls and their misses."""
        shortfalls: list[int] = []
        smallest, writes = MIN_CACHEABLE, False
        last: dict[tuple[str, str | None], int] = {}
        for call, u, prompt in _billed_calls(session):
            key = (call.agent, call.message.model)
            p = price(call.message.model or session.model)
            writes = writes or bool(u.cache_write_tokens or u.cache_write_1h_tokens)
            writes = writes or (p is not None and p.writes_unread)
            if u.cache_read_tokens:
                smallest = min(smallest, prompt)
            if misses[call.index] is None and key in last:
                shortfalls.append(last[key] - (u.cache_read_tokens or 0))
            last[key] = prompt
        after_compaction = [m.kept for m in misses if m is not None and m.kind == "compaction"]
        return cls(
            lag=round(sum(shortfalls) / len(shortfalls)) if shortfalls else 0,
            floor=int(median(after_compaction)) if after_compaction else None,
            smallest=smallest,
            writes=writes,
            hour=get_cache_lifetime(session) == HOUR,
        )


def _split_usage(
    prompt: int, shared: int, output: int | None, fit: CacheFit, smallest: int
) -> Usage:
    rest = prompt - shared
    cacheable = fit.writes and prompt >= smallest
    return Usage(
        input_tokens=0 if cacheable else rest,
        cache_read_tokens=shared,
        cache_write_tokens=rest if cacheable and not fit.hour else 0,
        cache_write_1h_tokens=rest if cacheable and fit.hour else 0,
        output_tokens=output,
    )


def _make_ledger(
    session: Session, usages: list[tuple[int, Usage]], summaries: float | None
) -> SessionLedger:
    lines: list[CallInvoice] = []
    input_usd, output_usd, unpriced = 0.0, 0.0, 0
    for index, u in usages:
        message = session.calls[index].message
        p = price(message.model or session.model)
        usd: float | None = None
        if p is None:
            unpriced += 1
        else:
            p = p.on(message.time)
            prompt_usd, reply_usd = p.prompt_usd(u), p.output_usd(u)
            input_usd, output_usd = input_usd + prompt_usd, output_usd + reply_usd
            usd = prompt_usd + reply_usd
        lines.append(
            CallInvoice(
                call=index,
                fresh=u.input_tokens or 0,
                read=u.cache_read_tokens or 0,
                write=u.cache_write_tokens or 0,
                write_1h=u.cache_write_1h_tokens or 0,
                output=u.output_tokens or 0,
                usd=usd,
            )
        )
    is_priced = not unpriced and bool(lines)
    return SessionLedger(
        lines=tuple(lines),
        input_usd=input_usd if is_priced else None,
        output_usd=output_usd if is_priced else None,
        summaries_usd=summaries,
        unpriced=unpriced,
    )
