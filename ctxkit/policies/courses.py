"""What a pruning makes of each message over the coming calls, worked out once; the bill of all calls is read off it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.history import History
from ctxkit.history.columns import ASSISTANT, TOOL, chars
from ctxkit.policies.contents import is_empty
from ctxkit.policies.outlooks import curve as folded
from ctxkit.policies.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ctxkit.history.log import Clock
    from ctxkit.messages import Message
    from ctxkit.tokens.counters import Room

    Make = Callable[[Message], Message | None]
    Bill = tuple[NDArray[Any], NDArray[Any]]

_SHORT = 2
"""Calls that are made one by one: a live step asks for no more, and is not to look at the whole log."""
_LEAD = 8
"""Messages of an edited head up to which it is looked at whether any pruning could touch them."""


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

    def of(self, p: int) -> list[State]:
        """Return the states of a position, in order."""
        found = self.states.get(p)
        return [State(int(self.arrive[p]), self.shown[p], self.shown.item(p).tokens)] if found is None else found

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
                if not out or out[-1][1:] != new[1:]:
                    out.append(State(call, *new[1:]))
        if out != was:
            self.states[p] = out

    def text(self, p: int, start: float, text: str) -> None:
        """Let a tool result say one text from a call on, where this is smaller: what a mask with a text does."""
        if self.shown.row(p) < 0:
            raise Untraceable
        size = self.shown.placeholder_size(text)
        if not self.stays[p] and start < inf:
            if p in self.states:
                raise Untraceable
            first = self.of(p)[0]
            if first.tokens > size:
                kept = [first] if start > first.call else []
                self.states[p] = [*kept, State(max(int(start), first.call), first.message, size)]

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
            size, begin = self.shown.item(p).tokens, int(self.arrive[p])
            for i, state in enumerate(states):
                if i or state.tokens != size:
                    found.append((state.call, p, state.tokens - size, state.call > begin))
                size = state.tokens
        return Table.of(found, self.shown.sizes)


class Traced:
    """A pruning that says its course; `curve` comes from that."""

    @property
    def alone(self) -> bool:
        """True where what becomes of a message depends on no message before its group."""
        return True

    def trace(self, course: Course, room: Room) -> None:
        """Add what this pruning does to the states of the messages.

        Raises:
            Untraceable: it does not know for this history.
        """
        raise NotImplementedError

    def curve(self, history: History, start: int, stop: int, clock: Clock, room: Room) -> Bill:
        """Return prompt and fresh tokens of the calls start..stop: the same as call by call."""
        return traced((self,), self, history, (start, stop), clock, room)


def traced(  # noqa: PLR0917  what `curve` takes
    parts: tuple[Any, ...], whole: Any, history: History, span: tuple[int, int], clock: Clock, room: Room
) -> Bill:
    """Return the bill of a span under prunings in a row; `whole` is the pruning that is called where none is known.

    What is not known from a course is done call by call: a few calls, histories that are `Untraceable`, and the calls
    at which a last part that only `acts` now and then does something.
    """
    last = parts[-1] if hasattr(parts[-1], "acts") else None
    if span[1] - span[0] > _SHORT:
        try:
            table, first = _table(parts[:-1] if last is not None else parts, history, room)
        except Untraceable:
            pass
        else:
            prompts, fresh = table.bill(history, span, clock, first)
            acting = [] if last is None else last.acts(history, span, prompts, room)
            return mended(whole, history, span, clock, room, acting, (prompts, fresh)) if acting else (prompts, fresh)
    return folded(whole.__call__, history, *span, clock, room)


def mended(  # noqa: PLR0917  what `curve` takes, and its result
    whole: Any,
    history: History,
    span: tuple[int, int],
    clock: Clock,
    room: Room,
    acting: list[int],
    bill: Bill,
) -> Bill:
    """Return a bill with some calls, and what is fresh after them, done one by one."""
    start, stop = span
    at = 0
    while at < len(acting):
        end = at + 1
        while end < len(acting) and acting[end] - acting[end - 1] <= 1:
            end += 1
        a, b = max(acting[at] - 1, start), min(acting[end - 1] + 2, stop)
        prompts, fresh = folded(whole.__call__, history, a, b, clock, room)
        skip = a < acting[at]
        bill[0][a - start : b - start] = prompts
        bill[1][a - start + skip : b - start] = fresh[skip:]
        at = end
    return bill


def _table(parts: tuple[Any, ...], history: History, room: Room) -> tuple[Table, int]:
    """Return the changes that parts make, and the first position of the table that is the history's own tail (-1: all).

    Behind a head that no pruning can touch the table of the whole log holds; else one is made for this head.
    """
    log = history.log
    key = ("course", *(_key(p) for p in parts))
    state = (len(log), log.calls)
    alone = not parts or (all(p.alone for p in parts) and _plain(history))
    if alone:
        view, head = History.start(log, log.calls), None
    else:
        key, view, head = (*key, "head"), history.at(log.calls), history.head
    known = log.memo.get(key)
    if known is None or known[0] != state or known[1] is not head or known[2] != view.lo:
        known = log.memo[key] = (state, head, view.lo, parts, _traced(parts, view, room))
    table = known[4]
    if table is None:
        raise Untraceable
    return table, history.lo if alone else -1


def _traced(parts: tuple[Any, ...], view: History, room: Room) -> Table | None:
    course = Course(view)
    try:
        for part in parts:
            part.trace(course, room)
    except Untraceable:
        return None
    return course.table()


def _key(part: Any) -> Any:
    """Return what a part is known by: itself, or its identity where it cannot be hashed (the memo keeps it alive)."""
    try:
        hash(part)
    except TypeError:
        return id(part)
    return part


def _plain(history: History) -> bool:
    """Say whether the head is short and holds only inputs and summaries that say something."""
    head, log = history.head, history.log
    if head.size > _LEAD:
        return False
    return not any(i.role(log) in (ASSISTANT, TOOL) or is_empty(i.message(log)) for i in head.items)
