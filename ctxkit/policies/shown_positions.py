"""The messages that the parts before leave, in order, as they come and go."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ctxkit.schedules import OldFirst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.schedules import ScheduleView


class ShownPositions(OldFirst):
    """The positions that are shown to a part, rising; an *index* counts them from 0."""

    __slots__ = ()

    def follow(self, came: Iterable[int], went: Iterable[int]) -> None:
        """Take in what became of them at a call."""
        for p in went:
            self.out(p)
        for p in came:
            self.put(p)

    def index(self, p: int) -> int:
        """Return the index of the first position at or after one."""
        return bisect_left(self.found, p)

    def safe(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the first index from one on before which a cut is safe, or how many are shown."""
        while i < len(self.found) and not view.is_safe(self.found[i], call):
            i += 1
        return min(i, len(self.found))

    def safe_before(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the last index, up to one, before which a cut is safe; 0 where there is none."""
        while 0 < i < len(self.found) and not view.is_safe(self.found[i], call):
            i -= 1
        return i
