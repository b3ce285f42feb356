"""What the coming calls will be like under a pruning, if nothing is edited: worked out as far as is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.columns import ROLES
from ctxkit.policies.chain import applied
from ctxkit.policies.contents import is_empty
from ctxkit.policies.outlooks import Straight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.clock import Clock
    from ctxkit.policies.outlooks import Sent
    from ctxkit.tokens.counters import Room


NONE: NDArray[Any] = np.zeros(0, np.int64)


class Sampled(Straight):
    """With pruning: what the coming calls are sent is worked out as far as is asked; crossings are scans.

    A pruning that knows the bill of many calls is asked in pieces that double; of a plain one the
    view of each call is made, so none too many.

    `warm`: the same history was already sent at start - 1, so the first call's freshness needs no view to be made.
    `near`: within so many calls the next edit is likely (0: none is known of), so no more are worked out at first.
    """

    __slots__ = ("_clock", "_end", "_fresh", "_piece", "_prompts", "_pruning", "_start", "_stop", "_view", "_warm")

    def __init__(
        self,
        history: History,
        room: Room,
        pruning: Any,
        clock: Clock,
        span: tuple[int, int],
        *,
        warm: bool,
        sent: Sent | None = None,
        near: int = 0,
    ) -> None:
        super().__init__(history, room, sent)
        self._pruning, self._clock, self._warm = pruning, clock, warm
        self._start = self._end = span[0]
        self._stop = span[1]
        self._prompts = self._fresh = NONE
        known = hasattr(pruning, "traced_bill")
        self._piece = (min(max(near, 16), 256) if near else 256) if known else 0
        self._view: History | None = None
        """What a plain pruning made of the call before `_end`."""

    def _reach(self, call: int) -> None:
        while self._end < min(call, self._stop):
            end = min(self._end + self._piece if self._piece else call, self._stop)
            begin = self._end - (self._view is None and (self._end > self._start or self._warm))
            if self._piece:
                self._piece *= 2
                bill = self._pruning.traced_bill
                prompts, fresh = bill(self.history, begin, end, self._clock, self.room)
            else:
                span = (begin, end)
                prompts, fresh, self._view = fold(self._pruning, self.history, span, self._clock, self.room, self._view)
            prompts, fresh = prompts[self._end - begin :], fresh[self._end - begin :]
            self._end += len(prompts)
            if len(self._prompts):
                prompts, fresh = np.concatenate((self._prompts, prompts)), np.concatenate((self._fresh, fresh))
            self._prompts, self._fresh = prompts, fresh

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are those of the history before pruning."""
        if estimated:
            return super().above(limit, start, stop, estimated=True)
        call = start
        while call < stop:
            self._reach(call + 1)
            end = min(self._end, stop)
            at = call - self._start
            if end - call > 1:
                over = self._prompts[at : end - self._start] > limit
                at += int(over.argmax())
            if self._prompts[at] > limit:
                return self._start + at
            call = end
        return stop

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent was sent `limit` tokens or more since the last kept edit."""
        since, log = self.history.since, self.log
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self._start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self._start, stop):
            if call >= start and (max(sums.values(), default=0) if agent is None else sums.get(agent, 0)) >= limit:
                return call
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call)
        return stop

    def leaves(self, before: int, *, removes: bool = True) -> bool:
        """Return True where the pruning says that it changes none of the messages before a position, at any call.

        `removes`: it may leave others out; where it does, one that says nothing may go too, whatever its role.
        """
        changes = getattr(self._pruning, "changes", None)
        if changes is None or before > self.history.head.size or before > 8:
            return False
        gone = getattr(self._pruning, "removes", False)
        if gone and not removes:
            return False
        for p in range(before):
            item = self.history.item(p)
            if ROLES[item.role(self.log)] in changes or (gone and is_empty(item.message(self.log))):
                return False
        return True

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._reach(call + 1)
        return int(self._prompts[call - self._start])

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop."""
        self._reach(stop)
        return self._prompts[start - self._start : stop - self._start]

    def fresh(self, start: int, stop: int, clock: Clock) -> NDArray[Any]:  # noqa: ARG002
        """Return the tokens of these calls that are no cached prefix."""
        self._reach(stop)
        return self._fresh[start - self._start : stop - self._start]


def fold(  # noqa: PLR0917  what `traced_bill` takes
    pruning: Any, history: History, span: tuple[int, int], clock: Clock, room: Room, last: History | None = None
) -> tuple[NDArray[Any], NDArray[Any], History | None]:
    """Return prompt and fresh tokens of the calls of a span, and the last view; `last` is that of the call before."""
    start, stop = span
    prompts, fresh = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.int64)
    for call in range(start, stop):
        view = applied(pruning, history.at(call), room)
        size = view.tokens
        prompts[call - start] = size
        fresh[call - start] = size if clock.cold[call] or last is None else size - common(last, view)
        last = view
    return prompts, fresh, last


def common(a: History, b: History) -> int:
    """Return the tokens of the prefix that two views share, the fixed part included: what a cache may still hold."""
    n = min(len(a), len(b))
    if a.head is b.head and a.lo == b.lo:
        return b.fixed + b.before(n)
    edited = min(n, max(a.head.size, b.head.size))  # behind both heads are rows as they were said
    same = edited
    for name in ("rows", "keys"):  # a key stands for what a message says
        differ = a.front(name, same) != b.front(name, same)
        first = int(differ.argmax()) if same else 0
        if same and differ[first]:
            same = first
    if same < edited:
        return b.fixed + b.before(same)
    return b.fixed + b.before(n if edited == n or a.row(edited) == b.row(edited) else edited)
