"""Which messages and inserted texts each call is shown, as spans of calls, for records, replays and
runs.

The clock has two ticks a call: before call `c` all that was said since the last one is there
(`2 c`), then compactions and prunings change it, and that is what the call is sent (`2 c + 1`).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.metrics.item_index import make_text_key
from ctxkit.metrics.recorded_compactions import group_edits
from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.engine import Compaction, Run
    from ctxkit.engine.segments import Segment
    from ctxkit.metrics.item_index import MessageRows
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.layers import StateChange
    from ctxkit.policies.schedules.pruning_schedule import Schedule
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]


_ADDED = -(1 << 63)
"""The key of what a pruning puts at the end of each call."""


# -- a session with its edits ----------------------------------------------------------------------


def get_session_visibility(rows: MessageRows, session: Session) -> Visibility:
    """Return what each call of a session is shown by its own edits."""
    telling, keys, new = VisibilityRecorder(rows), dict[str, list[int]](), -1
    replies = [c.position for c in session.calls]
    row, at = 0, 0
    for cut in group_edits(session):
        for entry in session.path[at : cut.position]:
            if isinstance(entry, Message) and entry.visible:
                keys.setdefault(entry.id, []).append(row)
                row += 1
        call, at = bisect_left(replies, cut.position), cut.position + len(cut.edits)
        for edit in cut.edits:
            new = _record_edit(telling, keys, edit, 2 * call + 1, new)
            if is_stored_elsewhere(
                edit.reason, edit.method, *(m.text[:200] for m in edit.inserted[:1])
            ):
                telling.flagged.add(2 * call + 1)
        telling.moments[call] = cut.number
    return telling.told()


def _record_edit(
    telling: VisibilityRecorder, keys: dict[str, list[int]], edit: Edit, time: int, new: int
) -> int:
    """Take down an edit; return the next free key of a text."""
    if edit.kind in ("shortened", "replaced"):
        for target, message in dict(zip(edit.targets, edit.inserted, strict=False)).items():
            places = keys.pop(target, [])
            for key in places:
                telling.show(key, telling.text(message), time)
            keys.setdefault(message.id, []).extend(places)
        return new
    for target in edit.targets:
        for key in keys.pop(target, ()):
            telling.show(key, None, time)
    for message in edit.inserted:
        telling.show(new, telling.text(message), time)
        keys.setdefault(message.id, []).append(new)
        new -= 1
    return new


# -- a run -----------------------------------------------------------------------------------------


def get_run_visibility(rows: MessageRows, done: Run) -> Visibility:
    """Return what each call of a run was shown, its compactions and its prunings done."""
    telling, last = VisibilityRecorder(rows), _HistoryKeys((), {}, 0, set())
    for number, stretch in enumerate(done.stretches()):
        if stretch.cut is not None:
            telling.moments[stretch.start] = number - 1
            _flag_stored_elsewhere(telling, stretch.cut)
        last = (_record_call_by_call if stretch.rest else _record_schedule)(telling, last, stretch)
    if done.rules.pruning is not None:
        telling.moments = {call: n for n, call in enumerate(sorted(telling.moments))}
    return telling.told()


class _HistoryKeys(NamedTuple):
    """What a history shows before any pruning."""

    keys: tuple[int, ...]
    """Of its head, in order."""
    head: dict[int, int]
    """What stands for them."""
    lo: int
    """The first row of its tail."""
    over: set[int]
    """Keys that a pruning changed while it was in force."""

    @classmethod
    def of(cls, telling: VisibilityRecorder, history: History) -> _HistoryKeys:
        head: dict[int, int] = {}
        log, of, made = history.log, history.head, telling.made
        columns = (of.column(log, name).tolist() for name in ("rows", "keys"))
        for row, key in zip(*columns, strict=True):
            what = row
            if key:
                what = made.get((row, key))
                if what is None:
                    what = made[row, key] = telling.text(of.makers[key].message(log, row))
            head[row if row >= 0 else -key - 1] = what
        return cls(tuple(head), head, history.lo, set())

    def at(self, key: int) -> int | None:
        return self.head.get(key, key if key >= self.lo else None)


def _flag_stored_elsewhere(telling: VisibilityRecorder, cut: Compaction) -> None:
    texts = [step.new[0].message(cut.new.log).text[:200] for step in cut.steps if step.new]
    if is_stored_elsewhere(*(w for step in cut.steps for w in step.words[1:3]), *texts):
        telling.flagged.add(2 * cut.call + 1)


def _switch_history(
    telling: VisibilityRecorder,
    last: _HistoryKeys,
    base: _HistoryKeys,
    own: dict[int, int | None],
    call: int,
) -> None:
    """Go over from one history to the next; `own` is what a pruning makes of some keys at once."""
    telling.hide(last.lo, base.lo, base.head.keys() | own.keys(), 2 * call + 1)
    changed = {key for key, _ in last.head.items() ^ base.head.items()}
    for key in changed.union(last.over, range(base.lo, last.lo), own):
        telling.show(key, own[key] if key in own else base.at(key), 2 * call + 1)


def _record_schedule(
    telling: VisibilityRecorder, last: _HistoryKeys, stretch: Segment
) -> _HistoryKeys:
    """Take down what a schedule changes at which call, and what stands at one call's end."""
    base, schedule, start = (
        _HistoryKeys.of(telling, stretch.history),
        stretch.schedule,
        stretch.start,
    )
    if schedule is None or stretch.stop == start:
        _switch_history(telling, last, base, {}, start)
        return base
    found = [(e.call, *_state_after(telling, base, schedule, e)) for e in stretch.changes()]
    _switch_history(
        telling, last, base, {key: what for call, key, what in found if call == start}, start
    )
    for call, key, what in found:
        base.over.add(key)
        telling.show(key, what, 2 * call + 1)
        telling.moments.setdefault(call, 0)
    for call in range(start, stretch.stop):
        added, changes = schedule.top.added(call), telling.changes
        telling.show(_ADDED, None if added is None else telling.text(added.message), 2 * call + 1)
        if telling.changes > changes:
            telling.moments.setdefault(call, 0)
    return base


