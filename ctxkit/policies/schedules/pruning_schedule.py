"""Schedules of a pruning's parts over one history: the prompt of each call, part by part."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.errors import BadArguments
from ctxkit.policies.schedules.messages_without_any_pruning import UnprunedMessages
from ctxkit.policies.schedules.pruned_message_states import (
    SUM_TOKENS,
    PruningPartChanges,
    StateChange,
    UnprunedLayer,
    select_changes_between,
)
from ctxkit.policies.schedules.pruning_changes_at_new_calls import (
    EarlierTurnsView,
    HasSchedule,
    ScheduleView,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.messages_without_any_pruning import MessageState
    from ctxkit.policies.schedules.pruned_message_states import Layer, MessageOfOneCall
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import StageChooser
    from ctxkit.tokens.token_counters import ContextBudget


_RECHECK_AT = (8, 64, 512)
"""Numbers of calls after which a schedule that grows call by call is checked in one batch."""


class PruningPart(HasSchedule, Protocol):
    """A part of a pruning that has a schedule: a link in a chain of parts."""

    @property
    def counts(self) -> bool:
        """True where its changes depend on all messages of a prompt, appended ones included."""


# Method: delta encoding of prompts, in a stack of layers
#
# A pruning changes prompts for one call each; the recorded history stays. Instead of running every
# part at every call, each part says once, for a batch of calls, which messages it changes and from
# which call on. From that follow the prompt of each call and its size, in tokens or characters.
# The layers (`pruned_message_states`): unpruned messages at the bottom, one `PruningPartLayer` per
# part, the last part on `top`. A part either changes messages (`PruningPartChanges`), or names
# stages: other parts, of which each call gets one, by prompt size (`StageByCallLayer`).
#
# Invariant: the result at a call is the same whether calls were extended one by one (live session)
# or in one batch (replay). After each number of calls in `_RECHECK_AT`, a live schedule is also run
# in one batch, to refuse what a replay would refuse.
# Cost: O(changes), and O(calls) for stages; not O(calls x messages).


class Schedule:
    """The prompts of all calls of a history under a chain of parts, from the history's call on.

    Args:
        history: the messages before any pruning.
        parts: each has a ``schedule(view, budget)``, and works on the result of the part before.
        budget: the context budget: limit, reserve (tokens) and counter.

    Example:
        >>> import ctxkit as ck
        >>> session, counter = ck.read(ck.samples.path("incident")), ck.tokens.default_counter()
        >>> log = ck.policies.MessageLog.of(session.messages, counter)
        >>> history, budget = ck.policies.History.start(log), ck.ContextBudget(200_000, 0, counter)
        >>> schedule = Schedule(history, [ck.policies.Clear(keep_last=3)], budget).extend(log.calls)
        >>> schedule.prompt_at(log.calls - 1).tokens < history.at(log.calls - 1).tokens
        True
    """

    def __init__(
        self, history: History, parts: Sequence[PruningPart], budget: ContextBudget
    ) -> None:
        self.history, self.rows = history, UnprunedMessages(history)
        self._parts, self._budget = parts, budget
        self.sound = True
        """False after an error or an interrupt within `extend`: build a new schedule then."""
        self.top: Layer = UnprunedLayer(self.rows)
        self._counting: list[PruningPartLayer] = []
        for part in parts:
            self.top = layer = PruningPartLayer(part, self.top, budget)
            if part.counts:
                self._counting.append(layer)

    def extend(self, stop: int) -> Schedule:
        """Compute all calls before `stop` that are not computed yet, and return the schedule.

        Raises:
            BadArguments: a part counts messages that a part before it appends without declaring
                `appends`, or does not change messages in the order of calls.
        """
        # An exception in a part leaves layers half extended, so `sound` is False until the end.
        is_stepwise, self.sound = self.rows.begin < self.top.stop < stop, False
        self.top.extend(stop)
        if is_stepwise and stop - self.rows.begin in _RECHECK_AT:
            # A live session extends call by call. One batch refuses what a replay would refuse.
            Schedule(self.history, self._parts, self._budget).extend(stop)
        for layer in self._counting:
            if layer.before.has_appended:
                raise BadArguments(
                    f"{type(layer.part).__name__} counts messages that a part before it appends:"
                    " declare `appends` in the class of that part, so that both run call by call."
                )
        self.sound = True
        return self

    def changed(self, call: int) -> Iterator[tuple[int, MessageState]]:
        """Yield (position, state) for each message that differs at a call from the recorded one."""
        count = self.rows.count_arrived(call)
        for p in sorted(self.top.touched()):
            if p < count:
                state = self.top.state(p, call)
                if state.content != self.rows.recorded_content(p):
                    yield p, state

    def adder(self, call: int) -> Any:
        """Return the part that appends a message at a call; None: no part does."""
        layer: Any = self.top
        while isinstance(layer, PruningPartLayer):
            if layer.get_appended(call) is not layer.before.get_appended(call):
                return layer.part
            layer = layer.before
        return None

    def prompt_at(self, call: int, reason: str = "pruned for this call") -> History:
        """Return the prompt of a call as a history: the schedule's own one at its call, if that is
        unchanged.

        Args:
            call: number of the call, from 0.
            reason: the reason of the edit that holds the changes.

        Raises:
            UnsoundHistory: a tool call lost its result, or a result its call.
        """
        self.extend(call + 1)
        changes = {p: (state.message, state.tokens) for p, state in self.changed(call)}
        appended = self.top.get_appended(call)
        view = self.history if call == self.history.call else self.history.at(call)
        if changes:
            view = view.replace_sized(changes, reason)
        return view if appended is None else view.insert(len(view), appended.message, reason)


class PruningPartLayer:
    """The layer of one part: its changes, or its stages."""

    def __init__(self, part: HasSchedule, before: Layer, budget: ContextBudget) -> None:
        self.part, self.before, self.budget, self.rows = part, before, budget, before.rows
        self._changes = PruningPartChanges(part, before)
        self._stages: StageByCallLayer | None = None
        self._result: PruningPartChanges | StageByCallLayer = self._changes
        self._memory: dict[Any, Any] = {}
        """The part's own state between batches of calls."""
        self._has_been_asked = False
        """True once the part's schedule was run: from then on it names stages always or never."""

    @property
    def stop(self) -> int:
        """One past the last call that is computed."""
        return self._changes.stop

    @property
    def events(self) -> Sequence[StateChange]:
        """All changes so far, by call and position."""
        return self._result.events

    def extend(self, stop: int) -> None:
        """Run the part's schedule for the new calls before `stop`.

        Raises:
            BadArguments: the schedule names stages for some calls only, or stages beside changes.
        """
        if stop <= self.stop:
            return
        self.before.extend(stop)
        self._changes.open_batch(stop)
        # To a part that changes earlier turns only, a message arrives when its turn is over.
        is_filter = getattr(self.part, "filters_history", False)
        view = (EarlierTurnsView if is_filter else ScheduleView)(self._changes, self._memory)
        self.part.schedule(view, self.budget)
        if self._has_been_asked and (view.staged is None) != (self._stages is None):
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} names stages for some calls only: "
                "name them each time, or never."
            )
        self._has_been_asked = True
        if view.staged is None:
            self._changes.compute_states()
            return
        if self._changes.has_rules:
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} names stages and changes messages,"
                " which no call would get: change them in a part of their own, as in `a | b`."
            )
        parts, choose = view.staged
        if self._stages is None:
            layers = [self.before if p is None else self._stage_layer(p) for p in parts]
            self._result = self._stages = StageByCallLayer(layers, self.rows)
        self._stages.extend(stop, choose)

    def _stage_layer(self, part: HasSchedule) -> PruningPartLayer:
        """Return the layer of a stage.

        Raises:
            BadArguments: it has no schedule, or a subclass overrides `__call__`: it would not run.
        """
        calls = sum("__call__" in vars(kind) for kind in type(part).__mro__)
        if calls > 1 or not isinstance(part, HasSchedule):
            raise BadArguments(
                f"{type(self.part).__name__} uses {type(part).__name__} as a stage, which defines"
                " its own `__call__`: list it in `steps`, and define `stepped`."
            )
        return PruningPartLayer(part, self.before, self.budget)

    def state(self, p: int, call: int) -> MessageState:
        """Return the state of a position at a call."""
        return self._result.state(p, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all states of a position, in order of calls."""
        return self._result.states(p)

    def touched(self) -> set[int]:
        """Return the positions whose state differs from the recorded message at any call."""
        return self._result.touched()

    @property
    def has_appended(self) -> bool:
        """True where a message is appended at any call so far."""
        return self._result.has_appended

    def get_appended(self, call: int) -> MessageOfOneCall | None:
        """Return the message appended at a call only."""
        return self._result.get_appended(call)

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call."""
        return self._result.total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made the state of a position at a call; None: it is unchanged."""
        if self._stages is None:
            return self._changes.origin(p, call)
        # What a stage changed counts as changed by the part that named the stage.
        origin = self._stages.origin(p, call)
        return origin if origin is self.before.origin(p, call) else self.part

    def branches(self) -> Sequence[Layer]:
        """Return the layers of the stages, of which each call gets one; without stages, itself."""
        return (self,) if self._stages is None else self._stages.layers

    def stage_at(self, call: int) -> int:
        """Return the index of the stage that a call gets."""
        return 0 if self._stages is None else self._stages.stage_at(call)


class StageByCallLayer:
    """Several layers of which each call gets one, and the changes that result.

    A layer is extended lazily: only where a call gets it, or its size is asked for.
    """

    def __init__(self, layers: Sequence[Layer], rows: UnprunedMessages) -> None:
        self.layers, self.rows = layers, rows
        self.stop = rows.begin
        self._stage_of_call: list[int] = []
        self._switches: list[int] = []
        """Calls that get another stage than the call before."""
        self._events: list[StateChange] = []
        self._events_stop = rows.begin
        """One past the last call whose changes are in `_events`."""

    def extend(self, stop: int, choose: StageChooser) -> None:
        """Choose the stage of each new call.

        Args:
            stop: one past the last new call.
            choose: returns the index of the stage of a call, given the call and a function from the
                index of a stage to the tokens of the call's prompt under it.
        """
        start, self.stop = self.stop, stop
        for call in range(start, stop):
            stage = int(choose(call, partial(self._size, call)))
            if stage != self.stage_at(call - 1):
                self._switches.append(call)
            self._stage_of_call.append(stage)
        for stage in {self.stage_at(call) for call in range(start, stop)}:
            self.layers[stage].extend(stop)

    def _size(self, call: int, stage: int) -> int:
        self.layers[stage].extend(self.stop)
        return self.layers[stage].total(call, SUM_TOKENS) + self.rows.log.fixed_in(call)

    def stage_at(self, call: int) -> int:
        """Return the index of the stage that a call gets."""
        return self._stage_of_call[call - self.rows.begin] if call >= self.rows.begin else 0

    def _layer(self, call: int) -> Layer:
        return self.layers[self.stage_at(call)]

    # -- changes, as the next part reads them ------------------------------------------------------

    @property
    def events(self) -> Sequence[StateChange]:
        """All changes so far, computed when the next part asks for them."""
        if self._events_stop < self.stop:
            self._events += sorted(self._new_changes(), key=lambda e: (e.call, e.position))
            self._events_stop = self.stop
        return self._events

    def _new_changes(self) -> Iterator[StateChange]:
        """Yield the changes since `_events_stop`: within stages, and where the stage switches."""
        start = self._events_stop
        for call in self._switches[bisect_left(self._switches, start) :]:
            yield from select_changes_between(self._layer(call - 1).events, start, call)
            # A switch compares the two layers, so it includes the new layer's own changes.
            yield from self._changes_at_switch(call)
            start = call + 1
        yield from select_changes_between(self._layer(self.stop - 1).events, start, self.stop)

    def _changes_at_switch(self, call: int) -> Iterator[StateChange]:
        """Yield the changes at a call that gets another stage than the call before."""
        old, new = self._layer(call - 1), self._layer(call)
        for p in sorted(old.touched() | new.touched()):
            recorded = self.rows.recorded_state(p)
            if recorded.call > call:
                continue  # it has not arrived yet
            # A message that arrives at this call was in no prompt of the old layer.
            last = recorded if recorded.call == call else old.state(p, call - 1)
            state = new.state(p, call)
            if last.content != state.content:
                yield StateChange(call, p, last, state.since(call))

    # -- the interface of a layer ------------------------------------------------------------------

    def state(self, p: int, call: int) -> MessageState:
        """Return the state of a position at a call."""
        return self._layer(call).state(p, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all states of a position: they change within a stage, or with the stage."""
        states: list[MessageState] = []
        first = self.rows.arrival(p)
        calls = {s.call for layer in self.layers for s in layer.states(p)}
        for call in sorted({first, *self._switches, *calls}):
            if not first <= call < self.stop:
                continue
            state = self.state(p, call)
            if not states or state.content != states[-1].content:
                states.append(state.since(call))
        return states

    def touched(self) -> set[int]:
        """Return the positions whose state differs from the recorded message at any call."""
        return set().union(*(layer.touched() for layer in self.layers))

    @property
    def has_appended(self) -> bool:
        """True where a message is appended at any call so far."""
        return any(layer.has_appended for layer in self.layers)

    def get_appended(self, call: int) -> MessageOfOneCall | None:
        """Return the message appended at a call only."""
        return self._layer(call).get_appended(call)

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call."""
        return self._layer(call).total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made the state of a position at a call; None: it is unchanged."""
        return self._layer(call).origin(p, call)
