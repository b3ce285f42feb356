"""Where the turn under way begins: what stands before it is history, which a view may filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.policies.history.columns import ASSISTANT, TOOL, USER
from ctxkit.session.messages import FROM_OTHERS, Thinking, ToolCall

if TYPE_CHECKING:
    from ctxkit.session.messages import Message

_GOES_ON = ("tool", "length", "error", "aborted")
"""Why a reply ended that does not end its turn."""


class RunningTurn:
    """The beginning of the turn under way, followed as a log is written.

    A turn begins with the last input before its first reply. It ends with the next input, with a
    reply that calls no tool (the next call then begins a turn without an input), or where another
    agent replies. What is injected in the user's place while tools run does not end it. Where
    messages say their turn, their numbers count instead of the inputs.
    """

    __slots__ = (
        "_answered",
        "_begun",
        "_ended",
        "_input",
        "_number",
        "_speaker",
        "first",
        "in_items",
        "past_at_once",
    )

    def __init__(self) -> None:
        self.first = 0
        """The row that it begins with; it never moves back."""
        self.past_at_once: list[int] = []
        """Rows, rising, that are history as soon as they are there: what other agents say while a
        turn runs, and results of calls of an earlier turn.
        """
        self.in_items = False
        """A reply may come as several messages: one directly behind another goes on with it."""
        self._answered = self._ended = False
        self._begun = self._number = 0
        """Numbers of the turn as it began, and of the last message."""
        self._speaker: str | None = None
        self._input: int | None = None
        """The row of an input that no reply has followed yet."""

    def coming(self, rows: int) -> int:
        """Return the row with which the turn of the next call begins; so many rows are there."""
        return rows if self._ended else self.first

    def open(self, rows: int, *, implied: bool) -> int:
        """Take in that a call is opened behind so many rows; return where its turn begins.

        Args:
            rows: so many.
            implied: the call is only known by its reply.
        """
        if self._ended and not (implied and self.in_items):
            self._begin(rows, self._number)
        return self.first

    def add(self, row: int, role: int, message: Message, *, group: int, number: int) -> None:
        """Take in a row.

        Args:
            row: its place in the log.
            role: the code of its role.
            message: what it says.
            group: the row of the reply that asked for it, where it is a result.
            number: the number of its turn.
        """
        if role == ASSISTANT:
            if self._answered and self._is_anothers(message, number):
                calls = self._input if number == self._number else None
                self._begin(row if calls is None else calls, number)
            self._answered, self._number, self._input = True, number, None
            self._speaker = message.agent or self._speaker
            self._ended = _is_last_word(message)
        elif role == TOOL and group >= self.first:
            self._answered, self._ended, self._input = True, False, None
        elif role == TOOL or message.kind in FROM_OTHERS:
            self.past_at_once.append(row)
        elif role == USER:
            if self._opens(message, number):
                self._begin(row, number)
            self._ended, self._number, self._input = False, number, row

    def _begin(self, row: int, number: int) -> None:
        self.first, self._begun, self._speaker = row, number, None
        self._answered = self._ended = False

    def _opens(self, message: Message, number: int) -> bool:
        """Return True for an input with which a turn begins."""
        if not self._answered:
            return True
        if message.kind and not self._ended:
            return False
        return message.turn is None or number != self._begun

    def _is_anothers(self, message: Message, number: int) -> bool:
        """Return True for a reply of another agent, or of another turn by its number."""
        named = message.agent is not None and self._speaker is not None
        if named and message.agent != self._speaker:
            return True
        return message.turn is not None and number != self._number


def _is_last_word(reply: Message) -> bool:
    """Return True for a reply that says something, calls no tool, and neither failed nor was cut
    off.
    """
    if reply.is_error or reply.stop in _GOES_ON:
        return False
    kinds = {type(part) for part in reply.parts} - {Thinking}
    return bool(kinds) and ToolCall not in kinds
