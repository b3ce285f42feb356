"""The changes that a pruning makes over the calls of a log, as columns; prompts and fresh tokens are sums over them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.history import History
from ctxkit.history.columns import Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.history.clock import Clock

    Bill = tuple[NDArray[Any], NDArray[Any]]
    Own = slice | NDArray[Any]
    """Which changes of a table: the first ones, or those at some places."""

_FEW = 16
"""Changes that are set right one by one."""
_NEAR = 64
"""Changes that are looked through one by one: arrays cost more than they save."""
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
    settled: NDArray[Any]
    """The last call at which anything before each position changes, and of all; 0 where nothing ever does."""
    done: dict[int, int]
    """Sum of the changes up to the call of a change to all positions before its own, for those asked for so far."""
    lists: tuple[list[int], list[int], list[int], list[bool]]
    """Calls, positions, deltas and breaks again, to look at one by one."""
    whole: dict[float, Bill]
    """The bill of all calls, by how long a cache lives."""

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
            ahead,
            {},
            (calls.tolist(), at.tolist(), deltas.tolist(), breaks.astype(bool).tolist()),
            {},
        )

    def bill(self, history: History, span: tuple[int, int], clock: Clock, first: int) -> Bill:
        """Return prompt and fresh tokens of the calls of a span.

        Behind a cut the calls are those of the whole log, less what is no longer shown: the prompts are smaller by
        that, and what is fresh in them is the same, but for the few changes that messages in front of the cut had
        still before them.

        Args:
            history: the history in force.
            span: first call, and one past the last.
            clock: tells at which calls no cache is left.
            first: the position in the table at which the history's untouched tail begins, where the table is the whole
                log's; -1: its positions are the history's.
        """
        start, stop = span
        log = history.log
        late = self._late(first, start) if first > 0 else {}
        if first < 0 or len(late) > _FEW:
            return self._worked_out(history, span, clock, first)
        whole = self.whole.get(clock.life)
        if whole is None or len(whole[0]) < stop:
            whole = self.whole[clock.life] = self._worked_out(History.start(log), (0, log.calls), clock, 0)
        less = history.head.tokens - log.tokens.P[history.lo] - int(self.saved[first])
        prompts, fresh = whole[0][start:stop] + less, whole[1][start:stop].copy()
        self._set_right((prompts, fresh), history, start, first, late)
        _all_fresh(prompts, fresh, clock, span)
        return prompts, fresh

    def _late(self, first: int, start: int) -> dict[int, int]:
        """Return the calls after `start` at which positions before `first` still change, and by how much."""
        calls, at, deltas, _ = self.lists
        settled = int(self.settled[first])
        a, b = bisect_right(calls, start), bisect_right(calls, max(settled, start))
        near = b - a < _NEAR
        found = range(a, b) if near else (a + np.flatnonzero(self.at[a:b] < first)).tolist()
        late: dict[int, int] = {}
        for i in found:
            if at[i] < first:
                late[calls[i]] = late.get(calls[i], 0) + deltas[i]
        return late

    def _set_right(self, bill: Bill, history: History, start: int, first: int, late: dict[int, int]) -> None:
        """Take late changes to what is no longer shown back out of the bill of the whole log."""
        (prompts, fresh), fixed, later = bill, history.log.fixed_at, 0
        for call, delta in late.items():
            prompts[: call - start] += delta
        for call in reversed(late):
            at = call - start
            if at < len(prompts):
                cached = self._cached(history, call, first, later)
                if cached is None:
                    cached = int(prompts[at - 1]) - fixed[call - 1]
                fresh[at] = int(prompts[at]) - fixed[call] - cached
            later += late[call]

    def _cached(self, history: History, call: int, first: int, later: int) -> int | None:
        """Return the tokens before the first message of a tail that changes at a call; None where none does.

        `later`: sum of the changes after the call to what stands before the tail.
        """
        calls, at, _, breaks = self.lists
        i = bisect_left(calls, call)
        while i < len(calls) and calls[i] == call and not (breaks[i] and at[i] >= first):
            i += 1
        if i == len(calls) or calls[i] > call:
            return None
        if self.in_order:
            done = int(self.saved[at[i]] - self.saved[first])
        else:
            done = self._done(i) - int(self.saved[first]) + later
        return history.head.tokens + int(self.before[at[i]] - self.before[first]) + done

    def _done(self, i: int) -> int:
        """Return the sum of the changes up to the call of one to all positions before its own."""
        if i not in self.done:
            self._all_done(slice(0, len(self.calls)), np.array([i]))
        return self.done[i]

    def _worked_out(self, history: History, span: tuple[int, int], clock: Clock, first: int) -> Bill:
        start, stop = span
        log, n = history.log, stop - start
        prompts = log.tokens.calls(start, stop) + (history.head.tokens - log.tokens.P[history.lo])
        own = self._own(log.upto, stop, first) if len(self.calls) else None
        if own is not None:
            calls = np.maximum(self.calls[own] - start, 0)
            prompts += np.bincount(calls, weights=self.deltas[own], minlength=n).cumsum().astype(np.int64)
        fresh = prompts.copy()
        if n > 1:
            messages = prompts - fixed_parts(log, stop)[start:]
            cached = messages[:-1].copy()
            if own is not None:
                self._cut_short(cached, own, history, start, first)
            fresh[1:] = messages[1:] - cached
            _all_fresh(prompts, fresh, clock, span)
        return prompts, fresh

    def _cut_short(self, cached: NDArray[Any], own: Own, history: History, start: int, first: int) -> None:
        """Let what is cached before the calls `start + 1`... end where the first message is that changes there."""
        at = np.flatnonzero(self.breaks[own] & (self.calls[own] > start))
        new = at if isinstance(own, slice) else own[at]
        if not len(new):
            return
        of = self.calls[new]
        lead = np.concatenate(([True], of[1:] > of[:-1]))  # the first of each call: the others stand behind it
        new, c = new[lead], of[lead]
        q, base = self.at[new], max(first, 0)
        ahead = history.head.tokens - int(self.before[base]) if first >= 0 else 0
        done = self.saved[q] - self.saved[base] if self.in_order else self._all_done(own, new)
        cached[c - start - 1] = ahead + self.before[q] + done

    def _own(self, upto: list[int], stop: int, first: int) -> Own:
        """Return which changes come before the call `stop`; of a log's table only those of the tail."""
        b = int(np.searchsorted(self.calls, stop))
        if first <= 0:
            return slice(0, b)
        a = int(np.searchsorted(self.calls, bisect_right(upto, first)))
        return a + np.flatnonzero(self.at[a:b] >= first)

    def _all_done(self, own: Own, new: NDArray[Any]) -> NDArray[Any]:
        """Return for some changes the sum of those of `own` up to their call to the positions before theirs."""
        done = _before(self.calls[own], self.at[own], self.deltas[own], self.at[new], self.calls[new])
        if isinstance(own, slice):  # none is left out
            self.done.update(zip(new.tolist(), done.tolist(), strict=True))
        return done


def _all_fresh(prompts: NDArray[Any], fresh: NDArray[Any], clock: Clock, span: tuple[int, int]) -> None:
    """Let all be fresh that is sent at the calls of a span that found no cache."""
    start, stop = span
    cold = clock.calls[bisect_left(clock.calls, start) : bisect_left(clock.calls, stop)]
    if cold:
        at = np.array(cold) - start
        fresh[at] = prompts[at]


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
