"""Role codes, running sums of sizes, and NumPy columns that only grow."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Image, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens.counters import count_call_chars

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    from ctxkit.session.messages import Message

ROLES = ("system", "user", "assistant", "tool", "summary")
"""The roles; a role column holds their places here."""
SYSTEM, USER, ASSISTANT, TOOL, SUMMARY = range(5)
ROLE_CODES: dict[str, int] = {name: code for code, name in enumerate(ROLES)}
IMAGE_CHARS = 4800
"""Characters that an image counts for, as in Pi's estimate."""


class SizeSums:
    """Sizes of the rows in one measure, with running sums over rows and over calls.

    `P[r]` is the size of all rows before `r`, `C[c]` that of the rows before call `c` with the
    call's fixed part, `Q[c]` what the calls before `c` were billed: the sum of their `C`, and what
    `owe` says. Sizes are whole and never negative, so `P` and `Q` never fall and can be searched by
    halves; so can `C` while it is `rising` (a fixed part may shrink).
    """

    __slots__ = ("C", "P", "Q", "_array", "owing", "rising", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.P: list[int] = [0]
        self.C: list[int] = []
        self.Q: list[int] = [0]
        self.rising = True
        self.owing = False
        """Calls were billed otherwise than they were known to be when they were sent."""
        self._array = GrowingColumn(lambda a, b: self.C[a:b], np.int64)

    def row(self, size: int) -> None:
        """Write the next row.

        Raises:
            BadArguments: the size is negative.
        """
        if size < 0:
            raise BadArguments(
                f"Row {len(self.sizes)} has {size} tokens; a message has none or more."
            )
        self.sizes.append(size)
        self.P.append(self.P[-1] + size)

    def call(self, upto: int, fixed: int = 0) -> None:
        """Write the next call: it is sent the rows before `upto`, and the fixed part."""
        size = self.P[upto] + fixed
        if self.C and size < self.C[-1]:
            self.rising = False
        self.C.append(size)
        self.Q.append(self.Q[-1] + size)

    def owe(self, tokens: int) -> None:
        """Bill the last call so many tokens more than it was known to have when it was sent."""
        if tokens:
            self.Q[-1] += tokens
            self.owing, self.rising = True, False

    def owed(self, start: int, stop: int) -> NDArray[Any] | int:
        """Return what the calls start..stop were billed beside `C`."""
        if not self.owing:
            return 0
        billed: NDArray[Any] = np.diff(np.array(self.Q[start : stop + 1], np.int64))
        billed -= self.calls(start, stop)
        return billed

    def above(self, limit: float, start: int, stop: int) -> int:
        """Return the first call in start..stop with more than `limit`, or `stop`."""
        if self.rising:
            return bisect_right(self.C, limit, start, stop)
        over = self._array.upto(stop)[start:stop] > limit
        return start + int(over.argmax()) if over.any() else stop

    def calls(self, start: int, stop: int) -> NDArray[Any]:
        """Return `C` of the calls start..stop as an array that must not be written to."""
        return self._array.upto(stop)[start:stop]


class GrowingColumn:
    """One value a row as a NumPy array, brought up to date when asked for: O(new rows)."""

    __slots__ = ("_array", "_done", "_make", "_type")

    def __init__(self, make: Callable[[int, int], Any], dtype: DTypeLike) -> None:
        self._make, self._type = make, dtype
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._done = 0

    def upto(self, n: int) -> NDArray[Any]:
        """Return the values of the first `n` rows, not to be written to."""
        if n > self._done:
            if n > len(self._array):
                grown = np.empty(max(n, 2 * self._done), self._type)
                grown[: self._done] = self._array[: self._done]
                self._array = grown
            self._array.flags.writeable = True
            self._array[self._done : n] = self._make(self._done, n)
            # a policy that writes into a column would change the log for all
            self._array.flags.writeable = False
            self._done = n
        return self._array[:n]

    def forget(self, row: int) -> None:
        """Make the values from `row` on anew when they are next asked for."""
        if row < self._done:
            self._done, self._array = row, self._array[:row].copy()


def count_chars(message: Message) -> int:
    """Return the characters of text, thinking, tool names, compact arguments; an image: 4,800."""
    total = 0
    for part in message.parts:
        if isinstance(part, Text):
            total += len(part.text)
        elif isinstance(part, Thinking):
            total += len(part.text) or part.hidden
        elif isinstance(part, ToolCall):
            total += count_call_chars(part)
        elif isinstance(part, Image):
            total += IMAGE_CHARS
        elif isinstance(part, SizeOnly):
            total += part.chars if part.chars is not None else 4 * (part.tokens or 0)
    return total
