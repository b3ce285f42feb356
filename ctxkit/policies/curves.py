"""What a pruning would send at all coming calls at once, for prunings whose changes stay once they are made."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.columns import TOOL, Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History, Log
    from ctxkit.history.clock import Clock

FEW = 8
"""Up to so many calls are worked out one by one, in plain numbers: arrays cost more than they save."""


def last_results(
    history: History,
    span: tuple[int, int],
    clock: Clock,
    keep: int,
    text: str | NDArray[Any],
    *,
    eligible: NDArray[Any] | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt and fresh tokens of the calls of a span where all tool results but the last few are one text.

    It says the same as ``history.shorten(older results, text)`` at each of these calls, from running sums: a result
    is changed when `keep` newer ones are there, and stays so.

    Args:
        history: the history in force; it is looked at as of the last call of the span.
        span: first call, and one past the last.
        clock: tells at which calls no cache is left.
        keep: tool results that stay whole.
        text: what the older ones say; or, one a message, the tokens of what each would say.
        eligible: booleans, one a message of ``history.at(last call)``; None: all tool results may be changed.
    """
    start, stop = span
    log = history.log
    if eligible is None and isinstance(text, str) and not history.head.count(log, TOOL):
        saved_by = Savings.of(log, history.placeholder_size(text))
        return (saved_by.each if stop - start <= FEW else saved_by.all)(history, span, clock, keep)
    whole = history.at(stop - 1)
    at = np.flatnonzero(whole.role("tool"))
    sizes = whole.sizes
    small = whole.placeholder_size(text) if isinstance(text, str) else text[at]
    may = sizes[at] > small
    may &= ~whole.stays[at]
    if eligible is not None:
        may &= eligible[at]
    saved = np.concatenate(([0], np.cumsum(np.where(may, sizes[at] - small, 0))))
    before = np.concatenate(([0], np.cumsum(sizes)))
    upto = np.array(log.upto[start:stop], np.int64)
    shown = history.head.size + upto - history.lo
    gone = np.maximum(np.searchsorted(at, shown) - keep, 0)
    whole_prompts = log.tokens.calls(start, stop) + (history.head.tokens - log.tokens.P[history.lo])
    prompts = whole_prompts - saved[gone]
    fresh = prompts.copy()
    if len(prompts) > 1:
        changing = np.concatenate((np.flatnonzero(may), [len(at)]))
        newly = changing[
            np.searchsorted(changing, gone[:-1])
        ]  # the first result that was not changed at the call before
        first = np.concatenate((before[at], [0]))[newly]
        fixed = np.array(log.fixed_at[start + 1 : stop], np.int64)
        prefix = np.minimum(fixed + first - saved[gone[:-1]], prompts[:-1])
        cached = np.where(saved[gone[1:]] > saved[gone[:-1]], prefix, prompts[:-1])
        fresh[1:] = np.maximum(prompts[1:] - cached, 0)
        cold = np.array(clock.cold[start:stop])
        fresh[cold] = prompts[cold]
    return prompts, fresh


class Savings:
    """What clearing the tool results of a log to one size saves: running sums that only grow with the log.

    `sums[k]` is what clearing the first `k` results saves; a result is as long as it was where that is less, or where
    it must stay. `before[k]` are the tokens of the rows before result `k`, `shown[c]` the results before call `c`.
    """

    def __init__(self, log: Log, small: int) -> None:
        self.log, self.small = log, small
        self.sums = [0]
        self._row = self._stays = 0
        tools, sums, counts = log.of_role[TOOL], self.sums, log.counts[TOOL]
        self._sums = Column(lambda a, b: sums[a:b], np.int64)
        self._before = Column(lambda a, b: [log.tokens.P[r] for r in tools[a:b]], np.int64)
        self._fixed = Column(lambda a, b: log.fixed_at[a:b], np.int64)
        self._shown = Column(lambda a, b: [counts[u] for u in log.upto[a:b]], np.int64)

    @classmethod
    def of(cls, log: Log, small: int) -> Savings:
        """Return the sums of a log for one size, brought up to its last row."""
        key = ("savings", small)
        found = log.memo.get(key)
        if found is None:
            found = log.memo[key] = cls(log, small)
        saved_by: Savings = found
        return saved_by.sync()

    def sync(self) -> Savings:
        """Bring the sums up to the rows that the log has by now; begin anew where an old row has come to stay."""
        log, sums = self.log, self.sums
        if bisect_left(log.stays, self._row) != self._stays:
            del sums[1:]
            self._sums.forget(1)
        sizes = log.tokens.sizes
        for row in log.of_role[TOOL][len(sums) - 1 :]:
            saves = 0 if log.stays_in(row) else max(sizes[row] - self.small, 0)
            sums.append(sums[-1] + saves)
        self._row, self._stays = len(log), len(log.stays)
        return self

    def each(
        self, history: History, span: tuple[int, int], clock: Clock, keep: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return prompt and fresh tokens of a few calls, one by one."""
        log, sums, lo = self.log, self.sums, history.lo
        counts, upto, sizes, rows = log.counts[TOOL], log.upto, log.tokens.P, log.of_role[TOOL]
        off = history.head.tokens - sizes[lo]
        none = counts[lo]
        prompts: list[int] = []
        fresh: list[int] = []
        past = none
        for call in range(*span):
            gone = max(counts[upto[call]] - keep, none)
            size = off + log.tokens.C[call] - sums[gone] + sums[none]
            cached = prompts[-1] if prompts else 0
            if prompts and sums[gone] > sums[past]:
                first = rows[bisect_right(sums, sums[past]) - 1]  # the first that was not changed at the call before
                cached = min(log.fixed_at[call] + off + sizes[first] - sums[past] + sums[none], cached)
            prompts.append(size)
            fresh.append(size if clock.cold[call] else max(size - cached, 0))
            past = gone
        return np.array(prompts, np.int64), np.array(fresh, np.int64)

    def all(
        self, history: History, span: tuple[int, int], clock: Clock, keep: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return prompt and fresh tokens of many calls at once."""
        log, (start, stop), lo = self.log, span, history.lo
        sums = self._sums.upto(len(self.sums))
        none = log.counts[TOOL][lo]
        off = history.head.tokens - log.tokens.P[lo]
        saved = sums[np.maximum(self._shown.upto(stop)[start:] - keep, none)]
        off += int(sums[none])
        prompts = log.tokens.calls(start, stop) - saved
        prompts += off
        past = saved[:-1]
        at = (saved[1:] > past).nonzero()[0]
        done = past[at]
        first = sums.searchsorted(done, "right") - 1  # the first that was not changed at the call before
        ahead = self._before.upto(len(sums) - 1)[first] - done + self._fixed.upto(stop)[start + 1 :][at] + off
        fresh = prompts.copy()
        fresh[1:] -= prompts[:-1]
        fresh[1:][at] = prompts[1:][at] - np.minimum(ahead, prompts[at])
        np.maximum(fresh, 0, out=fresh)
        calls = clock.calls
        cold = [c - start for c in calls[bisect_left(calls, start) : bisect_left(calls, stop)]]
        if cold:
            fresh[cold] = prompts[cold]
        return prompts, fresh
