"""What a run was shown between compactions: the history in force, and what is pruned of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.history import History
from ctxkit.policies.chain import applied
from ctxkit.policies.scheduled import split
from ctxkit.schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.engine.marks import Kept
    from ctxkit.engine.replayed import Run


class Stretch(NamedTuple):
    """The calls from one compaction to the next."""

    start: int
    stop: int
    history: History
    """What is in force at its first call, before any pruning."""
    cut: Kept | None
    """The compaction that it begins with; None: the run's beginning."""
    schedule: Schedule | None
    """What the pruning changes when, for all its calls; None without a pruning."""
    rest: tuple[Any, ...]
    """Parts of the pruning behind it that say no schedule: they are asked call by call."""

    def left(self, call: int, room: Any) -> History:
        """Return what a call of it was sent."""
        view = self.history.at(call) if self.schedule is None else self.schedule.left(call)
        for part in self.rest:
            view = applied(part, view, room)
        return view


def stretches(run: Run) -> Iterator[Stretch]:
    """Yield the stretches of a run; of compactions before one call only the last has calls."""
    known, rest = split(run.rules.pruning)
    begin: list[tuple[int, History, Kept | None]] = [
        (run.begin, History.start(run.log, run.begin), None)
    ]
    begin += [(cut.call, cut.new, cut) for cut in run.cuts]
    stops = [*(call for call, _, _ in begin[1:]), run.call]
    for (start, history, cut), end in zip(begin, stops, strict=True):
        stop = max(end, start)
        if run.rules.pruning is None:
            yield Stretch(start, stop, history, cut, None, ())
            continue
        schedule = Schedule(history.at(start), known, run.room)
        if stop > start:
            schedule.extend(stop)
        yield Stretch(start, stop, history, cut, schedule, rest)
