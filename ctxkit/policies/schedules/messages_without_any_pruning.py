"""The messages of a history before any pruning, addressed by position, as of any call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.policies.history.edited_head import (
    hash_content,
    hash_row_content,
    replace_all_but_calls,
)
from ctxkit.policies.history.growing_columns_and_sums import TOOL, count_chars
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.messages import ToolCall

NEVER = 1 << 62
"""A call number larger than any other: an interval that ends there has no end."""
_MAX_CACHED_TEXTS = 1 << 16
"""Entries of a log's cache of messages with a replaced text."""


class MessageState(msgspec.Struct, frozen=True, gc=False):
    """The content of a message from a call on."""

    call: int
    message: Message | None
    """None: it is hidden."""
    tokens: int
    content: int
    """A hash, equal for equal content; 0 for a hidden message."""

    @property
    def chars(self) -> int:
        """Characters of the message; counted at each access, as few parts need them."""
        return 0 if self.message is None else count_chars(self.message)

    def since(self, call: int) -> MessageState:
        """Return the same content, valid from another call on."""
        return MessageState(call, self.message, self.tokens, self.content)


class UnprunedMessages:
    """The messages of one history, before any pruning.

    A *position* is the index of a message among all that the history ever holds; it never changes.
    Positions below `head` are the edited head of the history, those from `head` on are rows of the
    log. A later message can change a property of an earlier one: a tool result that comes late
    makes its group protected, or a cut unsafe. Such a property is stored with the call from which
    it holds, so no answer about a call depends on later calls.
    """

    __slots__ = (
        "_char_sums",
        "_head_chars",
        "_head_positions",
        "_items",
        "_row_offset",
        "_turn_edges",
        "begin",
        "head",
        "history",
        "lo",
        "log",
    )

    def __init__(self, history: History) -> None:
        self.history, self.log, self.lo = history, history.log, history.lo
        self.begin, self.head = history.call, history.head.size
        self._row_offset = self.lo - self.head
        self._items = history.head.items
        self._head_positions = {item.row: p for p, item in enumerate(self._items) if item.row >= 0}
        self._head_chars: list[int] | None = None
        self._turn_edges: dict[int, int] = {}
        self._char_sums = _cached_char_sums(self.log).all_rows

    # -- one message -------------------------------------------------------------------------------

    def row(self, p: int) -> int:
        """Return the row of the log at a position; -1 for a message that replaced others."""
        return self._items[p].row if p < self.head else p + self._row_offset

    def place(self, row: int) -> int | None:
        """Return the position of a row of the log; None where the history does not hold it."""
        return row - self._row_offset if row >= self.lo else self._head_positions.get(row)

    def message(self, p: int) -> Message:
        """Return the message at a position as recorded."""
        if p < self.head:
            return self._items[p].message(self.log)
        return self.log.messages[p + self._row_offset]

    def messages(self, stop: int) -> list[Message]:
        """Return the messages at the positions below `stop` as recorded."""
        head = [item.message(self.log) for item in self._items[:stop]]
        return head + self.log.messages[self.lo : max(stop + self._row_offset, self.lo)]

    def role(self, p: int) -> int:
        """Return the code of the role of a position."""
        if p < self.head:
            return self._items[p].role(self.log)
        return self.log.roles[p + self._row_offset]

    def of_roles(self, start: int, stop: int, codes: frozenset[int] | None) -> list[int]:
        """Return the positions in start..stop of some roles (None: of any).

        Args:
            start: first position.
            stop: one past the last position.
            codes: codes of roles, as in `ROLE_CODES`; None: any role.
        """
        if codes is None:
            return list(range(start, stop))
        in_head = [p for p in range(start, min(stop, self.head)) if self.role(p) in codes]
        first = max(start, self.head)
        roles = self.log.roles[first + self._row_offset : stop + self._row_offset]
        return in_head + [p for p, role in enumerate(roles, first) if role in codes]

    def chars(self, p: int) -> int:
        """Return the characters of the message at a position as recorded."""
        if p < self.head:
            return count_chars(self.message(p))
        row, sums = p + self._row_offset, self._char_sums
        if row + 1 >= len(sums):
            _extend_char_sums(self.log)
        return sums[row + 1] - sums[row]

    def recorded_state(self, p: int) -> MessageState:
        """Return the recorded state of a position, valid from its first call on."""
        if p < self.head:
            content = int(self.history.head.column(self.log, "contents")[p])
            return MessageState(self.begin, self.message(p), self._items[p].tokens, content)
        row, log = p + self._row_offset, self.log
        return MessageState(self.arrival(p), log.messages[row], log.tokens.sizes[row], -row - 1)

    def recorded_content(self, p: int) -> int:
        """Return the content of the recorded state of a position, without building that state."""
        return -p - self._row_offset - 1 if p >= self.head else self.recorded_state(p).content

    def changed(self, p: int, call: int, message: Message, new: Message) -> MessageState | None:
        """Return the state of a position whose message is replaced; None where they are equal.

        Args:
            p: position of the message.
            call: number of the call from which on the new state holds.
            message: the message before.
            new: its replacement.
        """
        if new is message or (new.parts == message.parts and new.role == message.role):
            return None
        row = self.row(p)
        size, content = self.log.measure(new, row), hash_row_content(row, hash_content(new))
        return MessageState(call, new, size, content)

    def replaced(self, p: int, call: int, message: Message, text: str) -> MessageState | None:
        """Return the state of a position whose text is replaced; None where it stays the same.

        Results for recorded messages are cached in the log: many settings replay the same log, and
        a schedule begins again after each compaction.

        Args:
            p: position of the message.
            call: number of the call from which on the new state holds.
            message: the message before.
            text: its new text; tool calls remain.
        """
        row = self.row(p)
        if row < 0 or message is not self.log.messages[row]:
            return self.changed(p, call, message, replace_all_but_calls(message, text))
        cache: dict[tuple[int, str], MessageState | None] = self.log.memo.setdefault("replaced", {})
        if len(cache) >= _MAX_CACHED_TEXTS:
            cache.clear()
        if (row, text) not in cache:
            cache[row, text] = self.changed(p, call, message, replace_all_but_calls(message, text))
        state = cache[row, text]
        return None if state is None else state.since(call)

    def calls(self, p: int) -> tuple[ToolCall, ...]:
        """Return the tool calls of a message as recorded, whatever parts changed of them."""
        row = self.row(p)
        if row < 0:
            return self.message(p).tool_calls
        cache: dict[int, tuple[ToolCall, ...]] = self.log.memo.setdefault("tool calls", {})
        calls = cache.get(row)
        if calls is None:
            calls = cache[row] = self.log.messages[row].tool_calls
        return calls

    def answered_call(self, p: int) -> ToolCall | None:
        """Return the tool call that a result answers, as recorded; None where the log has none."""
        row = self.row(p)
        if row < 0:
            return None
        calls = self.log.messages[self.log.groups[row]].tool_calls
        return next((c for c in calls if c.id == self.log.messages[row].call_id), None)

    # -- as of a call ------------------------------------------------------------------------------

    def count_arrived(self, call: int) -> int:
        """Return the number of positions at a call: those below it have arrived."""
        if call < self.begin:
            return 0
        upto = self.log.upto
        end_row = upto[call] if call < len(upto) else len(self.log.messages)
        return self.head + max(end_row - self.lo, 0)

    def arrival(self, p: int) -> int:
        """Return the first call of the history whose prompt holds a position."""
        call = 0 if p < self.head else self.log.first_calls[p + self._row_offset]
        return max(self.begin, call)

    def stays_from(self, p: int) -> int:
        """Return the call from which a position is protected from pruning; `NEVER` if it is not."""
        # A message that replaced others is protected from the beginning, if its source is pinned.
        row = self.row(p)
        if row < 0:
            return self.begin if self._items[p].is_protected(self.log, self.begin) else NEVER
        if not self.log.is_protected(row):
            return NEVER
        return max(self.log.late_stays.get(row, 0), self.arrival(p))

    def is_safe(self, p: int, call: int) -> bool:
        """Return True where, at a call, a cut before a position parts no call from its result.

        Args:
            p: position of the first message after the cut.
            call: number of the call, from 0.
        """
        count = self.count_arrived(call)
        # Messages that replaced others belong to no group: look at the first recorded row.
        while p < self.head and self.row(p) < 0:
            p += 1
        row = self.row(p) if p < count else -1
        return row < 0 or bool(self.log.safe_cuts[row]) or self.log.late_cuts.get(row, 0) > call

    def group(self, p: int) -> int:
        """Return the id of a group: a reply with tool calls, and their results."""
        row = self.row(p)
        return -p - 1 if row < 0 else self.log.groups[row]

    def members(self, group: int, call: int) -> list[int]:
        """Return the positions of a group at a call.

        Args:
            group: row of the group's first message; ``-p - 1``: the position p alone.
            call: number of the call, from 0.
        """
        if group < 0:
            return [-group - 1]
        positions = [self.place(r) for r in (group, *self.log.results.get(group, ()))]
        count = self.count_arrived(call)
        return [p for p in positions if p is not None and p < count]

    def newly_protected(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the positions that become protected at start..stop, as sorted (call, position).

        Args:
            start: first call.
            stop: one past the last call.
        """
        pairs = []
        for row, call in reversed(self.log.late_stays.items()):
            if call < start:
                break
            p = self.place(row)
            if call < stop and call > self.begin and p is not None:
                pairs.append((call, p))
        return sorted(pairs)

    def parted(self, start: int, stop: int) -> set[int]:
        """Return the calls at start..stop with a late tool result, which makes some cuts unsafe.

        Args:
            start: first call.
            stop: one past the last call.
        """
        calls = takewhile(lambda call: call >= start, reversed(self.log.late_cuts.values()))
        return {call for call in calls if call < stop}

    # -- turns ------------------------------------------------------------------------------------

    def turn_edge(self, call: int) -> int:
        """Return the first position of the turn of a call; those before it are earlier turns."""
        row = self.log.turn_first(call)
        if row >= self.lo:
            return row - self._row_offset
        if row not in self._turn_edges:
            in_turn = (p for p, item in enumerate(self._items) if item.row >= row)
            self._turn_edges[row] = next(in_turn, self.head)
        return self._turn_edges[row]

    def turn_changes(self, start: int, stop: int) -> list[int]:
        """Return the calls at start..stop that begin a turn; the first call of the history does.

        Args:
            start: first call.
            stop: one past the last call.
        """
        turn_rows, calls, call = self.log.turn_firsts, list[int](), start
        while call < stop:
            row = self.log.turn_first(call)
            if call == self.begin or row != self.log.turn_first(call - 1):
                calls.append(call)
            call = bisect_right(turn_rows, row, call) if call < len(turn_rows) else call + 1
        return calls

    def past_from(self, p: int) -> int:
        """Return the call from which a position belongs to an earlier turn; `NEVER` so far."""
        if p < self.turn_edge(self.begin) or self._is_past_on_arrival(self.row(p)):
            return self.arrival(p)
        row = self.log.turn_first(self.begin) if p < self.head else p + self._row_offset
        turn_rows = self.log.turn_firsts
        call = bisect_right(turn_rows, row)
        return NEVER if call == len(turn_rows) and self.log.turn_first(call) <= row else call

    def became_past(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the positions whose turn ends at start..stop, as sorted (call, position).

        Args:
            start: first call.
            stop: one past the last call.
        """
        new = self._past_on_arrival(self.count_arrived(start - 1), self.count_arrived(stop - 1))
        pairs = [(self.arrival(p), p) for p in new]
        last_edge = self.turn_edge(start - 1) if start > self.begin else 0
        for call in self.turn_changes(start, stop):
            edge = self.turn_edge(call)
            ended = range(last_edge, edge)
            pairs += [(call, p) for p in ended if not self._is_past_on_arrival(self.row(p))]
            last_edge = edge
        return sorted(pairs)

    def _past_on_arrival(self, start: int, stop: int) -> Iterator[int]:
        """Yield the positions in start..stop that never belong to the current turn."""
        rows = self.log.turn.past_at_once
        first = bisect_left(rows, start + self._row_offset) if start >= self.head else 0
        for row in rows[first:]:
            p = self.place(row)
            if p is not None and start <= p < stop:
                yield p
            elif row >= stop + self._row_offset:
                return

    def _is_past_on_arrival(self, row: int) -> bool:
        rows = self.log.turn.past_at_once
        i = bisect_left(rows, row)
        return i < len(rows) and rows[i] == row

    # -- columns -----------------------------------------------------------------------------------

    def contents(self, start: int, stop: int) -> NDArray[Any]:
        """Return the hashes of the recorded content of the positions start..stop.

        Args:
            start: first position.
            stop: one past the last position.
        """
        tail = -np.arange(max(start, self.head), stop) - self._row_offset - 1
        head = self.history.head.column(self.log, "contents")[start:stop]
        return np.concatenate((head, tail))

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the tokens of the positions start..stop as recorded.

        Args:
            start: first position.
            stop: one past the last position.
        """
        first_row = max(start, self.head) + self._row_offset
        tail = self.log.tokens.sizes[first_row : stop + self._row_offset]
        return [item.tokens for item in self._items[start:stop]] + tail

    # -- sums --------------------------------------------------------------------------------------

    def totals(self, start: int, stop: int, kind: int) -> list[int]:
        """Return a sum over the recorded messages of each call start..stop.

        Args:
            start: the first call.
            stop: one past the last call.
            kind: `SUM_TOKENS`, `SUM_CHARS` or `SUM_RESULT_CHARS` of `layers`.
        """
        upto, count, lo = self.log.upto, len(self.log.messages), self.lo
        sums = _extend_char_sums(self.log)[kind - 1] if kind else self.log.tokens.P
        offset = self._head_sum(kind) - sums[lo]
        end_rows = upto[start:stop] if stop <= len(upto) else [*upto[start:], count]
        return [offset + sums[max(lo, row)] for row in end_rows]

    def _head_sum(self, kind: int) -> int:
        """Return the sum of one kind over the messages of the head."""
        if not kind:
            return self.history.head.tokens
        if self._head_chars is None:
            self._head_chars = [self.chars(p) for p in range(self.head)]
        return sum(n for p, n in enumerate(self._head_chars) if kind == 1 or self.role(p) == TOOL)


class _CharSums(NamedTuple):
    """Running sums of characters over the rows of a log; the lists grow with the log."""

    all_rows: list[int]
    results: list[int]


def _extend_char_sums(log: MessageLog) -> _CharSums:
    """Extend the sums of a log to all its rows, and return them."""
    sums = _cached_char_sums(log)
    done = len(sums.all_rows) - 1
    if done < len(log.messages):
        chars, roles = log.column("chars")[done:].tolist(), log.roles[done:]
        sums.all_rows.extend(list(accumulate(chars, initial=sums.all_rows[-1]))[1:])
        of_results = [n if role == TOOL else 0 for n, role in zip(chars, roles, strict=True)]
        sums.results.extend(list(accumulate(of_results, initial=sums.results[-1]))[1:])
    return sums


def _cached_char_sums(log: MessageLog) -> _CharSums:
    """Return the sums of a log as far as they were computed."""
    sums: _CharSums = log.memo.setdefault("chars so far", _CharSums([0], [0]))
    return sums
