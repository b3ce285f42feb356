"""Visibility of messages and inserted texts: the calls whose prompts have each, as time spans."""

# Reconstruction of the prompts
#
# The clock has two ticks per call. At tick 2c all messages before call c have arrived; compactions
# and prunings then change the prompt, and tick 2c + 1 is the prompt that call c receives.
#
# A *slot* is a place in the prompt: a row of the log (its number), or a number below 0 for an
# inserted text. A recorder tracks the content of each slot: the row itself, an inserted text, or
# nothing. Most rows never change, so only differences are recorded: O(changes), not O(calls x
# rows). There are four sources:
#
#   a session            its edits, in the order of the path
#   a pruned log         the difference between each prompt and the previous one: O(calls x rows)
#   a run's schedule     the changes of state that a pruning scheduled, call by call
#   a run without one    the difference between each call's prompt and the previous one
#
# Invariants: the spans of a slot do not overlap; an unchanged row has no span of its own, as it is
# visible from its arrival to the end.

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.engine import RulesRun
from ctxkit.engine.replay import find_prompt_source
from ctxkit.metrics.item_index_and_rule_matching import make_text_key
from ctxkit.session.compactions_and_prunings import get_original_id, group_edits
from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.engine import Compaction
    from ctxkit.engine.run_segments_and_prompts import RunSegment
    from ctxkit.metrics.item_index_and_rule_matching import VisibleMessageRows
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.pruned_message_states import StateChange
    from ctxkit.policies.schedules.pruning_schedule import Schedule
    from ctxkit.session.compactions_and_prunings import CompactionEdits
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]


_APPENDED_SLOT = -(1 << 63)
"""The slot of the text that a pruning appends to each prompt."""


def get_visibility(rows: VisibleMessageRows, session: Session) -> Visibility:
    """Return which messages are visible at each call, after all compactions and prunings.

    Args:
        rows: the visible messages of the session.
        session: a recorded session or a replay.
    """
    source = find_prompt_source(session)
    if isinstance(source, RulesRun):
        return get_rules_run_visibility(rows, source)
    if session.prunings:
        return _get_pruned_visibility(rows, session)
    return get_session_visibility(rows, session)


# -- a session with its edits ----------------------------------------------------------------------


def get_session_visibility(rows: VisibleMessageRows, session: Session) -> Visibility:
    """Return which messages are visible at each call of a session after its edits.

    Args:
        rows: the messages of the session, one per row.
        session: the session, whose edits apply in order.
    """
    recorder, slots, free_slot = VisibilityRecorder(rows), dict[str, list[int]](), -1
    row, position = 0, 0
    for call, group in _find_calls_after_edits(session):
        for entry in session.path[position : group.position]:
            if isinstance(entry, Message) and entry.visible:
                slots.setdefault(entry.id, []).append(row)
                row += 1
        position = group.position + len(group.edits)
        for edit in group.edits:
            free_slot = _record_edit(recorder, slots, edit, 2 * call + 1, free_slot)
        _record_archive_of_edits(recorder, group.edits, call)
        recorder.changes[call] = group.number
    return recorder.build()


def _find_calls_after_edits(session: Session) -> list[tuple[int, CompactionEdits]]:
    """Return each compaction with the first call after it; the number of calls: none follows."""
    reply_positions = [c.position for c in session.calls]
    return [(bisect_left(reply_positions, g.position), g) for g in group_edits(session)]


def _record_archive_of_edits(
    recorder: VisibilityRecorder, edits: Iterable[Edit], call: int
) -> None:
    """Record whether edits store everything that they remove elsewhere."""
    for edit in edits:
        texts = [m.text[:200] for m in edit.inserted[:1]]
        if is_stored_elsewhere(edit.reason, edit.method, *texts):
            recorder.archived_ticks.add(2 * call + 1)


def _record_edit(
    recorder: VisibilityRecorder,
    slots: dict[str, list[int]],
    edit: Edit,
    tick: int,
    free_slot: int,
) -> int:
    """Record an edit and update `slots`, the slots by message id; return the next free slot."""
    if edit.kind in ("shortened", "replaced"):
        for target, message in dict(zip(edit.targets, edit.inserted, strict=False)).items():
            target_slots = slots.pop(target, [])
            for slot in target_slots:
                recorder.set_content(slot, recorder.number_text(message), tick)
            slots.setdefault(message.id, []).extend(target_slots)
        return free_slot
    for target in edit.targets:
        for slot in slots.pop(target, ()):
            recorder.set_content(slot, None, tick)
    for message in edit.inserted:
        recorder.set_content(free_slot, recorder.number_text(message), tick)
        slots.setdefault(message.id, []).append(free_slot)
        free_slot -= 1
    return free_slot


