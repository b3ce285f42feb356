"""Running sums of what a layer leaves, over the calls of its last extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ctxkit.history.columns import TOOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.schedules.layers import Added, Event
    from ctxkit.schedules.rows import Rows

TOKENS, CHARS, RESULT_CHARS = 0, 1, 2
"""What is summed up: tokens, characters, characters of tool results."""


def said(rows: Rows, call: int, kind: int) -> int:
    """Return a sum over a call's messages as they were said."""
    n = rows.shown(call)
    if kind == TOKENS:
        return rows.tokens_before(n)
    return rows.chars_before(n, of_results=kind == RESULT_CHARS)


class Summed(Protocol):
    """What sums are taken of: the events of the calls start..stop, and what is added to calls."""

    rows: Rows
    start: int
    stop: int
    events: Sequence[Event]

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""

    def added(self, call: int) -> Added | None:
        """Return what stands at the end of a call alone."""


class Sums:
    """The sums of one layer; each column is worked out when it is first asked for."""

    def __init__(self, layer: Summed) -> None:
        self._layer = layer
        self._carry = [0, 0, 0]
        self._base = (0, 0, 0)
        self._columns: dict[int, list[int]] = {}

    def follow(self, events: Sequence[Event]) -> None:
        """Take in the events of an extension."""
        self._base, self._columns = (self._carry[0], self._carry[1], self._carry[2]), {}
        rows = self._layer.rows
        for event in events:
            for kind in (TOKENS, CHARS, RESULT_CHARS):
                self._carry[kind] += _delta(rows, event, kind)

    def at(self, call: int, kind: int) -> int:
        """Return a sum at a call, with what is added at its end (which is no result)."""
        column = self._columns.get(kind)
        if column is None:
            column = self._columns[kind] = self._made(kind)
        total = column[call - self._layer.start]
        if kind == RESULT_CHARS or not self._layer.adds:
            return total
        more = self._layer.added(call)
        return total if more is None else total + (more.tokens if kind == TOKENS else more.chars)

    def _made(self, kind: int) -> list[int]:
        layer, i, run, out = self._layer, 0, self._base[kind], list[int]()
        rows, events = layer.rows, layer.events
        for call in range(layer.start, layer.stop):
            while i < len(events) and events[i].call <= call:
                run += _delta(rows, events[i], kind)
                i += 1
            out.append(said(rows, call, kind) + run)
        return out


def _delta(rows: Rows, event: Event, kind: int) -> int:
    """Return by how much an event changes a sum."""
    if kind == TOKENS:
        return event.now.tokens - event.was.tokens
    if kind == CHARS or rows.role(event.position) == TOOL:
        return event.now.chars - event.was.chars
    return 0
