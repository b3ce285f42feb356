"""The first row of the current turn: rows before it are earlier turns, which filters may hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.policies.history.columns import ASSISTANT, TOOL, USER
from ctxkit.session.messages import OTHER_AGENT_KINDS, Thinking, ToolCall

if TYPE_CHECKING:
    from ctxkit.session.messages import Message

_UNFINISHED_STOPS = ("tool", "length", "error", "aborted")
"""Stop reasons of replies that do not end their turn."""


class RunningTurn:
    """State machine for the first row of the current turn, updated as a log grows.

    A turn begins with the last user message before its first reply. It ends with the next user
    message, with a reply without tool calls (the next call then begins a turn without input), or
    with a reply of another agent. Messages injected as the user while tools run do not end it.
    Where messages have turn numbers, these decide instead.
    """

    # States: before the first reply of a turn (`_answered` False); within it (True); after its last
    # reply (`_ended`). Transitions: `add` for each message, `open` for each call. `first` never
    # moves back, so a row that was history once stays history.

    __slots__ = (
        "_agent",
        "_answered",
        "_ended",
        "_first_number",
        "_number",
        "_pending_input",
        "first",
        "in_items",
        "past_at_once",
    )

    def __init__(self) -> None:
        self.first = 0
        """The first row of the current turn; it never moves back."""
        self.past_at_once: list[int] = []
        """Sorted rows that never belong to the current turn: messages of other agents while a turn
        runs, and results of calls of an earlier turn.
        """
        self.in_items = False
        """True where a reply is logged as several messages, which continue each other."""
        self._answered = self._ended = False
        self._first_number = self._number = 0
        """Turn numbers: at the beginning of the turn, and of the last message."""
        self._agent: str | None = None
        self._pending_input: int | None = None
        """Row of a user message that no reply has followed yet."""

    def coming(self, rows: int) -> int:
        """Return the first row of the turn of the next call, if the log has so many rows."""
        return rows if self._ended else self.first

    def open(self, rows: int, *, implied: bool) -> int:
        """Update for a call that is opened; return the first row of its turn.

        Args:
            rows: number of rows before the call.
            implied: the call is only known from its reply.
        """
        if self._ended and not (implied and self.in_items):
            self._begin_turn(rows, self._number)
        return self.first

    def add(self, row: int, role: int, message: Message, *, group: int, number: int) -> None:
        """Update for a row that is appended.

        Args:
            row: the row.
            role: the code of its role.
            message: its message.
            group: for a tool result, the row of the reply that called the tool.
            number: the number of its turn.
        """
        # A reply of another agent or turn begins a turn, with the user message before it, if any.
        if role == ASSISTANT:
            if self._answered and self._is_other_turn(message, number):
                first = self._pending_input if number == self._number else None
                self._begin_turn(row if first is None else first, number)
            self._answered, self._number, self._pending_input = True, number, None
            self._agent = message.agent or self._agent
            self._ended = _is_final_reply(message)
        elif role == TOOL and group >= self.first:
            self._answered, self._ended, self._pending_input = True, False, None
        # A late result of an earlier turn, or a message of another agent, belongs to no turn.
        elif role == TOOL or message.kind in OTHER_AGENT_KINDS:
            self.past_at_once.append(row)
        elif role == USER:
            if self._begins_turn(message, number):
                self._begin_turn(row, number)
            self._ended, self._number, self._pending_input = False, number, row

    def _begin_turn(self, row: int, number: int) -> None:
        self.first, self._first_number, self._agent = row, number, None
        self._answered = self._ended = False

    def _begins_turn(self, message: Message, number: int) -> bool:
        """Return True for a user message that begins a turn."""
        if not self._answered:
            return True
        if message.kind and not self._ended:
            return False
        return message.turn is None or number != self._first_number

    def _is_other_turn(self, message: Message, number: int) -> bool:
        """Return True for a reply of another agent, or with another turn number."""
        named = message.agent is not None and self._agent is not None
        if named and message.agent != self._agent:
            return True
        return message.turn is not None and number != self._number


def _is_final_reply(reply: Message) -> bool:
    """Return True for a complete reply without tool calls that holds more than reasoning."""
    if reply.is_error or reply.stop in _UNFINISHED_STOPS:
        return False
    kinds = {type(part) for part in reply.parts} - {Thinking}
    return bool(kinds) and ToolCall not in kinds
