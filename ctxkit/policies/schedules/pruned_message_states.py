"""The layers of a pruning: the states of all messages after each of its parts, by change rules."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.policies.history.edited_head import hash_content
from ctxkit.policies.history.growing_columns_and_sums import TOOL, count_chars
from ctxkit.policies.schedules.messages_without_any_pruning import NEVER, MessageState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.schedules.messages_without_any_pruning import UnprunedMessages
    from ctxkit.session.messages import Message

    MessageChange = Callable[[Message], Message | None]
    NewContent = str | None | MessageChange | tuple[str | MessageChange, ...]


# A pruning is a stack of layers. The lowest layer holds the messages as recorded; each part of the
# pruning puts one layer on top, which reads the layer below. A layer maps (position, call) to a
# `MessageState`: what that message says at that call. As a function of the call this is a step
# function, so a layer is stored as its changes: one `StateChange` per position and call, sorted by
# (call, position). The sums per call (tokens, characters) are the sums of the messages as recorded
# plus the running sum of the size differences of these changes: O(calls + changes) for all calls.


class StateChange(NamedTuple):
    """The state of a position changes: it differs from this call on from the call before."""

    call: int
    position: int
    was: MessageState
    now: MessageState


class MessageOfOneCall(NamedTuple):
    """A message that is at the end of the prompt of one call only."""

    make: Callable[[], Message]
    tokens: int
    chars: int
    content: int

    @property
    def message(self) -> Message:
        """The message, built at each access: it may be long, so only its sizes are stored."""
        return self.make()


def select_changes_between(
    events: Sequence[StateChange], start: int, stop: int | None = None
) -> Sequence[StateChange]:
    """Return the changes at the calls start..stop, found by bisection.

    Args:
        events: changes in the order of their calls.
        start: first call, from 0.
        stop: one past the last call; None: all from `start` on.
    """
    first = bisect_left(events, start, key=lambda e: e.call)
    if stop is None:
        return events[first:]
    return events[first : bisect_left(events, stop, first, key=lambda e: e.call)]


# `ReadOnlyLayer` is what other code may read of a layer, `Layer` adds what the stack of parts
# needs.


class ReadOnlyLayer(Protocol):
    """The states of all messages at each call, after one part of a pruning."""

    rows: UnprunedMessages

    @property
    def stop(self) -> int:
        """One past the last call that is known."""

    @property
    def events(self) -> Sequence[StateChange]:
        """All changes so far, by call and position, without arrivals of unchanged messages."""

    def state(self, p: int, call: int) -> MessageState:
        """Return the state of a position at a call before `stop`.

        Args:
            p: position of a message.
            call: number of the call, from 0.
        """

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all states of a position, in order of calls."""

    def touched(self) -> set[int]:
        """Return the positions whose state differs from the recorded message at any call."""

    @property
    def has_appended(self) -> bool:
        """True where a message is appended at any call so far."""

    def get_appended(self, call: int) -> MessageOfOneCall | None:
        """Return the message appended at a call only."""

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call.

        An appended message counts as tokens and characters, not as a tool result.

        Args:
            call: number of the call, from 0.
            kind: what is added up: `SUM_TOKENS`, `SUM_CHARS` or `SUM_RESULT_CHARS`.
        """

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made the state of a position at a call; None: it is unchanged.

        Args:
            p: position of a message.
            call: number of the call, from 0.
        """


class Layer(ReadOnlyLayer, Protocol):
    """A layer that computes further calls on request."""

    def extend(self, stop: int) -> None:
        """Compute the states at all calls before `stop`."""

    def branches(self) -> Sequence[Layer]:
        """Return the layers of the stages, of which each call gets one; without stages, itself."""

    def stage_at(self, call: int) -> int:
        """Return the index of the stage that a call gets."""


class UnprunedLayer:
    """The messages as recorded: the input of the first part."""

    events: Sequence[StateChange] = ()
    has_appended = False

    def __init__(self, rows: UnprunedMessages) -> None:
        self.rows, self.stop = rows, rows.begin

    def extend(self, stop: int) -> None:
        """Include the rows of the new calls."""
        self.stop = max(stop, self.stop)

    def state(self, p: int, call: int) -> MessageState:  # noqa: ARG002  the interface of layers
        """Return the recorded state of a position."""
        return self.rows.recorded_state(p)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return the only state of a position."""
        return (self.rows.recorded_state(p),)

    def touched(self) -> set[int]:
        """Return the empty set."""
        return set()

    def get_appended(self, call: int) -> MessageOfOneCall | None:  # noqa: ARG002  as above
        """Return None: nothing is appended."""
        return None

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call."""
        return self.rows.totals(call, call + 1, kind)[0]

    def origin(self, p: int, call: int) -> Any:  # noqa: ARG002  as above
        """Return None: no part changed it."""
        return None

    def branches(self) -> Sequence[Layer]:
        """Return itself."""
        return (self,)

    def stage_at(self, call: int) -> int:  # noqa: ARG002  as above
        """Return the index of the only stage."""
        return 0


