"""What the calls of a run were sent, kept as the places where their sizes stop following from the calls before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.history.clock import Clock

Mark = tuple[int, Any, Any]
"""First call, what its size is and what of it is fresh; it holds until the next mark.

The size is an offset to add to the log's own sizes, or an array of sizes. Fresh tokens are those of the first call as a
number (those of the calls after it follow from the log), an array, or None: those of all of them follow from the log.
"""


Sums = tuple[int, int, int]
"""Tokens of all prompts, those of them that were no cached prefix, and of the largest prompt."""


class Billed:
    """The marks of a run, and what follows from them. Everywhere `upto` is one past the last call that was billed."""

    __slots__ = ("_asked", "_known", "_summed", "clock", "log", "marks")

    def __init__(self, log: Log, clock: Clock) -> None:
        self.log, self.clock = log, clock
        self.marks: list[Mark] = []
        self._known: Sums = (0, 0, 0)
        self._summed = 0
        """Sums of the marks that others followed, and how many these are."""
        self._asked: tuple[int, int, Sums] = (0, 0, self._known)

    def copy(self) -> Billed:
        """Return the same bill, to go on from."""
        other = Billed(self.log, self.clock)
        other.marks = list(self.marks)
        return other

    def stretches(self, upto: int) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield each mark with the call before which it ends: first, one past the last, size, fresh."""
        ends = [*(start for start, _, _ in self.marks[1:]), upto]
        for (start, size, fresh), end in zip(self.marks, ends, strict=False):
            if end > start:
                yield start, end, size, fresh

    def prompts(self, upto: int) -> NDArray[Any]:
        """Return the prompt tokens of each call."""
        sizes = self.log.tokens.calls(0, upto)
        parts = [sizes[a:b] + size if type(size) is int else size for a, b, size, _ in self.stretches(upto)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def fresh(self, upto: int) -> NDArray[Any]:
        """Return the tokens of each call that were no cached prefix."""
        parts: list[NDArray[Any]] = [np.zeros(0, np.int64)]
        clock = self.clock.sync()
        for a, b, size, own in self.stretches(upto):
            if type(size) is not int:
                parts.append(own)
                continue
            sizes, before = self.log.tokens.calls(a, b), np.array(clock.before[a:b], np.int64)
            fresh = np.where(clock.cold[a:b], sizes + size, np.maximum(sizes - before, 0))
            if own is not None:
                fresh[0] = own
            parts.append(fresh)
        return np.concatenate(parts)

    def sizes(self, start: int, stop: int, upto: int) -> list[int]:
        """Return the prompt tokens of the calls start..stop, as far as they were billed."""
        found: list[int] = []
        for a, size, _ in reversed(self.marks):
            if upto <= start:
                break
            lo, hi = max(a, start), min(upto, stop)
            if lo < hi:
                part = self.log.tokens.calls(lo, hi) + size if type(size) is int else size[lo - a : hi - a]
                found[:0] = part.tolist()
            upto = a
        return found

    def sums(self, upto: int) -> Sums:
        """Return the sums: O(1) a mark, and each mark that another one followed is looked at once."""
        marks, to, known = self._asked
        if marks == len(self.marks) and to == upto:
            return known
        last = len(self.marks) - 1
        if last > self._summed:
            self._known = self._added(self._known, self._summed, last, self.marks[last][0])
            self._summed = last
        sums = self._added(self._known, self._summed, last + 1, upto)
        self._asked = (last + 1, upto, sums)
        return sums

    def _added(self, sums: Sums, first: int, last: int, upto: int) -> Sums:
        """Return sums with those of some marks; `upto` is where the last of them ends."""
        total, fresh, peak = sums
        tokens, clock, marks = self.log.tokens, self.clock, self.marks
        Q, C, F, N = tokens.Q, tokens.C, clock.F, clock.N  # noqa: N806  as they are called there
        for i in range(last - 1, first - 1, -1):
            a, size, own = marks[i]
            if a == upto:
                continue
            if type(size) is int:
                total += size * (upto - a) + Q[upto] - Q[a]
                most = size + (C[upto - 1] if tokens.rising else int(tokens.calls(a, upto).max()))
                start = a
                if own is not None:
                    fresh += own
                    start += 1
                fresh += F[upto] - F[start] + size * (N[upto] - N[start])
            else:
                total, fresh, most = total + int(size.sum()), fresh + int(own.sum()), int(size.max())
            peak = max(peak, most)
            upto = a
        return total, fresh, peak
