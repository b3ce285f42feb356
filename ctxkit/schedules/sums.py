"""Running sums of what a layer leaves, call by call."""

from __future__ import annotations

from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL
from ctxkit.schedules.layers import since

if TYPE_CHECKING:
    from ctxkit.schedules.layers import Left
    from ctxkit.schedules.rows import State

TOKENS, CHARS, RESULT_CHARS = 0, 1, 2
"""What is summed up: tokens, characters, characters of tool results."""


class Sums:
    """The sums over each call's messages; each is followed from when it is first asked for."""

    def __init__(self, layer: Left) -> None:
        self._layer, self._rows = layer, layer.rows
        self._columns: dict[int, list[int]] = {}
        """Each sum at each call, from the first on."""

    def at(self, call: int, kind: int) -> int:
        """Return a sum at a call."""
        column, begin = self._columns.setdefault(kind, []), self._rows.begin
        if call - begin >= len(column):
            self._follow(column, begin + len(column), kind)
        return column[call - begin]

    def _follow(self, column: list[int], start: int, kind: int) -> None:
        """Work out a sum for the calls that are new."""
        said = self._rows.totals(start, self._layer.stop, kind)
        more = [0] * len(said)
        if column:
            more[0] = column[-1] - self._rows.totals(start - 1, start, kind)[0]
        for call, p, was, now in since(self._layer.events, start):
            more[call - start] += self._less(p, was, now, kind)
        column.extend(map(add, said, accumulate(more)))

    def _less(self, p: int, was: State, now: State, kind: int) -> int:
        if kind == TOKENS:
            return now.tokens - was.tokens
        return now.chars - was.chars if kind == CHARS or self._rows.role(p) == TOOL else 0
