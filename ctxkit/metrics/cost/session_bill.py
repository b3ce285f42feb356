"""The bill of a session call by call, and its prompt dollars attributed to messages."""

# Attribution of prompt dollars to messages
#
# A prompt is laid out as the fixed part (system prompt and tools that are not in the log), then the
# messages in order. Its tokens are billed from the front: first those read from the cache, then
# those written, then those sent fresh. Each message pays for the tokens of its own interval, at the
# price of the class that they fall into; message sizes are scaled to the billed size of the prompt.
# So the dollars of all messages and the fixed part add up to the dollars of all prompts. One call
# costs O(messages shown), as array operations.

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
from ctxkit.tokens.provider_rules import get_value
from ctxkit.tokens.sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price

    Floats = NDArray[np.float64]


_WEIGHT_MODEL = "claude"
"""Models whose shares weigh the classes of a log that states dollars of a model without a price."""
_OUTPUT_WEIGHT = 5.0
"""Price of an output token over that of fresh input, as for all of them."""


class CallCharge(msgspec.Struct, frozen=True, gc=False):
    """The tokens and dollars of one call. Dollars of the classes add up to `usd`; all are None
    where the call has no price.
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
    """The charges of all calls and summaries of a session."""

    charges: tuple[CallCharge, ...]
    """One for each call that has usage."""
    summaries: tuple[SummaryBill, ...]
    """Bills of the calls that wrote summaries; each has a price."""
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
        """Source of the total: the weakest of its parts; None where nothing has a price."""
        sources = [c.source for c in self.charges if c.usd is not None]
        return (
            pick_weakest_source([*sources, *(s.source for s in self.summaries)])
            if sources
            else None
        )


@accepts_session
def bill_session(session: Session) -> SessionBill:
    """Return the bill of a session, call by call.

    A recorded or live session is billed by its usage, with the dollars of the log or else of the
    price table; a replay as `compare` bills it (`metrics.cost.replay_bill`).
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
        table = price(model)
        out.append(_make_charge(call.index, u, table and table.on(message.time), usd, source))
    return _make_bill(out, per_compaction.bill_summaries(session))


def _bill_replay_session(session: Session) -> SessionBill:
    base = session.origin
    assert base is not None  # noqa: S101  for the type checker: asked before
    cost_model, prompts, out = ReplayCostModel.of(base), get_replay_prompts(session), []
    calls = (c.index for c in session.calls if cost_model.has_usage and cost_model.billed[c.index])
    for call in calls:
        call_price, prompt = cost_model.prices[cost_model.model[call]], prompts.prompt(call)
        read = cost_model.read(call, prompts)
        writes = prompt - read if cost_model.write(call, prompt) else 0
        usage = Usage(
            input_tokens=prompt - read - writes,
            cache_read_tokens=read,
            cache_write_tokens=None if cost_model.fit.hour else writes,
            cache_write_1h_tokens=writes if cost_model.fit.hour else None,
            output_tokens=cost_model.output[call],
        )
        usd = None if call_price is None else call_price.cost_usd(usage)
        out.append(_make_charge(call, usage, call_price, usd, None if usd is None else "derived"))
    summaries = [w for s in get_replay_compactions(session) for w in s.written]
    return _make_bill(
        out, [SummaryBill(w.call, cost_model.summary_usd(w), "derived") for w in summaries]
    )


def _make_bill(charges: list[CallCharge], bills: list[SummaryBill]) -> SessionBill:
    priced = tuple(bill for bill in bills if bill.usd is not None)
    unpriced = sum(c.usd is None for c in charges)
    return SessionBill(tuple(charges), priced, unpriced, len(bills) - len(priced))


def _make_charge(
    call: int, u: Usage, model_price: Price | None, usd: float | None, source: str | None
) -> CallCharge:
    writes = count_cache_writes(u) or 0
    counts = (u.input_tokens or 0, u.cache_read_tokens or 0, writes, u.output_tokens or 0)
    if usd is None:
        return CallCharge(call, *counts, None)
    parts = _class_dollars(counts, u, model_price)
    total = sum(parts)
    if not total:  # a price for nothing
        parts, total = (1.0, 0.0, 0.0, 0.0), 1.0
    fresh, read, write, output = (usd * p / total for p in parts)
    return CallCharge(call, *counts, usd, fresh, read, write, output, source)


