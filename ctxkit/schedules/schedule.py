"""The schedules of parts in a row over one history: what each call is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.errors import BadArguments
from ctxkit.schedules.layers import Said
from ctxkit.schedules.part_layers import PartLayer
from ctxkit.schedules.rows import Rows
from ctxkit.schedules.schedule_view import SaysWhen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.history import History
    from ctxkit.schedules.layers import Layer
    from ctxkit.schedules.rows import State
    from ctxkit.tokens.counters import Room


_ALSO_AT_ONCE = (8, 64, 512)
"""How many calls there are where they are asked about at once, too."""


class WholePart(SaysWhen, Protocol):
    """A part in a row of parts."""

    @property
    def counts(self) -> bool:
        """True where it goes by all messages, also by those that parts put at the end of calls."""


class Schedule:
    """What parts in a row make of a history from its call on, as far as it was extended.

    Args:
        history: what is shown before any pruning.
        parts: each with a ``schedule(view, room)``; each works on what the one before left.
        room: the limit, the reserve and the counter.
    """

    def __init__(self, history: History, parts: Sequence[WholePart], room: Room) -> None:
        self.history, self.rows = history, Rows(history)
        self._parts, self._room = parts, room
        self.sound = True
        """False where an error or an interrupt left it half worked out: it must be made anew."""
        self.top: Layer = Said(self.rows)
        self._counting: list[PartLayer] = []
        for part in parts:
            self.top = layer = PartLayer(part, self.top, room)
            if part.counts:
                self._counting.append(layer)

    def extend(self, stop: int) -> Schedule:
        """Ask the parts about all calls up to `stop`, as far as they were not asked.

        Who asks call by call, as a live session does, has them asked now and then about all calls
        at once, too: what a replay would refuse is refused there.

        Raises:
            BadArguments: a part counts what one before it appends without saying so, or does not
                speak in the order of calls.
        """
        by_calls, self.sound = self.rows.begin < self.top.stop < stop, False
        self.top.extend(stop)
        if by_calls and stop - self.rows.begin in _ALSO_AT_ONCE:
            Schedule(self.history, self._parts, self._room).extend(stop)
        for layer in self._counting:
            if layer.before.adds:
                raise BadArguments(
                    f"{type(layer.part).__name__} counts the messages that a part before it puts at"
                    " the end of calls: let the class of that part say that it `appends`, so that"
                    " both are asked call by call."
                )
        self.sound = True
        return self

    def changed(self, call: int) -> Iterator[tuple[int, State]]:
        """Yield each position that says something else at a call than was said, and what."""
        n = self.rows.shown(call)
        for p in sorted(self.top.touched()):
            if p < n:
                state = self.top.state(p, call)
                if state.content != self.rows.said(p).content:
                    yield p, state

    def adder(self, call: int) -> Any:
        """Return the part that put a message at the end of a call; None: no part did."""
        layer: Any = self.top
        while isinstance(layer, PartLayer):
            if layer.added(call) is not layer.before.added(call):
                return layer.part
            layer = layer.before
        return None

    def left(self, call: int, reason: str = "pruned for this call") -> History:
        """Return what a call is sent, as a history; where nothing changes, the one it began with.

        Raises:
            UnsoundHistory: a tool call lost its result, or a result its call.
        """
        self.extend(call + 1)
        changes = {p: (state.message, state.tokens) for p, state in self.changed(call)}
        added = self.top.added(call)
        view = self.history if call == self.history.call else self.history.at(call)
        if changes:
            view = view.left_as(changes, reason)
        return view if added is None else view.insert(len(view), added.message, reason)