SUM_TOKENS, SUM_CHARS, SUM_RESULT_CHARS = 0, 1, 2
"""Kinds of sums: tokens, characters, characters of tool results."""


class LayerSums:
    """Sums over the messages of each call of one layer, for the kinds that were asked for.

    The layer is passed to each call, not stored: it owns this object, and a reference cycle would
    keep a finished run in memory until the next garbage collection.
    """

    def __init__(self) -> None:
        self._columns: dict[int, list[int]] = {}
        """For each kind one sum per call, from the layer's first call on."""

    def at(self, layer: ReadOnlyLayer, call: int, kind: int) -> int:
        """Return the sum of one kind at a call.

        Args:
            layer: the layer that owns this object.
            call: number of the call; the sums of all calls up to it are computed and stored.
            kind: `SUM_TOKENS`, `SUM_CHARS` or `SUM_RESULT_CHARS`.
        """
        column, first_call = self._columns.setdefault(kind, []), layer.rows.begin
        if call - first_call >= len(column):
            _extend_sums(layer, column, first_call + len(column), kind)
        return column[call - first_call]


def _extend_sums(layer: ReadOnlyLayer, column: list[int], start: int, kind: int) -> None:
    """Append the sums of the calls from `start` on."""
    recorded = layer.rows.totals(start, layer.stop, kind)
    changes = [0] * len(recorded)
    if column:  # earlier changes still count: the last sum less the recorded sum of that call
        changes[0] = column[-1] - layer.rows.totals(start - 1, start, kind)[0]
    for call, p, was, now in select_changes_between(layer.events, start):
        changes[call - start] += _size_change(layer, p, was, now, kind)
    column.extend(map(add, recorded, accumulate(changes)))


def _size_change(
    layer: ReadOnlyLayer, p: int, was: MessageState, now: MessageState, kind: int
) -> int:
    if kind == SUM_TOKENS:
        return now.tokens - was.tokens
    return now.chars - was.chars if kind == SUM_CHARS or layer.rows.role(p) == TOOL else 0


# A part of a pruning (say, "clear all tool results but the last three") states its effect as rules:
# "at the calls `since` to `until`, message p has this content instead". This file turns the rules
# into states. For each message the state as a function of the call is a step function; it is
# stored as a sorted list of `MessageState`, each valid until the next one begins.
#
#   input   the states after the part before (`before`), and the rules of this part
#   output  `_states`: the states of all positions that ever had a rule; all others are those of
#           `before`. `events`: every change of a state, sorted by (call, position).
#
# Calls come in batches: `open_batch` opens the calls [start, stop), `add_rule` and `add_appended`
# record what the part says of them, `compute_states` computes the states. Only positions that can
# differ from their last call are recomputed: those with a new rule, with a rule that ends, whose
# state in `before` changes, or which become protected.
#
# Invariants:
# - Causality: a rule begins at a call of the open batch, so the state at a call never depends on
#   later calls. One batch of all calls gives the same states as one batch per call.
# - Of several rules in force at a call the last one counts; its input is the state in `before`.
# - From the call on at which a message becomes protected, no rule applies to it.
# - A rule never enlarges a message, in tokens.
# Cost: O(rules + changes) over all calls; an unchanged message costs nothing.


class UndoChangeSentinel:
    """The type of `UNDO_CHANGE`, the content that undoes a part's change of a message."""


UNDO_CHANGE = UndoChangeSentinel()
"""In place of new content: from this call on the message is as the parts before left it."""


class ContentForCallRange(msgspec.Struct, frozen=True):
    """New content for one message at the calls since..until."""

    since: int
    until: int
    content: NewContent | UndoChangeSentinel
    only_if_smaller: bool
    """Apply it only where the message becomes smaller in tokens."""
    min_chars: int
    """Apply it only where the message has at least this many characters."""


