"""Prompt sizes of a run, kept as the places where they do not follow from the calls before."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.log import CacheClock, MessageLog

BillMark = tuple[int, Any, Any]
"""First call, what its size is and what of it was sent before; it holds until the next mark.

The size is an offset to add to the log's own sizes, or an array of sizes. Beside an offset stands
how many tokens at the front of the first call are as they were in the call before (None: all of
them; what the calls after it have in common follows from the log); beside an array, the tokens of
each call that were no cached prefix.
"""


_sum, _max = np.add.reduce, np.maximum.reduce
"""As the methods `sum` and `max`, which take twice as long for the few calls between edits."""

BillSums = tuple[int, int, int, int]
"""Tokens of all prompts, of them those that no cache held, of the largest and the last prompt."""


class PromptSizes:
    """The marks of a run, and what follows from them for its calls."""

    __slots__ = ("_asked", "_known", "_summed", "clock", "log", "marks", "upto")

    def __init__(self, log: MessageLog, clock: CacheClock) -> None:
        self.log, self.clock = log, clock
        self.upto = 0
        """One past the last billed call."""
        self.marks: list[BillMark] = []
        self._known: BillSums = (0, 0, 0, 0)
        self._summed = 0
        """Sums of the marks that others followed, and how many these are."""
        self._asked: tuple[int, int, BillSums] = (0, 0, self._known)

    def copy(self) -> PromptSizes:
        """Return the same bill, to go on from."""
        other = PromptSizes(self.log, self.clock)
        other.marks, other.upto = list(self.marks), self.upto
        return other

    def stretches(self) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield each mark with the call at which it ends: first, one past the last, size, fresh."""
        ends = [start for start, _, _ in self.marks[1:]]
        ends.append(self.upto)
        for (start, size, fresh), end in zip(self.marks, ends, strict=False):
            if end > start:
                yield start, end, size, fresh

    def prompts(self) -> NDArray[Any]:
        """Return the prompt tokens of each call."""
        prompts = self.log.tokens.calls(0, self.upto).copy()
        for a, b, size, _ in self.stretches():
            if type(size) is int:
                prompts[a:b] += size
            else:
                prompts[a:b] = size
        prompts += self.log.tokens.owed(0, self.upto)
        return prompts

    def fresh(self) -> NDArray[Any]:
        """Return the tokens of each call that were no cached prefix."""
        clock, prompts = self.clock.sync(), self.prompts()
        fresh = clock.fresh(self.upto).copy()
        for a, b, size, kept in self.stretches():
            if type(size) is not int:
                fresh[a:b] = kept
            elif kept is not None:
                fresh[a] = max(prompts[a] - min(kept, prompts[a - 1] if a else 0), 0)
        cold = clock.calls[: bisect_left(clock.calls, self.upto)]
        fresh[cold] = prompts[cold]
        return fresh

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the prompt tokens of the calls start..stop, as far as they were billed."""
        found: list[int] = []
        upto = self.upto
        for a, size, _ in reversed(self.marks):
            if upto <= start:
                break
            lo, hi = max(a, start), min(upto, stop)
            if lo < hi:
                tokens = self.log.tokens
                part = tokens.calls(lo, hi) + size if type(size) is int else size[lo - a : hi - a]
                found[:0] = (part + tokens.owed(lo, hi)).tolist()
            upto = a
        return found

    def sums(self) -> BillSums:
        """Return the sums: O(1) a mark; each that another one followed is looked at once."""
        (marks, to, known), upto = self._asked, self.upto
        if marks == len(self.marks) and to == upto:
            return known
        last = len(self.marks) - 1
        if last > self._summed:
            self._known = self._added(self._known, self._summed, last, self.marks[last][0])
            self._summed = last
        sums = self._added(self._known, self._summed, last + 1, upto)
        self._asked = (last + 1, upto, sums)
        return sums

    def _added(self, sums: BillSums, first: int, last: int, upto: int) -> BillSums:
        """Return sums with those of some marks; `upto` is where the last of them ends."""
        total, fresh, peak, prompt = sums
        tokens, clock, rising = self.log.tokens, self.clock, self.log.tokens.rising
        Q, C = tokens.Q, tokens.C  # noqa: N806  as they are called there
        F, N, cold = clock.F, clock.N, clock.cold  # noqa: N806  the same
        marks = self.marks[first:last]
        marks.append((upto, 0, None))
        start, size, kept = marks[0]
        total += Q[upto] - Q[start]
        for stop, then, held in marks[1:]:
            if start == stop:
                pass
            elif type(size) is int:
                since = start
                if kept is not None:
                    now, since = size + C[start], start + 1
                    sent = kept if kept < prompt else prompt  # noqa: FURB136  min() would take twice as long
                    fresh += now if cold[start] else now - sent if sent < now else 0
                total += size * (stop - start)
                fresh += F[stop] - F[since] + size * (N[stop] - N[since])
                prompt = size + C[stop - 1]
                each = None if rising else tokens.calls(start, stop) + tokens.owed(start, stop)
                most = prompt if each is None else size + int(each.max())
                if most > peak:  # noqa: PLR1730  so would max()
                    peak = most
            else:
                total += int(_sum(size)) - (Q[stop] - Q[start])
                if tokens.owing:
                    owed = tokens.owed(start, stop)
                    total, size = total + int(_sum(owed)), size + owed
                fresh += int(_sum(kept))
                peak, prompt = max(peak, int(_max(size))), int(size[-1])
            start, size, kept = stop, then, held
        return total, fresh, peak, prompt
