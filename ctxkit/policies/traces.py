"""Prunings that say their course, and the bill of all coming calls that is read off it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history import History
from ctxkit.history.columns import ASSISTANT, TOOL
from ctxkit.policies.contents import is_empty
from ctxkit.policies.courses import Course, Untraceable
from ctxkit.policies.samples import fold

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.history.clock import Clock
    from ctxkit.policies.tables import Table
    from ctxkit.tokens.counters import Room

    Bill = tuple[NDArray[Any], NDArray[Any]]

_SHORT = 2
"""Calls that are made one by one: a live step asks for no more, and is not to look at the whole log."""
_PIECE = 16
"""Calls that are made one by one at once: those behind the next edit are made in vain."""
_LEAD = 8
"""Messages of an edited head up to which it is looked at whether any pruning could touch them."""


class Traced:
    """A pruning that says its course; what it sends is billed from that."""

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

    def traced_bill(
        self, history: History, start: int, stop: int, clock: Clock, room: Room
    ) -> Bill:
        """Return prompt and fresh tokens of the calls start..stop: the same as call by call."""
        return traced((self,), self, history, (start, stop), clock, room)


def traced(  # noqa: PLR0917  what `traced_bill` takes
    parts: tuple[Any, ...], whole: Any, history: History, span: tuple[int, int], clock: Clock, room: Room
) -> Bill:
    """Return the bill of a span under prunings in a row; `whole` is the pruning that is called where none is known.

    What is not known from a course is done call by call: a few calls, histories that are `Untraceable` (only the first
    calls of the span), and the calls at which a last part that only `acts` now and then does something. One that tries
    stages of a `ladder` until the prompt is within the limit has the bills of these.
    """
    last = parts[-1] if hasattr(parts[-1], "acts") else None
    start, stop = span
    if stop - start > _SHORT:
        table, first, until = _table(parts[:-1] if last is not None else parts, whole, history, room)
        span = start, min(stop, until)
        if table is not None and span[1] - start > 1:
            bill = table.bill(history, span, clock, first)
            acting = [] if last is None else last.acts(history, span, bill[0], room)
            if len(acting) > _PIECE and hasattr(last, "ladder"):
                bill, acting = _staged(parts, whole, history, span, clock, room, acting, bill)
            return mended(whole, history, span, clock, room, acting, bill) if acting else bill
    return fold(whole, history, (start, min(stop, start + _PIECE)), clock, room)[:2]


def _staged(  # noqa: PLR0917  as `mended`
    parts: tuple[Any, ...],
    whole: Any,
    history: History,
    span: tuple[int, int],
    clock: Clock,
    room: Room,
    acting: list[int],
    bill: Bill,
) -> tuple[Bill, list[int]]:
    """Return a bill with each acting call at the first stage that fits, and the calls at which the stage changes."""
    *before, last = parts
    prompts, fresh = bill[0].copy(), bill[1].copy()
    at, over = np.zeros(len(prompts), np.int64), np.zeros(len(prompts), bool)
    over[np.array(acting) - span[0]] = True
    for n, stage in enumerate(last.ladder, 1):
        table, first, until = _table((*before, stage), whole, history, room, n)
        if table is None or until < span[1]:
            return bill, acting
        own = table.bill(history, span, clock, first)
        prompts[over], fresh[over], at[over] = own[0][over], own[1][over], n
        over &= prompts > room.limit
        if not over.any():
            break
    return (prompts, fresh), (span[0] + 1 + np.flatnonzero(at[1:] != at[:-1])).tolist()


def mended(  # noqa: PLR0917  what `traced_bill` takes, and its result
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
        prompts, fresh, _ = fold(whole, history, (a, b), clock, room)
        skip = a < acting[at]
        bill[0][a - start : b - start] = prompts
        bill[1][a - start + skip : b - start] = fresh[skip:]
        at = end
    return bill


def _table(
    parts: tuple[Any, ...], whole: Any, history: History, room: Room, stage: int = 0
) -> tuple[Table | None, int, int]:
    """Return the changes that parts make (None: `Untraceable`), and before which call they are known.

    Between them: the first position of the table that is the history's own tail (-1: all are the history's).

    Behind a head that no pruning can touch the table of the whole log holds; else one is made for this head.
    """
    log = history.log
    state = (len(log), log.calls)
    alone = not parts or (all(p.alone for p in parts) and _plain(history))
    view, head = (History.start(log, log.calls), None) if alone else (history.at(log.calls), history.head)
    cell = _cell(log, parts, whole, alone, stage)
    known = cell[0] if cell else None
    if known is None or known[0] != state or known[1] is not head or known[2] != view.lo:
        cell[:] = [known := (state, head, view.lo, _traced(parts, view, room))]
    table, until = known[3]
    return table, history.lo if alone else -1, until


def _cell(log: Log, parts: tuple[Any, ...], whole: Any, alone: bool, stage: int) -> list[Any]:
    """Return where a log keeps the table of some parts: the same for equal ones, found at once for the same ones."""
    mark = ("course of", id(whole), alone, stage)
    seen = log.memo.get(mark)
    if seen is None or seen[0] is not whole:
        key = ("course", alone, *(_key(p) for p in parts))
        seen = log.memo[mark] = whole, parts, log.memo.setdefault(key, [])
    cell: list[Any] = seen[2]
    return cell


def _traced(parts: tuple[Any, ...], view: History, room: Room) -> tuple[Table | None, int]:
    course = Course(view)
    try:
        for part in parts:
            part.trace(course, room)
    except Untraceable:
        return None, 0
    return course.table(), course.until


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
