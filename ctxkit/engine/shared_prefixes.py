"""Longest prefix that a prompt shares with an earlier one whose cache is still alive."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import ColdCacheCalls

    Numbers = NDArray[Any]

# Longest common prefix with any living prompt, without storing the prompts.
#
# A prompt is an array of content hashes, one a message. As long as prompts only grow, each is a
# prefix of the next, and nothing is stored. Where a prompt diverges from the one before it, the
# earlier one is stored as a `PromptDivergence`: how many messages both share, and its other hashes.
#
# `longest_shared` goes back from divergence to divergence. With s = the messages shared with the
# prompt after a divergence at d: s > d gives d, s < d leaves s, and only s == d compares hashes.
# It stops at a dead cache and after `MAX_DIVERGENCES`, and costs these plus the hashes compared.
#
# Most divergences need no search. A prompt that shares more with the current one than the last does
# either diverged at this place with the same next message, or diverged earlier, and then a later
# prompt returned to it. `record_divergence` tells both from a set of (place, hash) pairs: O(1).

MAX_DIVERGENCES = 64
"""Divergences at which a search looks, the newest first."""


class PromptDivergence(NamedTuple):
    """A prompt from which the prompt of the next call diverged."""

    call: int
    """The call of the earlier prompt."""
    shared: int
    """First messages that both prompts have."""
    next_content: int
    """Hash of the earlier prompt's next message."""
    rest: Numbers
    """Hashes of all its messages behind the shared ones."""
    is_return: bool
    """True where the later prompt has at that place what some prompt before had there."""


class PromptPrefixes:
    """The divergences between prompts of consecutive calls, and shared prefixes by them."""

    def __init__(self, clock: ColdCacheCalls, divergences: Iterable[PromptDivergence] = ()) -> None:
        self._clock = clock
        self.divergences = list(divergences)
        self._places = {(d.shared, d.next_content) for d in self.divergences}
        """Place of each divergence, with the hash of what was there before it."""
        self._has_return = any(d.is_return for d in self.divergences)

    def before(self, call: int) -> PromptPrefixes:
        """Return the divergences before a call, as many as a search looks at."""
        stop = bisect_left(self.divergences, call - 1, key=lambda d: d.call)
        start = max(stop - MAX_DIVERGENCES, 0)
        return PromptPrefixes(self._clock, self.divergences[start:stop])

    def record_divergence(self, call: int, shared: int, rest: Numbers, next_content: int) -> bool:
        """Record that a call's prompt diverges from the one before it.

        Args:
            call: the call.
            shared: first messages that both have.
            rest: hashes of the other messages of the earlier prompt.
            next_content: hash of the first other message of the call's prompt; 0: it has none.

        Returns:
            False where no living prompt can share more: `longest_shared` need not search.
        """
        is_return = (shared, next_content) in self._places
        self._has_return = self._has_return or is_return
        replaced = int(rest[0])
        self._places.add((shared, replaced))
        self.divergences.append(PromptDivergence(call - 1, shared, replaced, rest, is_return))
        return self._has_return and not self._clock.cold[call]

    def count_shared(self, call: int, last: Numbers, now: Numbers) -> int:
        """Return how many first messages a prompt shares with the last, or any living one.

        Args:
            call: the call of the prompt.
            last: hashes of the prompt before it.
            now: hashes of the prompt.
        """
        shared = measure_common_prefix(last, now)
        if shared < len(last):
            next_content = int(now[shared]) if shared < len(now) else 0
            if self.record_divergence(call, shared, last[shared:], next_content):
                shared = self.longest_shared(call, shared, now)
        return shared

    def longest_shared(self, call: int, shared_with_last: int, now: Numbers) -> int:
        """Return how many first messages a prompt shares with any living prompt before it.

        Args:
            call: the call of the prompt; its own divergence is recorded already.
            shared_with_last: first messages that it shares with the prompt before it.
            now: hashes of the prompt.
        """
        best, shared = shared_with_last, len(now)
        for divergence in self.divergences[: -MAX_DIVERGENCES - 1 : -1]:
            if not self._clock.alive(divergence.call, call):
                break
            if shared > divergence.shared:
                shared = divergence.shared
            elif shared < divergence.shared:
                continue
            shared += measure_common_prefix(divergence.rest, now[shared:])
            best = max(best, shared)
            if shared == len(now):
                break
        return best


class PastPrompts(NamedTuple):
    """The prompts before a call, for the shared prefixes of the calls from there on."""

    prefixes: PromptPrefixes
    last: Numbers
    """Content hashes of the prompt of the call before."""


def measure_common_prefix(a: Numbers, b: Numbers) -> int:
    """Return how many first values of two arrays are equal."""
    n = min(len(a), len(b))
    if not n or a[0] != b[0]:
        return 0
    differ = a[:n] != b[:n]
    first = int(differ.argmax())
    return first if differ[first] else n


def hash_contents(history: History) -> Numbers:
    """Return one number a message; two are equal where the same text is at the same row."""
    head, tail = history.head, -np.arange(history.lo, history.hi) - 1
    return np.concatenate((head.column(history.log, "contents"), tail)) if head.size else tail


def measure_shared_prefix(view: History, others: Iterable[History]) -> int:
    """Return the tokens of the longest prefix that a view shares with one of some other views.

    The fixed part of the prompt counts.
    """
    hashes, longest = hash_contents(view), 0
    for other in others:
        if other.head is view.head and other.lo == view.lo:
            shared = min(len(other), len(view))
        else:
            shared = measure_common_prefix(hash_contents(other), hashes)
        longest = max(longest, min(other.fixed, view.fixed) + view.before(shared))
    return longest
