"""What went out at a call of a run: each message as it was sent, what it was before, who changed
it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ctxkit.history import History
from ctxkit.history.head_items import content_at, content_key
from ctxkit.messages import Message, Sized
from ctxkit.policies.chain import applied
from ctxkit.policies.policy import name_of
from ctxkit.policies.scheduled import split
from ctxkit.schedules import Schedule
from ctxkit.schedules.rows import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine.marks import Kept
    from ctxkit.history import Log
    from ctxkit.policies.chain import Part
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.scheduled import Scheduled
    from ctxkit.tokens.counters import Room

FIXED = "fixed"
"""The kind of the item that stands for all that no message of the log holds."""


class SentItem(NamedTuple):
    """One message of a prompt, as it was sent."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed; 0 where a rule put it there."""
    changed_by: str | None
    """The part of the rules that changed it or put it there; None: it was sent as it was said."""
    row: int = -1
    """Its place among the messages that were said; -1: it is none of them."""
    pruned: bool = False
    """It was changed for this call alone, by a pruning; False: by a compaction, for good."""


class Turnover(NamedTuple):
    """How a prompt differs from the one before it."""

    call: int
    anew: bool
    """True: nothing of the prompt before counts, and all of this one has come."""
    came: list[State]
    gone: list[State]
    fixed: int
    """Tokens that no message holds."""


class SentRun(Protocol):
    """What a run tells of itself."""

    log: Log
    rules: Rules
    room: Room
    history: History
    cuts: list[Kept]
    begin: int
    call: int


