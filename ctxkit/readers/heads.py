"""A conversation whose beginning is not in the file: what its first prompt held of it stands as one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit import tokens
from ctxkit.messages import LOST, Message, Sized
from ctxkit.sizes import sizes

if TYPE_CHECKING:
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes

_SMALLEST = 1024
"""Fewer tokens are within what sizes can tell."""


def with_head(session: Session) -> Session:
    """Return a session with a message for the conversation that its file has lost; itself, where there is none.

    A prompt's fixed part cannot be larger than what no message shows of a later prompt. What the
    first prompt held beyond that was conversation, which a compaction takes away: it becomes the
    first message (role `summary`, kind `lost`, a size and no text), and the session's first
    compaction takes it. Where no later prompt was smaller, the least that a cold cache was read for
    bounds the fixed part, as caches end at marks behind it; without either nothing can be said.
    """
    if not session.details.get("headless") or not session.has_usage:
        return session
    size = _lost(session, sizes(session, tokens.named("chars/4")))
    return session if size < _SMALLEST else _headed(session, size)


def _lost(session: Session, sized: Sizes) -> int:
    known = [c for c in session.calls if sized.recorded[c.index]]
    unseen = [max(sized.fixed_at[c.index] - sized.unsent_at[c.index], 0) for c in known]
    if not unseen:
        return 0
    least = min(unseen)
    reads = [c.message.usage.cache_read_tokens or 0 for c in known if c.message.usage]
    cold = [r for r in reads if r > _SMALLEST]
    if least > unseen[0] / 2 and cold:
        least = min(least, *cold)
    return unseen[0] - least


def _headed(session: Session, size: int) -> Session:
    ids = {e.id for e in session.log} | {m.id for e in session.edits for m in e.inserted}
    own = next(f"lost-head{n or ''}" for n in range(len(ids) + 1) if f"lost-head{n or ''}" not in ids)
    head = Message(
        role="summary",
        id=own,
        kind=LOST,
        parts=(Sized("conversation that is not in the file", tokens=size),),
        details={"tokens_source": "estimated"},
    )
    first = next((e for e in session.edits if e.kind == "summarised"), None)
    log = tuple(msgspec.structs.replace(e, targets=(own, *e.targets)) if e is first else e for e in session.log)
    root = session.indices[0] if session.indices else 0
    parents = tuple(0 if i == root else -1 if p < 0 else p + 1 for i, p in enumerate(session.parents))
    return msgspec.structs.replace(
        session,
        log=(head, *log),
        parents=(-1, *parents) if parents else (),
        leaf=session.leaf + 1 if session.leaf >= 0 else session.leaf,
    )
