"""Calls that did not find in the prompt cache what the call before had written, how much, and
why.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.cache_model.call_features import (
    HOUR,
    MIN_MISS_TOKENS,
    MISS_TOLERANCE,
    PAUSE_CAUSES,
    CallFeatures,
    MissCause,
    find_miss_cause,
    get_call_features,
    is_miss,
)
from ctxkit.formats.inputs import accepts_session
from ctxkit.tokens.sizes import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ctxkit.session.session import Session

__all__ = [
    "HOUR",
    "MIN_MISS_TOKENS",
    "MISS_TOLERANCE",
    "CacheMiss",
    "find_cache_misses",
    "measure_explained_share",
]
__dir__ = public_dir(__all__)


class CacheMiss(msgspec.Struct, frozen=True, gc=False):
    """A call whose cache read fell short.

    The partial-miss rule of Boise's diagnosis: a read that finds only the first few thousand tokens
    misses the rest.
    """

    call: int
    kind: MissCause
    expected: int
    """Tokens of the prefix that the call shares with the one before it, by the same agent."""
    kept: int
    """Tokens that were read all the same."""
    gap: float | None
    """Seconds since the reply before; None where the log has no clock that holds."""

    @property
    def paused(self) -> bool:
        """True after a pause longer than the cache lives."""
        return self.kind in PAUSE_CAUSES

    @property
    def lost(self) -> int:
        """Tokens that had to be sent again at the price of new ones."""
        return max(self.expected - self.kept, 0)


@accepts_session
def find_cache_misses(
    session: Session, *, anchored: MessageSizes | None = None
) -> tuple[CacheMiss | None, ...]:
    """Return for each call its miss, or None for a hit or where the log does not tell cached from
    uncached.

    A cache belongs to one model, so a call is held against the last one of its agent and model. The
    kind is the first rule of `engine.cache_model.call_features.MISS_RULES` that holds: each looks
    at what the log shows before the reply, never at the read. `unexplained` where none does.
    """
    out: list[CacheMiss | None] = [None] * len(session.calls)
    known = get_call_features(session)
    edited = {a.call: a.last for a in known if a.edited and a.last is not None}
    shared = (
        _shared_after_edits(session, edited, anchored or measure_sizes(session)) if edited else {}
    )
    for a in known:
        out[a.call] = _miss_of_call(session, a, shared.get(a.call, a.shared))
    return tuple(out)


def measure_explained_share(found: Iterable[CacheMiss | None]) -> float | None:
    """Return the share of the lost tokens whose miss has a cause; None where none were lost.

    First calls are no misses here: what they read was put there by another session.
    """
    lost = [m for m in found if m is not None and m.kind != "cold_start"]
    every = sum(m.lost for m in lost)
    return sum(m.lost for m in lost if m.kind != "unexplained") / every if every else None


def _miss_of_call(session: Session, a: CallFeatures, shared: int) -> CacheMiss | None:
    usage = session.calls[a.call].message.usage
    read = (usage.cache_read_tokens or 0) if usage else 0
    if a.before is None:
        return CacheMiss(a.call, find_miss_cause(a), a.prompt, read, None)
    if a.edited:
        return CacheMiss(a.call, find_miss_cause(a), min(shared, a.prompt), read, a.gap)
    return (
        CacheMiss(a.call, find_miss_cause(a), shared, read, a.gap)
        if is_miss(shared, read)
        else None
    )


def _shared_after_edits(
    session: Session, edited: Mapping[int, int], anchored: MessageSizes
) -> dict[int, int]:
    """Return for each call the fixed part and the messages at the head that it shares with the one
    before it, which is given.
    """
    looked_at = {*edited, *edited.values()}
    shown = {call.index: view for call, view in session.views() if call.index in looked_at}
    out = {}
    for call, last in edited.items():
        both = zip(shown[last], shown[call], strict=False)
        alike = takewhile(lambda pair: pair[0].id == pair[1].id, both)
        out[call] = (anchored.fixed or 0) + sum(anchored.of(new) for _, new in alike)
    return out
