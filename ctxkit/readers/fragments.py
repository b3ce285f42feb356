"""Outputs of which a log holds the first piece alone: told from what the next prompt grew by."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.messages import Edit, Message
from ctxkit.tokens.lengths import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

_LEAST = 16
"""Replies that count fewer tokens are too short to be judged."""
_OPEN, _ENDED = 0.75, 0.4
"""An output below this share of a quarter of the reply's characters is no whole one: whole ones lie
at 0.95 to 3.3 in real logs (median 1.2), fragments nearly all below 0.4. The smaller share holds
where the log says why the reply ended, as it then had the final count at hand."""
_MOST = 2.0
"""What a prompt grew by beside a reply may be more than the log shows (reminders, for one): no more
than this many times the scaled count is taken for the reply."""


class _Growth(NamedTuple):
    """What a prompt grew by from one call to the next, and the counts of what it grew by."""

    tokens: int
    reply: int
    rest: int


def with_outputs(session: Session) -> Session:
    """Return a session whose fragmentary outputs are estimated; itself, where it has none.

    The estimate is the reply's share of what the next prompt grew by, else its count scaled as the
    session's other growth was; never below the plain count of what is visible. `details` of the
    reply then say `output_source: estimated` and hold the `recorded_output_tokens`.
    """
    counts = {id(m): tokens(m) for m in session.log if type(m) is Message and m.usage is not None}
    broken = {own for own, n in counts.items() if n >= _LEAST}
    found = [
        m
        for m in session.log
        if id(m) in broken and type(m) is Message and _is_fragment(m, counts[id(m)])
    ]
    if not found:
        return session
    growths = dict(_growths(session, counts))
    ratios = [g.tokens / (g.reply + g.rest) for g in growths.values() if g.reply + g.rest]
    scale = min(max(median(ratios), 1.0), _MOST) if ratios else 1.0
    new = {id(m): _whole(m, counts[id(m)], growths.get(id(m)), scale) for m in found}
    log = tuple(new.get(id(e), e) for e in session.log)
    return msgspec.structs.replace(session, log=log)


def _is_fragment(reply: Message, count: int) -> bool:
    output = None if reply.usage is None else reply.usage.output_tokens
    return output is not None and output < count * (_ENDED if reply.stop else _OPEN)


def _growths(session: Session, counts: dict[int, int]) -> Iterator[tuple[int, _Growth]]:
    """Yield by identity of a reply what the next prompt of the same agent and model grew by.

    Args:
        session: a session.
        counts: tokens of each reply with a usage, by its identity.
    """
    last: tuple[Message, int] | None = None
    rest = 0
    for entry in session.path:
        if type(entry) is Edit:
            last = None
        elif type(entry) is Message and entry.role == "assistant":
            prompt = entry.usage.prompt_tokens if entry.usage is not None else None
            if not prompt:
                last = None
                continue
            if (
                last is not None
                and prompt > last[1]
                and (last[0].agent, last[0].model) == (entry.agent, entry.model)
            ):
                yield id(last[0]), _Growth(prompt - last[1], counts[id(last[0])], rest)
            last, rest = (entry, prompt), 0
        elif type(entry) is Message and entry.visible and last is not None:
            rest += tokens(entry)


def _whole(reply: Message, count: int, growth: _Growth | None, scale: float) -> Message:
    """Return a reply with its output estimated, and the fragment in its details."""
    assert reply.usage is not None  # noqa: S101  for the type checker
    told = round(scale * count)
    if growth is not None and growth.reply:
        told = round(growth.tokens * growth.reply / (growth.reply + growth.rest))
    output = min(max(told, count), max(round(_MOST * scale * count), count))
    details = {"output_source": "estimated", "recorded_output_tokens": reply.usage.output_tokens}
    usage = msgspec.structs.replace(reply.usage, output_tokens=output)
    return msgspec.structs.replace(reply, usage=usage, details={**reply.details, **details})
