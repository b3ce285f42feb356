"""Each call's dollars shared out among what its prompt held: what is old was read, what is new was
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.messages import Edit, Message
from ctxkit.session import apply_edit
from ctxkit.sizes import sizes
from ctxkit.subjects import answered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.messages import ToolCall
    from ctxkit.metrics.accounts import Charge
    from ctxkit.session import Session

    Floats = NDArray[np.float64]


class ResentCost(NamedTuple):
    """A message, and what it cost to send it again and again."""

    message: Message
    answers: ToolCall | None
    """The call that it is the result of."""
    tokens: int
    sent_n: int
    """Calls whose prompt held it."""
    usd: float


class Portions(NamedTuple):
    """All dollars of the prompts of a session, by what they were paid for."""

    held: tuple[ResentCost, ...]
    fixed_usd: float
    """For what no message holds: system prompt and tool schemas that are not in the log."""
    fixed_tokens: int
    """Their size at the first call."""


def portions(session: Session, charges: Sequence[Charge]) -> Portions:
    """Return what each message cost in prompts; all together is what the prompts cost.

    The prompt is taken as the fixed part and the messages in order. Its first tokens were read from
    the cache, the next written, the last sent fresh, as many as were billed; each message pays for
    its own. Sizes are scaled so that they fill the prompt that was billed.
    """
    sized, by_call = sizes(session), {c.call: c for c in charges}
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
                each = _paid(charge, np.array([first, *(tokens[i] for i in rows)], float))
                fixed += float(each[0])
                np.add.at(usd, at, each[1:])
                np.add.at(times, at, 1)
            call += 1
        if entry.visible:
            shown.append(entry)
            rows.append(of(entry))
    calls = {id(m): c for m, c in answered(session.messages)}
    paid = zip(
        items,
        tokens,
        [*times.tolist(), *[0] * len(items)],
        [*usd.tolist(), *[0.0] * len(items)],
        strict=False,
    )
    held = tuple(ResentCost(m, calls.get(id(m)), size, n, cost) for m, size, n, cost in paid)
    return Portions(held, fixed, max(sized.fixed or 0, 0))


def _paid(charge: Charge, parts: Floats) -> Floats:
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
