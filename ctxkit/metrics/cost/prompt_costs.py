"""The dollars of a session's prompts, attributed to the messages in them."""

# Attribution of prompt dollars to messages
#
# A prompt consists of the fixed part (system prompt and tools that are not in the log), then the
# messages in order. Its tokens are billed from the front: first those read from the cache, then
# those written, then those sent fresh. Each message pays for the tokens of its own interval, at the
# price of their class; message sizes are scaled to the billed size of the prompt. So the dollars of
# all messages and the fixed part add up to the dollars of all prompts. Each call takes O(messages
# in its prompt), as array operations.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.session.messages import Edit, Message
from ctxkit.session.session import apply_edit
from ctxkit.session.tool_calls import pair_with_calls
from ctxkit.tokens.message_sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.metrics.cost.bill import CallCharge
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session

    Floats = NDArray[np.float64]


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
    """Dollars of the system prompt and tool schemas that are not in the log."""
    fixed_tokens: int
    """Their tokens at the first call."""


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
    """Return the dollars of each part of a prompt from the parts' sizes; they sum to its cost."""
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
