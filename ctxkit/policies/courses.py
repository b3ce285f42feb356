"""What a pruning makes of each message over the coming calls, worked out once."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.history.columns import chars
from ctxkit.messages import Text
from ctxkit.policies.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message, ToolCall

    Make = Callable[[Message], Message | None]

_replace = msgspec.structs.replace


class Untraceable(Exception):
    """A history for which a pruning does not know its course."""


class State(NamedTuple):
    """What a message says from a call on."""

    call: int
    message: Message | None
    """None: it is not shown."""
    tokens: int


class Course:
    """The states of all messages of a history, to which each pruning of a chain adds its own.

    `shown` holds the messages up to the last call of the log; `arrive[p]` is the call that is first sent position `p`
    (0: it stands in the edited head).
    """

    def __init__(self, shown: History) -> None:
        self.shown, self.log = shown, shown.log
        upto = np.array(self.log.upto, np.int64)
        rows = np.arange(shown.lo, shown.hi)
        late = np.searchsorted(upto, rows, side="right")
        self.arrive: NDArray[Any] = np.concatenate((np.zeros(shown.head.size, np.int64), late))
        self.count: NDArray[Any] = shown.head.size + np.maximum(upto - shown.lo, 0)
        """Messages shown at each call of the log."""
        self.stays: NDArray[Any] = shown.stays
        self.states: dict[int, list[State]] = {}
        self.until = len(self.log.upto)
        """The first call for which the course is not known."""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """What is shown, before any change."""
        return self.shown.messages

    @cached_property
    def sizes(self) -> list[int]:
        """Its tokens."""
        found: list[int] = self.shown.sizes.tolist()
        return found

    def of(self, p: int) -> list[State]:
        """Return the states of a position, in order."""
        found = self.states.get(p)
        return [State(int(self.arrive[p]), self.messages[p], self.sizes[p])] if found is None else found

    def long(self, mask: NDArray[Any], low: int) -> list[int]:
        """Return the positions of a mask at which more than `low` characters stand, or did not always stand."""
        often = np.zeros(len(mask), bool)
        often[list(self.states)] = True
        found: list[int] = np.flatnonzero(mask & (often | (self.shown.chars > low))).tolist()
        return found

    def each(self, positions: Iterable[int], low: int, make: Make) -> None:
        """Let positions say what `make` gives of them as soon as they are there, where they have over `low` chars."""
        for p in positions:
            self.change(p, 0, lambda m: make(m) if chars(m) > low else m)

    def change(self, p: int, start: float, make: Make, *, stop: float = inf, smaller: bool = True) -> None:
        """Let a position say at the calls start..stop what `make` gives of what it says there; what stays, stays."""
        if self.stays[p] or start >= stop:
            return
        was, out = self.of(p), list[State]()
        ends = [*(s.call for s in was[1:]), inf]
        for state, end in zip(was, ends, strict=True):
            cuts = sorted({state.call, *(int(c) for c in (start, stop) if state.call < c < end)})
            for call in cuts:
                new = self._made(p, state, make, smaller) if start <= call < stop else state
                _add(out, call, new)
        if out != was:
            self.states[p] = out

    def text(self, p: int, start: float, text: str) -> None:
        """Let a message say one text from a call on, where this is smaller: what a mask with a text does."""
        if self.shown.row(p) < 0:
            raise Untraceable
        if self.stays[p] or start == inf:
            return
        was, out = self.of(p), list[State]()
        new = State(int(start), _replace(self.messages[p], parts=(Text(text),)), self.shown.placeholder_size(text))
        for state, end in zip(was, [*(s.call for s in was[1:]), inf], strict=True):
            larger = state.message is not None and state.tokens > new.tokens and start < end
            if not larger or start > state.call:
                _add(out, state.call, state)
            if larger:
                _add(out, max(new.call, state.call), new)
        if out != was:
            self.states[p] = out

    def need_calls(self, key: Callable[[ToolCall], object] = lambda _: None) -> None:
        """Refuse where a part before left out a message or a call, or changed what `key` gives of one.

        Raises:
            Untraceable: it did; a part that counts messages, or reads calls, cannot do so in the log then.
        """
        for p, states in self.states.items():
            said = [key(c) for c in self.messages[p].tool_calls]
            if any(s.message is None or [key(c) for c in s.message.tool_calls] != said for s in states):
                raise Untraceable

    def _made(self, p: int, state: State, make: Make, smaller: bool) -> State:
        was = state.message
        if was is None:
            return state
        new = make(was)
        if new is None:
            return State(state.call, None, 0)
        if new is was or (new.parts == was.parts and new.role == was.role):
            return state
        size = self.log.measure(new, self.shown.row(p))
        return state if smaller and size >= state.tokens else State(state.call, new, size)

    def table(self) -> Table:
        """Return all changes as one table."""
        found: list[tuple[int, int, int, bool]] = []
        for p, states in self.states.items():
            size, begin = self.sizes[p], int(self.arrive[p])
            for i, state in enumerate(states):
                if i or state.tokens != size:
                    found.append((state.call, p, state.tokens - size, state.call > begin))
                size = state.tokens
        return Table.of(found, self.shown.sizes)


def _add(states: list[State], call: int, state: State) -> None:
    """Add what is said from a call on, unless it is what is said already."""
    if not states or states[-1][1:] != state[1:]:
        states.append(state if call == state.call else State(call, *state[1:]))
