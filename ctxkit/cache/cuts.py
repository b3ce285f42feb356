"""What is read after a compaction, foretold from the other compactions of the same session."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.cache.cache_counts import recorded_reads
from ctxkit.cache.cached_calls import asked
from ctxkit.cache.causes import cause
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session


class AfterCut(NamedTuple):
    """The first call after a compaction."""

    call: int
    prompt: int
    """Tokens of its prompt: so many it could have read."""
    read: int
    """Tokens that it read."""
    foretold: int | None
    """What the session's other compactions foretell of it; None: it has no other that tells."""


@of_session
def after_cuts(session: Session) -> tuple[AfterCut, ...]:
    """Return the first call after each compaction, foretold with that compaction left out.

    What the tool always sends first stays in the cache, and is the same after each compaction of a
    session; nothing stays where the pause was longer than the cache lives.

    Raises:
        BadArguments: it is no session.
    """
    pairs = zip(asked(session), recorded_reads(session), strict=True)
    cut = [(a, read) for a, read in pairs if cause(a) == "compaction"]
    dead = [a.expired for a, _ in cut]
    found = []
    for i, (a, read) in enumerate(cut):
        others = [r for k, (_, r) in enumerate(cut) if k != i and not dead[k]]
        told = 0 if dead[i] and len(cut) > 1 else round(median(others)) if others else None
        found.append(
            AfterCut(a.call, a.prompt, read, told if told is None else min(told, a.prompt))
        )
    return tuple(found)


def cut_error(found: Sequence[AfterCut]) -> float | None:
    """Return by how many tokens those reads are off, over the prompts; None where none is told."""
    told = [(c.prompt, abs(c.read - c.foretold)) for c in found if c.foretold is not None]
    return sum(off for _, off in told) / sum(n for n, _ in told) if told else None
