"""A conversation whose beginning is not in the file: it stands as messages without text."""

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
_PIECE = 2000
"""Tokens of each of them, as messages have: what keeps the first ones keeps little."""
_MOST = 1000
"""There are no more of them: for more tokens each is larger."""
_FIXED = 64_000
"""More than system prompt, tools and project files have been seen to take (11,000 to 45,000)."""


def with_head(session: Session) -> Session:
    """Return a session with messages for what its file has lost; itself, where that is nothing.

    A prompt's fixed part cannot be larger than what no message shows of the smallest later prompt.
    What the first prompt held beyond that was conversation, which a compaction takes away: it
    becomes the first messages (role `summary`, kind `lost`, sizes and no text), and the session's
    first compaction takes them. Where no later prompt was smaller, and the first is larger than any
    fixed part that has been seen, the least that a cold cache was read for bounds it, as caches end
    at marks behind it; else nothing can be said.
    """
    if not session.details.get("headless") or not session.has_usage:
        return session
    size = _lost(session, sizes(session, tokens.named("chars/4")))
    return session if size < _SMALLEST else _headed(session, size)


def _lost(session: Session, sized: Sizes) -> int:
    known = [(n, c) for c in session.calls if (n := sized.recorded[c.index])]
    if not known:
        return 0
    first, smallest = known[0], min(known, key=lambda pair: pair[0])
    begun, least = (
        max(sized.fixed_at[c.index] - sized.unsent_at[c.index], 0) for _, c in (first, smallest)
    )
    if smallest is first and begun > _FIXED:
        reads = [c.message.usage.cache_read_tokens or 0 for _, c in known if c.message.usage]
        least = min([begun, *(r for r in reads if r > _SMALLEST)])
    return begun - least


def _headed(session: Session, size: int) -> Session:
    ids = {e.id for e in session.log} | {m.id for e in session.edits for m in e.inserted}
    taken = {i.partition("-")[0] for i in ids}
    stem = next(s for n in range(len(ids) + 1) if (s := f"lost{n or ''}") not in taken)
    piece = max(_PIECE, -(-size // _MOST))
    sizes = [piece] * (size // piece) + [size % piece] * (size % piece > 0)
    head = tuple(
        Message(
            role="summary",
            id=f"{stem}-{i}",
            kind=LOST,
            parts=(Sized("conversation that is not in the file", tokens=n),),
        )
        for i, n in enumerate(sizes)
    )
    first = next((e for e in session.edits if e.kind == "summarised"), None)
    gone = tuple(m.id for m in head)
    log = tuple(
        msgspec.structs.replace(e, targets=(*gone, *e.targets)) if e is first else e
        for e in session.log
    )
    n, root = len(head), session.indices[0] if session.indices else 0
    parents = tuple(
        n - 1 if i == root else -1 if p < 0 else p + n for i, p in enumerate(session.parents)
    )
    return msgspec.structs.replace(
        session,
        log=(*head, *log),
        parents=(*range(-1, n - 1), *parents) if parents else (),
        leaf=session.leaf + n if session.leaf >= 0 else session.leaf,
    )
