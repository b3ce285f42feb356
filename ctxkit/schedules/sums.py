"""Running sums of what a layer leaves, over the calls of its last extension."""

from __future__ import annotations

from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL

if TYPE_CHECKING:
    from ctxkit.schedules.layers import Left
    from ctxkit.schedules.rows import State

TOKENS, CHARS, RESULT_CHARS = 0, 1, 2
"""What is summed up: tokens, characters, characters of tool results."""


class Sums:
    """The sums over each call's messages; each is followed from when it is first asked for."""

    def __init__(self, layer: Left) -> None:
        self._layer, self._rows = layer, layer.rows
        self._more: dict[int, list[int]] = {}
        """By how much each sum changes at each call; at the first, by all that came before, too."""
        self._columns: dict[int, list[int]] = {}

    def follow(self) -> None:
        """Take in the events of an extension."""
        self._columns = {}
        for kind, more in self._more.items():
            self._more[kind] = self._changes(kind, sum(more))

    def at(self, call: int, kind: int) -> int:
        """Return a sum at a call."""
        column = self._columns.get(kind)
        if column is None:
            if kind not in self._more:
                self._more[kind] = self._changes(kind, self._before(kind))
            said = self._rows.totals(self._layer.start, self._layer.stop, kind)
            column = self._columns[kind] = list(map(add, said, accumulate(self._more[kind])))
        return column[call - self._layer.start]

    def _changes(self, kind: int, before: int) -> list[int]:
        """Return by how much a sum changes at each call of the last extension."""
        start, stop = self._layer.start, self._layer.stop
        more = [before, *[0] * (stop - start - 1)]
        for call, p, was, now in self._layer.events:
            more[call - start] += self._less(p, was, now, kind)
        return more

    def _before(self, kind: int) -> int:
        """Return by how much a sum was changed at the call before the last extension."""
        last, rows = self._layer.start - 1, self._rows
        there = (p for p in self._layer.touched() if p < rows.shown(last))
        return sum(self._less(p, rows.said(p), self._layer.state(p, last), kind) for p in there)

    def _less(self, p: int, was: State, now: State, kind: int) -> int:
        if kind == TOKENS:
            return now.tokens - was.tokens
        return now.chars - was.chars if kind == CHARS or self._rows.role(p) == TOOL else 0
