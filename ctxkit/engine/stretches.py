"""What a run was shown between compactions: the history in force, and what is pruned of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.history import History
from ctxkit.policies.chain import applied
from ctxkit.policies.scheduled import split
from ctxkit.schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.engine.marks import Kept
    from ctxkit.engine.sent import SentRun
    from ctxkit.schedules.layers import Changed


class Stretch:
    """The calls from one compaction to the next.

    Args:
        run: the run that it is a part of.
        start: its first call.
        stop: one past its last call.
        history: what is in force at its first call, before any pruning.
        cut: the compaction that it begins with; None: the run's beginning.
    """

    def __init__(
        self, run: SentRun, start: int, stop: int, history: History, cut: Kept | None
    ) -> None:
        self.start, self.stop, self.history, self.cut = start, stop, history, cut
        self._run = run
        self._known, self.rest = split(run.rules.pruning)
        """`rest`: parts of the pruning behind the first that says no schedule: they are asked call
        by call.
        """

    @cached_property
    def schedule(self) -> Schedule | None:
        """What the other parts change when; None without a pruning."""
        if self._run.rules.pruning is None:
            return None
        schedule = Schedule(self.history.at(self.start), self._known, self._run.room)
        return schedule.extend(self._end) if self._end > self.start else schedule

    @property
    def _end(self) -> int:
        """One past the last call that is worked out: behind a run's last one, that which comes."""
        return self.stop + (self.stop == self._run.call)

    def changes(self) -> Iterator[Changed]:
        """Yield what they change at its calls, in order."""
        if self.schedule is not None and self.stop > self.start:
            yield from (e for e in self.schedule.top.events if e.call < self.stop)

    def left(self, call: int) -> History:
        """Return what a call was sent; behind the last one, what would be if nothing were
        compacted.
        """
        view = self.history.at(call) if self.schedule is None else self.schedule.left(call)
        for part in self.rest:
            view = applied(part, view, self._run.room)
        return view


def stretches(run: SentRun) -> Iterator[Stretch]:
    """Yield the stretches of a run; of compactions before one call only the last has calls."""
    begin: list[tuple[int, History, Kept | None]] = [
        (run.begin, History.start(run.log, run.begin), None)
    ]
    begin += [(cut.call, cut.new, cut) for cut in run.cuts]
    stops = [*(call for call, _, _ in begin[1:]), run.call]
    for (start, history, cut), end in zip(begin, stops, strict=True):
        yield Stretch(run, start, max(end, start), history, cut)
