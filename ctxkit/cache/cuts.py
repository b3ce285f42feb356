"""What is read after a compaction, foretold from the other compactions of the same session."""

from __future__ import annotations

from bisect import bisect_left
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
    reads = sorted(read for a, read in cut if not a.expired)
    found = []
    for a, read in cut:
        told = _middle_without(reads, read) if not a.expired else 0 if len(cut) > 1 else None
        told = None if told is None else min(told, a.prompt)
        found.append(AfterCut(a.call, a.prompt, read, told))
    return tuple(found)


def _middle_without(ordered: Sequence[int], one: int) -> int | None:
    """Return the median, rounded, of what is left without one of them; None where nothing is."""
    at, n = bisect_left(ordered, one), len(ordered) - 1
    low, high = (k + (k >= at) for k in ((n - 1) // 2, n // 2))
    return round((ordered[low] + ordered[high]) / 2) if n else None


def cut_error(found: Sequence[AfterCut]) -> float | None:
    """Return by how many tokens those reads are off, over the prompts; None where none is told."""
    told = [(c.prompt, abs(c.read - c.foretold)) for c in found if c.foretold is not None]
    return sum(off for _, off in told) / sum(n for n, _ in told) if told else None
