"""Histories for tests of policies: `shown(user(), ...)` is what comes before the next call; `texts(h)` what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.policies import History, MessageLog
from ctxkit.tokens import ContextBudget, get_counter

if TYPE_CHECKING:
    from ctxkit.session import Message

CHARS = get_counter("chars/4")
ROOM = ContextBudget(200_000, 20_000, CHARS)


def shown(
    *messages: Message | tuple[Message, ...] | list[Message],
    counter: Any = CHARS,
    time: float | None = None,
    **settings: Any,
) -> History:
    """A history that shows all the messages, its call about to be sent (at `time`)."""
    flat: list[Message] = []
    for m in messages:
        flat.extend(m) if isinstance(m, (tuple, list)) else flat.append(m)
    log = MessageLog.of(flat, counter, **settings)
    return History.start(log, log.open(time))


def texts(history: History) -> list[str]:
    """The text of each message, or the names of its calls."""
    return [m.text or "+".join(c.name for c in m.tool_calls) for m in history.messages]


def ids(history: History) -> list[str]:
    """The id of each message, without the mark of a change."""
    return [m.id.split("~")[0] for m in history.messages]
