"""Control sessions for the cache model: the same prompts with other recorded reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import (
    HOUR,
    get_call_features,
    get_written_cache_lifetime,
    select_billed_calls,
)
from ctxkit.engine.cache_model.training_counts import get_recorded_reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.session import Session


def replace_reads(session: Session, reads: Sequence[int]) -> Session:
    """Return a session whose billed calls read so many tokens; its prompts are as they were."""
    calls = zip(select_billed_calls(session), get_call_features(session), reads, strict=True)
    places = {
        session.indices[c.position]: _reply(
            c.message, n, hour=(get_written_cache_lifetime(c) or a.life) == HOUR
        )
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


def with_random_reads(session: Session, seed: int = 0) -> Session:
    """Return a session that read any number of tokens of each prompt."""
    rng = np.random.default_rng(seed)
    return replace_reads(
        session, [int(rng.integers(a.prompt + 1)) for a in get_call_features(session)]
    )


def with_shuffled_reads(session: Session, seed: int = 0) -> Session:
    """Return a session in which calls have the read shares of other calls, shuffled."""
    features = get_call_features(session)
    shares = [r / a.prompt for a, r in zip(features, get_recorded_reads(session), strict=True)]
    order = np.random.default_rng(seed).permutation(len(features))
    reads = [int(shares[i] * a.prompt) for i, a in zip(order, features, strict=True)]
    return replace_reads(session, reads)
