"""Outputs of which a log holds the first piece of a stream only: told from what the next prompt grew by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit import tokens
from ctxkit.messages import Message
from ctxkit.sizes import sizes

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


def with_outputs(session: Session) -> Session:
    """Return a session whose fragmentary outputs are estimated; itself, where it has none.

    The estimate is the reply's share of what the next prompt grew by, else its count scaled as the
    session's other growth was; never below the plain count of what is visible. `details` of the
    reply then say `output_source: estimated` and hold the `recorded_output_tokens`.
    """
    counter = tokens.named("chars/4")
    counts = {id(m): counter.message(m) for m in _replies(session)}
    found = {own for own, n in counts.items() if n >= _LEAST}
    broken = [m for m in _replies(session) if id(m) in found and _is_fragment(m, counts[id(m)])]
    if not broken:
        return session
    marked = {id(m): _marked(m, counts[id(m)]) for m in broken}
    session = _with(session, marked)
    sized = sizes(session, counter)
    scale = 1.0 if sized.error is None else 1 / (1 + sized.error)
    on_path = {id(m) for m in session.messages}
    final = {}
    for m in marked.values():
        count = counter.message(m)
        most = max(round(_MOST * scale * count), count)
        told = sized.of(m) if id(m) in on_path else round(scale * count)
        final[id(m)] = _marked(m, min(max(told, count), most))
    return _with(session, final)


def _replies(session: Session) -> Iterator[Message]:
    for entry in session.log:
        if type(entry) is Message and entry.role == "assistant" and entry.usage is not None:
            yield entry


def _is_fragment(reply: Message, count: int) -> bool:
    output = None if reply.usage is None else reply.usage.output_tokens
    return output is not None and output < count * (_ENDED if reply.stop else _OPEN)


def _marked(reply: Message, output: int) -> Message:
    assert reply.usage is not None  # noqa: S101  for the type checker
    first = reply.details.get("recorded_output_tokens", reply.usage.output_tokens)
    details = {**reply.details, "output_source": "estimated", "recorded_output_tokens": first}
    usage = msgspec.structs.replace(reply.usage, output_tokens=output)
    return msgspec.structs.replace(reply, usage=usage, details=details)


def _with(session: Session, new: dict[int, Message]) -> Session:
    log = tuple(new.get(id(e), e) if type(e) is Message else e for e in session.log)
    return msgspec.structs.replace(session, log=log)
