"""The cache model of a record: its parameters, the modelled bill, and its closure error."""

# The cache model of a record: every call reads the prefix that it shares with the previous call,
# less a constant lag, except where the log shows a miss. Only the lag is fitted (a mean over hits),
# so the closure error, modelled / recorded input dollars - 1, is measured in sample: it shows that
# miss classes and prices account for the bill, not that reads can be predicted (for a figure out of
# sample see `engine.cache_model.input_cost_prediction`).

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.cache_model.call_features import HOUR, MIN_CACHEABLE_TOKENS, get_cache_lifetime
from ctxkit.formats.session_arguments import accepts_session
from ctxkit.metrics.cache_misses import CacheMiss, find_cache_misses
from ctxkit.metrics.cost.bill import CallCharge, SessionBill, make_charge
from ctxkit.metrics.means_with_unknowns import sum_if_complete
from ctxkit.session.messages import Usage
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session.session import ModelCall, Session

__all__ = ["bill_modelled_reads", "closure_error"]
__dir__ = public_dir(__all__)

MIN_CACHEABLE = MIN_CACHEABLE_TOKENS


def _billed_calls(session: Session) -> Iterator[tuple[ModelCall, Usage, int]]:
    """Yield each call with a recorded prompt, with its usage and the tokens of the prompt."""
    for call in session.calls:
        usage = call.message.usage
        if usage is not None and usage.prompt_tokens:
            yield call, usage, usage.prompt_tokens


@accepts_session
def bill_modelled_reads(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> SessionBill:
    """Return the modelled bill of the recorded prompts, without summaries.

    A call reads the prefix that it shares with the previous call; the rest is written, or sent
    fresh where the provider bills no writes or the prompt is too short to be cached. A classified
    miss reads as many tokens as in the log; after a compaction, the median of such reads.

    Args:
        session: a recorded session with usage.
        misses: its cache misses; None: found here.
    """
    misses = find_cache_misses(session) if misses is None else misses
    fit = CacheFit.of(session, misses)
    charges: list[CallCharge] = []
    last: dict[tuple[str, str | None], int] = {}
    for call, u, prompt in _billed_calls(session):
        miss, key = misses[call.index], (call.agent, call.message.model)
        if miss is None:
            shared = max(last.get(key, 0) - fit.lag, 0)
        else:
            shared = (
                fit.floor
                if miss.kind == "compaction" and fit.floor is not None
                else miss.read_tokens
            )
        p = price(call.message.model or session.model, at=call.message.time)
        smallest = min((p.min_cacheable if p else None) or MIN_CACHEABLE, fit.smallest)
        usage = _split_usage(
            prompt, min(shared, prompt) if prompt >= smallest else 0, u.output_tokens, fit, smallest
        )
        usd = None if p is None else p.cost_usd(usage)
        charges.append(make_charge(call.index, usage, p, usd, None if usd is None else "derived"))
        last[key] = prompt
    return SessionBill(tuple(charges))


@accepts_session
def closure_error(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> float | None:
    """Return the relative error of modelled input dollars: modelled / recorded - 1.

    The model is fitted on the same session, so this is near zero even if its reads cannot be
    predicted.

    Args:
        session: a recorded session.
        misses: its cache misses; None: found here.

    Returns:
        A fraction; None without a cache split or prices.

    Example:
        >>> import ctxkit as ck
        >>> abs(closure_error(ck.samples.path("billing"))) < 0.05
        True
    """
    if not session.has_cache:
        return None
    recorded = sum_if_complete(
        None if p is None else p.prompt_usd(usage)
        for call, usage, _ in _billed_calls(session)
        for p in [price(call.message.model or session.model, at=call.message.time)]
    )
    modelled = bill_modelled_reads(session, misses).input_usd
    return None if not recorded or modelled is None else modelled / recorded - 1


class CacheFit(msgspec.Struct, frozen=True):
    """The parameters of the cache model that are fitted on a log."""

    lag: int
    """Mean tokens by which the read of a hit is smaller than the previous prompt (providers cache
    whole blocks); negative: the reply is read too.
    """
    floor: int | None
    """Median tokens read after a compaction; None where the log has none."""
    smallest: int
    """Tokens of the smallest prompt that was read from the cache in the log."""
    writes: bool
    """True where the provider bills cache writes separately."""
    hour: bool
    """True where most writes live an hour."""

    @classmethod
    def of(cls, session: Session, misses: Sequence[CacheMiss | None]) -> CacheFit:
        """Fit the cache model to a session's calls and their misses."""
        shortfalls: list[int] = []
        smallest, writes = MIN_CACHEABLE, False
        last_prompt: dict[tuple[str, str | None], int] = {}  # a cache is of one agent and model
        for call, usage, prompt in _billed_calls(session):
            key = (call.agent, call.message.model)
            prices = price(call.message.model or session.model)
            writes = writes or bool(usage.cache_write_tokens or usage.cache_write_1h_tokens)
            writes = writes or (prices is not None and prices.writes_unread)
            if usage.cache_read_tokens:
                smallest = min(smallest, prompt)
            if misses[call.index] is None and key in last_prompt:  # a hit: how far it falls short
                shortfalls.append(last_prompt[key] - (usage.cache_read_tokens or 0))
            last_prompt[key] = prompt
        after_compaction = [
            m.read_tokens for m in misses if m is not None and m.kind == "compaction"
        ]
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
