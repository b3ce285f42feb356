"""Billed prompt sizes of a run's calls, and the prefix that a prompt shares with earlier ones."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import ColdCacheCalls, MessageLog

    Numbers = NDArray[Any]


# Run-length encoding of prompt sizes.
#
# Between two edits of a history the prompts of a run follow from the log: each is the log's own
# prompt plus one constant offset. So a run stores a mark where that changes, not a size per call.
# Sums over a stretch come from the log's running sums:
#   Q[c]  tokens of all prompts before call c       C[c]  tokens of the prompt of call c
#   F[c]  uncached tokens of the calls before c     N[c]  calls before c that found the cache cold
# Under a pruning prompts do not follow from the log, and a mark holds one size per call.
# Invariant: marks rise by call; each holds until the next one, the last until `upto`.
# Cost: O(1) a mark for the sums, O(calls) for the arrays.


class PromptSizeSpan(msgspec.Struct, frozen=True, gc=False):
    """A call from which on prompt sizes follow another rule; it holds until the next mark."""

    start: int
    """The first call."""
    size: Any
    """An offset to add to the log's own prompt sizes (int), or an array of prompt sizes."""
    cache: Any
    """With an offset: tokens at the front of the first call that are equal in the call before it
    (None: all of that call; the later calls follow from the log). With an array: the tokens of
    each call that were no cached prefix.
    """


class RunPromptTotals(msgspec.Struct, frozen=True, gc=False):
    """Sums over the calls of a run, in tokens."""

    total: int
    """Tokens of all prompts."""
    fresh: int
    """Tokens of them that were no cached prefix."""
    peak: int
    """Tokens of the largest prompt."""
    last: int
    """Tokens of the last prompt."""


_sum, _max = np.add.reduce, np.maximum.reduce
"""The methods `sum` and `max` take twice as long for the few calls between two edits."""


