"""Layers of a pruning: the interface, the lowest layer (recorded messages), and sums per call."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ctxkit.policies.history.columns import TOOL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.schedules.unpruned_messages import HistoryRows, MessageState
    from ctxkit.session.messages import Message


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


class AppendedMessage(NamedTuple):
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
    """Return the changes at the calls start..stop; without `stop` all from `start` on."""
    first = bisect_left(events, start, key=lambda e: e.call)
    if stop is None:
        return events[first:]
    return events[first : bisect_left(events, stop, first, key=lambda e: e.call)]


# `LayerView` is what other code may read of a layer, `Layer` adds what the stack of parts needs.


class LayerView(Protocol):
    """The states of all messages at each call, after one part of a pruning."""

    rows: HistoryRows

    @property
    def stop(self) -> int:
        """One past the last call that is known."""

    @property
    def events(self) -> Sequence[StateChange]:
        """All changes so far, by call and position, without arrivals of unchanged messages."""

    def state(self, p: int, call: int) -> MessageState:
        """Return the state of a position at a call before `stop`."""

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all states of a position, in order of calls."""

    def touched(self) -> set[int]:
        """Return the positions whose state differs from the recorded message at any call."""

    @property
    def adds(self) -> bool:
        """True where a message is appended at any call so far."""

    def added(self, call: int) -> AppendedMessage | None:
        """Return the message appended at a call only."""

    def total(self, call: int, kind: int) -> int:
        """Return the sum of one kind of size over the messages of a call.

        An appended message counts as tokens and characters, not as a tool result.
        """

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made the state of a position at a call; None: it is unchanged."""


class Layer(LayerView, Protocol):
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
    adds = False

    def __init__(self, rows: HistoryRows) -> None:
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

    def added(self, call: int) -> AppendedMessage | None:  # noqa: ARG002  as above
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

    def at(self, layer: LayerView, call: int, kind: int) -> int:
        """Return the sum of one kind at a call."""
        column, first_call = self._columns.setdefault(kind, []), layer.rows.begin
        if call - first_call >= len(column):
            _extend_sums(layer, column, first_call + len(column), kind)
        return column[call - first_call]


def _extend_sums(layer: LayerView, column: list[int], start: int, kind: int) -> None:
    """Append the sums of the calls from `start` on."""
    recorded = layer.rows.totals(start, layer.stop, kind)
    changes = [0] * len(recorded)
    if column:  # earlier changes still count: the last sum less the recorded sum of that call
        changes[0] = column[-1] - layer.rows.totals(start - 1, start, kind)[0]
    for call, p, was, now in select_changes_between(layer.events, start):
        changes[call - start] += _size_change(layer, p, was, now, kind)
    column.extend(map(add, recorded, accumulate(changes)))


def _size_change(layer: LayerView, p: int, was: MessageState, now: MessageState, kind: int) -> int:
    if kind == SUM_TOKENS:
        return now.tokens - was.tokens
    return now.chars - was.chars if kind == SUM_CHARS or layer.rows.role(p) == TOOL else 0
