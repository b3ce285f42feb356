"""Ledger of a session by token class, as recorded and as the cache model gives it; their closure
error.
"""

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
    """One call's invoice: tokens by disjoint class, and dollars (None where no price is known)."""

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
    """The invoice of a session."""

    lines: tuple[CallInvoice, ...]
    input_usd: float | None
    """Dollars of the prompts; None where a call has no price."""
    output_usd: float | None
    summaries_usd: float | None
    """Dollars of the calls that wrote summaries: as the log says, else estimated as a replay's are
    billed; 0.0 where there were none, None where one has no price."""
    unpriced: int
    """Calls whose model has no price."""
    calls_usd: float | None = None
    """What the calls cost by the log's own prices, as far as it has them, else by the table; None:
    one has neither.
    """
    own_source: str | None = None
    """Where `own_usd` comes from, the weakest of its parts: recorded, derived or estimated."""

    @property
    def total_usd(self) -> float | None:
        """All dollars by the table of prices, or None where a part is not known."""
        return sum_if_complete((self.input_usd, self.output_usd, self.summaries_usd))

    @property
    def own_usd(self) -> float | None:
        """All dollars, as the log prices its calls itself where it does; None where a part is not
        known.
        """
        return sum_if_complete((self.calls_usd, self.summaries_usd))

    def sum(self, name: str) -> int:
        """Return the tokens of a class over all calls: fresh, read, write, write_1h, output."""
        return sum(getattr(line, name) for line in self.lines)


@accepts_session
def build_recorded_ledger(session: Session, *, reuse: bool = False) -> SessionLedger:
    """Return the ledger as the provider counted it; calls without usage are left out.

    `reuse`: a summary that the log does not price is billed as if its call had read the cached
    prompt.
    """
    lines = [(call.index, usage) for call, usage, _ in _billed_calls(session)]
    usd, source = per_compaction.sum_summary_bills(
        per_compaction.bill_summaries(session, reuse=reuse)
    )
    return _with_log_prices(session, _make_ledger(session, lines, usd), source)


def _billed_calls(session: Session) -> Iterator[tuple[ModelCall, Usage, int]]:
    """Yield the calls with a recorded prompt: usage, and tokens of the prompt."""
    for call in session.calls:
        usage = call.message.usage
        if usage is not None and usage.prompt_tokens:
            yield call, usage, usage.prompt_tokens


def _with_log_prices(
    session: Session, ledger: SessionLedger, summaries: str | None
) -> SessionLedger:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    spent = [price_call(m, m.model or session.model) for m in replies]
    if not spent and isinstance(told := session.details.get("cost_usd"), float):
        return msgspec.structs.replace(ledger, calls_usd=told, own_source="recorded")
    usd = sum_if_complete(usd for usd, _ in spent) if spent else None
    sources = [*(s for _, s in spent), *([summaries] if summaries else ())]
    source = None if usd is None else pick_weakest_source(sources)
    return msgspec.structs.replace(ledger, calls_usd=usd, own_source=source)


@accepts_session
def build_modelled_ledger(
    session: Session, found: Sequence[CacheMiss | None] | None = None
) -> SessionLedger:
    """Return the ledger that the cache model gives for the same prompts.

    Of each call the prefix that it shares with the call before is read, the rest is written (or
    sent fresh where the provider bills no writes, or the prompt is too short to be cached). A
    classified miss keeps what it kept; after a compaction the part before the first changed message
    is read, as far as the log's compactions kept it. One number is fitted on the log's hits: by how
    many tokens a read falls short on average (providers cache whole blocks).
    """
    found = find_cache_misses(session) if found is None else found
    fit = CacheFit.of(session, found)
    lines: list[tuple[int, Usage]] = []
    last: dict[tuple[str, str | None], int] = {}
    for call, u, prompt in _billed_calls(session):
        miss, key = found[call.index], (call.agent, call.message.model)
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
    session: Session, found: Sequence[CacheMiss | None] | None = None
) -> float | None:
    """Return modelled / recorded input-side dollars - 1, as a fraction; None without a cache split
    or prices.

    In sample: near zero for any reads at all; `engine.cache_model.prediction.predict_input_cost` is
    the figure that can fail. `found` are the session's misses, where they are known already.
    """
    if not session.has_cache:
        return None
    real, model = (
        build_recorded_ledger(session).input_usd,
        build_modelled_ledger(session, found).input_usd,
    )
    return None if not real or model is None else model / real - 1


class CacheFit(msgspec.Struct, frozen=True):
    """What the cache model takes from the log beside the misses."""

    lag: int
    """Tokens by which the read of a hit falls short of the prompt before, a mean; negative: the
    reply is read too.
    """
    floor: int | None
    """Tokens read after a compaction, the median; None where the log has none."""
    smallest: int
    """The smallest prompt that the log shows to have been read from the cache."""
    writes: bool
    """True where the provider bills cache writes apart."""
    hour: bool
    """True where most writes live an hour."""

    @classmethod
    def of(cls, session: Session, found: Sequence[CacheMiss | None]) -> CacheFit:
        """Fit the cache model to a session's calls and their misses."""
        short: list[int] = []
        smallest, writes = MIN_CACHEABLE, False
        last: dict[tuple[str, str | None], int] = {}
        for call, u, prompt in _billed_calls(session):
            key = (call.agent, call.message.model)
            writes = writes or bool(u.cache_write_tokens or u.cache_write_1h_tokens)
            if u.cache_read_tokens:
                smallest = min(smallest, prompt)
            if found[call.index] is None and key in last:
                short.append(last[key] - (u.cache_read_tokens or 0))
            last[key] = prompt
        kept = [m.kept for m in found if m is not None and m.kind == "compaction"]
        lag = round(sum(short) / len(short)) if short else 0
        return cls(
            lag,
            int(median(kept)) if kept else None,
            smallest,
            writes,
            get_cache_lifetime(session) == HOUR,
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
    into, out, unpriced = 0.0, 0.0, 0
    for index, u in usages:
        p = price(session.calls[index].message.model or session.model)
        usd: float | None = None
        if p is None:
            unpriced += 1
        else:
            side, answer = p.prompt_usd(u), p.output_usd(u)
            into, out, usd = into + side, out + answer, side + answer
        lines.append(_make_invoice(index, u, usd))
    known = not unpriced and bool(lines)
    return SessionLedger(
        tuple(lines), into if known else None, out if known else None, summaries, unpriced
    )


def _make_invoice(index: int, u: Usage, usd: float | None) -> CallInvoice:
    return CallInvoice(
        call=index,
        fresh=u.input_tokens or 0,
        read=u.cache_read_tokens or 0,
        write=u.cache_write_tokens or 0,
        write_1h=u.cache_write_1h_tokens or 0,
        output=u.output_tokens or 0,
        usd=usd,
    )