class PromptSizeSpans:
    """The marks of a run, and the prompt sizes and sums that follow from them."""

    __slots__ = ("_closed_sums", "_last_sums", "_n_closed", "clock", "log", "marks", "upto")

    def __init__(self, log: MessageLog, clock: ColdCacheCalls) -> None:
        self.log, self.clock = log, clock
        self.upto = 0
        """One past the last billed call."""
        self.marks: list[PromptSizeSpan] = []
        self._closed_sums = RunPromptTotals(0, 0, 0, 0)
        """Sums over the closed marks: those that another mark follows, which change no more."""
        self._n_closed = 0
        """How many marks these are."""
        self._last_sums = (0, 0, self._closed_sums)
        """The last result of `sums`, behind the numbers of marks and calls that it is for."""

    def copy(self) -> PromptSizeSpans:
        """Return an equal bill that can be extended on its own."""
        other = PromptSizeSpans(self.log, self.clock)
        other.marks, other.upto = list(self.marks), self.upto
        return other

    def spans(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield first call, one past the last call, size and cache of each mark that has calls."""
        ends = [mark.start for mark in self.marks[1:]]
        ends.append(self.upto)
        for mark, end in zip(self.marks, ends, strict=False):
            if end > mark.start:
                yield mark.start, end, mark.size, mark.cache

    def prompts(self) -> NDArray[Any]:
        """Return the prompt tokens of each call."""
        prompts = self.log.tokens.calls(0, self.upto).copy()
        for start, stop, size, _ in self.spans():
            if type(size) is int:
                prompts[start:stop] += size
            else:
                prompts[start:stop] = size
        prompts += self.log.tokens.get_extra_billed(0, self.upto)
        return prompts

    def fresh(self) -> NDArray[Any]:
        """Return the tokens of each call that were no cached prefix."""
        clock, prompts = self.clock.sync(), self.prompts()
        fresh = clock.fresh(self.upto).copy()
        for start, stop, size, cache in self.spans():
            if type(size) is not int:
                fresh[start:stop] = cache
            elif cache is not None:
                cached = min(cache, prompts[start - 1] if start else 0)
                fresh[start] = max(prompts[start] - cached, 0)
        cold = clock.calls[: bisect_left(clock.calls, self.upto)]
        fresh[cold] = prompts[cold]
        return fresh

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens of the calls start..stop, as far as they were billed.

        Args:
            start: first call.
            stop: one past the last call; calls that were not billed yet are left out.
        """
        sizes: list[int] = []
        upto = self.upto
        for mark in reversed(self.marks):
            if upto <= start:
                break
            first, size = mark.start, mark.size
            lo, hi = max(first, start), min(upto, stop)
            if lo < hi:
                tokens = self.log.tokens
                is_offset = type(size) is int
                part = tokens.calls(lo, hi) + size if is_offset else size[lo - first : hi - first]
                sizes[:0] = (part + tokens.get_extra_billed(lo, hi)).tolist()
            upto = first
        return sizes

    def sums(self) -> RunPromptTotals:
        """Return the sums over all calls: O(1) a mark, each closed mark being added up once."""
        (n_marks, last_upto, sums), upto = self._last_sums, self.upto
        if n_marks == len(self.marks) and last_upto == upto:
            return sums
        last = len(self.marks) - 1
        if last > self._n_closed:
            stop = self.marks[last].start
            self._closed_sums = self._add_marks(self._closed_sums, self._n_closed, last, stop)
            self._n_closed = last
        sums = self._add_marks(self._closed_sums, self._n_closed, last + 1, upto)
        self._last_sums = (last + 1, upto, sums)
        return sums

    def _add_marks(
        self, sums: RunPromptTotals, first: int, last: int, upto: int
    ) -> RunPromptTotals:
        """Return sums with those of the marks first..last, of which the last one ends at `upto`."""
        total, fresh, peak, prompt = sums.total, sums.fresh, sums.peak, sums.last
        tokens, clock, rising = self.log.tokens, self.clock, self.log.tokens.rising
        Q, C = tokens.Q, tokens.C  # noqa: N806  as they are called there
        F, N, cold = clock.F, clock.N, clock.cold  # noqa: N806  the same
        marks = self.marks[first:last]
        marks.append(PromptSizeSpan(upto, 0, None))
        mark = marks[0]
        total += Q[upto] - Q[mark.start]
        for following in marks[1:]:
            start, size, cache, stop = mark.start, mark.size, mark.cache, following.start
            mark = following
            if start == stop:
                pass
            elif type(size) is int:
                since = start
                if cache is not None:  # the first call is compared with the call before it
                    now, since = size + C[start], start + 1
                    cached = cache if cache < prompt else prompt  # noqa: FURB136  min() would take twice as long
                    fresh += now if cold[start] else now - cached if cached < now else 0
                total += size * (stop - start)
                fresh += F[stop] - F[since] + size * (N[stop] - N[since])
                prompt = size + C[stop - 1]
                # prompts that only rise have their largest at the end
                each = (
                    None
                    if rising
                    else tokens.calls(start, stop) + tokens.get_extra_billed(start, stop)
                )
                largest = prompt if each is None else size + int(each.max())
                if largest > peak:  # noqa: PLR1730  so would max()
                    peak = largest
            else:
                total += int(_sum(size)) - (Q[stop] - Q[start])
                if tokens.owing:
                    owed = tokens.get_extra_billed(start, stop)
                    total, size = total + int(_sum(owed)), size + owed
                fresh += int(_sum(cache))
                peak, prompt = max(peak, int(_max(size))), int(size[-1])
        return RunPromptTotals(total, fresh, peak, prompt)


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


class SharedPrefixFinder:
    """The divergences between prompts of consecutive calls, and shared prefixes by them."""

    def __init__(self, clock: ColdCacheCalls, divergences: Iterable[PromptDivergence] = ()) -> None:
        self._clock = clock
        self.divergences = list(divergences)
        self._places = {(d.shared, d.next_content) for d in self.divergences}
        """Place of each divergence, with the hash of what was there before it."""
        self._has_return = any(d.is_return for d in self.divergences)

    def before(self, call: int) -> SharedPrefixFinder:
        """Return the divergences before a call, as many as a search looks at."""
        stop = bisect_left(self.divergences, call - 1, key=lambda d: d.call)
        start = max(stop - MAX_DIVERGENCES, 0)
        return SharedPrefixFinder(self._clock, self.divergences[start:stop])

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

    prefixes: SharedPrefixFinder
    last: Numbers
    """Content hashes of the prompt of the call before."""


def measure_common_prefix(a: Numbers, b: Numbers) -> int:
    """Return the length of the longest common prefix of two arrays.

    Args:
        a: an array, such as the hashes of a prompt's messages.
        b: the other array.
    """
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


def measure_shared_prefix_tokens(view: History, others: Iterable[History]) -> int:
    """Return the tokens of the longest prefix that a view shares with one of some other views.

    The fixed part of the prompt counts.

    Args:
        view: the messages of a prompt.
        others: those of earlier prompts of the same log.
    """
    hashes, longest = hash_contents(view), 0
    for other in others:
        if other.head is view.head and other.lo == view.lo:
            # The same edits and first row: the shorter one begins the longer one.
            shared = min(len(other), len(view))
        else:
            shared = measure_common_prefix(hash_contents(other), hashes)
        longest = max(longest, min(other.fixed, view.fixed) + view.before(shared))
    return longest
