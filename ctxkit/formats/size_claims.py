"""Sizes that a log claims and no window can hold: each is a fault, and the size is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ctxkit.session.messages import Edit, Fault, Message, SizeOnly, Usage
from ctxkit.tokens.context_windows import COMMON_WINDOWS
from ctxkit.tokens.prices import context_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

MOST_WINDOWS = 100
"""A size of more than so many windows of its model is not believed."""
MOST_CALLS = 1000
"""The usage of a whole turn may add up so many calls."""
_CHARS = 4
"""Characters of a token, where a log gives a size in characters."""
_PROMPT = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def without_claims(session: Session) -> Session:
    """Return a session, and its subagents, without the sizes that cannot be true.

    The window of a model is the larger one of what the price table and the log say; where the table
    does not know it, at least the largest that is sold. A window that the log says is held against
    the table's in the same way.

    Args:
        session: as its reader made it.

    Returns:
        The session itself where no size is refused; else one in which those sizes are None, with
        one fault for each entry that claimed one.
    """
    window = _believed(session.context_window, _limit(session.model))
    log = tuple(_believed_entry(e, session.model, window) for e in session.log)
    children = tuple(without_claims(c) for c in session.children)
    faults = tuple(_faults(session, window, log))
    if not faults and all(a is b for a, b in zip(children, session.children, strict=True)):
        return session
    return msgspec.structs.replace(
        session,
        log=log,
        children=children,
        context_window=window,
        faults=(*session.faults, *faults),
    )


def _faults(
    session: Session, window: int | None, log: tuple[Message | Edit, ...]
) -> Iterator[Fault]:
    names = [e.id for e, new in zip(session.log, log, strict=True) if e is not new]
    for name in ["the session"] * (window != session.context_window) + names:
        yield Fault(
            0,
            f"{name[:80]}: expected a size that a call can have, found more than {MOST_WINDOWS} "
            "windows of its model: it is missing",
        )


def _limit(model: str | None, window: int | None = None) -> int:
    """Return how many tokens one call may claim."""
    return MOST_WINDOWS * max(context_limit(model) or COMMON_WINDOWS[-1], window or 0)


def _believed(size: int | None, limit: int) -> int | None:
    return None if size is None or size > limit else size


def _believed_entry(entry: Message | Edit, model: str | None, window: int | None) -> Message | Edit:
    if isinstance(entry, Message):
        return _believed_message(entry, model, window)
    limit = _limit(entry.model or model, window)
    return _changed(
        entry,
        inserted=tuple(_believed_message(m, entry.model or model, window) for m in entry.inserted),
        tokens_before=_believed(entry.tokens_before, limit),
        tokens_after=_believed(entry.tokens_after, limit),
        usage=_believed_usage(entry.usage, limit),
    )


def _believed_message(message: Message, model: str | None, window: int | None) -> Message:
    sized = any(type(p) is SizeOnly for p in message.parts)
    if message.usage is None and message.context_window is None and not sized:
        return message
    model = message.model or model
    own = _believed(message.context_window, _limit(model))
    limit = _limit(model, own or window)
    calls = MOST_CALLS if message.kind == "turn" else 1
    return _changed(
        message,
        context_window=own,
        usage=_believed_usage(message.usage, limit * calls),
        parts=tuple(_believed_part(p, limit) for p in message.parts) if sized else message.parts,
    )


def _believed_usage(usage: Usage | None, limit: int) -> Usage | None:
    """Return a usage without a prompt or an output that is too large; None where nothing is left.

    A prompt is a sum: without one of its classes the others would say a smaller one.
    """
    if usage is None:
        return None
    changes: dict[str, None] = {}
    if (usage.prompt_tokens or 0) > limit:
        changes |= dict.fromkeys(_PROMPT)
    if max(usage.output_tokens or 0, usage.reasoning_tokens or 0) > limit:
        changes |= dict.fromkeys(("output_tokens", "reasoning_tokens"))
    believed = _changed(usage, **changes)
    return None if changes and believed == Usage() else believed


def _believed_part(part: Part, limit: int) -> Part:
    if type(part) is not SizeOnly:
        return part
    return _changed(
        part,
        tokens=_believed(part.tokens, limit),
        chars=_believed(part.chars, _CHARS * limit),
    )


def _changed(struct: _Struct, **fields: Any) -> _Struct:
    """Return the value itself where its fields have these values, else a changed copy."""
    if all(getattr(struct, name) == value for name, value in fields.items()):
        return struct
    return msgspec.structs.replace(struct, **fields)
