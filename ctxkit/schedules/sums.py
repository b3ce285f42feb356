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
    """The sums over the messages of each call of a layer; each is followed from when it is first
    asked for. They do not hold the layer, which holds them, so that a run is let go at once.
    """

    def __init__(self) -> None:
        self._columns: dict[int, list[int]] = {}
        """Each sum at each call, from the first on."""

    def at(self, layer: Left, call: int, kind: int) -> int:
        """Return a sum at a call of the layer."""
        column, begin = self._columns.setdefault(kind, []), layer.rows.begin
        if call - begin >= len(column):
            _follow(layer, column, begin + len(column), kind)
        return column[call - begin]


def _follow(layer: Left, column: list[int], start: int, kind: int) -> None:
    """Work out a sum for the calls that are new."""
    said = layer.rows.totals(start, layer.stop, kind)
    more = [0] * len(said)
    if column:
        more[0] = column[-1] - layer.rows.totals(start - 1, start, kind)[0]
    for call, p, was, now in since(layer.events, start):
        more[call - start] += _less(layer, p, was, now, kind)
    column.extend(map(add, said, accumulate(more)))


def _less(layer: Left, p: int, was: State, now: State, kind: int) -> int:
    if kind == TOKENS:
        return now.tokens - was.tokens
    return now.chars - was.chars if kind == CHARS or layer.rows.role(p) == TOOL else 0
