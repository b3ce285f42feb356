"""NumPy columns and running sums of sizes that only grow, and the number codes of roles."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Attachment, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens.message_token_counting import count_call_chars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import DTypeLike, NDArray

    from ctxkit.session.messages import Message


ROLES = ("system", "user", "assistant", "tool", "summary")
"""Roles; a role code is the index of a role here."""
SYSTEM, USER, ASSISTANT, TOOL, SUMMARY = range(5)
ROLE_CODES: dict[str, int] = {name: code for code, name in enumerate(ROLES)}
IMAGE_CHARS = 4800
"""Characters that an image counts as (Pi's estimate)."""


class RowAndCallSums:
    """Sizes of the rows of a log in one measure, with running sums over rows and over calls.

    - `P[r]`: size of all rows before row `r` (row sums).
    - `C[c]`: size of the prompt of call `c`: all rows before it, and the call's fixed part.
    - `Q[c]`: billed size of all calls before `c`: the sum of their `C`, and extra billed tokens.
    - `peaks[c]`: size of the largest prompt of the calls up to `c`.

    Sizes are whole numbers of 0 or more, so `P` and `Q` never fall and can be bisected, and so can
    `peaks`. While `C` is `rising` (the fixed part of a call can shrink), `C` and `peaks` are equal.
    """

    __slots__ = ("C", "P", "Q", "_array", "owing", "peaks", "rising", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.P: list[int] = [0]
        self.C: list[int] = []
        self.peaks: list[int] = []
        self.Q: list[int] = [0]
        self.rising = True
        self.owing = False
        """True where a call was billed more tokens than its prompt was known to have."""
        self._array = LazyColumn(lambda a, b: self.C[a:b], np.int64)

    def append_row(self, size: int) -> None:
        """Append the size of the next row.

        Raises:
            BadArguments: the size is negative.
        """
        if size < 0:
            raise BadArguments(f"Row {len(self.sizes)} has {size} tokens: give 0 or more.")
        self.sizes.append(size)
        self.P.append(self.P[-1] + size)

    def append_call(self, upto: int, fixed: int = 0) -> None:
        """Append the next call: its prompt holds the rows before `upto`, and the fixed part.

        Args:
            upto: one past the last row that the prompt holds.
            fixed: tokens of the fixed part.
        """
        size = self.P[upto] + fixed
        if self.C and size < self.C[-1]:
            self.rising = False
        self.C.append(size)
        self.peaks.append(max(size, self.peaks[-1]) if self.peaks else size)
        self.Q.append(self.Q[-1] + size)

    def bill_extra(self, tokens: int) -> None:
        """Bill the last call `tokens` more than its prompt was known to have."""
        if tokens:
            self.Q[-1] += tokens
            self.owing, self.rising = True, False

    def with_call_changes(self, changes: Sequence[int]) -> RowAndCallSums:
        """Return the sums with prompts changed by so many tokens; the sums over rows are shared.

        Args:
            changes: tokens to add to the prompt of each call.
        """
        other = RowAndCallSums()
        other.sizes, other.P, other.owing = self.sizes, self.P, self.owing
        other.C = [size + n for size, n in zip(self.C, changes, strict=True)]
        other.peaks = list(accumulate(other.C, max))
        other.Q = [
            total + n for total, n in zip(self.Q, accumulate(changes, initial=0), strict=True)
        ]
        other.rising = not self.owing and all(a <= b for a, b in pairwise(other.C))
        return other

    def get_extra_billed(self, start: int, stop: int) -> NDArray[Any] | int:
        """Return the tokens billed for the calls start..stop in addition to `C`.

        Args:
            start: first call, from 0.
            stop: one past the last call.

        Returns:
            One number per call; 0 where no call of the log was billed more than `C`.
        """
        if not self.owing:
            return 0
        # The difference of the running sums is what each call was billed.
        billed: NDArray[Any] = np.diff(np.array(self.Q[start : stop + 1], np.int64))
        billed -= self.calls(start, stop)
        return billed

    def above(self, limit: float, start: int, stop: int) -> int:
        """Return the first call in start..stop with a prompt above `limit`, or `stop`.

        Args:
            limit: size of a prompt that is still allowed.
            start: first call, from 0.
            stop: one past the last call.
        """
        first = bisect_right(self.peaks, limit, start, stop)
        if first > start or start >= stop or self.C[start] > limit:
            return first  # no prompt before it is larger, so the peak is its own
        # A prompt before `start` is larger. The next call above the limit is mostly near, so search
        # ahead in steps that grow, not all calls at once.
        sizes, step = self._array.upto(stop), 64
        while start < stop:
            is_above = sizes[start : min(start + step, stop)] > limit
            first = int(is_above.argmax())
            if is_above[first]:
                return start + first
            start, step = start + step, 2 * step
        return stop

    def calls(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt sizes `C` of the calls start..stop as a read-only array.

        Args:
            start: first call, from 0.
            stop: one past the last call.
        """
        return self._array.upto(stop)[start:stop]


class LazyColumn:
    """A NumPy column that grows with a list of rows; an access costs O(new rows)."""

    __slots__ = ("_array", "_filled", "_make", "_type")

    def __init__(self, make: Callable[[int, int], Any], dtype: DTypeLike) -> None:
        self._make, self._type = make, dtype
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._filled = 0

    def upto(self, n: int) -> NDArray[Any]:
        """Return the values of the first `n` rows as a read-only array."""
        if n > self._filled:
            if n > len(self._array):
                larger = np.empty(max(n, 2 * self._filled), self._type)
                larger[: self._filled] = self._array[: self._filled]
                self._array = larger
            # Only the new rows are computed; the array doubles, so appending is O(1) amortised.
            self._array.flags.writeable = True
            self._array[self._filled : n] = self._make(self._filled, n)
            # read-only: a policy that writes into a column would change the log for all others
            self._array.flags.writeable = False
            self._filled = n
        return self._array[:n]

    def forget(self, row: int) -> None:
        """Recompute the values from `row` on at the next access."""
        if row < self._filled:
            self._filled, self._array = row, self._array[:row].copy()


def count_chars(message: Message) -> int:
    """Return the characters of text, reasoning, tool names and arguments; 4,800 per image.

    Args:
        message: a message of any role.

    Returns:
        Characters, as `History.chars` has them for each message.

    Example:
        >>> from ctxkit.session import Message, Text
        >>> count_chars(Message(role="user", id="u", parts=(Text("Go on."),)))
        6
    """
    total = 0
    for part in message.parts:
        if isinstance(part, Text):
            total += len(part.text)
        elif isinstance(part, Thinking):
            total += len(part.text) or part.hidden
        elif isinstance(part, ToolCall):
            total += count_call_chars(part)
        elif isinstance(part, Attachment):
            total += IMAGE_CHARS
        elif isinstance(part, SizeOnly):
            total += part.chars if part.chars is not None else 4 * (part.tokens or 0)
    return total


class GrowingArray:
    """An array that only grows at its end.

    Values are collected in a list and moved to the array when it is read: one conversion of many
    values takes a tenth of the time of many conversions of a few.
    """

    __slots__ = ("_array", "_new", "_size", "append", "extend")

    def __init__(self, dtype: DTypeLike, *first: int) -> None:
        self._array: NDArray[Any] = np.array(first, dtype)
        self._new: list[float] = []
        self._size = len(first)
        # the list's own methods, as a call of a Python function would take twice as long
        self.append: Callable[[float], None] = self._new.append
        """Append a value; arrays that were returned before do not change."""
        self.extend: Callable[[Iterable[float]], None] = self._new.extend
        """Append several values."""

    def __len__(self) -> int:
        return self._size + len(self._new)

    @property
    def all(self) -> NDArray[Any]:
        """All values, read-only."""
        if self._new:
            end = len(self)
            if end > len(self._array):
                larger = np.empty(max(2 * end, 64), self._array.dtype)
                larger[: self._size] = self._array[: self._size]
                self._array = larger
            self._array[self._size : end] = self._new
            self._size = end
            self._new.clear()
        return self._array[: self._size]
