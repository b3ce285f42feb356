"""What a log says wrongly is mended in every session read, and what it cannot say is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.messages import LOST, Edit, Message, Sized, Usage
from ctxkit.readers.fragments import with_outputs
from ctxkit.readers.heads import with_head
from ctxkit.sizes.falls import falls
from ctxkit.sizes.windows import notes_on_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.session import Session

_STREAMED = frozenset({"claude-code"})
"""Formats that write the usage of a stream before its end."""


def mended(session: Session, blind: Sequence[str] = ()) -> Session:
    """Return a session, and its subagents, mended and with its notes.

    Args:
        session: as its reader made it.
        blind: what its format has no mark for (`compactions`, `tool errors`): none is not zero.
    """
    session = _without_zeros(session)
    if session.format in _STREAMED:
        session = with_outputs(session)
    session = with_head(session)
    if blind or session.children:
        details = {**session.details, **({"cannot_tell": list(blind)} if blind else {})}
        children = tuple(mended(c, blind) for c in session.children)
        session = msgspec.structs.replace(session, children=children, details=details)
    notes = tuple(_notes(session))
    if not notes:
        return session
    told = msgspec.structs.replace(session, notes=(*session.notes, *notes))
    told.__dict__.update(session.__dict__)  # the same log: what is known of it stays known
    return told


def _without_zeros(session: Session) -> Session:
    if not any(_has_zero(e.usage) for e in session.log if e.usage is not None):
        return session
    log = tuple(_told(e) for e in session.log)
    unpriced = sum(_is_free(a.usage) for a in session.log)
    details = {**session.details, "free_calls": unpriced} if unpriced else session.details
    return msgspec.structs.replace(session, log=log, details=details)


def _told(entry: Message | Edit) -> Message | Edit:
    usage = entry.usage
    if usage is None or not _has_zero(usage):
        return entry
    return msgspec.structs.replace(entry, usage=_honest(usage))


def _has_zero(usage: Usage) -> bool:
    return usage.prompt_tokens == 0 or usage.cost_usd == 0


def _honest(usage: Usage) -> Usage | None:
    """Return a usage without zeros that mean nothing: a prompt of no tokens, a price of nothing."""
    cost = usage.cost_usd or None
    if usage.prompt_tokens:
        return msgspec.structs.replace(usage, cost_usd=cost)
    output = usage.output_tokens or None
    if output is None and cost is None:
        return None
    return Usage(
        output_tokens=output,
        reasoning_tokens=usage.reasoning_tokens if output else None,
        cost_usd=cost,
    )


def _is_free(usage: Usage | None) -> bool:
    return usage is not None and usage.cost_usd == 0 and bool(usage.prompt_tokens)


def _notes(session: Session) -> Iterator[str]:
    """Yield what is to be said of a session, in plain sentences."""
    yield from _on_usage(session)
    if session.details.get("headless"):
        head = [
            p for m in session.messages if m.kind == LOST for p in m.parts if isinstance(p, Sized)
        ]
        told = "how much of it the first prompt held cannot be told."
        if head:
            size = sum(p.tokens or 0 for p in head)
            told = f"about {size:,} tokens of the first prompt were of it (estimated)."
        yield f"The conversation before line 1 is not in this file: {told}"
    yield from notes_on_windows(session)
    found = falls(session)
    if found:
        lost = sum(f.before - f.after for f in found)
        times = "once" if len(found) == 1 else f"{len(found)} times"
        yield (
            f"The prompt fell {times} without a mark in the log, by {lost:,} tokens in all: "
            "what went is not known."
        )
    blind = session.details.get("cannot_tell", ())
    if blind:
        names = " or ".join(blind)
        yield f"This format has no mark for {names}: where none is seen, their number is missing."


def _on_usage(session: Session) -> Iterator[str]:
    replies = [c.message for c in session.calls if c.message.usage is not None]
    broken = [m for m in replies if m.details.get("output_source") == "estimated"]
    if broken:
        first = sum(m.details.get("recorded_output_tokens") or 0 for m in broken)
        now = sum((m.usage.output_tokens or 0) if m.usage else 0 for m in broken)
        yield (
            f"Output tokens of {len(broken)} of {len(replies)} calls are estimated from text and "
            f"growth ({now:,}): the log holds the first pieces of their streams ({first:,})."
        )
    free = session.details.get("free_calls")
    if free:
        yield (
            f"The log prices {free} calls at $0, as it does where it knows no price: "
            "their cost is missing."
        )
