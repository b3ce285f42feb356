"""What the coming calls will be sent under a pruning if nothing is edited: as far as is asked."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import PastPrompts, Prefixes, contents
from ctxkit.engine.stretches import PrunedHistory
from ctxkit.engine.tracks import Tracks
from ctxkit.history import History
from ctxkit.policies.chain import in_a_row
from ctxkit.policies.forecasts import Straight
from ctxkit.policies.hinges import written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.history.clock import Clock
    from ctxkit.policies.chain import Part
    from ctxkit.policies.forecasts import Sent
    from ctxkit.tokens.counters import Room

_FIRST = 16
"""Calls that are worked out at once, ahead of what is asked; later half of those that are."""
_KEPT = 16
"""Prunings of which a log remembers what they made of it."""
_PLAIN = (str, int, float, bool, type(None))
"""Types of settings that hold no more than their equality tells, as do tuples of them."""


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
        past: the prompts before the first one; None: there are none, or they are not known.
    """

    __slots__ = ("_bill", "_prompts", "_shared", "_sound", "called", "pruned", "start")

    def __init__(
        self,
        history: History,
        room: Room,
        pruning: Part,
        clock: Clock,
        start: int,
        *,
        sent: Sent | None = None,
        past: PastPrompts | None = None,
    ) -> None:
        super().__init__(history, room, sent)
        self.pruned = PrunedHistory(history.at(start), pruning, room)
        self.called = bool(self.pruned.rest)
        """True where each call is asked by itself."""
        bill = _Called if self.called else Tracks
        self._bill: _Called | Tracks = bill(self.pruned, start, clock, past)
        self.start, self._sound = start, True
        self._prompts: list[int] = []
        self._shared: list[int] = []

    @property
    def end(self) -> int:
        """One past the last call that is worked out."""
        return self.start + len(self._prompts)

    def _reach(self, call: int, stop: int) -> None:
        """Work out all before a call; where schedules say it some more, but none from `stop`."""
        while self.end < call:
            ahead = min(self.end + max(len(self._prompts) // 2, _FIRST), stop)
            self._sound = False
            prompts, shared = self._bill.extend(call, max(ahead, call))
            self._sound = True
            self._prompts += prompts
            self._shared += shared

    # -- searches of triggers ----------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are not pruned."""
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
        since, log, tokens = self.history.since, self.log, self.log.tokens
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self.start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self.start, stop):
            most = max(sums.values(), default=0) if agent is None else sums.get(agent, 0)
            if call >= start and most >= limit:
                return call
            owed = tokens.Q[call + 1] - tokens.Q[call] - tokens.C[call]
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call) + owed
        return stop

    # -- billing -----------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._reach(call + 1, call + 1)
        return self._prompts[call - self.start]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop; of those before its own, as billed."""
        self._reach(stop, stop)
        before = min(stop, self.start)
        past = list(self.sent(start, before)) if self.sent and start < before else []
        own = self._prompts[max(start - self.start, 0) : max(stop - self.start, 0)]
        return np.array([*past, *own], np.int64)

    def shared(self, start: int, stop: int) -> NDArray[Any]:
        """Return the tokens that each of these calls shares at its front with prompts before it."""
        self._reach(stop, stop)
        return np.array(self._shared[start - self.start : stop - self.start], np.int64)

    # -- what was sent -----------------------------------------------------------------------------

    def past(self, call: int) -> PastPrompts:
        """Return the prompts before a call, for what comes after an edit there."""
        return PastPrompts(self._bill.prefixes.upto(call), self._bill.sequence(call - 1))

    def looks_at(self, history: History) -> bool:
        """Return True where it tells of the coming calls of a history, nothing edited since."""
        own = self.history
        same = own.log is history.log and own.head is history.head and own.lo == history.lo
        return same and self.sound

    @property
    def sound(self) -> bool:
        """False where an error or an interrupt left it half worked out: it must be made anew."""
        return self._sound and self.pruned.schedule.sound


def whole(log: Log, room: Room, pruning: Part, clock: Clock) -> Pruned:
    """Return what all calls of a log are sent without an edit; kept with the log for a while."""
    known: dict[Any, Pruned] = log.memo.setdefault("pruned", {})
    parts = tuple(_identity(part) for part in in_a_row(pruning))
    key = parts, room.limit, room.reserve, clock.life, len(log), log.calls
    found = known.get(key)
    if found is None or not found.sound:
        while len(known) >= _KEPT:
            del known[next(iter(known))]
        found = known[key] = Pruned(History.start(log), room, pruning, clock, 0)
    return found


def _identity(part: Part) -> Any:
    """Return what is equal for parts that do the same: the kit's own are told apart by their
    settings, where these are plain values and all that an instance holds.

    Any other may hold more than its equality tells (a field that is not compared, a method of its
    own), so it equals itself alone; it is kept with what was made of it.
    """
    kind: Any = type(part)
    settings = vars(part)
    own = kind.__module__.startswith("ctxkit.") and is_dataclass(kind)
    if own and settings.keys() == {f.name for f in fields(kind)} and _plain(*settings.values()):
        return kind, tuple(settings.items())
    return id(written(part))


def _plain(*values: object) -> bool:
    return all(type(v) in _PLAIN or (type(v) is tuple and _plain(*v)) for v in values)


class _Called:
    """The bill where a part must be asked call by call, behind those that say a schedule."""

    def __init__(
        self, pruned: PrunedHistory, start: int, clock: Clock, past: PastPrompts | None
    ) -> None:
        self._pruned, self._call = pruned, start
        self.prefixes = past.prefixes if past else Prefixes(clock)
        self._last = past.last if past else None

    def extend(self, stop: int, ahead: int) -> tuple[list[int], list[int]]:
        self._pruned.schedule.extend(ahead)
        out: tuple[list[int], list[int]] = ([], [])
        for call in range(self._call, stop):
            view = self._pruned.left(call)
            same = self._same(call, contents(view))
            out[0].append(view.tokens)
            out[1].append(0 if same is None else view.log.fixed_before(call) + view.before(same))
        self._call = max(stop, self._call)
        return out

    def _same(self, call: int, now: NDArray[Any]) -> int | None:
        """Return how many first messages a prompt shares, as `Tracks` does; None: for the first."""
        last, self._last = self._last, now
        return None if last is None else self.prefixes.shared(call, last, now)

    def sequence(self, call: int) -> NDArray[Any]:
        return contents(self._pruned.left(call))
