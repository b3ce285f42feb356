"""What went out at a call of a run: each message as it was sent, what it was before, who changed it."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.history import History
from ctxkit.messages import Message, Sized
from ctxkit.policies.chain import applied, in_a_row
from ctxkit.policies.policy import name_of
from ctxkit.policies.scheduled import says_when
from ctxkit.schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine.runs import Run
    from ctxkit.policies.policy import Part

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


class SentCalls:
    """The prompts of a run, worked out when they are asked for; the log and the run stay as they are."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._schedules: dict[int, Schedule] = {}

    def at(self, call: int) -> tuple[SentItem, ...]:
        """Return what went out at a call: first what no message holds, then the messages in order."""
        run = self._run
        cut = bisect_right([c.call for c in run.cuts], call) - 1
        known, rest = _parts(run.rules.pruning)
        schedule = self._schedule(cut, call, known)
        items = list(_scheduled(schedule, call, name_of(run.rules.policy)))
        if rest:
            items = _called(schedule.left(call), rest, items, run)
        for p, message in run.went_whole.get(call, {}).items():
            items[p] = _whole(items[p], message, run)
        fixed = schedule.history.at(call).fixed
        if fixed:
            said = Message(role="system", id=FIXED, kind=FIXED, parts=(Sized(FIXED, tokens=fixed),))
            items.insert(0, SentItem(said, fixed, fixed, None))
        return tuple(items)

    def _schedule(self, cut: int, call: int, parts: Sequence[Any]) -> Schedule:
        """Return the schedule over the history in force after so many compactions."""
        found = self._schedules.get(cut)
        if found is None or found.rows.begin > call:
            begun = self._run.cuts[cut].new if cut >= 0 else None
            first = History.start(self._run.log)
            history = first if begun is None else begun.at(self._run.cuts[cut].call)
            found = self._schedules[cut] = Schedule(history, parts, self._run.room)
        return found.extend(call + 1)


def _parts(pruning: Part | None) -> tuple[Sequence[Part], Sequence[Part]]:
    """Return the parts that say a schedule, and those from the first on that does not."""
    if pruning is None:
        return (), ()
    parts = in_a_row(pruning)
    known = next((n for n, part in enumerate(parts) if not says_when(part)), len(parts))
    return parts[:known], parts[known:]


def _scheduled(schedule: Schedule, call: int, policy: str) -> Iterator[SentItem]:
    """Yield what a schedule leaves of a call's messages."""
    rows, log = schedule.rows, schedule.rows.log
    changed = dict(schedule.changed(call))
    for p in range(rows.shown(call)):
        said = rows.said(p)
        state = changed.get(p, said)
        if state.message is None:
            continue
        row = rows.row(p)
        part = schedule.top.origin(p, call) if p in changed else None
        edited = row < 0 or said.content != -row - 1  # by a compaction, that also puts in what is new
        by = name_of(part) if part is not None else policy if edited else None
        raw = log.tokens.sizes[row] if row >= 0 else 0 if by else said.tokens
        yield SentItem(state.message, state.tokens, raw, by, row)
    added = schedule.top.added(call)
    if added is not None:
        yield SentItem(added.message, added.tokens, 0, name_of(schedule.adder(call)))


def _called(
    view: History, parts: Sequence[Any], items: list[SentItem], run: Run
) -> list[SentItem]:
    """Return what parts leave that are asked call by call."""
    for part in parts:
        new = applied(part, view, run.room)
        if new is not view:
            known = {(item.row, item.message.id.split("~")[0]): item for item in items}
            items = [_item(new, p, part, known) for p in range(len(new))]
        view = new
    return items


def _whole(item: SentItem, message: Message, run: Run) -> SentItem:
    """Return a message that went in the place of its stub; as it was said where that is what it says."""
    said = item.row >= 0 and run.log.messages[item.row].parts == message.parts
    tokens = item.raw_tokens if said else run.log.measure(message)
    return item._replace(
        message=message, tokens=tokens, changed_by=None if said else item.changed_by
    )


def _item(view: History, p: int, part: Any, known: dict[tuple[int, str], SentItem]) -> SentItem:
    item, message = view.item(p), view[p]
    before = known.get((item.row, message.id.split("~")[0]))
    if before is not None and before.message.parts == message.parts:
        return before
    raw = before.raw_tokens if before is not None else 0
    return SentItem(message, item.tokens, raw, name_of(part), item.row)
