"""Several schedules, of which each call is given one."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit.schedules.layers import Changed, since
from ctxkit.schedules.sums import TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.schedules.layers import Added, Layer
    from ctxkit.schedules.rows import Rows, State
    from ctxkit.schedules.schedule_view import Choose


class Stages:
    """Which of several layers each call is given, and what changes for the messages by that.

    A layer that no call was given, and whose size nobody asked for, is not worked out.
    """

    def __init__(self, layers: Sequence[Layer], rows: Rows) -> None:
        self.layers, self.rows = layers, rows
        self.stop = rows.begin
        self._taken: list[int] = []
        self._switches: list[int] = []
        """Calls that are given another stage than the one before."""
        self._events: list[Changed] = []
        self._told = rows.begin
        """One past the last call whose changes were written out."""

    def extend(self, stop: int, choose: Choose) -> None:
        """Choose for each new call."""
        start, self.stop = self.stop, stop
        for call in range(start, stop):
            stage = int(choose(call, partial(self._size, call)))
            if stage != self.taken(call - 1):
                self._switches.append(call)
            self._taken.append(stage)
        for stage in {self.taken(call) for call in range(start, stop)}:
            self.layers[stage].extend(stop)

    def _size(self, call: int, stage: int) -> int:
        self.layers[stage].extend(self.stop)
        return self.layers[stage].total(call, TOKENS) + self.rows.log.fixed_in(call)

    def taken(self, call: int) -> int:
        """Return the stage that a call is given."""
        return self._taken[call - self.rows.begin] if call >= self.rows.begin else 0

    def _layer(self, call: int) -> Layer:
        return self.layers[self.taken(call)]

    # -- what changes, for a part behind -----------------------------------------------------------

    @property
    def events(self) -> Sequence[Changed]:
        """All that changed so far; written out only where a part behind asks."""
        if self._told < self.stop:
            self._events += sorted(self._changed(), key=lambda e: (e.call, e.position))
            self._told = self.stop
        return self._events

    def _changed(self) -> Iterator[Changed]:
        begin = self._told
        for call in self._switches[bisect_left(self._switches, begin) :]:
            before, now = self.taken(call - 1), self.taken(call)
            yield from self._events_of(before, begin, call)
            yield from self._switched(before, now, call)
            begin = call + 1
        yield from self._events_of(self.taken(self.stop - 1), begin, self.stop)

    def _events_of(self, stage: int, start: int, stop: int) -> Sequence[Changed]:
        return since(self.layers[stage].events, start, stop)

    def _switched(self, before: int, now: int, call: int) -> Iterator[Changed]:
        """Yield what a call is sent otherwise because it is given another stage than the last."""
        old, new = self.layers[before], self.layers[now]
        for p in sorted(old.touched() | new.touched()):
            said = self.rows.said(p)
            if said.call > call:
                continue
            was = said if said.call == call else old.state(p, call - 1)
            state = new.state(p, call)
            if was.content != state.content:
                yield Changed(call, p, was, state.since(call))

    # -- as a layer is asked -----------------------------------------------------------------------

    def state(self, p: int, call: int) -> State:
        """Return what a position says at a call."""
        return self._layer(call).state(p, call)

    def states(self, p: int) -> Sequence[State]:
        """Return all that it says: it may change where a stage does, or the stage."""
        out: list[State] = []
        first = self.rows.arrival(p)
        calls = {s.call for layer in self.layers for s in layer.states(p)}
        for call in sorted({first, *self._switches, *calls}):
            if not first <= call < self.stop:
                continue
            state = self.state(p, call)
            if not out or state.content != out[-1].content:
                out.append(state.since(call))
        return out

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""
        return set().union(*(layer.touched() for layer in self.layers))

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""
        return any(layer.adds for layer in self.layers)

    def added(self, call: int) -> Added | None:
        """Return what stands at the end of a call alone."""
        return self._layer(call).added(call)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        return self._layer(call).total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says."""
        return self._layer(call).origin(p, call)
