"""The places just before each compaction, as pointers into the log: free, and lossless."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.messages import Edit

if TYPE_CHECKING:
    from ctxkit.session import Session

KEPT = 25
"""Only so many are offered, the newest ones (Fased keeps 25)."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A place to which a session can be restored."""

    number: int
    """Counts from 0; the oldest ones offered may begin later."""
    entry: int
    """Index in the session's log of the last entry before the compaction; -1: before anything."""
    trigger: str | None
    time: float | None
    tokens: int | None
    """Size of the context there."""
    stands: bool
    """True where the compaction after it is in force."""


def checkpoints(session: Session) -> tuple[Checkpoint, ...]:
    """Return a session's checkpoints, of left branches too: oldest first, at most 25."""
    parents = session.parents or tuple(range(-1, len(session.log) - 1))
    on_path = set(session.indices)
    found = [
        Checkpoint(n, parents[i], edit.trigger, edit.time, edit.tokens_before, i in on_path)
        for n, (i, edit) in enumerate(
            (i, e) for i, e in enumerate(session.log) if isinstance(e, Edit)
        )
    ]
    return tuple(found[-KEPT:])


def checkpoint(session: Session, number: int) -> Checkpoint:
    """Return a checkpoint by its number; negatives count from the end.

    Raises:
        BadArguments: there is none of that number.
    """
    known = checkpoints(session)
    for c in known:
        if number in (c.number, c.number - (known[-1].number + 1)):
            return c
    said = f"there are {known[0].number} to {known[-1].number}" if known else "none was made yet"
    raise BadArguments(f"There is no checkpoint {number}: {said}.")
