"""What each call of a recorded session, of a replay or of a run with prunings is shown."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames.recorded_cuts import cuts
from ctxkit.messages import Edit, Message
from ctxkit.metrics.tellings import Shown, Telling, kept_elsewhere

if TYPE_CHECKING:
    from ctxkit.engine import Kept, Run
    from ctxkit.engine.stretches import Stretch
    from ctxkit.history import History
    from ctxkit.metrics.item_arrays import RowTimes
    from ctxkit.schedules import Schedule
    from ctxkit.schedules.layers import Changed
    from ctxkit.session import Session

_ADDED = -(1 << 63)
"""The key of what a pruning puts at the end of each call."""


# -- a session with its edits ----------------------------------------------------------------------


def shown_in(rows: RowTimes, session: Session) -> Shown:
    """Return what each call of a session is shown by its own edits."""
    telling, keys, new = Telling(rows), dict[str, list[int]](), -1
    replies = [c.position for c in session.calls]
    row, at = 0, 0
    for cut in cuts(session):
        for entry in session.path[at : cut.position]:
            if isinstance(entry, Message) and entry.visible:
                keys.setdefault(entry.id, []).append(row)
                row += 1
        call, at = bisect_left(replies, cut.position), cut.position + len(cut.edits)
        for edit in cut.edits:
            new = _edited(telling, keys, edit, 2 * call + 1, new)
            if kept_elsewhere(edit.reason, edit.method, *(m.text[:200] for m in edit.inserted[:1])):
                telling.flagged.add(2 * call + 1)
        telling.moments[call] = cut.number
    return telling.told()


def _edited(telling: Telling, keys: dict[str, list[int]], edit: Edit, time: int, new: int) -> int:
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


def shown_by(rows: RowTimes, done: Run) -> Shown:
    """Return what each call of a run was shown, its compactions and its prunings done."""
    telling, last = Telling(rows), _Base((), {}, 0, set())
    for number, stretch in enumerate(done.stretches()):
        if stretch.cut is not None:
            telling.moments[stretch.start] = number - 1
            _flag(telling, stretch.cut)
        last = (_asked if stretch.rest else _told)(telling, last, stretch)
    if done.rules.pruning is not None:
        telling.moments = {call: n for n, call in enumerate(sorted(telling.moments))}
    return telling.told()


class _Base(NamedTuple):
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
    def of(cls, telling: Telling, history: History) -> _Base:
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


def _flag(telling: Telling, cut: Kept) -> None:
    texts = [step.new[0].message(cut.new.log).text[:200] for step in cut.steps if step.new]
    if kept_elsewhere(*(w for step in cut.steps for w in step.words[1:3]), *texts):
        telling.flagged.add(2 * cut.call + 1)


def _turned(
    telling: Telling, last: _Base, base: _Base, own: dict[int, int | None], call: int
) -> None:
    """Go over from one history to the next; `own` is what a pruning makes of some keys at once."""
    telling.hide(last.lo, base.lo, base.head.keys() | own.keys(), 2 * call + 1)
    changed = {key for key, _ in last.head.items() ^ base.head.items()}
    for key in changed.union(last.over, range(base.lo, last.lo), own):
        telling.show(key, own[key] if key in own else base.at(key), 2 * call + 1)


def _told(telling: Telling, last: _Base, stretch: Stretch) -> _Base:
    """Take down what a schedule changes at which call, and what stands at one call's end."""
    base, schedule, start = _Base.of(telling, stretch.history), stretch.schedule, stretch.start
    if schedule is None or stretch.stop == start:
        _turned(telling, last, base, {}, start)
        return base
    found = [(e.call, *_state(telling, base, schedule, e)) for e in stretch.changes()]
    _turned(telling, last, base, {key: what for call, key, what in found if call == start}, start)
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


def _state(
    telling: Telling, base: _Base, schedule: Schedule, event: Changed
) -> tuple[int, int | None]:
    """Return a key and what stands for it after an event."""
    rows, p, message = schedule.rows, event.position, event.now.message
    key = base.keys[p] if p < rows.head else rows.row(p)
    if message is None:
        return key, None
    if event.now.content == rows.said(p).content:
        return key, base.at(key)
    if key >= 0 and kept_elsewhere(message.text[:200]):
        telling.elsewhere.append((key, 2 * event.call + 1))
    return key, telling.text(message)


def _asked(telling: Telling, last: _Base, stretch: Stretch) -> _Base:
    """Compare what each call was sent with the call before: the pruning says no schedule."""
    for call in range(stretch.start, stretch.stop):
        base, changes = _Base.of(telling, stretch.left(call)), telling.changes
        _turned(telling, last, base, {}, call)
        if telling.changes > changes:
            telling.moments.setdefault(call, 0)
        last = base
    return last
