"""The prompts that a run or a replay sent, and what each shares with prompts before it."""

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import Run
    from ctxkit.history import Log


class Sent:
    """The prompts of the calls of a run or a replay, and what each shares with others before it."""

    def __init__(self, prompts: Sequence[int], shared: Sequence[int] = ()) -> None:
        self._prompts, self._shared = prompts, shared

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt; 0 where a record does not say them."""
        return self._prompts[call]

    def reaches(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt is at least so large."""
        return next((c for c in range(start, stop) if self.prompt(c) >= full), None)

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        return self._shared[call]


class SentByRun(Sent):
    """Those of a run, from where its sizes stop following from the log's: O(1) a compaction."""

    def __init__(self, done: Run) -> None:
        self.log: Log = done.log
        self._sizes = done.log.tokens.C
        self._marks = list(done.billed.stretches())
        self._starts = [mark[0] for mark in self._marks]
        self._in_common = done.in_common

    def __len__(self) -> int:
        return len(self._sizes)

    def _mark(self, call: int) -> tuple[int, int, Any, Any]:
        return self._marks[bisect_right(self._starts, call) - 1]

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        start, _, off, _ = self._marks[bisect_right(self._starts, call) - 1]  # asked most of all
        return self._sizes[call] + off if type(off) is int else int(off[call - start])

    def reaches(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt is at least so large."""
        _, end, off, _ = self._mark(start)
        if type(off) is not int or end < stop:
            return super().reaches(full, start, stop)
        found = self.log.tokens.above(ceil(full - off) - 1, start, stop)
        return found if found < stop else None

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        start, _, off, kept = self._mark(call)
        known, at = self._in_common.get(call), call - start
        if type(off) is int:
            prompt = self._sizes[call] + off
            if known is None and kept is not None and not at:
                known = kept
        else:
            prompt = int(off[at])
            if known is None:
                known = prompt - int(kept[at])
        if known is None:
            known = self.prompt(call - 1) if call else 0
        return min(known, prompt)

    def stretches(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """Yield calls a..b with what each has more than the log's own (None: each its own), and
        whether the first shares less with the one before than all of that.
        """
        for start, stop, off, kept in self._marks:
            yield start, stop, off if type(off) is int else None, kept is not None
