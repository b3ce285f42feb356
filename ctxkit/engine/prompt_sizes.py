"""Billed prompt sizes of a run, stored as the calls at which they stop following from the log."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.message_log import ColdCacheCalls, MessageLog

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


class PromptSizeMark(NamedTuple):
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


class PromptSizeSums(NamedTuple):
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


class PromptSizes:
    """The marks of a run, and the prompt sizes and sums that follow from them."""

    __slots__ = ("_closed_sums", "_last_sums", "_n_closed", "clock", "log", "marks", "upto")

    def __init__(self, log: MessageLog, clock: ColdCacheCalls) -> None:
        self.log, self.clock = log, clock
        self.upto = 0
        """One past the last billed call."""
        self.marks: list[PromptSizeMark] = []
        self._closed_sums = PromptSizeSums(0, 0, 0, 0)
        """Sums over the closed marks: those that another mark follows, which change no more."""
        self._n_closed = 0
        """How many marks these are."""
        self._last_sums = (0, 0, self._closed_sums)
        """The last result of `sums`, behind the numbers of marks and calls that it is for."""

    def copy(self) -> PromptSizes:
        """Return an equal bill that can be extended on its own."""
        other = PromptSizes(self.log, self.clock)
        other.marks, other.upto = list(self.marks), self.upto
        return other

    def spans(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield first call, one past the last call, size and cache of each mark that has calls."""
        ends = [mark.start for mark in self.marks[1:]]
        ends.append(self.upto)
        for (start, size, cache), end in zip(self.marks, ends, strict=False):
            if end > start:
                yield start, end, size, cache

    def prompts(self) -> NDArray[Any]:
        """Return the prompt tokens of each call."""
        prompts = self.log.tokens.calls(0, self.upto).copy()
        for start, stop, size, _ in self.spans():
            if type(size) is int:
                prompts[start:stop] += size
            else:
                prompts[start:stop] = size
        prompts += self.log.tokens.owed(0, self.upto)
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
        """Return the prompt tokens of the calls start..stop, as far as they were billed."""
        sizes: list[int] = []
        upto = self.upto
        for first, size, _ in reversed(self.marks):
            if upto <= start:
                break
            lo, hi = max(first, start), min(upto, stop)
            if lo < hi:
                tokens = self.log.tokens
                is_offset = type(size) is int
                part = tokens.calls(lo, hi) + size if is_offset else size[lo - first : hi - first]
                sizes[:0] = (part + tokens.owed(lo, hi)).tolist()
            upto = first
        return sizes

    def sums(self) -> PromptSizeSums:
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

    def _add_marks(self, sums: PromptSizeSums, first: int, last: int, upto: int) -> PromptSizeSums:
        """Return sums with those of the marks first..last, of which the last one ends at `upto`."""
        total, fresh, peak, prompt = sums
        tokens, clock, rising = self.log.tokens, self.clock, self.log.tokens.rising
        Q, C = tokens.Q, tokens.C  # noqa: N806  as they are called there
        F, N, cold = clock.F, clock.N, clock.cold  # noqa: N806  the same
        marks = self.marks[first:last]
        marks.append(PromptSizeMark(upto, 0, None))
        start, size, cache = marks[0]
        total += Q[upto] - Q[start]
        for stop, next_size, next_cache in marks[1:]:
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
                each = None if rising else tokens.calls(start, stop) + tokens.owed(start, stop)
                largest = prompt if each is None else size + int(each.max())
                if largest > peak:  # noqa: PLR1730  so would max()
                    peak = largest
            else:
                total += int(_sum(size)) - (Q[stop] - Q[start])
                if tokens.owing:
                    owed = tokens.owed(start, stop)
                    total, size = total + int(_sum(owed)), size + owed
                fresh += int(_sum(cache))
                peak, prompt = max(peak, int(_max(size))), int(size[-1])
            start, size, cache = stop, next_size, next_cache
        return PromptSizeSums(total, fresh, peak, prompt)
