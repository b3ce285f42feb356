"""What every layer of a pruning can be asked, and the lowest one: messages as they were said."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.messages import Message
    from ctxkit.schedules.rows import Rows, State


class Changed(NamedTuple):
    """A position says something else from a call on than at the call before."""

    call: int
    position: int
    was: State
    now: State


class Added(NamedTuple):
    """A message at the end of one call alone."""

    make: Callable[[], Message]
    tokens: int
    chars: int
    content: int

    @property
    def message(self) -> Message:
        """The message, made anew: of many calls' long lists only the sizes are kept."""
        return self.make()


def since(events: Sequence[Changed], start: int, stop: int | None = None) -> Sequence[Changed]:
    """Return what changed at the calls start..stop; None: at all from `start` on."""
    a = bisect_left(events, start, key=lambda e: e.call)
    b = len(events) if stop is None else bisect_left(events, stop, a, key=lambda e: e.call)
    return events[a:b]


class Left(Protocol):
    """What a part, or one of its forms, leaves of the messages, call by call."""

    rows: Rows

    @property
    def stop(self) -> int:
        """One past the last call that is known."""

    @property
    def events(self) -> Sequence[Changed]:
        """All that changed so far, in order; messages arrive as they were said, unheard."""

    def state(self, p: int, call: int) -> State:
        """Return what a position says at a call that is known."""

    def states(self, p: int) -> Sequence[State]:
        """Return all that it says, in order."""

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""

    def added(self, call: int) -> Added | None:
        """Return what stands at the end of a call alone."""

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Rows.totals` has them.

        What is `added` is counted, but is no result.
        """

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says at a call; None: it is as said."""


class Layer(Left, Protocol):
    """What a part leaves of the messages; brought on by `extend`."""

    def extend(self, stop: int) -> None:
        """Say what becomes of all messages up to a call."""

    def branches(self) -> Sequence[Layer]:
        """Return the layers of which each call is given one: itself, where there are no stages."""

    def taken(self, call: int) -> int:
        """Return which of them a call is given."""


class Said:
    """The messages as they were said: what the first part is given."""

    events: Sequence[Changed] = ()
    adds = False

    def __init__(self, rows: Rows) -> None:
        self.rows, self.stop = rows, rows.begin

    def extend(self, stop: int) -> None:
        """Take in the rows of the new calls."""
        self.stop = max(stop, self.stop)

    def state(self, p: int, call: int) -> State:  # noqa: ARG002  as every layer is asked
        """Return what a position says."""
        return self.rows.said(p)

    def states(self, p: int) -> Sequence[State]:
        """Return the one thing that it says."""
        return (self.rows.said(p),)

    def touched(self) -> set[int]:
        """Return no positions."""
        return set()

    def added(self, call: int) -> Added | None:  # noqa: ARG002  as above
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
