"""The bill of a session call by call, and its prompt dollars attributed to messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.compactions import get_replay_compactions, get_replay_prompts
from ctxkit.metrics.cost.call_prices import pick_weakest_source, price_call
from ctxkit.metrics.cost.replay_bill import ReplayCostModel
from ctxkit.metrics.frames import per_compaction
from ctxkit.metrics.frames.per_call import count_cache_writes
from ctxkit.metrics.frames.per_compaction import SummaryBill
from ctxkit.session.messages import Edit, Message, Usage
from ctxkit.session.session import apply_edit
from ctxkit.session.tool_calls import pair_with_calls
from ctxkit.tokens.prices import price
from ctxkit.tokens.sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price

    Floats = NDArray[np.float64]


_WEIGHTS = (1.0, 0.1, 1.25, 5.0)
"""Of fresh, read, written and put out tokens, where the log has dollars and the table no price of
the model: Anthropic's prices beside each other."""


class CallCharge(msgspec.Struct, frozen=True, gc=False):
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


class SessionBill(msgspec.Struct, frozen=True):
    """All that a session was billed for."""

    charges: tuple[CallCharge, ...]
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
        return pick_weakest_source([*told, *(s.source for s in self.summaries)]) if told else None


@accepts_session
def bill_session(session: Session) -> SessionBill:
    """Return what a session was billed for, call by call.

    A record, and a live session, by the usage that was recorded: dollars as the log says them, else
    by the table of prices. A replay is billed as `compare` bills it (`metrics.cost.replay_bill`).
    """
    if session.origin is not None and session.format == "replay":
        return _bill_replay_session(session)
    out = []
    for call in session.calls:
        message = call.message
        u = message.usage
        if u is None or u.prompt_tokens is None:
            continue
        model = message.model or session.model
        usd, source = price_call(message, model)
        out.append(_make_charge(call.index, u, price(model), usd, source))
    return _make_bill(out, per_compaction.bill_summaries(session))


def _bill_replay_session(session: Session) -> SessionBill:
    base = session.origin
    assert base is not None  # noqa: S101  for the type checker: asked before
    sheet, went, out = ReplayCostModel.of(base), get_replay_prompts(session), []
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
        out.append(_make_charge(call, split, known, usd, None if usd is None else "derived"))
    wrote = [w for s in get_replay_compactions(session) for w in s.written]
    return _make_bill(out, [SummaryBill(w.call, sheet.summary_usd(w), "derived") for w in wrote])


def _make_bill(charges: list[CallCharge], bills: list[SummaryBill]) -> SessionBill:
    priced = tuple(bill for bill in bills if bill.usd is not None)
    unpriced = sum(c.usd is None for c in charges)
    return SessionBill(tuple(charges), priced, unpriced, len(bills) - len(priced))


def _make_charge(
    call: int, u: Usage, known: Price | None, usd: float | None, source: str | None
) -> CallCharge:
    writes = count_cache_writes(u) or 0
    counts = (u.input_tokens or 0, u.cache_read_tokens or 0, writes, u.output_tokens or 0)
    if usd is None:
        return CallCharge(call, *counts, None)
    parts = _class_dollars(counts, u, known)
    whole = sum(parts)
    if not whole:  # a price for nothing
        parts, whole = (1.0, 0.0, 0.0, 0.0), 1.0
    fresh, read, write, output = (usd * p / whole for p in parts)
    return CallCharge(call, *counts, usd, fresh, read, write, output, source)


def _class_dollars(
    counts: tuple[int, int, int, int], u: Usage, known: Price | None
) -> tuple[float, ...]:
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


class MessageCost(NamedTuple):
    """A message, and what it cost to send it again and again."""

    message: Message
    answers: ToolCall | None
    """The call that it is the result of."""
    tokens: int
    sent_n: int
    """Calls whose prompt held it."""
    usd: float


class PromptCosts(NamedTuple):
    """All dollars of the prompts of a session, by what they were paid for."""

    held: tuple[MessageCost, ...]
    fixed_usd: float
    """For what no message holds: system prompt and tool schemas that are not in the log."""
    fixed_tokens: int
    """Their size at the first call."""


def attribute_prompt_costs(session: Session, charges: Sequence[CallCharge]) -> PromptCosts:
    """Return what each message cost in prompts; all together is what the prompts cost.

    The prompt is taken as the fixed part and the messages in order. Its first tokens were read from
    the cache, the next written, the last sent fresh, as many as were billed; each message pays for
    its own. Sizes are scaled so that they fill the prompt that was billed.
    """
    sized, by_call = measure_sizes(session), {c.call: c for c in charges}
    items: list[Message] = []
    row: dict[int, int] = {}

    def of(message: Message) -> int:
        if id(message) not in row:
            row[id(message)] = len(items)
            items.append(message)
            tokens.append(max(sized.of(message), 0))
        return row[id(message)]

    tokens: list[int] = []
    shown: list[Message] = []
    rows: list[int] = []
    usd, times, fixed = np.zeros(256), np.zeros(256, np.int64), 0.0
    call = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            shown = apply_edit(shown, entry)
            rows = [of(m) for m in shown]
            continue
        if entry.role == "assistant":
            charge = by_call.get(call)
            if charge is not None and charge.usd is not None:
                while len(usd) < len(items):
                    usd, times = (
                        np.concatenate([usd, np.zeros_like(usd)]),
                        np.concatenate([times, times * 0]),
                    )
                at = np.array(rows, np.int64)
                first = max(sized.fixed_at[call], 0) if call < len(sized.fixed_at) else 0
                each = _dollars_by_part(
                    charge, np.array([first, *(tokens[i] for i in rows)], float)
                )
                fixed += float(each[0])
                np.add.at(usd, at, each[1:])
                np.add.at(times, at, 1)
            call += 1
        if entry.visible:
            shown.append(entry)
            rows.append(of(entry))
    calls = {id(m): c for m, c in pair_with_calls(session.messages)}
    paid = zip(
        items,
        tokens,
        [*times.tolist(), *[0] * len(items)],
        [*usd.tolist(), *[0.0] * len(items)],
        strict=False,
    )
    held = tuple(MessageCost(m, calls.get(id(m)), size, n, cost) for m, size, n, cost in paid)
    return PromptCosts(held, fixed, max(sized.fixed or 0, 0))


def _dollars_by_part(charge: CallCharge, parts: Floats) -> Floats:
    """Return the dollars of each part of a prompt; they add up to what the prompt cost."""
    classes = np.array([charge.read, charge.write, charge.fresh], float)
    dollars = np.array([charge.read_usd or 0.0, charge.write_usd or 0.0, charge.fresh_usd or 0.0])
    whole = parts.sum()
    if not whole or not classes.sum():
        out = np.zeros(len(parts))
        out[0] = dollars.sum()
        return out
    ends = np.concatenate([[0.0], np.cumsum(parts)]) * (classes.sum() / whole)
    edges = np.concatenate([[0.0], np.cumsum(classes)])
    out = np.zeros(len(parts))
    for k in range(3):
        if classes[k]:
            inside = np.clip(ends, edges[k], edges[k + 1])
            out += np.diff(inside) * (dollars[k] / classes[k])
    rest = dollars.sum() - out.sum()  # rounding, and dollars of a class without tokens
    out[0] += rest
    return out
