"""`History`: the messages shown at a call with verbs that return a new one; where turns and
summaries begin in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ctxkit.policies.history import edits, searches
from ctxkit.policies.history.columns import SUMMARY, SYSTEM, USER
from ctxkit.policies.history.view import HistoryView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.log import MessageLog
    from ctxkit.policies.history.view import EditInfo, Mask
    from ctxkit.session.messages import Edit, Message, Usage


class History(HistoryView, frozen=True):
    """What is shown to the model now: history in, history out.

    A verb that changes nothing returns the history itself, so ``new is history`` tells that nothing
    was done. Verbs never part a tool call from its results and never remove what `stays` (system,
    pinned, pending): a group of which one message goes, goes whole; a group that holds a message
    that stays, stays whole.

    A policy in five lines::

        def mine(history, room):
            if history.tokens < 80_000:
                return history
            start = history.safe(history.back(20_000))
            return history.summarise(start, "So far: ...", "over 80,000")
    """

    # -- where: positions, from running sums and lists of rows; O(log n) over the untouched tail ---

    def back(self, tokens: int, estimated: bool = False) -> int:
        """Return the last position from which at least `tokens` are shown (Pi's walk back); 0 where
        there are fewer.
        """
        return searches.find_back(self, tokens, estimated)

    def fitting(self, budget: int, *, start: int = 0, estimated: bool = False) -> int:
        """Return the first position from which the messages fit the budget, together with what
        remains before them.

        What remains: the first `start` messages, everything that `stays`, and in tokens (not
        estimates) the fixed part.
        """
        return searches.find_fitting(self, budget, start=start, estimated=estimated)

    def before(self, position: int, *, estimated: bool = False) -> int:
        """Return the tokens of the messages before a position, without the fixed part."""
        return searches.tokens_before(self, position, estimated=estimated)

    def safe(self, position: int) -> int:
        """Return the first safe cut at or after a position; 0 where none is left (a verb then
        changes nothing).
        """
        return searches.next_safe_cut(self, position)

    def safe_before(self, position: int) -> int:
        """Return the last safe cut at or before a position; 0 where there is none."""
        return searches.last_safe_cut(self, position)

    def is_safe(self, position: int) -> bool:
        """Return True where no call stands before the position and its result at or after it."""
        return searches.is_safe_cut(self, position)

    def nth_last(self, role: str, n: int) -> int:
        """Return the position of the n-th last message of a role (1: the last); -1 where there are
        fewer.

        Raises:
            BadArguments: `n` is below 1, or there is no such role.
        """
        return searches.find_nth_last(self, role, n)

    def next(self, position: int, *roles: str) -> int:
        """Return the first position at or after one with one of these roles; -1: none."""
        return searches.find_next(self, position, *roles)

    # -- verbs on a range of positions: O(1) where the head is short ------------------------------

    def summarise(
        self,
        before: int,
        summary: Message | str | int | Sequence[Message],
        reason: str = "",
        *,
        start: int = 0,
        tokens: int | None = None,
        method: str | None = None,
        usage: Usage | None = None,
    ) -> Self:
        """Put a summary in the place of all messages at positions start..before; what stays, stays.

        Args:
            before: first position that is kept as it is; 0 (or not above `start`) changes nothing.
                One that lies between a call and its result is moved to the next safe cut (the last
                one before where there is none).
            summary: its text, a message of role `summary`, several messages, or only its size in
                tokens.
            reason: why, for a person to read.
            start: first position that is summarised.
            tokens: size of the summary where it is known better than by counting.
            method: the policy's own word for how it was done.
            usage: what the summariser's call cost, or would have cost.
        """
        words: EditInfo = ("summarised", reason, method, usage)
        return edits.cut_range(self, start, before, (summary, tokens), words)

    def drop(
        self, which: Mask | int, reason: str = "", *, start: int = 0, method: str | None = None
    ) -> Self:
        """Remove the messages of a mask, or all at start..which where `which` is an int."""
        if isinstance(which, (int, np.integer)) and not isinstance(which, bool):
            words: EditInfo = ("dropped", reason, method, None)
            return edits.cut_range(self, start, int(which), ((), None), words)
        return self.keep(~edits.to_mask(self, which), reason, method=method)

    def insert(
        self, position: int, message: Message, reason: str = "", *, method: str | None = None
    ) -> Self:
        """Put one more message before a position (a digest, a notice, a pinned signal);
        `len(history)` is the end.

        Raises:
            UnsoundHistory: the position lies between a tool call and its result.
        """
        return edits.insert_message(self, position, message, reason, method=method)

    def instead_of(self, error: str) -> Self:
        """Note that what was done last was done because a summary failed.

        Args:
            error: why it failed; empty: it did not.
        """
        return edits.instead_of(self, error)

    # -- verbs on any messages: O(shown) ----------------------------------------------------------

    def keep(self, mask: Mask, reason: str = "", *, method: str | None = None) -> Self:
        """Keep the messages of a mask and remove the others, with the rest of their groups."""
        return edits.keep_messages(self, mask, reason, method)

    def shorten(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> Self:
        """Make messages shorter; where the new message would not be smaller in tokens, the old one
        remains.

        Args:
            changes: the new messages (or their whole text; tool calls remain) by position; or a
                mask, with `text`.
            text: what all messages of the mask say instead: a placeholder.
            reason: why, for a person to read.
            method: the policy's own word for how it was done.
        """
        return edits.change_messages(self, changes, text, ("shortened", reason, method, None))

    def replace(
        self,
        changes: Mapping[int, Message | str | None] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> Self:
        """Put other messages in the place of some, smaller or not; None removes one. Groups are not
        extended.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        return edits.replace_messages(self, changes, text, ("replaced", reason, method, None))

    def left_as(self, changes: Mapping[int, tuple[Message | None, int]], reason: str = "") -> Self:
        """Put messages of known sizes in the place of some; None leaves one out.

        Args:
            changes: by position the new message with its tokens.
            reason: why, for a person to read.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        return edits.apply_known_states(self, changes, reason)

    def become(
        self, messages: Sequence[Message], reason: str = "", *, method: str | None = None
    ) -> Self:
        """Show these messages instead: what a policy that works on a plain list of messages gives
        back.

        A message under an id that is shown is that message, changed or not; any other one is new.

        Raises:
            UnsoundHistory: a call or a result lost its partner, or a message that stays is gone.
        """
        return edits.show_messages(self, messages, reason, method=method)

    def apply(self, edit: Edit) -> Self:
        """Do what a recorded edit did, as far as its targets are shown; pairs are not checked."""
        return edits.apply_recorded_edit(self, edit)

    # -- reading masks and edits ------------------------------------------------------------------

    def mask(self, which: Mask) -> NDArray[Any]:
        """Return booleans, one a message, from booleans or from positions.

        Raises:
            BadArguments: there are as many booleans as messages, or positions within them, or else
                this.
        """
        return edits.to_mask(self, which)

    def positions(self, which: Mask) -> NDArray[Any]:
        """Return the positions of a mask, rising; those of an array that is rising positions
        already are taken as is.

        Raises:
            BadArguments: as `mask` does.
        """
        return edits.to_positions(self, which)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What was done at this call, as edits that a session can hold; made when asked for."""
        return edits.edits_from_steps(self)


def find_turn_start(history: History, position: int) -> int:
    """Return the position of the last user message up to a position; -1: there is none."""
    head, log = history.head, history.log
    if position >= head.size:
        rows = log.of_role[USER]
        at = bisect_right(rows, history.lo + position - head.size) - 1
        if at >= 0 and rows[at] >= history.lo:
            return head.size + rows[at] - history.lo
    return next(
        (p for p in range(min(position, head.size - 1), -1, -1) if head.items[p].role(log) == USER),
        -1,
    )


def first_since_compaction(history: History, *, waiting: bool = False) -> int:
    """Return the position of the first message said after the last compaction; 0 where there was
    none.

    Args:
        history: what is shown.
        waiting: the request that waited at that compaction counts as said after it.
    """
    if not history.since or not any(i.row < 0 for i in history.head.items):
        return 0
    row = history.log.upto[history.since]
    if waiting and is_new_request(history.log, row - 1, history.since):
        row -= 1
    return history.head.size + max(row - history.lo, 0)


def is_new_request(log: MessageLog, row: int, call: int) -> bool:
    """Say whether a row is a user's request, no command, that a call is the first to send."""
    return (
        row >= 0
        and log.roles[row] == USER
        and log.first_calls[row] == call
        and log.messages[row].kind != "bash"
    )


def end_of_leading_summaries(history: History, first: int = 0) -> int:
    """Return where the summaries and system messages end that stand at a position."""
    log, n = history.log, len(history)
    while first < n and history.item(first).role(log) in (SUMMARY, SYSTEM):
        first += 1
    return first


def has_content(history: History, before: int, start: int = 0) -> bool:
    """Say whether anything but summaries, and what stays, lies at the positions start..before."""
    head, log = history.head, history.log
    if before > head.size:
        first, last = history.lo + max(start - head.size, 0), history.lo + before - head.size
        stays = log.stays_at(history.call)
        if last - first > bisect_left(stays, last) - bisect_left(stays, first):
            return True
    return any(i.row >= 0 and not i.stays(log, history.call) for i in head.items[start:before])
