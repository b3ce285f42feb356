"""What a run was shown between compactions: the history in force, and what is pruned of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from ctxkit.history import History
from ctxkit.policies.chain import applied
from ctxkit.policies.scheduled import split
from ctxkit.schedules import Schedule
from ctxkit.schedules.layers import since

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.engine.marks import Kept
    from ctxkit.history import Log
    from ctxkit.policies.chain import Part
    from ctxkit.policies.rules import Rules
    from ctxkit.schedules.layers import Changed
    from ctxkit.tokens.counters import Room


class PrunedHistory:
    """What a pruning leaves of a history, from its call on, or an earlier one that a part goes by.

    Args:
        history: what is in force, before any pruning.
        pruning: a part, or a chain of parts; None: all is left.
        room: the limit, the reserve and the counter.
    """

    def __init__(self, history: History, pruning: Part | None, room: Room) -> None:
        known, self.rest = split(pruning)
        """`rest`: parts behind the first that says no schedule: they are asked call by call."""
        first = min((part.begin(history) for part in known), default=history.call)
        self.schedule = Schedule(history.at(first), known, room)
        """What the other parts change when."""
        self._room = room

    def left(self, call: int) -> History:
        """Return what a call is sent."""
        view = self.schedule.left(call)
        for part in self.rest:
            view = applied(part, view, self._room)
        return view


class SentRun(Protocol):
    """What a run tells of itself."""

    log: Log
    rules: Rules
    room: Room
    cuts: list[Kept]
    begin: int
    call: int

    def pruned(self, call: int) -> PrunedHistory:
        """Return what is left of the history in force at a call."""


class Stretch(NamedTuple):
    """The calls from one compaction to the next."""

    run: SentRun
    start: int
    """Its first call."""
    stop: int
    """One past its last call."""
    history: History
    """What is in force, before any pruning."""
    cut: Kept | None
    """The compaction that it begins with; None: the run's beginning."""

    @property
    def rest(self) -> tuple[Part, ...]:
        """Parts of the pruning that are asked call by call."""
        return split(self.run.rules.pruning)[1]

    @property
    def schedule(self) -> Schedule | None:
        """What the other parts change when; None without a pruning."""
        if self.run.rules.pruning is None:
            return None
        return self.run.pruned(self.start).schedule.extend(self.stop)

    def changes(self) -> Iterator[Changed]:
        """Yield what they change at its calls, in order."""
        if self.schedule is not None and self.stop > self.start:
            yield from since(self.schedule.top.events, self.start, self.stop)

    def left(self, call: int) -> History:
        """Return what one of its calls was sent."""
        return self.run.pruned(call).left(call)


def stretches(run: SentRun) -> Iterator[Stretch]:
    """Yield the stretches of a run; of compactions before one call only the last has calls."""
    first = History.start(run.log, run.begin)
    begin: list[tuple[int, History, Kept | None]] = [(run.begin, first, None)]
    begin += [(cut.call, cut.new, cut) for cut in run.cuts]
    stops = [*(call for call, _, _ in begin[1:]), run.call]
    for (start, history, cut), end in zip(begin, stops, strict=True):
        yield Stretch(run, start, max(end, start), history, cut)
