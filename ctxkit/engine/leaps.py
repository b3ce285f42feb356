"""Replay a whole log: in whole numbers where trigger and policy say themselves so, else by `advance`."""

from __future__ import annotations

from bisect import bisect_right
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

from ctxkit.engine.advances import advance
from ctxkit.engine.runs import Run
from ctxkit.policies.dues import level_of

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.policies.leaps import Leap
    from ctxkit.policies.rules import Rules

DONE = frozenset({"history", "cuts", "warned", "asked", "_noted"})
"""What a run did, beside its bill."""


def run(log: Log, rules: Rules, limit: int | None = None) -> Run:
    """Return the run of a whole log under rules; `limit` is the model's window where the rules name none."""
    made = getattr(rules.policy, "leap", None)
    if made is not None and "leap" in vars(type(rules.policy)) and log.tokens.rising and plain(rules):
        done = Leapt(log, rules, limit)
        level, leap = level_of(rules.trigger, log, done.room), made(log, done.room)
        if level is not None and leap is not None:
            done.leap(level, leap)
            return done
    return advance(Run(log, rules, limit), rules, log.calls)


def plain(rules: Rules) -> bool:
    """Return True where the bill follows from trigger and policy alone, and nothing of the user's is to be called."""
    if rules.pruning is not None or rules.guards or rules.on_compacted is not None or not rules.auto:
        return False
    return not rules.warnings or all(hasattr(warning, "first") for warning in rules.warnings)


class Leapt(Run):
    """A run whose bill was worked out alone; what was done is worked out by `advance` when it is first asked for.

    A contract test holds the two together: the marks of both are the same.
    """

    def _start(self) -> None:
        """Leave open what was done; nothing can fail or be held back."""
        self.held = []
        self._rows: list[int] = []
        """The first row that is kept as it was said, at each compaction."""
        self._lead = self._summary = 0

    def __getattr__(self, name: str) -> Any:
        if name not in DONE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        done = Run(self.log, self.rules, self.room.limit)
        done.room = self.room
        advance(done, self.rules, self.call)
        for each in DONE:
            self.__dict__.setdefault(each, getattr(done, each))
        return self.__dict__[name]

    def leap(self, level: float, leap: Leap) -> None:
        """Bill all calls: from one whose prompt is larger than `level` tokens to the next."""
        log, marks, level = self.log, self.billed.marks, max(level, leap.floor)
        level = floor(level) if isfinite(level) else level  # as good, and found in half the time
        sizes, sums, fixed = log.tokens.C, log.tokens.P, log.fixed_at
        call = lo = before = off = 0
        self._lead, self._summary, self.call = len(log.stays), leap.summary, log.calls
        front = sums[self._lead]
        while call < self.call:
            call = bisect_right(sizes, level - off, call)
            if call == self.call:
                break
            row, now = leap.step(lo, call, before)
            if row != lo:
                if call and not marks:
                    marks.append((0, 0, None))
                lo, before, off = row, now, now - sums[row]
                marks.append((call, off, front + fixed[call]))
                self._rows.append(row)
            call += 1
        if self.call and not marks:
            marks.append((0, 0, None))
        self.clock.sync()

    @property
    def untold(self) -> bool:
        """True until what was done was asked for; then the run may have gone on."""
        return "cuts" not in self.__dict__

    @property
    def shown_from(self) -> tuple[int, int]:
        """The first row that is shown as it was said, and how many of those before it stay: 0 and 0 without a cut."""
        return (self._rows[-1], self._lead) if self._rows else (0, 0)

    def places(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return the compactions in whole numbers, without making them.

        Of each: its call, tokens of the prompt without and with it, messages without and with it, and tokens of the
        summary (0: none was put), in the order of `metrics.size.Spot`.
        """
        log, marks = self.log, self.billed.marks
        sizes, upto, head, lo = log.tokens.C, log.upto, 0, 0
        shown = self._lead + (self._summary > 0)
        out, before = [], 0
        for row, (call, off, _) in zip(self._rows, marks[len(marks) - len(self._rows) :], strict=True):
            rows, size = upto[call], sizes[call]
            out.append((call, size + before, size + off, head + rows - lo, shown + rows - row, self._summary))
            head, lo, before = shown, row, off
        return out
