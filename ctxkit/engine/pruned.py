"""What the coming calls will be sent under a pruning if nothing is edited: as far as is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import Prefixes, alike, contents
from ctxkit.engine.tracks import Tracks
from ctxkit.policies.chain import applied
from ctxkit.policies.outlooks import Straight
from ctxkit.policies.scheduled import says_when
from ctxkit.schedules import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.clock import Clock
    from ctxkit.policies.outlooks import Sent
    from ctxkit.tokens.counters import Room

_FIRST, _MOST = 16, 4096
"""Calls that are worked out at once: first so many, then twice as many each time, up to this."""


class Pruned(Straight):
    """Prompts and what of each was sent before, read off the schedules of the parts.

    Parts that say no schedule, and all parts behind such a one, are asked call by call.

    Args:
        history: what is in force before any pruning.
        room: the limit, the reserve and the counter.
        pruning: a part, or a chain of parts.
        clock: tells at which calls no cache is left.
        start: the first call that is asked about.
        sent: what was billed for the calls before, from the last kept edit on.
        near: within so many calls the next edit is likely (0: none is known of).
    """

    __slots__ = ("_bill", "_fresh", "_piece", "_prompts", "called", "start")

    def __init__(
        self,
        history: History,
        room: Room,
        pruning: Any,
        clock: Clock,
        start: int,
        *,
        sent: Sent | None = None,
        near: int = 0,
    ) -> None:
        super().__init__(history, room, sent)
        parts = getattr(pruning, "parts", (pruning,))
        known = next((n for n, part in enumerate(parts) if not says_when(part)), len(parts))
        self.called = known < len(parts)
        """True where each call is asked by itself."""
        made = _Called if self.called else _Scheduled
        self._bill = made(history.at(start), (parts[:known], parts[known:]), room, clock)
        self.start = start
        self._prompts: list[int] = []
        self._fresh: list[int] = []
        self._piece = max(near, _FIRST)

    @property
    def end(self) -> int:
        """One past the last call that is worked out."""
        return self.start + len(self._prompts)

    def _reach(self, call: int, stop: int) -> None:
        """Work out all before a call; where schedules say it, some more, but none from `stop` on."""
        while self.end < call:
            end = call if self.called else min(max(self.end + self._piece, call), stop)
            prompts, fresh = self._bill.extend(end)
            self._prompts += prompts
            self._fresh += fresh
            self._piece = min(2 * self._piece, _MOST)

    # -- searches of triggers ----------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are those before pruning."""
        if estimated:
            return super().above(limit, start, stop, estimated=True)
        for call in range(start, stop):
            if call >= self.end:
                self._reach(call + 1, stop)
            if self._prompts[call - self.start] > limit:
                return call
        return stop

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent was sent so much since the last kept edit."""
        since, log = self.history.since, self.log
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self.start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self.start, stop):
            most = max(sums.values(), default=0) if agent is None else sums.get(agent, 0)
            if call >= start and most >= limit:
                return call
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call)
        return stop

    # -- billing -----------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._reach(call + 1, call + 1)
        return self._prompts[call - self.start]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop."""
        self._reach(stop, stop)
        return np.array(self._prompts[start - self.start : stop - self.start], np.int64)

    def fresh(self, start: int, stop: int) -> NDArray[Any]:
        """Return the tokens of these calls that no cache held; of the first call of all: all."""
        self._reach(stop, stop)
        return np.array(self._fresh[start - self.start : stop - self.start], np.int64)

    # -- what was sent -----------------------------------------------------------------------------

    def left(self, call: int) -> History:
        """Return what a call is sent."""
        return self._bill.left(call)

    def looks_at(self, history: History) -> bool:
        """Return True where it tells of the coming calls of a history, nothing edited since."""
        own = self.history
        return own.log is history.log and own.head is history.head and own.lo == history.lo


class _Scheduled:
    """The bill of parts that all say a schedule."""

    def __init__(self, history: History, parts: Any, room: Room, clock: Clock) -> None:
        self._schedule = Schedule(history, parts[0], room)
        self._tracks = Tracks(self._schedule, clock)

    def extend(self, stop: int) -> tuple[list[int], list[int]]:
        self._schedule.extend(stop)
        return self._tracks.extend()

    def left(self, call: int) -> History:
        return self._schedule.left(call)


class _Called:
    """The bill where a part must be asked call by call, behind those that say a schedule."""

    def __init__(self, history: History, parts: Any, room: Room, clock: Clock) -> None:
        known, self._rest = parts
        self._schedule = Schedule(history, known, room)
        self._room, self._clock, self._call = room, clock, history.call
        self._prefixes = Prefixes(clock)
        self._last: NDArray[Any] | None = None

    def extend(self, stop: int) -> tuple[list[int], list[int]]:
        out: tuple[list[int], list[int]] = ([], [])
        for call in range(self._call, stop):
            view = self.left(call)
            now, last, size = contents(view), self._last, view.tokens
            shared = 0
            if last is None or self._clock.cold[call]:
                self._prefixes.forget()
            else:
                same = alike(last, now)
                if same < len(last):
                    same = self._prefixes.shared(call, same, last, now)
                shared = view.fixed + view.before(same)
            out[0].append(size)
            out[1].append(size - shared)
            self._last = now
        self._call = max(stop, self._call)
        return out

    def left(self, call: int) -> History:
        view = self._schedule.left(call)
        for part in self._rest:
            view = applied(part, view, self._room)
        return view