# -- a session whose log records prunings ----------------------------------------------------------


def _get_pruned_visibility(rows: VisibleMessageRows, session: Session) -> Visibility:
    """Return what the prompts of a session show, prompt by prompt, as its log records them."""
    recorder, inserted_slots = VisibilityRecorder(rows), dict[str, int]()
    for call, group in _find_calls_after_edits(session):
        _record_archive_of_edits(recorder, group.edits, call)
        recorder.changes[call] = group.number
    row_of = {id(m): row for row, m in enumerate(rows.messages)}
    row_of_id = {m.id: row for row, m in enumerate(rows.messages)}
    prompts: list[tuple[int, Iterable[Message]]] = [(c.index, view) for c, view in session.views()]
    if rows.calls in recorder.changes:
        prompts.append((rows.calls, session.view()))
    slots_before = set[int]()
    for call, view in prompts:
        contents, changes_n = dict[int, int](), recorder.changes_n
        for message in view:
            name = get_original_id(message.id)
            slot = row_of.get(id(message), row_of_id.get(name, -1))
            if slot < 0:
                slot = -1 - inserted_slots.setdefault(name, len(inserted_slots))
            contents[slot] = slot if id(message) in row_of else recorder.number_text(message)
        arrived_n = int(np.searchsorted(rows.arrival_call, call, "right"))
        for slot in sorted({*slots_before, *contents, *range(arrived_n)}):
            recorder.set_content(slot, contents.get(slot), 2 * call + 1)
        if recorder.changes_n > changes_n:
            recorder.changes.setdefault(call, 0)
        slots_before = set(contents)
    recorder.changes = {call: n for n, call in enumerate(sorted(recorder.changes))}
    return recorder.build()


# -- a run -----------------------------------------------------------------------------------------


def get_rules_run_visibility(rows: VisibleMessageRows, run: RulesRun) -> Visibility:
    """Return which messages are visible at each call of a run after its compactions and prunings.

    Args:
        rows: the visible messages of the session.
        run: the run that made the prompts.
    """
    recorder, last = VisibilityRecorder(rows), _HistorySlots((), {}, 0, set())
    # Segment 0 begins with the run, segment n with compaction n - 1.
    for number, segment in enumerate(run.segments()):
        if segment.compaction is not None:
            recorder.changes[segment.start] = number - 1
            _record_archive(recorder, segment.compaction)
        # `rest`: parts of the pruning without a schedule, which run at each call.
        record = _record_call_by_call if segment.rest else _record_schedule
        last = record(recorder, last, segment)
    if run.rules.pruning is not None:
        # Prunings change prompts between compactions, so all changes are numbered in order.
        recorder.changes = {call: n for n, call in enumerate(sorted(recorder.changes))}
    return recorder.build()


class _HistorySlots(NamedTuple):
    """The slots of a history before any pruning: a head, then a tail of unchanged rows."""

    slots: tuple[int, ...]
    """The slots of its head, in order."""
    content_of: dict[int, int]
    """The content of each slot of the head."""
    first_tail_row: int
    pruned: set[int]
    """Slots that a pruning changed while this history was in force."""

    @classmethod
    def from_history(cls, recorder: VisibilityRecorder, history: History) -> _HistorySlots:
        content_of: dict[int, int] = {}
        log, head, cache = history.log, history.head, recorder.head_texts
        columns = (head.column(log, name).tolist() for name in ("rows", "keys"))
        for row, key in zip(*columns, strict=True):
            content = row
            if key:
                content = cache.get((row, key))
                if content is None:
                    message = head.sources[key].message(log, row)
                    content = cache[row, key] = recorder.number_text(message)
            content_of[row if row >= 0 else -key - 1] = content
        return cls(tuple(content_of), content_of, history.lo, set())

    def get_content(self, slot: int) -> int | None:
        return self.content_of.get(slot, slot if slot >= self.first_tail_row else None)


def _record_archive(recorder: VisibilityRecorder, compaction: Compaction) -> None:
    """Record whether a compaction stores everything that it removes elsewhere."""
    log = compaction.new.log
    texts = [s.new[0].message(log).text[:200] for s in compaction.steps if s.new]
    if is_stored_elsewhere(*(w for s in compaction.steps for w in s.info[1:3]), *texts):
        recorder.archived_ticks.add(2 * compaction.call + 1)


