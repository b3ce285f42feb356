"""The schedules of several parts over one history: what each call is sent, part by part and stage
by stage.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.errors import BadArguments
from ctxkit.policies.schedules.layers import SUM_TOKENS, StateChange, UnprunedLayer, changes_between
from ctxkit.policies.schedules.message_changes import PartChanges
from ctxkit.policies.schedules.past_view import PastView
from ctxkit.policies.schedules.rows import HistoryRows
from ctxkit.policies.schedules.schedule_input import HasSchedule, ScheduleView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.layers import AppendedMessage, Layer
    from ctxkit.policies.schedules.rows import MessageState
    from ctxkit.policies.schedules.schedule_input import StageChooser
    from ctxkit.tokens.counters import ContextBudget


_RECHECK_AT = (8, 64, 512)
"""How many calls there are where they are asked about at once, too."""


class ScheduledPart(HasSchedule, Protocol):
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

    def __init__(
        self, history: History, parts: Sequence[ScheduledPart], room: ContextBudget
    ) -> None:
        self.history, self.rows = history, HistoryRows(history)
        self._parts, self._room = parts, room
        self.sound = True
        """False where an error or an interrupt left it half worked out: it must be made anew."""
        self.top: Layer = UnprunedLayer(self.rows)
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
        if by_calls and stop - self.rows.begin in _RECHECK_AT:
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

    def changed(self, call: int) -> Iterator[tuple[int, MessageState]]:
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


class PartLayer:
    """What one part leaves."""

    def __init__(self, part: HasSchedule, before: Layer, room: ContextBudget) -> None:
        self.part, self.before, self.room, self.rows = part, before, room, before.rows
        self._changes = PartChanges(part, before)
        self._stages: StagedLayers | None = None
        self._inner: PartChanges | StagedLayers = self._changes
        self._memory: dict[Any, Any] = {}
        self._asked = False

    @property
    def stop(self) -> int:
        """One past the last call that is known."""
        return self._changes.stop

    @property
    def events(self) -> Sequence[StateChange]:
        """All that changed so far, in order."""
        return self._inner.events

    def extend(self, stop: int) -> None:
        """Ask the schedule about the calls that are new."""
        if stop <= self.stop:
            return
        self.before.extend(stop)
        self._changes.begin(stop)
        of_past = getattr(self.part, "filters_history", False)
        view = (PastView if of_past else ScheduleView)(self._changes, self._memory)
        self.part.schedule(view, self.room)
        if self._asked and (view.staged is None) != (self._stages is None):
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} spoke of stages only now and then: "
                "say them each time that it is asked, or never."
            )
        self._asked = True
        if view.staged is None:
            self._changes.finish()
            return
        if self._changes.told:
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} says changes beside its stages, which"
                " no call would be sent: make them in a part of their own, as in `a | b`."
            )
        parts, choose = view.staged
        if self._stages is None:
            layers = [self.before if p is None else self._stage(p) for p in parts]
            self._inner = self._stages = StagedLayers(layers, self.rows)
        self._stages.extend(stop, choose)

    def _stage(self, part: HasSchedule) -> PartLayer:
        """Return what a stage leaves.

        Raises:
            BadArguments: it has no schedule, or a class below its schedule redefines the call.
        """
        calls = sum("__call__" in vars(kind) for kind in type(part).__mro__)
        if calls > 1 or not isinstance(part, HasSchedule):
            raise BadArguments(
                f"{type(self.part).__name__} gives a call what {type(part).__name__} leaves, which"
                " has a call of its own: name it in `steps`, and say in `stepped` what a call is"
                " sent."
            )
        return PartLayer(part, self.before, self.room)

    def state(self, p: int, call: int) -> MessageState:
        """Return what a position says at a call."""
        return self._inner.state(p, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all that it says."""
        return self._inner.states(p)

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""
        return self._inner.touched()

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""
        return self._inner.adds

    def added(self, call: int) -> AppendedMessage | None:
        """Return what stands at the end of a call alone."""
        return self._inner.added(call)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        return self._inner.total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says; None: it is as said."""
        if self._stages is None:
            return self._changes.origin(p, call)
        made = self._stages.origin(p, call)
        return made if made is self.before.origin(p, call) else self.part

    def branches(self) -> Sequence[Layer]:
        """Return the layers of which each call is given one."""
        return (self,) if self._stages is None else self._stages.layers

    def taken(self, call: int) -> int:
        """Return which of them a call is given."""
        return 0 if self._stages is None else self._stages.taken(call)


class StagedLayers:
    """Which of several layers each call is given, and what changes for the messages by that.

    A layer that no call was given, and whose size nobody asked for, is not worked out.
    """

    def __init__(self, layers: Sequence[Layer], rows: HistoryRows) -> None:
        self.layers, self.rows = layers, rows
        self.stop = rows.begin
        self._taken: list[int] = []
        self._switches: list[int] = []
        """Calls that are given another stage than the one before."""
        self._events: list[StateChange] = []
        self._told = rows.begin
        """One past the last call whose changes were written out."""

    def extend(self, stop: int, choose: StageChooser) -> None:
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
        return self.layers[stage].total(call, SUM_TOKENS) + self.rows.log.fixed_in(call)

    def taken(self, call: int) -> int:
        """Return the stage that a call is given."""
        return self._taken[call - self.rows.begin] if call >= self.rows.begin else 0

    def _layer(self, call: int) -> Layer:
        return self.layers[self.taken(call)]

    # -- what changes, for a part behind -----------------------------------------------------------

    @property
    def events(self) -> Sequence[StateChange]:
        """All that changed so far; written out only where a part behind asks."""
        if self._told < self.stop:
            self._events += sorted(self._changed(), key=lambda e: (e.call, e.position))
            self._told = self.stop
        return self._events

    def _changed(self) -> Iterator[StateChange]:
        begin = self._told
        for call in self._switches[bisect_left(self._switches, begin) :]:
            before, now = self.taken(call - 1), self.taken(call)
            yield from self._events_of(before, begin, call)
            yield from self._switched(before, now, call)
            begin = call + 1
        yield from self._events_of(self.taken(self.stop - 1), begin, self.stop)

    def _events_of(self, stage: int, start: int, stop: int) -> Sequence[StateChange]:
        return changes_between(self.layers[stage].events, start, stop)

    def _switched(self, before: int, now: int, call: int) -> Iterator[StateChange]:
        """Yield what a call is sent otherwise because it is given another stage than the last."""
        old, new = self.layers[before], self.layers[now]
        for p in sorted(old.touched() | new.touched()):
            said = self.rows.said(p)
            if said.call > call:
                continue
            was = said if said.call == call else old.state(p, call - 1)
            state = new.state(p, call)
            if was.content != state.content:
                yield StateChange(call, p, was, state.since(call))

    # -- as a layer is asked -----------------------------------------------------------------------

    def state(self, p: int, call: int) -> MessageState:
        """Return what a position says at a call."""
        return self._layer(call).state(p, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all that it says: it may change where a stage does, or the stage."""
        out: list[MessageState] = []
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

    def added(self, call: int) -> AppendedMessage | None:
        """Return what stands at the end of a call alone."""
        return self._layer(call).added(call)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        return self._layer(call).total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says."""
        return self._layer(call).origin(p, call)
