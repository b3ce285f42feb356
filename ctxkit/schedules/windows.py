"""The old ones of a list that grows: all but the newest."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Window:
    """Rising numbers of which the first few are *old*; one may come or go anywhere."""

    __slots__ = ("found", "old")

    def __init__(self) -> None:
        self.found: list[int] = []
        self.old = 0
        """How many of them are old."""

    def __contains__(self, p: int) -> bool:
        i = bisect_left(self.found, p)
        return i < len(self.found) and self.found[i] == p

    def put(self, p: int) -> bool:
        """Take a number in; return True where it came among the old ones."""
        i = bisect_left(self.found, p)
        self.found.insert(i, p)
        self.old += i < self.old
        return i < self.old

    def out(self, p: int) -> None:
        """Leave a number out."""
        i = bisect_left(self.found, p)
        del self.found[i]
        self.old -= i < self.old

    def is_old(self, p: int) -> bool:
        """Return True for one of the old numbers."""
        return bisect_left(self.found, p) < self.old

    def settle(self, old: int) -> Iterator[tuple[int, bool]]:
        """Let so many be old; yield each that became so (True), or is so no more (False)."""
        aim = min(max(old, 0), len(self.found))
        while self.old < aim:
            yield self.found[self.old], True
            self.old += 1
        while self.old > aim:
            self.old -= 1
            yield self.found[self.old], False