def _switch_history(
    recorder: VisibilityRecorder,
    last: _HistorySlots,
    base: _HistorySlots,
    pruned: dict[int, int | None],
    call: int,
) -> None:
    """Record the change to the next history; `pruned` maps slots to the content by a pruning."""
    tick = 2 * call + 1
    recorder.hide_rows(
        last.first_tail_row, base.first_tail_row, base.content_of.keys() | pruned.keys(), tick
    )
    changed = {slot for slot, _ in last.content_of.items() ^ base.content_of.items()}
    back_in_tail = range(base.first_tail_row, last.first_tail_row)
    for slot in changed.union(last.pruned, back_in_tail, pruned):
        content = pruned[slot] if slot in pruned else base.get_content(slot)
        recorder.set_content(slot, content, tick)


def _record_schedule(
    recorder: VisibilityRecorder, last: _HistorySlots, segment: RunSegment
) -> _HistorySlots:
    """Record the calls at which a schedule changes messages, and its appended text."""
    base = _HistorySlots.from_history(recorder, segment.history)
    schedule, start = segment.schedule, segment.start
    if schedule is None or segment.stop == start:
        _switch_history(recorder, last, base, {}, start)
        return base
    changes = [(e.call, *_find_state_after(recorder, base, schedule, e)) for e in segment.changes()]
    at_start = {slot: content for call, slot, content in changes if call == start}
    _switch_history(recorder, last, base, at_start, start)
    for call, slot, content in changes:
        base.pruned.add(slot)
        recorder.set_content(slot, content, 2 * call + 1)
        recorder.changes.setdefault(call, 0)
    for call in range(start, segment.stop):
        appended, changes_n = schedule.top.get_appended(call), recorder.changes_n
        content = None if appended is None else recorder.number_text(appended.message)
        recorder.set_content(_APPENDED_SLOT, content, 2 * call + 1)
        if recorder.changes_n > changes_n:
            recorder.changes.setdefault(call, 0)
    return base


def _find_state_after(
    recorder: VisibilityRecorder, base: _HistorySlots, schedule: Schedule, event: StateChange
) -> tuple[int, int | None]:
    """Return a slot and its content after an event of a schedule."""
    rows, p, message = schedule.rows, event.position, event.now.message
    slot = base.slots[p] if p < rows.head else rows.row(p)
    if message is None:
        return slot, None
    if event.now.content == rows.recorded_content(p):
        return slot, base.get_content(slot)
    if slot >= 0 and is_stored_elsewhere(message.text[:200]):
        recorder.archived_rows.append((slot, 2 * event.call + 1))
    return slot, recorder.number_text(message)


def _record_call_by_call(
    recorder: VisibilityRecorder, last: _HistorySlots, segment: RunSegment
) -> _HistorySlots:
    """Record the differences between successive prompts, for a pruning without schedule."""
    for call in range(segment.start, segment.stop):
        base = _HistorySlots.from_history(recorder, segment.prompt_at(call))
        changes_n = recorder.changes_n
        _switch_history(recorder, last, base, {}, call)
        if recorder.changes_n > changes_n:
            recorder.changes.setdefault(call, 0)
        last = base
    return last


STORED_ELSEWHERE_WORDS = ("offload", "artifact", "archive")
"""Words in an edit's reason, method or inserted text that show that the removed text is stored
elsewhere.
"""

_NO_CONTENT: tuple[int | None, int] = None, 0


class Visibility(NamedTuple):
    """The rows and inserted texts in the prompt of each call. Times are ticks, spans half-open."""

    end: int
    """One past the last tick."""
    visible_until: Ints
    """The tick at which each row, visible since its arrival, left the prompt for the first time;
    `end`: never.
    """
    restored_spans: Ints
    """Later spans of restored rows: columns row, start, end."""
    text_spans: Ints
    """Spans of inserted texts: columns text, start, end."""
    text_items: list[Ints]
    """The items that each text states."""
    text_tokens: Ints
    text_contents: list[str]
    stored_elsewhere: Ints
    """Rows that were removed and are stored elsewhere: columns row, tick."""
    change_calls: Ints
    """The calls before which something changed, in ascending order."""
    compaction_numbers: tuple[int, ...]
    """The compaction of each change, as ``frame(per="compaction")`` counts; with prunings, the
    changes are numbered in order.
    """


