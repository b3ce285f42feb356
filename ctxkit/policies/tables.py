"""The changes that a pruning makes over the calls of a log, as columns; prompts and fresh tokens are sums over them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.history.columns import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History, Log
    from ctxkit.history.clock import Clock

_CELLS = 4_000_000
"""Cells of a comparison of all changes with all calls that are held at once."""


class Table(NamedTuple):
    """Changes sorted by call, then position: at call `calls[i]` the message at `at[i]` grows by `deltas[i]` tokens."""

    calls: NDArray[Any]
    at: NDArray[Any]
    deltas: NDArray[Any]
    breaks: NDArray[Any]
    """True where the message was shown before, otherwise: a cached prefix ends before it."""
    before: NDArray[Any]
    """Tokens as said before each position, and of all."""
    saved: NDArray[Any]
    """Sum of the changes of the positions before each, and of all."""
    in_order: bool
    """At each change all that stands before has changed for good."""

    @classmethod
    def of(cls, changes: list[tuple[int, int, int, bool]], sizes: NDArray[Any]) -> Table:
        """Return the table of changes `(call, position, delta, breaks)` to messages of these sizes."""
        rows = np.array(sorted(changes), np.int64).reshape(-1, 4)
        calls, at, deltas, breaks = rows.T.copy()
        own = np.bincount(at, weights=deltas, minlength=len(sizes)).astype(np.int64)
        last = np.zeros(len(sizes), np.int64)
        np.maximum.at(last, at, calls)
        ahead = np.concatenate(([0], np.maximum.accumulate(last)))  # the last change of all positions before each
        return cls(
            calls,
            at,
            deltas,
            breaks.astype(bool),
            np.concatenate(([0], np.cumsum(sizes))),
            np.concatenate(([0], np.cumsum(own))),
            bool((ahead[at] <= calls)[breaks.astype(bool)].all()),
        )

    def bill(
        self, history: History, span: tuple[int, int], clock: Clock, first: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return prompt and fresh tokens of the calls of a span.

        Args:
            history: the history in force.
            span: first call, and one past the last.
            clock: tells at which calls no cache is left.
            first: the position in the table at which the history's untouched tail begins, where the table is the whole
                log's; -1: its positions are the history's.
        """
        start, stop = span
        log, n = history.log, stop - start
        prompts = log.tokens.calls(start, stop) + (history.head.tokens - log.tokens.P[history.lo])
        changes = self._part(log.upto, stop, first) if len(self.calls) else ()
        if changes:
            calls, _, deltas, _ = changes
            sums = np.bincount(np.maximum(calls - start, 0), weights=deltas, minlength=n).cumsum()
            prompts += sums.astype(np.int64)
        fresh = prompts.copy()
        if n > 1:
            messages = prompts - fixed_parts(log, stop)[start:]
            cached = messages[:-1].copy()
            if changes:
                self._cut_short(cached, changes, history, start, first)
            fresh[1:] = messages[1:] - cached
            cold = clock.calls[bisect_left(clock.calls, start) : bisect_left(clock.calls, stop)]
            if cold:
                at = np.array(cold) - start
                fresh[at] = prompts[at]
        return prompts, fresh

    def _cut_short(
        self, cached: NDArray[Any], changes: tuple[NDArray[Any], ...], history: History, start: int, first: int
    ) -> None:
        """Let what is cached before the calls `start + 1`... end where the first message is that changes there."""
        calls, at, deltas, breaks = changes
        begin = int(np.searchsorted(calls, start, side="right"))
        new = begin + np.flatnonzero(breaks[begin:])
        if not len(new):
            return
        of = calls[new]
        lead = np.concatenate(([True], of[1:] > of[:-1]))  # the first of each call: the others stand behind it
        q, c = at[new[lead]], of[lead]
        base = max(first, 0)
        ahead = history.head.tokens - int(self.before[base]) if first >= 0 else 0
        done = self.saved[q] - self.saved[base] if self.in_order else _before(calls, at, deltas, q, c)
        cached[c - start - 1] = ahead + self.before[q] + done

    def _part(self, upto: list[int], stop: int, first: int) -> tuple[NDArray[Any], ...]:
        """Return the columns of the changes before the call `stop`, of a log's table only those of the tail."""
        b = int(np.searchsorted(self.calls, stop))
        if first <= 0:
            return self.calls[:b], self.at[:b], self.deltas[:b], self.breaks[:b]
        a = int(np.searchsorted(self.calls, bisect_right(upto, first)))
        own = a + np.flatnonzero(self.at[a:b] >= first)
        return self.calls[own], self.at[own], self.deltas[own], self.breaks[own]


def _before(
    calls: NDArray[Any], at: NDArray[Any], deltas: NDArray[Any], q: NDArray[Any], c: NDArray[Any]
) -> NDArray[Any]:
    """Return for each position and call the sum of the changes up to the call to what stands before the position."""
    out = np.zeros(len(q), np.int64)
    step = max(_CELLS // max(len(at), 1), 1)
    for i in range(0, len(q), step):
        part = slice(i, i + step)
        out[part] = ((at < q[part, None]) & (calls <= c[part, None])).astype(np.float64) @ deltas
    return out


def fixed_parts(log: Log, n: int) -> NDArray[Any]:
    """Return the tokens of the first `n` prompts that no message holds."""
    column = log.memo.get("fixed parts")
    if column is None:
        column = log.memo["fixed parts"] = Column(lambda a, b: log.fixed_at[a:b], np.int64)
    found: NDArray[Any] = column.upto(n)
    return found