class SentCalls:
    """The prompts of a run, worked out when they are asked for; the log and the run stay as they
    are.
    """

    def __init__(self, run: SentRun) -> None:
        self._run = run
        self._schedules: dict[tuple[int, int], Schedule] = {}

    def at(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call: first what no message holds, then the messages in order.

        None: what the next call would be sent, if nothing were compacted.
        """
        items, _ = self._found(call)
        run = self._run
        fixed = run.history.at(run.call).fixed if call is None else run.log.fixed_at[call]
        if fixed:
            said = Message(role="system", id=FIXED, kind=FIXED, parts=(Sized(FIXED, tokens=fixed),))
            items.insert(0, SentItem(said, fixed, fixed, None))
        return tuple(items)

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that stood at a call and that prunings left out, with the part
        that did.
        """
        return self._found(call)[1]

    def turnovers(self, start: int = 0, stop: int | None = None) -> Iterator[Turnover]:
        """Yield what comes and goes at each of the calls start..stop, the first of them anew.

        Their prompts are gone through once, however many there are; where a part says no schedule,
        each prompt is worked out by itself.
        """
        stop = self._run.call if stop is None else min(stop, self._run.call)
        begins = {start, self._run.begin, *(c.call for c in self._run.cuts)}
        bounds = [*sorted(c for c in begins if start <= c < stop), stop]
        for begin, end in pairwise(bounds):
            known, rest = split(self._pruning(begin))
            if rest:
                yield from (self.whole(call, self.at(call)) for call in range(begin, end))
            else:
                history = self._history(begin).at(begin)
                yield from _turnovers(Schedule(history, known, self._run.room).extend(end), end)

    # -- inside ------------------------------------------------------------------------------------

    def _pruning(self, call: int) -> Any:
        """Return what prunes a call: calls before the run began went out as the record says."""
        return self._run.rules.pruning if call >= self._run.begin else None

    def _history(self, call: int) -> History:
        """Return the history in force at a call, of the call at which it came into force."""
        cut = bisect_right([c.call for c in self._run.cuts], call) - 1
        if cut < 0:
            return History.start(self._run.log)
        return self._run.cuts[cut].new.at(self._run.cuts[cut].call)

    def _schedule(self, call: int, parts: Sequence[Scheduled]) -> Schedule:
        """Return the schedule over the history in force at a call."""
        history, begin = self._history(call), self._run.begin if call >= self._run.begin else 0
        start = max(history.call, begin)
        key = len([c for c in self._run.cuts if c.call <= call]), start
        if key not in self._schedules:
            self._schedules[key] = Schedule(history.at(start), parts, self._run.room)
        return self._schedules[key]

    def _found(self, call: int | None) -> tuple[list[SentItem], dict[int, str]]:
        """Return the messages of a prompt, and the rows that were left out of it."""
        run = self._run
        known, rest = split(run.rules.pruning if call is None else self._pruning(call))
        if call is None:
            call = run.call
            schedule = Schedule(run.history.at(call), known, run.room)
        else:
            schedule = self._schedule(call, known)
        out: dict[int, str] = {}
        done = (c.by for c in reversed(run.cuts) if c.call <= call)
        by = next(filter(None, done), "") if run.rules.policy is None else name_of(run.rules.policy)
        items = list(_scheduled(schedule.extend(call + 1), call, by or "a compaction", out))
        if rest:
            items = _called(schedule.left(call), rest, items, run, out)
        return items, out

    @staticmethod
    def whole(call: int, items: Sequence[SentItem]) -> Turnover:
        """Return a call with all that it was sent, as if nothing were known of the one before."""
        fixed, came = 0, list[State]()
        for item in items:
            if item.message.kind == FIXED:
                fixed = item.tokens
            else:
                same = item.row >= 0 and item.changed_by is None
                key = content_key(item.message)  # one text in two places counts as what each was
                content = -item.row - 1 if same else content_at(item.row, key)
                came.append(State(call, item.message, item.tokens, content))
        return Turnover(call, anew=True, came=came, gone=[], fixed=fixed)


def _turnovers(schedule: Schedule, stop: int) -> Iterator[Turnover]:
    """Yield the calls of a schedule that was extended once, from its first call on."""
    rows, top, n, i = schedule.rows, schedule.top, 0, 0
    events, before = top.events, None
    for call in range(rows.begin, stop):
        came, gone = [rows.said(p) for p in range(n, rows.shown(call))], list[State]()
        n = rows.shown(call)
        while i < len(events) and events[i].call <= call:
            gone.append(events[i].was)
            came.append(events[i].now)
            i += 1
        if before is not None:
            gone.append(before)
        added = top.added(call)
        before = None if added is None else State(call, added.message, added.tokens, added.content)
        if before is not None:
            came.append(before)
        yield Turnover(call, call == rows.begin, came, gone, rows.log.fixed_in(call))


def _scheduled(
    schedule: Schedule, call: int, policy: str, out: dict[int, str]
) -> Iterator[SentItem]:
    """Yield what a schedule leaves of a call's messages; note in `out` the rows that it
    leaves out.
    """
    rows, log = schedule.rows, schedule.rows.log
    changed = dict(schedule.changed(call))
    for p in range(rows.shown(call)):
        said = rows.said(p)
        state = changed.get(p, said)
        row = rows.row(p)
        part = schedule.top.origin(p, call) if p in changed else None
        if state.message is None:
            out[row] = name_of(part)
            continue
        edited = (
            row < 0 or said.content != -row - 1
        )  # by a compaction, that also puts in what is new
        by = name_of(part) if part is not None else policy if edited else None
        raw = log.tokens.sizes[row] if row >= 0 else 0 if by else said.tokens
        yield SentItem(state.message, state.tokens, raw, by, row, part is not None)
    added = schedule.top.added(call)
    if added is not None:
        yield SentItem(added.message, added.tokens, 0, name_of(schedule.adder(call)), pruned=True)


def _called(
    view: History, parts: Sequence[Part], items: list[SentItem], run: SentRun, out: dict[int, str]
) -> list[SentItem]:
    """Return what parts leave that are asked call by call."""
    for part in parts:
        new = applied(part, view, run.room)
        if new is not view:
            known = {(item.row, item.message.id.split("~")[0]): item for item in items}
            items = [_item(new, p, part, known) for p in range(len(new))]
            there = {item.row for item in items}
            out.update({row: name_of(part) for row, _ in known if row >= 0 and row not in there})
        view = new
    return items


def _item(view: History, p: int, part: Any, known: dict[tuple[int, str], SentItem]) -> SentItem:
    item, message = view.item(p), view[p]
    before = known.get((item.row, message.id.split("~")[0]))
    if before is not None and before.message.parts == message.parts:
        return before
    raw = before.raw_tokens if before is not None else 0
    return SentItem(message, item.tokens, raw, name_of(part), item.row, pruned=True)
