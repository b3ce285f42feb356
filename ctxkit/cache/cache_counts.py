"""What one session teaches of its cache: how often and how much each class of calls misses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ctxkit.cache.cached_calls import asked, billed, family
from ctxkit.cache.causes import kind, missed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.cache.cached_calls import ForeseenCall
    from ctxkit.session import Session

READS = 64
"""Reads of misses that are kept of each class."""


class ClassCount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Calls of one class."""

    calls: int = 0
    misses: int = 0
    expected: int = 0
    """Tokens that could have been read."""
    lost: int = 0
    """Tokens of them that were not, at misses."""
    reads: tuple[int, ...] = ()
    """Tokens that were read all the same at each miss; of first calls at each."""

    def __add__(self, other: ClassCount) -> ClassCount:
        return ClassCount(
            self.calls + other.calls,
            self.misses + other.misses,
            self.expected + other.expected,
            self.lost + other.lost,
            self.reads + other.reads,
        )


class Taught(msgspec.Struct, frozen=True):
    """What one recorded session teaches."""

    session: str
    """Its id: a session never teaches itself."""
    head: tuple[int, ...]
    """Its first prompts: a log that begins with the same is a copy of it."""
    tool: str
    """The program that wrote the log."""
    family: str
    model: str
    """The model of its calls; empty where the log does not say."""
    subagent: bool
    counts: dict[str, ClassCount]
    stretch: float | None = None
    """Half widths of its own interval, unstretched, by which its dollars were above what others
    foretold; negative: below.
    """


HEAD = 5
"""Prompts by which a copy is known."""


def taught(session: Session, stop: int | None = None) -> Taught:
    """Return what a session teaches, or its first `stop` billed calls."""
    every = asked(session)
    known = every[:stop]
    reads = recorded_reads(session)[:stop]
    counts: dict[str, ClassCount] = {}
    for a, read in zip(known, reads, strict=True):
        if a.headless:
            continue
        name = kind(a)
        counts[name] = counts.get(name, ClassCount()) + _one(a, read)
    few = {n: msgspec.structs.replace(c, reads=c.reads[:READS]) for n, c in counts.items()}
    who = session.id, head(every), session.format, of(every, session)
    return Taught(*who, session.model or "", bool(session.parent), few)


def _one(a: ForeseenCall, read: int) -> ClassCount:
    if a.before is None:
        return ClassCount(1, 0, a.prompt, 0, (read,))
    if not missed(a.shared, read):
        return ClassCount(1, 0, a.shared, 0)
    return ClassCount(1, 1, a.shared, a.shared - read, (read,))


def of(known: Sequence[ForeseenCall], session: Session) -> str:
    """Return the family of most of a session's calls."""
    names = Counter(a.family for a in known)
    return max(names, key=names.__getitem__) if names else family(session, None)


def head(known: Sequence[ForeseenCall]) -> tuple[int, ...]:
    """Return the first prompts of a session."""
    return tuple(a.prompt for a in known[:HEAD])


def recorded_reads(session: Session) -> list[int]:
    """Return what each billed call read, in tokens, as the log says."""
    usages = (c.message.usage for c in billed(session))
    return [(u.cache_read_tokens or 0) if u else 0 for u in usages]
