"""What each call of a session cost, by class of token: a record by its own bill, a replay by the
record's cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.frames import per_compaction
from ctxkit.frames.costs import cost, weakest
from ctxkit.frames.per_call import written
from ctxkit.frames.per_compaction import SummaryBill
from ctxkit.messages import Usage
from ctxkit.metrics.bills import Sheet
from ctxkit.metrics.size import sent_in, spots_in
from ctxkit.prices import price
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from ctxkit.prices import Price
    from ctxkit.session import Session

_WEIGHTS = (1.0, 0.1, 1.25, 5.0)
"""Of fresh, read, written and put out tokens, where the log has dollars and the table no price of
the model: Anthropic's prices beside each other."""


class Charge(msgspec.Struct, frozen=True, gc=False):
    """One call's invoice. Dollars of the classes add up to `usd`; all are None where it has no
    price.
    """

    call: int
    fresh: int
    read: int
    write: int
    output: int
    usd: float | None
    fresh_usd: float | None = None
    read_usd: float | None = None
    write_usd: float | None = None
    output_usd: float | None = None
    source: str | None = None
    """recorded, derived or estimated."""

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.fresh + self.read + self.write


class Accounts(msgspec.Struct, frozen=True):
    """All that a session was billed for."""

    charges: tuple[Charge, ...]
    """One for each call that has usage."""
    summaries: tuple[SummaryBill, ...]
    """Those of the calls that wrote summaries; each has a price."""
    unpriced_n: int
    """Calls with usage and without a price."""
    unpriced_summaries_n: int

    @property
    def calls_usd(self) -> float:
        """Dollars of all calls that have a price."""
        return sum(c.usd for c in self.charges if c.usd is not None)

    @property
    def summaries_usd(self) -> float:
        """Dollars of all summaries that have a price."""
        return sum(s.usd or 0.0 for s in self.summaries)

    @property
    def total_usd(self) -> float | None:
        """All dollars; None where nothing has a price."""
        if not any(c.usd is not None for c in self.charges):
            return None
        return self.calls_usd + self.summaries_usd

    @property
    def source(self) -> str | None:
        """Where the total comes from: the weakest of its parts."""
        told = [c.source for c in self.charges if c.usd is not None]
        return weakest([*told, *(s.source for s in self.summaries)]) if told else None


@of_session
def accounts(session: Session) -> Accounts:
    """Return what a session was billed for, call by call.

    A record, and a live session, by the usage that was recorded: dollars as the log says them, else
    by the table of prices. A replay is billed as `compare` bills it (`metrics.bills`).
    """
    if session.origin is not None and session.format == "replay":
        return _replayed(session)
    out = []
    for call in session.calls:
        message = call.message
        u = message.usage
        if u is None or u.prompt_tokens is None:
            continue
        model = message.model or session.model
        usd, source = cost(message, model)
        out.append(_charge(call.index, u, price(model), usd, source))
    return _of(out, per_compaction.summary_bills(session))


def _replayed(session: Session) -> Accounts:
    base = session.origin
    assert base is not None  # noqa: S101  for the type checker: asked before
    sheet, went, out = Sheet.of(base), sent_in(session), []
    calls = (c.index for c in session.calls if sheet.has_usage and sheet.billed[c.index])
    for call in calls:
        known, prompt = sheet.prices[sheet.model[call]], went.prompt(call)
        read = sheet.read(call, went)
        writes = prompt - read if sheet.write(call, prompt) else 0
        split = Usage(
            input_tokens=prompt - read - writes,
            cache_read_tokens=read,
            cache_write_tokens=None if sheet.fit.hour else writes,
            cache_write_1h_tokens=writes if sheet.fit.hour else None,
            output_tokens=sheet.output[call],
        )
        usd = None if known is None else known.cost_usd(split)
        out.append(_charge(call, split, known, usd, None if usd is None else "derived"))
    wrote = [w for s in spots_in(session) for w in s.written]
    return _of(out, [SummaryBill(w.call, sheet.summary_usd(w), "derived") for w in wrote])


def _of(charges: list[Charge], bills: list[SummaryBill]) -> Accounts:
    priced = tuple(bill for bill in bills if bill.usd is not None)
    unpriced = sum(c.usd is None for c in charges)
    return Accounts(tuple(charges), priced, unpriced, len(bills) - len(priced))


def _charge(
    call: int, u: Usage, known: Price | None, usd: float | None, source: str | None
) -> Charge:
    writes = written(u) or 0
    counts = (u.input_tokens or 0, u.cache_read_tokens or 0, writes, u.output_tokens or 0)
    if usd is None:
        return Charge(call, *counts, None)
    parts = _weights(counts, u, known)
    whole = sum(parts)
    if not whole:  # a price for nothing
        parts, whole = (1.0, 0.0, 0.0, 0.0), 1.0
    fresh, read, write, output = (usd * p / whole for p in parts)
    return Charge(call, *counts, usd, fresh, read, write, output, source)


def _weights(counts: tuple[int, int, int, int], u: Usage, known: Price | None) -> tuple[float, ...]:
    """Return the dollars of each class by the table, or what stands for them where it
    has no price.
    """
    if known is None:
        return tuple(n * w for n, w in zip(counts, _WEIGHTS, strict=True))
    p = known.at(u.prompt_tokens or 0)
    hour = u.cache_write_1h_tokens or 0
    return (
        counts[0] * p.input,
        counts[1] * p.read,
        (counts[2] - hour) * p.write() + hour * p.write(hour=True),
        counts[3] * p.output,
    )
