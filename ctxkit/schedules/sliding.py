"""The old ones of a list that grows: all but the newest."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class OldFirst:
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

    def out(self, p: int) -> bool:
        """Leave a number out; return True where it was one of the old ones."""
        i = bisect_left(self.found, p)
        was = i < self.old
        del self.found[i]
        self.old -= was
        return was

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


class Roll:
    """Texts in the order of their numbers; a look at them as they are now stays as it is for good.

    One that comes at the end costs nothing; any other change copies the list.
    """

    __slots__ = ("_numbers", "_texts")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._texts: list[str] = []

    def put(self, p: int, text: str) -> None:
        """Take in a text, or put another one in its place."""
        i = bisect_left(self._numbers, p)
        known = i < len(self._numbers) and self._numbers[i] == p
        if i == len(self._numbers):
            self._texts.append(text)
        elif not known or self._texts[i] != text:
            self._texts = [*self._texts[:i], text, *self._texts[i + known :]]
        if not known:
            self._numbers.insert(i, p)

    def out(self, p: int) -> None:
        """Leave a text out, if it is there."""
        i = bisect_left(self._numbers, p)
        if i < len(self._numbers) and self._numbers[i] == p:
            del self._numbers[i]
            self._texts = [*self._texts[:i], *self._texts[i + 1 :]]

    def now(self) -> tuple[list[str], int]:
        """Return a list whose first so many texts are those of now; what follows them is not."""
        return self._texts, len(self._texts)
