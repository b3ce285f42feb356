"""Cache misses of a session: calls that read less than their shared prefix, how much, and why."""

# A call is compared with the last call of the same agent and model, as a cache belongs to one
# model. The expected read is the prefix that both share: the whole earlier prompt, or after an edit
# the longest common prefix of messages. A read that is smaller by more than a tolerance is a miss.
# Its cause is the first rule that applies to the log before the reply (a pause, a compaction, a new
# session, ...), so the cause never depends on the read itself.

from __future__ import annotations

from itertools import islice, takewhile
from operator import attrgetter, eq
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
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
from ctxkit.engine.run_segments_and_prompts import FIXED_KIND
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.engine.run_segments_and_prompts import SentItem
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

__all__ = [
    "HOUR",
    "MIN_MISS_TOKENS",
    "MISS_TOLERANCE",
    "CacheMiss",
    "find_cache_misses",
    "measure_explained_share",
    "misses",
]
__dir__ = make_dunder_dir(__all__)


class CacheMiss(msgspec.Struct, frozen=True, gc=False):
    """A call whose cache read fell short of the prefix that it shares with the call before.

    A partial miss counts (Boise's rule): a read of the first few thousand tokens misses the rest.
    """

    call: int
    kind: MissCause
    expected: int
    """Tokens of the prefix that the call shares with the one before it, of the same agent."""
    read_tokens: int
    """Tokens that were read from the cache."""
    gap: float | None
    """Seconds since the reply before; None where the log has no reliable clock."""

    @property
    def paused(self) -> bool:
        """True after a pause longer than the cache lives."""
        return self.kind in PAUSE_CAUSES

    @property
    def missed_tokens(self) -> int:
        """Tokens that were sent again at the price of new ones."""
        return max(self.expected - self.read_tokens, 0)


@accepts_session
def find_cache_misses(
    session: Session, *, anchored: MessageSizes | None = None
) -> tuple[CacheMiss | None, ...]:
    """Find the cache miss of each call and its cause.

    The cause is the first rule of `engine.cache_model.call_features.MISS_RULES` that applies, else
    `unexplained`.

    Args:
        session: a recorded session with a cache split.
        anchored: sizes of its messages in tokens; None: measured here.

    Returns:
        The miss of each call; None for a hit, or where the log has no cache split.

    Example:
        >>> import ctxkit as ck
        >>> misses = ck.metrics.find_cache_misses(ck.samples.path("billing"))
        >>> sorted({miss.kind for miss in misses if miss is not None})
        ['cold_start', 'compaction', 'ttl_expiry']
    """
    misses: list[CacheMiss | None] = [None] * len(session.calls)
    features = get_call_features(session)
    previous_of_edited = {
        call.call: call.last for call in features if call.edited and call.last is not None
    }
    shared_of_edited = (
        _measure_shared_after_edits(session, previous_of_edited, anchored or measure_sizes(session))
        if previous_of_edited
        else {}
    )
    for call in features:
        misses[call.call] = _miss_of_call(
            session, call, shared_of_edited.get(call.call, call.shared)
        )
    return tuple(misses)


misses = find_cache_misses
"""The name of `find_cache_misses` at the top level: `ck.misses`."""


def measure_explained_share(misses: Iterable[CacheMiss | None]) -> float | None:
    """Return the share of missed tokens whose cause is known; None where no tokens were missed.

    First calls do not count: only another session could have written what they read.
    """
    counted = [m for m in misses if m is not None and m.kind != "cold_start"]
    missed_tokens = sum(m.missed_tokens for m in counted)
    return (
        sum(m.missed_tokens for m in counted if m.kind != "unexplained") / missed_tokens
        if missed_tokens
        else None
    )


def _miss_of_call(session: Session, call: CallFeatures, shared: int) -> CacheMiss | None:
    usage = session.calls[call.call].message.usage
    read = (usage.cache_read_tokens or 0) if usage else 0
    if call.before is None:
        return CacheMiss(call.call, find_miss_cause(call), call.prompt, read, None)
    if call.edited:
        return CacheMiss(call.call, find_miss_cause(call), min(shared, call.prompt), read, call.gap)
    return (
        CacheMiss(call.call, find_miss_cause(call), shared, read, call.gap)
        if is_miss(shared, read)
        else None
    )


def _measure_shared_after_edits(
    session: Session, previous_call: Mapping[int, int], anchored: MessageSizes
) -> dict[int, int]:
    """Return the shared prefix in tokens of each call that follows an edit.

    Args:
        session: the session.
        previous_call: the earlier call to compare with, by call.
        anchored: the sizes of its messages.
    """
    if session.prunings:  # a prompt may hold messages in another form than the log, or others
        return {
            c: _measure_shared_as_sent(session, before, c) for c, before in previous_call.items()
        }
    awaited = set(previous_call.values())
    # one call follows each, so its view is needed once: a view of each edit would fill the memory
    views: dict[int, Sequence[Message]] = {}
    shared_tokens = {}
    for call, view in session.views():
        if call.index in previous_call:
            earlier = views.pop(previous_call[call.index])
            common_n = _count_common(map(_GET_ID, earlier), map(_GET_ID, view))
            tokens = anchored.sum_of(islice(view, common_n))
            shared_tokens[call.index] = (anchored.fixed or 0) + tokens
        if call.index in awaited:
            views[call.index] = view
    return shared_tokens


_GET_ID = attrgetter("id")


def _count_common(first: Iterable[str], second: Iterable[str]) -> int:
    """Return the number of values at the beginning that two sequences have in common."""
    is_common = list(map(eq, first, second))
    return is_common.index(False) if False in is_common else len(is_common)


def _measure_shared_as_sent(session: Session, previous: int, call: int) -> int:
    """Return the tokens of the prefix that two sent prompts share.

    The fixed part is shared although its size, which is derived from bills, differs by call.
    """
    pairs = zip(session.sent(previous), session.sent(call), strict=False)
    common = takewhile(lambda pair: _has_same_content(*pair), pairs)
    return sum(min(old.tokens, new.tokens) for old, new in common)


def _has_same_content(old: SentItem, new: SentItem) -> bool:
    if FIXED_KIND in {old.message.kind, new.message.kind}:
        return old.message.kind == new.message.kind
    return (old.message.id, old.message.parts) == (new.message.id, new.message.parts)