def _class_dollars(
    counts: tuple[int, int, int, int], u: Usage, model_price: Price | None
) -> tuple[float, ...]:
    """Return the dollars of each class by the price table, or weights where it has no price."""
    if model_price is None:
        shares = (get_value("read_share", _WEIGHT_MODEL), get_value("write_share", _WEIGHT_MODEL))
        return tuple(n * w for n, w in zip(counts, (1.0, *shares, _OUTPUT_WEIGHT), strict=True))
    p = model_price.at(u.prompt_tokens or 0)
    fresh_price = p.write() if model_price.has_unlogged_writes(u) else p.input
    hour = u.cache_write_1h_tokens or 0
    return (
        counts[0] * fresh_price,
        counts[1] * p.read,
        (counts[2] - hour) * p.write() + hour * p.write(hour=True),
        counts[3] * p.output,
    )


class MessageCost(NamedTuple):
    """A message, and the cost of sending it in all prompts that held it."""

    message: Message
    answers: ToolCall | None
    """The tool call that it answers."""
    tokens: int
    sent_n: int
    """Calls whose prompt held it."""
    usd: float


class PromptCosts(NamedTuple):
    """All dollars of a session's prompts, by message and for the fixed part."""

    held: tuple[MessageCost, ...]
    fixed_usd: float
    """For system prompt and tool schemas that are not in the log."""
    fixed_tokens: int
    """Their size at the first call."""


def attribute_prompt_costs(session: Session, charges: Sequence[CallCharge]) -> PromptCosts:
    """Return the cost of each message in prompts; together they are the cost of all prompts."""
    sizes, charge_of_call = measure_sizes(session), {c.call: c for c in charges}
    messages: list[Message] = []
    tokens: list[int] = []
    number_of: dict[int, int] = {}

    def number_message(message: Message) -> int:
        if id(message) not in number_of:
            number_of[id(message)] = len(messages)
            messages.append(message)
            tokens.append(max(sizes.of(message), 0))
        return number_of[id(message)]

    visible: list[Message] = []
    visible_numbers: list[int] = []
    usd, sent_n, fixed_usd = np.zeros(256), np.zeros(256, np.int64), 0.0
    call = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            visible = apply_edit(visible, entry)
            visible_numbers = [number_message(m) for m in visible]
            continue
        if entry.role == "assistant":
            charge = charge_of_call.get(call)
            if charge is not None and charge.usd is not None:
                while len(usd) < len(messages):  # double the arrays
                    usd = np.concatenate([usd, np.zeros_like(usd)])
                    sent_n = np.concatenate([sent_n, np.zeros_like(sent_n)])
                numbers = np.array(visible_numbers, np.int64)
                fixed = max(sizes.fixed_at[call], 0) if call < len(sizes.fixed_at) else 0
                parts = np.array([fixed, *(tokens[i] for i in visible_numbers)], float)
                part_usd = _dollars_by_part(charge, parts)
                fixed_usd += float(part_usd[0])
                np.add.at(usd, numbers, part_usd[1:])
                np.add.at(sent_n, numbers, 1)
            call += 1
        if entry.visible:
            visible.append(entry)
            visible_numbers.append(number_message(entry))
    tool_call_of = {id(m): c for m, c in pair_with_calls(session.messages)}
    unsent = len(messages)  # the arrays can be shorter than the messages
    times, dollars = [*sent_n.tolist(), *[0] * unsent], [*usd.tolist(), *[0.0] * unsent]
    costs = tuple(
        MessageCost(message, tool_call_of.get(id(message)), size, n, cost)
        for message, size, n, cost in zip(messages, tokens, times, dollars, strict=False)
    )
    return PromptCosts(costs, fixed_usd, max(sizes.fixed or 0, 0))


def _dollars_by_part(charge: CallCharge, parts: Floats) -> Floats:
    """Return the dollars of each part of a prompt, whose sizes are given; they sum to its cost."""
    classes = np.array([charge.read, charge.write, charge.fresh], float)
    dollars = np.array([charge.read_usd or 0.0, charge.write_usd or 0.0, charge.fresh_usd or 0.0])
    total, part_usd = parts.sum(), np.zeros(len(parts))
    if total and classes.sum():
        part_edges = np.concatenate([[0.0], np.cumsum(parts)]) * (classes.sum() / total)
        class_edges = np.concatenate([[0.0], np.cumsum(classes)])
        for k in range(3):
            if classes[k]:  # the overlap of each part with the interval of the class
                overlap = np.diff(np.clip(part_edges, class_edges[k], class_edges[k + 1]))
                part_usd += overlap * (dollars[k] / classes[k])
    # The fixed part takes rounding errors, and dollars of a class without tokens.
    part_usd[0] += dollars.sum() - part_usd.sum()
    return part_usd