def _state_after(
    telling: VisibilityRecorder, base: _HistoryKeys, schedule: Schedule, event: StateChange
) -> tuple[int, int | None]:
    """Return a key and what stands for it after an event."""
    rows, p, message = schedule.rows, event.position, event.now.message
    key = base.keys[p] if p < rows.head else rows.row(p)
    if message is None:
        return key, None
    if event.now.content == rows.said(p).content:
        return key, base.at(key)
    if key >= 0 and is_stored_elsewhere(message.text[:200]):
        telling.elsewhere.append((key, 2 * event.call + 1))
    return key, telling.text(message)


def _record_call_by_call(
    telling: VisibilityRecorder, last: _HistoryKeys, stretch: Segment
) -> _HistoryKeys:
    """Compare what each call was sent with the call before: the pruning says no schedule."""
    for call in range(stretch.start, stretch.stop):
        base, changes = _HistoryKeys.of(telling, stretch.left(call)), telling.changes
        _switch_history(telling, last, base, {}, call)
        if telling.changes > changes:
            telling.moments.setdefault(call, 0)
        last = base
    return last


STORED_ELSEWHERE_WORDS = ("offload", "artifact", "archive")
"""Words in an edit's reason or method, or in what stands for the text, that say that all of it is
kept elsewhere.
"""

_NOTHING: tuple[int | None, int] = None, 0


class Visibility(NamedTuple):
    """What each call is shown. Times are ticks; a row is there from its arrival on."""

    end: int
    """One past the last tick."""
    until: Ints
    """For each row when it went, as it was said, for the first time; `end`: never."""
    again: Ints
    """Later stretches of rows that came back: columns row, start, end."""
    texts: Ints
    """Stretches of texts: columns text, start, end."""
    said: list[Ints]
    """The items that stand in each text."""
    size: Ints
    """The tokens of each text."""
    words: list[str]
    """What each text says."""
    elsewhere: Ints
    """Rows that went and are kept elsewhere: columns row, time."""
    moments: Ints
    """The calls before which something changed, rising."""
    numbers: tuple[int, ...]
    """The compaction of each moment, as ``frame(per="compaction")`` counts; without compactions as
    they come.
    """


