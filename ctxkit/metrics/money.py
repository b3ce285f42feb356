"""What the calls of a session cost with the prompt cache in it: a ledger by disjoint classes,
recorded and modelled.

The model is told what each recorded miss read, and its lag is the mean of the recorded shortfalls:
so its dollars cannot be far from the recorded ones, whatever was read. `closure_error` says how far
they are: a check that the books add up and that prices are put to the right classes, and no more.
How a cache behaves that was not looked at is foretold in `ctxkit.cache.predictions`; a replay
carries the record's misses over (`metrics.bills`).
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import msgspec

from ctxkit.cache.cached_calls import SMALLEST
from ctxkit.faces import renamed
from ctxkit.frames import per_compaction
from ctxkit.frames.costs import cost, weakest
from ctxkit.messages import Usage
from ctxkit.metrics.means import whole
from ctxkit.metrics.misses import HOUR, Miss, cache_life, misses
from ctxkit.prices import price
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session import Call, Session

__all__ = ["Invoice", "Ledger", "closure_error", "modelled", "recorded"]

MIN_CACHEABLE = SMALLEST


class Invoice(msgspec.Struct, frozen=True, gc=False):
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


class Ledger(msgspec.Struct, frozen=True):
    """The invoice of a session."""

    lines: tuple[Invoice, ...]
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
        return whole((self.input_usd, self.output_usd, self.summaries_usd))

    @property
    def own_usd(self) -> float | None:
        """All dollars, as the log prices its calls itself where it does; None where a part is not
        known.
        """
        return whole((self.calls_usd, self.summaries_usd))

    def sum(self, name: str) -> int:
        """Return the tokens of a class over all calls: fresh, read, write, write_1h, output."""
        return sum(getattr(line, name) for line in self.lines)


@of_session
def recorded(session: Session, *, reuse: bool = False) -> Ledger:
    """Return the ledger as the provider counted it; calls without usage are left out.

    `reuse`: a summary that the log does not price is billed as if its call had read the cached
    prompt.
    """
    lines = [(call.index, usage) for call, usage, _ in _billed(session)]
    usd, source = per_compaction.summed(per_compaction.summary_bills(session, reuse=reuse))
    return _with_own(session, _ledger(session, lines, usd), source)


def _billed(session: Session) -> Iterator[tuple[Call, Usage, int]]:
    """Yield the calls with a recorded prompt: usage, and tokens of the prompt."""
    for call in session.calls:
        usage = call.message.usage
        if usage is not None and usage.prompt_tokens:
            yield call, usage, usage.prompt_tokens


def _with_own(session: Session, ledger: Ledger, summaries: str | None) -> Ledger:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    spent = [cost(m, m.model or session.model) for m in replies]
    if not spent and isinstance(told := session.details.get("cost_usd"), float):
        return msgspec.structs.replace(ledger, calls_usd=told, own_source="recorded")
    usd = whole(usd for usd, _ in spent) if spent else None
    sources = [*(s for _, s in spent), *([summaries] if summaries else ())]
    source = None if usd is None else weakest(sources)
    return msgspec.structs.replace(ledger, calls_usd=usd, own_source=source)


@of_session
def modelled(session: Session, found: Sequence[Miss | None] | None = None) -> Ledger:
    """Return the ledger that the cache model gives for the same prompts.

    Of each call the prefix that it shares with the call before is read, the rest is written (or
    sent fresh where the provider bills no writes, or the prompt is too short to be cached). A
    classified miss keeps what it kept; after a compaction the part before the first changed message
    is read, as far as the log's compactions kept it. One number is fitted on the log's hits: by how
    many tokens a read falls short on average (providers cache whole blocks).
    """
    found = misses(session) if found is None else found
    fit = Fit.of(session, found)
    lines: list[tuple[int, Usage]] = []
    last: dict[tuple[str, str | None], int] = {}
    for call, u, prompt in _billed(session):
        miss, key = found[call.index], (call.agent, call.message.model)
        if miss is None:
            shared = max(last.get(key, 0) - fit.lag, 0)
        else:
            shared = fit.floor if miss.kind == "compaction" and fit.floor is not None else miss.kept
        p = price(call.message.model or session.model)
        smallest = min((p.min_cacheable if p else None) or MIN_CACHEABLE, fit.smallest)
        usage = _split(
            prompt, min(shared, prompt) if prompt >= smallest else 0, u.output_tokens, fit, smallest
        )
        lines.append((call.index, usage))
        last[key] = prompt
    return _ledger(session, lines, 0.0)


@of_session
def closure_error(session: Session, found: Sequence[Miss | None] | None = None) -> float | None:
    """Return modelled / recorded input-side dollars - 1, as a fraction; None without a cache split
    or prices.

    In sample: near zero for any reads at all; `cache.predictions.prediction` is the figure that can
    fail. `found` are the session's misses, where they are known already.
    """
    if not session.has_cache:
        return None
    real, model = recorded(session).input_usd, modelled(session, found).input_usd
    return None if not real or model is None else model / real - 1


class Fit(msgspec.Struct, frozen=True):
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
    def of(cls, session: Session, found: Sequence[Miss | None]) -> Fit:
        """Fit the cache model to a session's calls and their misses."""
        short: list[int] = []
        smallest, writes = MIN_CACHEABLE, False
        last: dict[tuple[str, str | None], int] = {}
        for call, u, prompt in _billed(session):
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
            lag, int(median(kept)) if kept else None, smallest, writes, cache_life(session) == HOUR
        )


def _split(prompt: int, shared: int, output: int | None, fit: Fit, smallest: int) -> Usage:
    rest = prompt - shared
    cacheable = fit.writes and prompt >= smallest
    return Usage(
        input_tokens=0 if cacheable else rest,
        cache_read_tokens=shared,
        cache_write_tokens=rest if cacheable and not fit.hour else 0,
        cache_write_1h_tokens=rest if cacheable and fit.hour else 0,
        output_tokens=output,
    )


def _ledger(session: Session, usages: list[tuple[int, Usage]], summaries: float | None) -> Ledger:
    lines: list[Invoice] = []
    into, out, unpriced = 0.0, 0.0, 0
    for index, u in usages:
        p = price(session.calls[index].message.model or session.model)
        usd: float | None = None
        if p is None:
            unpriced += 1
        else:
            side, answer = p.prompt_usd(u), p.output_usd(u)
            into, out, usd = into + side, out + answer, side + answer
        lines.append(_line(index, u, usd))
    known = not unpriced and bool(lines)
    return Ledger(
        tuple(lines), into if known else None, out if known else None, summaries, unpriced
    )


def _line(index: int, u: Usage, usd: float | None) -> Invoice:
    return Invoice(
        call=index,
        fresh=u.input_tokens or 0,
        read=u.cache_read_tokens or 0,
        write=u.cache_write_tokens or 0,
        write_1h=u.cache_write_1h_tokens or 0,
        output=u.output_tokens or 0,
        usd=usd,
    )


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"reproduction_error": "closure_error"})
