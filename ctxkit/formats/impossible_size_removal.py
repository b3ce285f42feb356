"""Removal of recorded sizes that no model's window or call can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ctxkit.session.messages import (
    Edit,
    Fault,
    Message,
    SizeOnly,
    Usage,
)
from ctxkit.tokens.context_windows import COMMON_WINDOWS
from ctxkit.tokens.prices import context_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session


MAX_WINDOWS = 100
"""A size above this many context windows of its model is impossible."""
MAX_CALLS_PER_TURN = 1000
"""Largest number of calls whose usage a log may add up for a turn."""
_CHARS_PER_TOKEN = 4
"""Characters per token, for sizes given in characters."""
_PROMPT_FIELDS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
)
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def drop_impossible_sizes(session: Session) -> Session:
    """Return a session, and its subagents, without sizes that cannot be true.

    A size is refused above `MAX_WINDOWS` context windows of its model. The window is the larger of
    those in the price table and in the log; for a model that the table does not have, at least the
    largest window sold. A window in the log is checked against the table in the same way.

    Args:
        session: a session as its reader returned it.

    Returns:
        The session itself if no size is refused; else one in which those sizes are None, with one
        fault for each entry that had one.
    """
    valid_window = _size_or_none(session.context_window, _max_claimed_tokens(session.model))
    valid_log = tuple(
        [
            e if _claims_nothing(e) else _drop_entry_claims(e, session.model, valid_window)
            for e in session.log
        ]
    )
    children = tuple(drop_impossible_sizes(c) for c in session.children)
    faults = tuple(_list_faults(session, valid_window, valid_log))
    if not faults and all(a is b for a, b in zip(children, session.children, strict=True)):
        return session
    return msgspec.structs.replace(
        session,
        log=valid_log,
        children=children,
        context_window=valid_window,
        faults=(*session.faults, *faults),
    )


def _list_faults(
    session: Session, window: int | None, log: tuple[Message | Edit, ...]
) -> Iterator[Fault]:
    claimants = [e.id for e, new in zip(session.log, log, strict=True) if e is not new]
    for name in ["the session"] * (window != session.context_window) + claimants:
        yield Fault(
            0,
            f"{name[:80]}: expected a size that a call can have, found more than {MAX_WINDOWS} "
            "windows of its model: it is missing",
        )


def _max_claimed_tokens(model: str | None, window: int | None = None) -> int:
    """Return the largest number of tokens that one call may claim."""
    return MAX_WINDOWS * max(context_limit(model) or COMMON_WINDOWS[-1], window or 0)


def _size_or_none(size: int | None, limit: int) -> int | None:
    return None if size is None or size > limit else size


def _claims_nothing(entry: Message | Edit) -> bool:
    """Return True for most messages: they have neither a usage nor a size."""
    return (
        type(entry) is Message
        and entry.usage is None
        and entry.context_window is None
        and SizeOnly not in map(type, entry.parts)
    )


def _drop_entry_claims(
    entry: Message | Edit, model: str | None, window: int | None
) -> Message | Edit:
    if isinstance(entry, Message):
        return _drop_message_claims(entry, model, window)
    limit = _max_claimed_tokens(entry.model or model, window)
    return _replace_changed(
        entry,
        inserted=tuple(
            _drop_message_claims(m, entry.model or model, window) for m in entry.inserted
        ),
        tokens_before=_size_or_none(entry.tokens_before, limit),
        tokens_after=_size_or_none(entry.tokens_after, limit),
        usage=_drop_usage_claims(entry.usage, limit),
    )


def _drop_message_claims(message: Message, model: str | None, window: int | None) -> Message:
    if _claims_nothing(message):
        return message
    has_sizes = SizeOnly in map(type, message.parts)
    model = message.model or model
    message_window = message.context_window
    if message_window is not None:
        message_window = _size_or_none(message_window, _max_claimed_tokens(model))
    limit = _max_claimed_tokens(model, message_window or window)
    calls = MAX_CALLS_PER_TURN if message.kind == "turn" else 1
    if message.context_window is None and not has_sizes and _fits(message.usage, limit * calls):
        return message  # nearly every reply: nothing is copied or compared
    return _replace_changed(
        message,
        context_window=message_window,
        usage=_drop_usage_claims(message.usage, limit * calls),
        parts=tuple(_drop_part_claims(p, limit) for p in message.parts)
        if has_sizes
        else message.parts,
    )


def _drop_usage_claims(usage: Usage | None, limit: int) -> Usage | None:
    """Return a usage without an impossible prompt or output; None if nothing is left.

    The classes of a prompt are dropped together, because the rest would add up to a wrong prompt.
    """
    if usage is None:
        return None
    if _fits(usage, limit):
        return usage
    changes: dict[str, None] = {}
    if (usage.prompt_tokens or 0) > limit:
        changes |= dict.fromkeys(_PROMPT_FIELDS)
    if max(usage.output_tokens or 0, usage.reasoning_tokens or 0) > limit:
        changes |= dict.fromkeys(("output_tokens", "reasoning_tokens"))
    valid = _replace_changed(usage, **changes)
    return None if changes and valid == Usage() else valid


def _fits(usage: Usage | None, limit: int) -> bool:
    return usage is None or limit >= max(
        usage.prompt_tokens or 0, usage.output_tokens or 0, usage.reasoning_tokens or 0
    )


def _drop_part_claims(part: Part, limit: int) -> Part:
    if type(part) is not SizeOnly:
        return part
    return _replace_changed(
        part,
        tokens=_size_or_none(part.tokens, limit),
        chars=_size_or_none(part.chars, _CHARS_PER_TOKEN * limit),
    )


def _replace_changed(struct: _Struct, **fields: Any) -> _Struct:
    """Return a copy with changed fields, or the value itself if they are equal."""
    if all(getattr(struct, name) == value for name, value in fields.items()):
        return struct
    return msgspec.structs.replace(struct, **fields)
