"""The prompts that a run or a replay sent, and what each shares with prompts before it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import Run
    from ctxkit.history import Log


class Sent:
    """The prompts of the calls of a run or a replay, and what each shares with others before it."""

    def __init__(self, prompts: Sequence[int], shared: Sequence[int]) -> None:
        self._prompts, self._shared = prompts, shared
        self.log: Log | None = None

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        return self._prompts[call]

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        return self._shared[call]

    def stretches(self) -> Iterator[tuple[int, int, int | None]]:
        """Yield calls a..b with what each has more than the log's own (None: each its own)."""
        yield 0, len(self._prompts), None


class SentByRun(Sent):
    """Those of a run, from where its sizes stop following from the log's: O(1) a compaction."""

    def __init__(self, done: Run) -> None:
        self.log = done.log
        self._sizes = done.log.tokens.C
        self._marks = [(a, b, off, kept) for a, b, off, kept in done.billed.stretches(done.call)]
        self._starts = [mark[0] for mark in self._marks]
        self._in_common = done.in_common

    def _mark(self, call: int) -> tuple[int, int, Any, Any]:
        return self._marks[bisect_right(self._starts, call) - 1]

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        start, _, off, _ = self._mark(call)
        return self._sizes[call] + off if type(off) is int else int(off[call - start])

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        start, _, off, kept = self._mark(call)
        known = self._in_common.get(call)
        if known is None and type(off) is not int:
            known = int(off[call - start] - kept[call - start])
        if known is None and kept is not None and call == start:
            known = kept
        return min(
            known if known is not None else self.prompt(call - 1) if call else 0, self.prompt(call)
        )

    def stretches(self) -> Iterator[tuple[int, int, int | None]]:
        """Yield calls a..b with what each has more than the log's own (None: each its own)."""
        for start, stop, off, kept in self._marks:
            first = start
            if type(off) is not int:
                yield start, stop, None
                continue
            if kept is not None:
                first = start + 1
                yield start, first, None
            if first < stop:
                yield first, stop, off