class VisibilityRecorder:
    """Takes down what changes, in order.

    A *key* is a row, or below 0 a place of a text that stands for others; what stands for it is a
    row, a text as a number below 0, or None for nothing.
    """

    def __init__(self, rows: MessageRows) -> None:
        self._rows, self.end = rows, 2 * rows.calls + 2
        self._begin = (2 * rows.arrival).tolist()
        self._until = [self.end] * len(self._begin)
        self._now: dict[int, tuple[int, int]] = {}
        """What stands for a key and since when, where it is neither the row as said from its
        arrival on nor nothing.
        """
        self._again: list[tuple[int, ...]] = []
        self._spans: list[tuple[int, ...]] = []
        self._texts: dict[Any, int] = {}
        self._said: list[tuple[Ints, int, str]] = []
        self.elsewhere: list[tuple[int, ...]] = []
        self.flagged: set[int] = set()
        """Times at which all that went is kept elsewhere."""
        self.moments: dict[int, int] = {}
        self.changes = 0
        self.made: dict[tuple[int, int], int] = {}
        """The texts of what stands in a head, by row and key."""

    def text(self, message: Message) -> int:
        """Return the number below 0 of a text; equal texts have one."""
        size = self._rows.tokens(message)
        key = make_text_key(message), size
        if key not in self._texts:
            self._said.append((self._rows.stands_in(message), size, message.text))
            self._texts[key] = -len(self._said)
        return self._texts[key]

    def show(self, key: int, what: int | None, time: int) -> None:
        """Let something stand for a key from a time on."""
        was, since = self._now.get(key, _NOTHING)
        if was is None and key >= 0 and self._until[key] == self.end:
            was, since = key, self._begin[key]
        if was == what:
            return
        self.changes += 1
        if was is not None:
            self._ended(was, since, time)
        if what is None:
            self._now.pop(key, None)
        else:
            self._now[key] = what, time

    def hide(self, start: int, stop: int, kept: Iterable[int], time: int) -> None:
        """Let nothing stand for the rows start..stop; those that are kept are passed over."""
        odd = sorted({row for of in (kept, self._now) for row in of if start <= row < stop})
        for row in odd:
            if row in self._now and row not in kept:
                self.show(row, None, time)
        for first, end in pairwise([start - 1, *odd, stop]):
            went = self._until[first + 1 : end]  # a pruning may have hidden some before
            self._until[first + 1 : end] = [min(until, time) for until in went]
        self.changes += stop > start

    def _ended(self, was: int, since: int, time: int) -> None:
        if was >= 0 and self._until[was] == self.end and since == self._begin[was]:
            self._until[was] = time
        elif since < time:
            to, n = (self._again, was) if was >= 0 else (self._spans, -was - 1)
            to.append((n, since, time))

    def told(self) -> Visibility:
        """Return all of it."""
        for what, since in self._now.values():
            self._ended(what, since, self.end)
        until, again = np.array(self._until, np.int64), _int_table(self._again)
        for time in self.flagged:
            rows = [
                *np.flatnonzero(until == time).tolist(),
                *again[again[:, 2] == time, 0].tolist(),
            ]
            self.elsewhere += [(row, time) for row in rows]
        calls = sorted(self.moments)
        return Visibility(
            end=self.end,
            until=until,
            again=again,
            texts=_int_table(self._spans),
            said=[items for items, _, _ in self._said],
            size=np.array([n for _, n, _ in self._said], np.int64),
            words=[text for _, _, text in self._said],
            elsewhere=_int_table(self.elsewhere, 2),
            moments=np.array(calls, np.int64),
            numbers=tuple(self.moments[call] for call in calls),
        )


def _int_table(rows: list[tuple[int, ...]], width: int = 3) -> Ints:
    return np.array(rows, np.int64).reshape(-1, width)


def is_stored_elsewhere(*words: str | None) -> bool:
    """Say whether words of an edit, or of what stands for a text, say where all of it is kept."""
    told = " ".join(filter(None, words)).lower()
    return any(word in told for word in STORED_ELSEWHERE_WORDS)
