"""Running sums of what a layer leaves, over the calls of its last extension."""

from __future__ import annotations

from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.schedules.layers import Changed
    from ctxkit.schedules.rows import Rows

TOKENS, CHARS, RESULT_CHARS = 0, 1, 2
"""What is summed up: tokens, characters, characters of tool results."""


class Sums:
    """The sums over each call's messages; a column is worked out when it is first asked for."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._start = rows.begin
        self._more: list[list[int]] = [[0], [0], [0]]
        """By how much each sum changes at each call; at the first, by all that came before, too."""
        self._columns: dict[int, list[int]] = {}

    def follow(self, start: int, stop: int, events: Sequence[Changed]) -> None:
        """Take in the events of an extension."""
        self._start, self._columns = start, {}
        self._more = [[sum(more), *[0] * (stop - start - 1)] for more in self._more]
        tokens, letters, results = self._more
        role = self._rows.role
        for call, p, was, now in events:
            tokens[call - start] += now.tokens - was.tokens
            change = now.chars - was.chars
            if change:
                letters[call - start] += change
                if role(p) == TOOL:
                    results[call - start] += change

    def at(self, call: int, kind: int) -> int:
        """Return a sum at a call."""
        column = self._columns.get(kind)
        if column is None:
            start, more = self._start, self._more[kind]
            said = self._rows.totals(start, start + len(more), kind)
            column = self._columns[kind] = list(map(add, said, accumulate(more)))
        return column[call - self._start]
