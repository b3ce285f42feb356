"""The messages of a history as they arrive, with what only a call can tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.policies.history.columns import TOOL, count_chars
from ctxkit.policies.history.head import content_hash, row_content_hash, with_text_and_calls
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.messages import ToolCall

NEVER = 1 << 62
"""A call that never comes."""
_KEPT = 1 << 16
"""Texts for rows of which a log remembers what they make of them."""


class MessageState(msgspec.Struct, frozen=True, gc=False):
    """What a message says from a call on."""

    call: int
    message: Message | None
    """None: it is not shown."""
    tokens: int
    content: int
    """Equal where the same is sent; 0: nothing is."""

    @property
    def chars(self) -> int:
        """Its characters; counted when asked for, as few parts go by them."""
        return 0 if self.message is None else count_chars(self.message)

    def since(self, call: int) -> MessageState:
        """Return the same from another call on."""
        return MessageState(call, self.message, self.tokens, self.content)


class HistoryRows:
    """The messages of one history, before any pruning.

    A *position* is a message's place among them and never changes. What a later message changes
    of an earlier one (a result that comes late, a pending one) is kept as the call from which it
    holds, so that no answer depends on what comes after the call that is asked about.
    """

    __slots__ = (
        "_ahead",
        "_chars",
        "_edges",
        "_head_chars",
        "_items",
        "_places",
        "begin",
        "head",
        "history",
        "lo",
        "log",
    )

    def __init__(self, history: History) -> None:
        self.history, self.log, self.lo = history, history.log, history.lo
        self.begin, self.head = history.call, history.head.size
        self._ahead = self.lo - self.head
        self._items = history.head.items
        self._places = {item.row: p for p, item in enumerate(self._items) if item.row >= 0}
        self._head_chars: list[int] | None = None
        self._edges: dict[int, int] = {}
        self._chars = _sums_of(self.log)[0]

    # -- one message -------------------------------------------------------------------------------

    def row(self, p: int) -> int:
        """Return the log's row at a position; -1 for a message that stands for others."""
        return self._items[p].row if p < self.head else p + self._ahead

    def place(self, row: int) -> int | None:
        """Return the position of a row of the log, or None where it is not among them."""
        return row - self._ahead if row >= self.lo else self._places.get(row)

    def message(self, p: int) -> Message:
        """Return a message as it was before any pruning."""
        if p < self.head:
            return self._items[p].message(self.log)
        return self.log.messages[p + self._ahead]

    def role(self, p: int) -> int:
        """Return the code of its role."""
        if p < self.head:
            return self._items[p].role(self.log)
        return self.log.roles[p + self._ahead]

    def of_roles(self, start: int, stop: int, codes: frozenset[int] | None) -> list[int]:
        """Return the positions in start..stop of some roles (None: of any)."""
        if codes is None:
            return list(range(start, stop))
        found = [p for p in range(start, min(stop, self.head)) if self.role(p) in codes]
        first = max(start, self.head)
        roles = self.log.roles[first + self._ahead : stop + self._ahead]
        return found + [p for p, role in enumerate(roles, first) if role in codes]

    def chars(self, p: int) -> int:
        """Return its characters."""
        if p < self.head:
            return count_chars(self.message(p))
        row, sums = p + self._ahead, self._chars
        if row + 1 >= len(sums):
            _chars_of(self.log)
        return sums[row + 1] - sums[row]

    def said(self, p: int) -> MessageState:
        """Return what it says before any pruning, from its first call on."""
        if p < self.head:
            content = int(self.history.head.column(self.log, "contents")[p])
            return MessageState(self.begin, self.message(p), self._items[p].tokens, content)
        row, log = p + self._ahead, self.log
        return MessageState(self.arrival(p), log.messages[row], log.tokens.sizes[row], -row - 1)

    def changed(self, p: int, call: int, message: Message, new: Message) -> MessageState | None:
        """Return what a position says once a message became a new one; None: the same."""
        if new is message or (new.parts == message.parts and new.role == message.role):
            return None
        row = self.row(p)
        size, content = self.log.measure(new, row), row_content_hash(row, content_hash(new))
        return MessageState(call, new, size, content)

    def replaced(self, p: int, call: int, message: Message, text: str) -> MessageState | None:
        """Return what `changed` does for a text in the place of a message's.

        What stands for a row as it was said is kept with the log: many rules, and each
        compaction anew, say the same of it.
        """
        row = self.row(p)
        if row < 0 or message is not self.log.messages[row]:
            return self.changed(p, call, message, with_text_and_calls(message, text))
        known: dict[tuple[int, str], MessageState | None] = self.log.memo.setdefault("replaced", {})
        if len(known) >= _KEPT:
            known.clear()
        if (row, text) not in known:
            known[row, text] = self.changed(p, call, message, with_text_and_calls(message, text))
        made = known[row, text]
        return made if made is None else made.since(call)

    def calls(self, p: int) -> tuple[ToolCall, ...]:
        """Return the tool calls of a message as they were said, whatever became of them."""
        row = self.row(p)
        if row < 0:
            return self.message(p).tool_calls
        known: dict[int, tuple[ToolCall, ...]] = self.log.memo.setdefault("tool calls", {})
        calls = known.get(row)
        if calls is None:
            calls = known[row] = self.log.messages[row].tool_calls
        return calls

    def asked(self, p: int) -> ToolCall | None:
        """Return the call that a result answers, as it was said; None where the log has none."""
        row = self.row(p)
        if row < 0:
            return None
        calls = self.log.messages[self.log.groups[row]].tool_calls
        return next((c for c in calls if c.id == self.log.messages[row].call_id), None)

    # -- as of a call ------------------------------------------------------------------------------

    def shown(self, call: int) -> int:
        """Return how many positions there are at a call."""
        if call < self.begin:
            return 0
        upto = self.log.upto
        rows = upto[call] if call < len(upto) else len(self.log.messages)
        return self.head + max(rows - self.lo, 0)

    def arrival(self, p: int) -> int:
        """Return the first call at which a position is there."""
        call = 0 if p < self.head else self.log.first_calls[p + self._ahead]
        return max(self.begin, call)

    def stays_from(self, p: int) -> int:
        """Return the call from which no pruning may touch a position; `NEVER`."""
        row = self.row(p)
        if row < 0:
            return self.begin if self._items[p].stays(self.log, self.begin) else NEVER
        if not self.log.stays_in(row):
            return NEVER
        return max(self.log.late_stays.get(row, 0), self.arrival(p))

    def is_safe(self, p: int, call: int) -> bool:
        """Return True where no call stands before a position and its result, so far, behind."""
        n = self.shown(call)
        while p < self.head and self.row(p) < 0:
            p += 1
        row = self.row(p) if p < n else -1
        return row < 0 or bool(self.log.is_cut[row]) or self.log.late_cuts.get(row, 0) > call

    def group(self, p: int) -> int:
        """Return a number that a reply and the results of its calls share."""
        row = self.row(p)
        return -p - 1 if row < 0 else self.log.groups[row]

    def members(self, group: int, call: int) -> list[int]:
        """Return the positions of a group at a call."""
        if group < 0:
            return [-group - 1]
        places = [self.place(r) for r in (group, *self.log.results.get(group, ()))]
        n = self.shown(call)
        return [p for p in places if p is not None and p < n]

    def came_to_stay(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return calls in start..stop with the positions that came to stay there, in order."""
        found = []
        for row, call in reversed(self.log.late_stays.items()):
            if call < start:
                break
            p = self.place(row)
            if call < stop and call > self.begin and p is not None:
                found.append((call, p))
        return sorted(found)

    def parted(self, start: int, stop: int) -> set[int]:
        """Return the calls in start..stop at which a result came late: some cut is safe no more."""
        calls = takewhile(lambda call: call >= start, reversed(self.log.late_cuts.values()))
        return {call for call in calls if call < stop}

    # -- turns ------------------------------------------------------------------------------------

    def turn_edge(self, call: int) -> int:
        """Return the position with which a call's turn begins: what stands before it is history."""
        row = self.log.turn_first(call)
        if row >= self.lo:
            return row - self._ahead
        if row not in self._edges:
            own = (p for p, item in enumerate(self._items) if item.row >= row)
            self._edges[row] = next(own, self.head)
        return self._edges[row]

    def turn_changes(self, start: int, stop: int) -> list[int]:
        """Return the calls in start..stop that begin another turn; the first call of all is one."""
        firsts, found, call = self.log.turn_firsts, list[int](), start
        while call < stop:
            row = self.log.turn_first(call)
            if call == self.begin or row != self.log.turn_first(call - 1):
                found.append(call)
            call = bisect_right(firsts, row, call) if call < len(firsts) else call + 1
        return found

    def past_from(self, p: int) -> int:
        """Return the call from which a position is history, as far as the log tells; `NEVER`."""
        if p < self.turn_edge(self.begin) or self._is_past_at_once(self.row(p)):
            return self.arrival(p)
        row = self.log.turn_first(self.begin) if p < self.head else p + self._ahead
        firsts = self.log.turn_firsts
        call = bisect_right(firsts, row)
        return NEVER if call == len(firsts) and self.log.turn_first(call) <= row else call

    def became_past(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return calls in start..stop with the positions that became history there, in order."""
        known = self.shown(start - 1)
        found = [(self.arrival(p), p) for p in self._past_at_once(known, self.shown(stop - 1))]
        done = self.turn_edge(start - 1) if start > self.begin else 0
        for call in self.turn_changes(start, stop):
            edge = self.turn_edge(call)
            found += [
                (call, p) for p in range(done, edge) if not self._is_past_at_once(self.row(p))
            ]
            done = edge
        return sorted(found)

    def _past_at_once(self, start: int, stop: int) -> Iterator[int]:
        """Yield the positions in start..stop that are history as soon as they are there."""
        rows = self.log.turn.past_at_once
        for row in rows[bisect_left(rows, start + self._ahead) if start >= self.head else 0 :]:
            p = self.place(row)
            if p is not None and start <= p < stop:
                yield p
            elif row >= stop + self._ahead:
                return

    def _is_past_at_once(self, row: int) -> bool:
        rows = self.log.turn.past_at_once
        i = bisect_left(rows, row)
        return i < len(rows) and rows[i] == row

    # -- columns -----------------------------------------------------------------------------------

    def contents(self, start: int, stop: int) -> NDArray[Any]:
        """Return what the positions start..stop say before any pruning, as `State.content`."""
        behind = -np.arange(max(start, self.head), stop) - self._ahead - 1
        head = self.history.head.column(self.log, "contents")[start:stop]
        return np.concatenate((head, behind))

    def sizes(self, start: int, stop: int) -> list[int]:
        """Return the tokens of the positions start..stop before any pruning."""
        behind = self.log.tokens.sizes[max(start, self.head) + self._ahead : stop + self._ahead]
        return [item.tokens for item in self._items[start:stop]] + behind

    # -- sums --------------------------------------------------------------------------------------

    def totals(self, start: int, stop: int, kind: int) -> list[int]:
        """Return the tokens (0), characters (1), characters of results (2) of the calls
        start..stop.

        They are sums over each call's messages as they were said.
        """
        upto, every, lo = self.log.upto, len(self.log.messages), self.lo
        sums = _chars_of(self.log)[kind - 1] if kind else self.log.tokens.P
        more = self._in_head(kind) - sums[lo]
        rows = upto[start:stop] if stop <= len(upto) else [*upto[start:], every]
        return [more + sums[max(lo, row)] for row in rows]

    def _in_head(self, kind: int) -> int:
        """Return a sum over the messages of the head, as `totals` has it."""
        if not kind:
            return self.history.head.tokens
        if self._head_chars is None:
            self._head_chars = [self.chars(p) for p in range(self.head)]
        return sum(n for p, n in enumerate(self._head_chars) if kind == 1 or self.role(p) == TOOL)


def _chars_of(log: MessageLog) -> tuple[list[int], list[int]]:
    """Return running sums of the characters of a log's rows, and of its results; kept with it."""
    every, results = found = _sums_of(log)
    known = len(every) - 1
    if known < len(log.messages):
        new = log.column("chars")[known:].tolist()
        roles = log.roles[known:]
        every.extend(list(accumulate(new, initial=every[-1]))[1:])
        own = [n if role == TOOL else 0 for n, role in zip(new, roles, strict=True)]
        results.extend(list(accumulate(own, initial=results[-1]))[1:])
    return found


def _sums_of(log: MessageLog) -> tuple[list[int], list[int]]:
    """Return these sums as far as they are worked out; the lists stay the same."""
    found: tuple[list[int], list[int]] = log.memo.setdefault("chars so far", ([0], [0]))
    return found
