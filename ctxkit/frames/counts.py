"""How a frame is told to count: by the plain estimate, exactly, anchored on recorded usage, or by a user's counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.frames import lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.messages import Message
    from ctxkit.session import Session

Count = Any
"""None, ``"exact"``, ``"anchored"``, the name of an estimate such as ``"pi"``, or a counter of the user's."""


def counter(count: Count) -> Any:
    """Return the token counter of a name; a counter is itself.

    Raises:
        BadArguments: it is neither a known name nor a counter.
    """
    from ctxkit import tokens

    if count == "exact":
        return tokens.exact()
    if isinstance(count, str):
        return tokens.named(count)
    if callable(getattr(count, "message", None)):
        return count
    raise BadArguments('count= takes None, "exact", "anchored", the name of an estimate, or a token counter.')


def counting(session: Session, count: Count) -> tuple[list[int | None], str, Callable[[Message], int]]:
    """Return the tokens of each message of a session, where they come from, and a counter for other messages."""
    if count is None:
        return [lengths.tokens(m) for m in session.messages], "estimated", lengths.tokens
    if count == "anchored":
        from ctxkit.sizes import sizes

        source = "derived" if session.has_usage else "estimated"
        return list(sizes(session).tokens), source, lengths.tokens
    count = counter(count)
    return [count.message(m) for m in session.messages], getattr(count, "source", "estimated"), count.message
