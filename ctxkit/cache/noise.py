"""Sessions with other reads than they had, and chance alone: what a figure must tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.cache.cache_counts import recorded_reads, taught
from ctxkit.cache.cached_calls import HOUR, asked, billed, write_life
from ctxkit.cache.causes import cause, missed
from ctxkit.cache.dollars import dollars
from ctxkit.cache.draws import drawn
from ctxkit.cache.rates import Rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.session import Session


def with_reads(session: Session, reads: Sequence[int]) -> Session:
    """Return a session whose billed calls read so many tokens; its prompts are as they were."""
    calls = zip(billed(session), asked(session), reads, strict=True)
    places = {
        session.indices[c.position]: _reply(c.message, n, hour=(write_life(c) or a.life) == HOUR)
        for c, a, n in calls
    }
    return replace(session, log=tuple(places.get(i, e) for i, e in enumerate(session.log)))


def _reply(message: Any, read: int, *, hour: bool) -> Any:
    u = message.usage
    rest = (u.prompt_tokens or 0) - read
    writes = u.cache_write_tokens is not None or u.cache_write_1h_tokens is not None
    hour = hour and writes
    usage = replace(
        u,
        input_tokens=None if writes else rest,
        cache_read_tokens=read,
        cache_write_tokens=0 if hour else rest if writes else None,
        cache_write_1h_tokens=rest if hour else None,
    )
    return replace(message, usage=usage)


def random_reads(session: Session, seed: int = 0) -> Session:
    """Return a session that read any number of tokens of each prompt."""
    rng = np.random.default_rng(seed)
    return with_reads(session, [int(rng.integers(a.prompt + 1)) for a in asked(session)])


def shuffled(session: Session, seed: int = 0) -> Session:
    """Return a session whose shares of reads are those of other calls of it."""
    known = asked(session)
    shares = [r / a.prompt for a, r in zip(known, recorded_reads(session), strict=True)]
    order = np.random.default_rng(seed).permutation(len(known))
    reads = [int(shares[i] * a.prompt) for i, a in zip(order, known, strict=True)]
    return with_reads(session, reads)


def by_chance(session: Session) -> tuple[float, ...]:
    """Return the errors that are left where a session's own rates are known: chance call by call.

    Each draw is taken for the record, and the middle of all of them for what was foretold.
    """
    known = asked(session)
    line, own = dollars(session, known), taught(session)
    if line is None or len(known) < 2:
        return ()
    draws = line.of(drawn(known, Rates((), own, first=True)))
    return tuple(np.abs(np.median(draws) / draws - 1).tolist())


def named_by_chance(session: Session, seed: int = 0) -> tuple[int, int]:
    """Return what misses put to other calls would lose, in tokens, and how much has a cause."""
    known = [a for a in asked(session) if a.before is not None]
    reads = dict(zip((a.call for a in asked(session)), recorded_reads(session), strict=True))
    n = sum(missed(a.shared, reads[a.call]) for a in known)
    if not n:
        return 0, 0
    taken: NDArray[Any] = np.random.default_rng(seed).choice(len(known), n, replace=False)
    lost = [known[i] for i in taken.tolist()]
    named = sum(a.shared for a in lost if cause(a) != "unexplained")
    return sum(a.shared for a in lost), named
