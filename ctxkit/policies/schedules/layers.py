"""What every layer of a pruning can be asked, the messages as said, and running sums over calls."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ctxkit.policies.history.columns import TOOL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.schedules.rows import HistoryRows, MessageState
    from ctxkit.session.messages import Message


class StateChange(NamedTuple):
    """A position says something else from a call on than at the call before."""

    call: int
    position: int
    was: MessageState
    now: MessageState


class AppendedMessage(NamedTuple):
    """A message at the end of one call alone."""

    make: Callable[[], Message]
    tokens: int
    chars: int
    content: int

    @property
    def message(self) -> Message:
        """The message, made anew: of many calls' long lists only the sizes are kept."""
        return self.make()


def changes_between(
    events: Sequence[StateChange], start: int, stop: int | None = None
) -> Sequence[StateChange]:
    """Return what changed at the calls start..stop; None: at all from `start` on."""
    a = bisect_left(events, start, key=lambda e: e.call)
    b = len(events) if stop is None else bisect_left(events, stop, a, key=lambda e: e.call)
    return events[a:b]


class LayerView(Protocol):
    """What a part, or one of its forms, leaves of the messages, call by call."""

    rows: HistoryRows

    @property
    def stop(self) -> int:
        """One past the last call that is known."""

    @property
    def events(self) -> Sequence[StateChange]:
        """All that changed so far, in order; messages arrive as they were said, unheard."""

    def state(self, p: int, call: int) -> MessageState:
        """Return what a position says at a call that is known."""

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all that it says, in order."""

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""

    def added(self, call: int) -> AppendedMessage | None:
        """Return what stands at the end of a call alone."""

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Rows.totals` has them.

        What is `added` is counted, but is no result.
        """

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says at a call; None: it is as said."""


class Layer(LayerView, Protocol):
    """What a part leaves of the messages; brought on by `extend`."""

    def extend(self, stop: int) -> None:
        """Say what becomes of all messages up to a call."""

    def branches(self) -> Sequence[Layer]:
        """Return the layers of which each call is given one: itself, where there are no stages."""

    def taken(self, call: int) -> int:
        """Return which of them a call is given."""


class UnprunedLayer:
    """The messages as they were said: what the first part is given."""

    events: Sequence[StateChange] = ()
    adds = False

    def __init__(self, rows: HistoryRows) -> None:
        self.rows, self.stop = rows, rows.begin

    def extend(self, stop: int) -> None:
        """Take in the rows of the new calls."""
        self.stop = max(stop, self.stop)

    def state(self, p: int, call: int) -> MessageState:  # noqa: ARG002  as every layer is asked
        """Return what a position says."""
        return self.rows.said(p)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return the one thing that it says."""
        return (self.rows.said(p),)

    def touched(self) -> set[int]:
        """Return no positions."""
        return set()

    def added(self, call: int) -> AppendedMessage | None:  # noqa: ARG002  as above
        """Return nothing."""
        return None

    def total(self, call: int, kind: int) -> int:
        """Return tokens, characters or characters of results of a call's messages."""
        return self.rows.totals(call, call + 1, kind)[0]

    def origin(self, p: int, call: int) -> Any:  # noqa: ARG002  as above
        """Return None: nobody changed it."""
        return None

    def branches(self) -> Sequence[Layer]:
        """Return itself."""
        return (self,)

    def taken(self, call: int) -> int:  # noqa: ARG002  as above
        """Return the only one."""
        return 0


SUM_TOKENS, SUM_CHARS, SUM_RESULT_CHARS = 0, 1, 2
"""What is summed up: tokens, characters, characters of tool results."""


class LayerSums:
    """The sums over the messages of each call of a layer; each is followed from when it is first
    asked for. They do not hold the layer, which holds them, so that a run is let go at once.
    """

    def __init__(self) -> None:
        self._columns: dict[int, list[int]] = {}
        """Each sum at each call, from the first on."""

    def at(self, layer: LayerView, call: int, kind: int) -> int:
        """Return a sum at a call of the layer."""
        column, begin = self._columns.setdefault(kind, []), layer.rows.begin
        if call - begin >= len(column):
            _extend_sums(layer, column, begin + len(column), kind)
        return column[call - begin]


def _extend_sums(layer: LayerView, column: list[int], start: int, kind: int) -> None:
    """Work out a sum for the calls that are new."""
    said = layer.rows.totals(start, layer.stop, kind)
    more = [0] * len(said)
    if column:
        more[0] = column[-1] - layer.rows.totals(start - 1, start, kind)[0]
    for call, p, was, now in changes_between(layer.events, start):
        more[call - start] += _size_change(layer, p, was, now, kind)
    column.extend(map(add, said, accumulate(more)))


def _size_change(layer: LayerView, p: int, was: MessageState, now: MessageState, kind: int) -> int:
    if kind == SUM_TOKENS:
        return now.tokens - was.tokens
    return now.chars - was.chars if kind == SUM_CHARS or layer.rows.role(p) == TOOL else 0