class VisibilityRecorder:
    """Builds a `Visibility` from changes in order of time.

    The content of a slot is a row (0 or more), an inserted text (a number below 0), or None.
    """

    def __init__(self, rows: VisibleMessageRows) -> None:
        self._rows, self.end = rows, 2 * rows.calls + 2
        self._arrival = (2 * rows.arrival_call).tolist()
        self._visible_until = [self.end] * len(self._arrival)
        self._current: dict[int, tuple[int, int]] = {}
        """Content of a slot and its first tick, without empty slots and without rows that are in
        their own slot since their arrival.
        """
        self._restored_spans: list[tuple[int, ...]] = []
        self._text_spans: list[tuple[int, ...]] = []
        self._text_numbers: dict[Any, int] = {}
        self._texts: list[tuple[Ints, int, str]] = []
        """Items, tokens and content of each text."""
        self.archived_rows: list[tuple[int, ...]] = []
        """Rows that are stored elsewhere, each with the tick of its removal."""
        self.archived_ticks: set[int] = set()
        """Ticks at which all removed rows were stored elsewhere."""
        self.changes: dict[int, int] = {}
        """The calls before which something changed, each with the number of the compaction."""
        self.changes_n = 0
        """Number of changes of content so far."""
        self.head_texts: dict[tuple[int, int], int] = {}
        """The texts in heads of histories, by row and key."""

    def number_text(self, message: Message) -> int:
        """Return the number of an inserted text, below 0; equal texts have the same number."""
        tokens = self._rows.count_tokens(message)
        key = make_text_key(message), tokens
        if key not in self._text_numbers:
            self._texts.append((self._rows.find_items(message), tokens, message.text))
            self._text_numbers[key] = -len(self._texts)
        return self._text_numbers[key]

    def set_content(self, slot: int, content: int | None, tick: int) -> None:
        """Fill a slot with a row, a text or nothing, starting at a tick.

        Args:
            slot: number of the slot; below 0: one for an inserted text.
            content: row or text that it shows; None: nothing.
            tick: point in time, in ticks of two per call (see the head of this file).
        """
        before, since = self._current.get(slot, _NO_CONTENT)
        if before is None and slot >= 0 and self._visible_until[slot] == self.end:
            before, since = slot, self._arrival[slot]
        if before == content:
            return
        self.changes_n += 1
        if before is not None:
            self._close_span(before, since, tick)
        if content is None:
            self._current.pop(slot, None)
        else:
            self._current[slot] = content, tick

    def hide_rows(self, start: int, stop: int, exceptions: Iterable[int], tick: int) -> None:
        """Empty the slots of the rows ``start..stop`` except some.

        Args:
            start: first row.
            stop: one past the last row.
            exceptions: rows of the range that keep their content.
            tick: the tick of the edit, ``2 * call + 1`` for one before that call.
        """
        # Changed slots are emptied one by one, the ranges between them at once.
        special = sorted(
            {
                slot
                for slots in (exceptions, self._current)
                for slot in slots
                if start <= slot < stop
            }
        )
        for slot in special:
            if slot in self._current and slot not in exceptions:
                self.set_content(slot, None, tick)
        for before, end in pairwise([start - 1, *special, stop]):
            until = self._visible_until[before + 1 : end]  # a pruning may have hidden some already
            self._visible_until[before + 1 : end] = [min(n, tick) for n in until]
        self.changes_n += stop > start

    def _close_span(self, content: int, since: int, tick: int) -> None:
        is_first_span = (
            content >= 0
            and self._visible_until[content] == self.end
            and since == self._arrival[content]
        )
        if is_first_span:
            self._visible_until[content] = tick
        elif since < tick:
            is_row = content >= 0
            spans, number = (
                (self._restored_spans, content) if is_row else (self._text_spans, -content - 1)
            )
            spans.append((number, since, tick))

    def build(self) -> Visibility:
        """Close all spans and return the visibility; the recorder must not be used afterwards."""
        for content, since in self._current.values():
            self._close_span(content, since, self.end)
        visible_until = np.array(self._visible_until, np.int64)
        restored_spans = _make_int_table(self._restored_spans)
        for tick in self.archived_ticks:
            rows = [
                *np.flatnonzero(visible_until == tick).tolist(),
                *restored_spans[restored_spans[:, 2] == tick, 0].tolist(),
            ]
            self.archived_rows += [(row, tick) for row in rows]
        calls = sorted(self.changes)
        return Visibility(
            end=self.end,
            visible_until=visible_until,
            restored_spans=restored_spans,
            text_spans=_make_int_table(self._text_spans),
            text_items=[items for items, _, _ in self._texts],
            text_tokens=np.array([n for _, n, _ in self._texts], np.int64),
            text_contents=[text for _, _, text in self._texts],
            stored_elsewhere=_make_int_table(self.archived_rows, 2),
            change_calls=np.array(calls, np.int64),
            compaction_numbers=tuple(self.changes[call] for call in calls),
        )


def _make_int_table(rows: list[tuple[int, ...]], width: int = 3) -> Ints:
    return np.array(rows, np.int64).reshape(-1, width)


def is_stored_elsewhere(*texts: str | None) -> bool:
    """Return True if texts of an edit, or the text that it inserts, name an archive."""
    text = " ".join(filter(None, texts)).lower()
    return any(word in text for word in STORED_ELSEWHERE_WORDS)