class PruningPartChanges:
    """The rules of one part of a pruning, and the states of messages after it."""

    def __init__(self, part: Any, before: Layer) -> None:
        self.part, self.name = part, type(part).__name__
        self.before, self.rows = before, before.rows
        self.start = self.stop = before.rows.begin
        self.events: list[StateChange] = []
        self._rules: dict[int, list[ContentForCallRange]] = {}
        self._states: dict[int, list[MessageState]] = {}
        self._rule_ends: dict[int, set[int]] = {}
        """Positions with a rule that ends at a call after the batch, by that call."""
        self._new: set[int] = set()
        """Positions with a rule of this batch."""
        self._message_builders: dict[int, Callable[[], Message | None]] = {}
        self._appended: dict[int, MessageOfOneCall | None] = {}
        self._sums = LayerSums()

    # -- recording what the part says of the calls of a batch --------------------------------------

    def open_batch(self, stop: int) -> None:
        """Open the next batch: the calls from the end of the last one up to `stop`."""
        self.start, self.stop, self._new = self.stop, stop, set()

    def add_rule(self, p: int, rule: ContentForCallRange) -> None:
        """Record a rule for a position.

        Args:
            p: position of a message.
            rule: its new content, and the calls at which it has it.

        Raises:
            BadArguments: it begins outside the batch, ends before it begins, or contradicts the
                order of the rules before it.
        """
        first = max(self.start, self.rows.arrival(p))
        if not first <= rule.since < self.stop or rule.until <= rule.since:
            self._refuse_calls(p, rule, first)
        rules = self._rules.setdefault(p, [])
        # A new rule begins with the last one or later; after it only where that one has no end
        # (`until % NEVER` is 0 then) or has ended.
        if rules and not rules[-1].since <= rule.since >= rules[-1].until % NEVER:
            self._refuse_order(p, rules[-1], rule)
        rules.append(rule)
        if self.stop <= rule.until < NEVER:
            self._rule_ends.setdefault(rule.until, set()).add(p)
        self._new.add(p)

    def _refuse_calls(self, p: int, rule: ContentForCallRange, first: int) -> NoReturn:
        if first <= rule.since < self.stop:
            raise BadArguments(
                f"The schedule of {self.name} ends a change of message {p} at call {rule.until},"
                f" which begins at call {rule.since}: give a later end."
            )
        raise BadArguments(
            f"The schedule of {self.name} changes message {p} at call {rule.since}: give one of the"
            f" calls {first} to {self.stop - 1}."
        )

    def _refuse_order(self, p: int, last: ContentForCallRange, rule: ContentForCallRange) -> None:
        if rule.since < last.since:
            raise BadArguments(
                f"The schedule of {self.name} changes message {p} at call {rule.since} after a"
                f" change at call {last.since}: change each message in the order of calls."
            )
        if last.since < rule.since:
            raise BadArguments(
                f"The schedule of {self.name} changes message {p} at call {rule.since} while its "
                f"change until call {last.until} is in force: end that one first."
            )

    def add_appended(self, call: int, make: Callable[[], Message | None]) -> None:
        """Record a message for the end of one call; it is built when it is first needed.

        Args:
            call: number of the call, from 0.
            make: returns the message; None: nothing is appended.
        """
        self._message_builders[call] = make

    @property
    def has_rules(self) -> bool:
        """True where this batch has a rule, or any batch an appended message."""
        return bool(self._new or self._message_builders)

    # -- computing the states at the calls of the batch --------------------------------------------

    def compute_states(self) -> None:
        """Compute the states at the calls of the batch, and append their changes to `events`."""
        positions, changes = self._new, list[StateChange]()
        for call in [c for c in self._rule_ends if c < self.stop]:
            positions |= self._rule_ends.pop(call)
        if self._rules:
            protected = self.rows.newly_protected(self.start, self.stop)
            positions.update(p for _, p in protected if p in self._rules)
        for event in select_changes_between(self.before.events, self.start):
            if event.position in self._rules:
                positions.add(event.position)
            else:
                changes.append(event)
        for p in positions:
            changes += self._recompute_states(p)
        changes.sort()  # (call, position) is unique, so no states are compared
        self.events += changes

    def _recompute_states(self, p: int) -> list[StateChange]:
        """Extend the states of a position over the batch; return the changes among them."""
        inputs, protected_from = self.before.states(p), self.rows.stays_from(p)
        rules, states = self._rules[p], self._states.get(p)
        has_one_rule = states is None and len(inputs) == len(rules) == 1
        if (
            has_one_rule
            and protected_from == rules[0].until == NEVER
            and inputs[0].message is self.rows.message(p)
        ):
            return self._apply_only_rule(p, inputs[0], rules[0])
        recorded = self.rows.recorded_state(p)
        if states is None:
            states = self._states[p] = [s for s in inputs if s.call < self.start]
        last, changes = states[-1] if states else recorded, list[StateChange]()
        first_call = max(recorded.call, self.start)
        for call in self._breakpoints(p, first_call, inputs, protected_from):
            state = find_state_in_force(inputs, call)
            if call < protected_from:
                state = self._apply_rule_in_force(p, call, state)
            if state.content != last.content:
                state = state.since(call)
                changes.append(StateChange(call, p, last, state))
                states.append(state)
            elif not states:
                states.append(state)
            last = states[-1]
        return changes

    def _apply_only_rule(
        self, p: int, recorded: MessageState, rule: ContentForCallRange
    ) -> list[StateChange]:
        """Return the change of a message with one rule without an end: the most frequent case."""
        new = self.apply_rule(p, recorded, rule, rule.since)
        if new.content == recorded.content:
            self._states[p] = [recorded]
            return []
        self._states[p] = [new] if rule.since == recorded.call else [recorded, new]
        return [StateChange(rule.since, p, recorded, new)]

    def _breakpoints(
        self, p: int, first: int, inputs: Sequence[MessageState], protected_from: int
    ) -> list[int]:
        """Return the calls of the batch at which the state of a position can change."""
        calls = {first, protected_from}
        for rule in self._rules[p]:
            calls.add(rule.since)
            calls.add(rule.until)
        if len(inputs) > 1:
            calls.update(s.call for s in inputs)
        return sorted([c for c in calls if first <= c < self.stop])

    def _apply_rule_in_force(self, p: int, call: int, state: MessageState) -> MessageState:
        for rule in reversed(self._rules[p]):
            if rule.since <= call < rule.until:
                return self.apply_rule(p, state, rule, call)
        return state

    def apply_rule(
        self, p: int, state: MessageState, rule: ContentForCallRange, call: int
    ) -> MessageState:
        """Return the state that a rule makes of another one, from a call on.

        Args:
            p: position of a message.
            state: its state before the rule.
            rule: its new content.
            call: number of the call from which on the new state holds.

        Raises:
            BadArguments: the message would become larger.
        """
        if isinstance(rule.content, UndoChangeSentinel) or (
            rule.min_chars and state.chars < rule.min_chars
        ):
            return state
        for content in rule.content if isinstance(rule.content, tuple) else (rule.content,):
            if state.message is None:
                break  # hidden already
            new = self._replace_content(p, call, state.message, content)
            if new is None or (
                rule.only_if_smaller and new.message is not None and new.tokens >= state.tokens
            ):
                continue
            if new.tokens > state.tokens:
                raise BadArguments(
                    f"The schedule of {self.name} makes message {p} larger ({state.tokens:,} tokens"
                    f" become {new.tokens:,}): a change may only shrink it; use `append` to add."
                )
            state = new
        return state

    def _replace_content(
        self, p: int, call: int, message: Message, content: str | MessageChange | None
    ) -> MessageState | None:
        """Return the state of a message with other content; None where it stays the same."""
        if isinstance(content, str):
            return self.rows.replaced(p, call, message, content)
        new = None if content is None else content(message)
        if new is None:
            return MessageState(call, None, 0, 0)
        return self.rows.changed(p, call, message, new)

    # -- the interface of a layer ------------------------------------------------------------------

    def state(self, p: int, call: int) -> MessageState:
        """Return the state of a position at a call."""
        states = self._states.get(p)
        return self.before.state(p, call) if states is None else find_state_in_force(states, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all states of a position, in order of calls."""
        states = self._states.get(p)
        return self.before.states(p) if states is None else states

    def touched(self) -> set[int]:
        """Return the positions whose state differs from the recorded message at any call."""
        return self.before.touched() | self._states.keys()

    @property
    def has_appended(self) -> bool:
        """True where a message is appended at any call so far."""
        return bool(self._message_builders) or self.before.has_appended

    def get_appended(self, call: int) -> MessageOfOneCall | None:
        """Return the message appended at a call: this part's, else that of a part before."""
        make = self._message_builders.get(call)
        if make is None:
            return self.before.get_appended(call)
        if call not in self._appended:
            self._appended[call] = self._measure_appended(make)
        return self._appended[call] or self.before.get_appended(call)

    def _measure_appended(self, make: Callable[[], Message | None]) -> MessageOfOneCall | None:
        message = make()
        if message is None:
            return None
        sizes = self.rows.log.measure(message), count_chars(message), hash_content(message)
        return MessageOfOneCall(cast("Callable[[], Message]", make), *sizes)

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call."""
        total = self._sums.at(self, call, kind)
        appended = (
            self.get_appended(call) if self.has_appended and kind != SUM_RESULT_CHARS else None
        )
        if appended is None:
            return total
        return total + (appended.tokens if kind == SUM_TOKENS else appended.chars)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made the state of a position at a call; None: it is unchanged."""
        states = self._states.get(p)
        before = self.before
        if (
            states is None
            or find_state_in_force(states, call).content == before.state(p, call).content
        ):
            return before.origin(p, call)
        return self.part


def find_state_in_force(states: Sequence[MessageState], call: int) -> MessageState:
    """Return the last state that began at a call or before; mostly that is the last of all.

    Args:
        states: the states of one message, by rising call.
        call: number of the call; the first state applies to all calls before its own, too.
    """
    i = len(states) - 1
    while i and states[i].call > call:
        i -= 1
    return states[i]
