"""`History`: the messages of a prompt, with searches, and verbs that return an edited history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ctxkit.policies.history import edits, history_view_and_searches
from ctxkit.policies.history.growing_columns_and_sums import SUMMARY, SYSTEM, USER
from ctxkit.policies.history.history_view_and_searches import HistoryView
from ctxkit.session.messages import CONTINUATION_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history_view_and_searches import EditInfo, Mask
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.messages import Edit, Message, Usage


class History(HistoryView, frozen=True):
    """The messages of a prompt, frozen: policies get one and return an edited one.

    A verb that changes nothing returns the history itself, so ``new is history`` means "no change".
    Verbs never part a tool call from its results, and never remove protected messages (`stays`:
    system, pinned, pending): a group is removed or kept as a whole.

    A policy in five lines::

        def summarise_old(history, budget):
            if history.tokens < 80_000:
                return history
            start = history.safe(history.back(20_000))
            return history.summarise(start, "So far: ...", "over 80,000")

    Example:
        >>> from ctxkit.policies.history import MessageLog
        >>> from ctxkit.session.messages import Message, Text
        >>> from ctxkit.tokens.token_counters import default_counter
        >>> roles = ("user", "assistant", "user", "assistant")
        >>> messages = [Message(role=role, parts=(Text("some words"),)) for role in roles]
        >>> history = History.start(MessageLog.of(messages, default_counter()), call=2)
        >>> shorter = history.summarise(2, "So far: little", "old")
        >>> [message.role for message in shorter.messages], shorter.edits[0].kind
        (['summary', 'user', 'assistant'], 'summarised')
    """

    # -- where: positions, from running sums and lists of rows; O(log n) over the untouched tail ---

    def back(self, tokens: int, estimated: bool = False) -> int:
        """Return the last position whose suffix has at least `tokens`; 0 where all have fewer.

        Args:
            tokens: minimum size of the suffix.
            estimated: measure by the system's own estimate (`Rules.estimator`), not by counted
                tokens.
        """
        return history_view_and_searches.find_suffix_of_tokens(self, tokens, estimated)

    def fitting(self, budget: int, *, start: int = 0, estimated: bool = False) -> int:
        """Return the first position whose suffix fits the budget, with what remains before it.

        The first `start` messages and all protected ones remain, and, in tokens, the fixed part.

        Args:
            budget: tokens, or size by the system's own estimate.
            start: number of messages at the front that remain.
            estimated: measure by the system's own estimate.
        """
        return history_view_and_searches.find_suffix_within_budget(
            self, budget, start=start, estimated=estimated
        )

    def before(self, position: int, *, estimated: bool = False) -> int:
        """Return the tokens of the messages before a position, without the fixed part.

        Args:
            position: first position that does not count.
            estimated: measure by the system's own estimate (`Rules.estimator`), not by counted
                tokens.
        """
        return history_view_and_searches.count_tokens_before(self, position, estimated=estimated)

    def safe(self, position: int) -> int:
        """Return the first safe cut at or after a position; 0 where there is none (no change)."""
        return history_view_and_searches.find_next_safe_cut(self, position)

    def safe_before(self, position: int) -> int:
        """Return the last safe cut at or before a position; 0 where there is none."""
        return history_view_and_searches.find_last_safe_cut(self, position)

    def is_safe(self, position: int) -> bool:
        """Return True where a cut before a position parts no tool call from its result."""
        return history_view_and_searches.is_safe_cut(self, position)

    def nth_last(self, role: str, n: int) -> int:
        """Return the position of the n-th last message of a role (1: the last); -1: there is none.

        Args:
            role: "user", "assistant", "tool", "summary" or "system".
            n: 1 for the last message, 2 for the last but one.

        Raises:
            BadArguments: `n` is below 1, or there is no such role.
        """
        return history_view_and_searches.find_nth_last_of_role(self, role, n)

    def nth_last_request(self, n: int) -> int:
        """Return the position of the n-th last user message; -1: there is none.

        Requests by which a program continues a truncated reply do not count (`CONTINUATION_KEY`).
        """
        position, requests, k = -1, 0, 0
        while requests < n:
            k += 1
            position = self.nth_last("user", k)
            if position < 0:
                return -1
            requests += not self[position].details.get(CONTINUATION_KEY)
        return position

    def next(self, position: int, *roles: str) -> int:
        """Return the first position from one on with one of these roles; -1: there is none.

        Args:
            position: first position to look at.
            roles: "user", "assistant", "tool", "summary" or "system"; the message has one of them.
        """
        return history_view_and_searches.find_next_of_roles(self, position, *roles)

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
        """Replace the messages at positions start..before by a summary; protected ones stay.

        Args:
            before: first position that is kept; at most `start`: no change. An unsafe cut is moved
                to the next safe one, else to the last safe one before.
            summary: a text, a message of role `summary`, several messages, or a size in tokens.
            reason: the reason, for people.
            start: first position that is replaced.
            tokens: size of the summary, where it is known better than by counting.
            method: the policy's name for its method.
            usage: usage of the summariser's call, real or estimated.

        Returns:
            The new history; this one where nothing changes.
        """
        words: EditInfo = ("summarised", reason, method, usage)
        return edits.cut_range(self, start, before, (summary, tokens), words)

    def drop(
        self, which: Mask | int, reason: str = "", *, start: int = 0, method: str | None = None
    ) -> Self:
        """Remove the messages of a mask, or the positions start..which if `which` is an int.

        Args:
            which: a boolean for each message or an array of positions to remove, with their groups;
                or, as an int, the first position that is kept. An unsafe cut moves as `summarise`
                says.
            reason: the reason, for people.
            start: first position that is removed, where `which` is an int.
            method: the policy's name for its method.

        Returns:
            The new history; this one where nothing changes.
        """
        if isinstance(which, (int, np.integer)) and not isinstance(which, bool):
            words: EditInfo = ("dropped", reason, method, None)
            return edits.cut_range(self, start, int(which), ((), None), words)
        return self.keep(~edits.to_mask(self, which), reason, method=method)

    def insert(
        self, position: int, message: Message, reason: str = "", *, method: str | None = None
    ) -> Self:
        """Insert a message before a position; ``len(history)`` is the end.

        Args:
            position: the message that stands there now follows the new one.
            message: the new message.
            reason: the reason, for people.
            method: the policy's name for its method.

        Returns:
            The new history.

        Raises:
            UnsoundHistory: the position is between a tool call and its result.
        """
        return edits.insert_message(self, position, message, reason, method=method)

    def instead_of(self, error: str) -> Self:
        """Record in the last edit that it replaces a summary that failed.

        Args:
            error: the error of the summary; empty: no change.

        Returns:
            The history with the mark.
        """
        return edits.mark_fallback(self, error)

    # -- verbs on any messages: O(n) --------------------------------------------------------------

    def keep(self, mask: Mask, reason: str = "", *, method: str | None = None) -> Self:
        """Keep the messages of a mask; remove all others with their groups.

        Args:
            mask: a boolean for each message, or an array of positions. Protected messages are kept
                anyway.
            reason: the reason, for people, why the others are removed.
            method: the policy's name for its method.

        Returns:
            The new history; this one where nothing changes.
        """
        return edits.keep_messages(self, mask, reason, method)

    def shorten(
        self,
        changes: Mapping[int, Message | str] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> Self:
        """Shorten messages; a message stays where the new one is not smaller, in tokens.

        Args:
            changes: new messages, or new texts (tool calls remain), by position; or a mask.
            text: with a mask, the placeholder text of all its messages.
            reason: the reason, for people.
            method: the policy's name for its method.

        Returns:
            The new history; this one where nothing changes.
        """
        return edits.shorten_or_replace_messages(
            self, changes, text, ("shortened", reason, method, None)
        )

    def replace(
        self,
        changes: Mapping[int, Message | str | None] | Mask,
        text: str | None = None,
        reason: str = "",
        *,
        method: str | None = None,
    ) -> Self:
        """Replace messages, by smaller ones or not; None removes one. Groups are not extended.

        Args:
            changes: new messages, new texts (tool calls remain) or None, by position; or a mask.
            text: with a mask, the text of all its messages.
            reason: the reason, for people.
            method: the policy's name for its method.

        Returns:
            The new history; this one where nothing changes.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        return edits.replace_messages(self, changes, text, ("replaced", reason, method, None))

    def replace_sized(
        self, changes: Mapping[int, tuple[Message | None, int]], reason: str = ""
    ) -> Self:
        """Replace messages by messages of known sizes; None removes one.

        Args:
            changes: by position, the new message and its tokens.
            reason: the reason, for people.

        Returns:
            The new history; this one where nothing changes.

        Raises:
            UnsoundHistory: a tool call would lose its result, or a result its call.
        """
        return edits.replace_sized_messages(self, changes, reason)

    def become(
        self, messages: Sequence[Message], reason: str = "", *, method: str | None = None
    ) -> Self:
        """Return a history of these messages: the result of a policy on a plain list of messages.

        A message with an id of the history is that message, changed or not; others are new.

        Args:
            messages: all messages of the new history, in order.
            reason: the reason, for people.
            method: the policy's name for its method.

        Raises:
            UnsoundHistory: a call or a result lost its partner, or a protected message is gone.
        """
        return edits.make_history_of_messages(self, messages, reason, method=method)

    def apply(self, edit: Edit) -> Self:
        """Apply a recorded edit as far as its targets are present; pairs are not checked.

        Args:
            edit: an edit of a session; targets that are absent are skipped.

        Returns:
            The new history.
        """
        return edits.apply_recorded_edit(self, edit)

    # -- reading masks and edits ------------------------------------------------------------------

    def mask(self, which: Mask) -> NDArray[Any]:
        """Return a boolean for each message, from booleans or positions.

        Args:
            which: booleans, one per message, or an array of positions.

        Raises:
            BadArguments: the number of booleans differs, or a position is out of range.
        """
        return edits.to_mask(self, which)

    def positions(self, which: Mask) -> NDArray[Any]:
        """Return the sorted positions of a mask; an array of sorted positions is returned as is.

        Args:
            which: booleans, one per message, or an array of positions.

        Raises:
            BadArguments: as `mask` does.
        """
        return edits.to_positions(self, which)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits of this call in the form that a session records."""
        return edits.make_session_edits(self)


def find_turn_start(history: History, position: int) -> int:
    """Return the position of the last user message at or before a position; -1: none.

    Args:
        history: any history.
        position: position in its prompt, from 0.

    Returns:
        A position at or before it, or -1.
    """
    head, log = history.head, history.log
    if position >= head.size:  # in the unchanged tail: positions follow from the rows of the log
        user_rows = log.of_role[USER]
        last = bisect_right(user_rows, history.lo + position - head.size) - 1
        if last >= 0 and user_rows[last] >= history.lo:
            return head.size + user_rows[last] - history.lo
    return next(
        (p for p in range(min(position, head.size - 1), -1, -1) if head.items[p].role(log) == USER),
        -1,
    )


def find_first_since_compaction(history: History, *, includes_pending: bool = False) -> int:
    """Return the position of the first message after the last compaction; 0: there was none.

    Args:
        history: the history.
        includes_pending: a request that was pending at the compaction counts as after it.

    Returns:
        A position from 0 to the length of the history.
    """
    if not history.since or not any(i.row < 0 for i in history.head.items):
        return 0
    # The rows before the call of the compaction are older than it, except a pending request.
    row = history.log.upto[history.since]
    if includes_pending and is_new_request(history.log, row - 1, history.since):
        row -= 1
    return history.head.size + max(row - history.lo, 0)


def is_new_request(log: MessageLog, row: int, call: int) -> bool:
    """Return True for a user request (no shell command) that a call is the first to send.

    Args:
        log: the messages and calls.
        row: row of the message in the log; negative: no message.
        call: number of the call, from 0.
    """
    return (
        row >= 0
        and log.roles[row] == USER
        and log.first_calls[row] == call
        and log.messages[row].kind != "bash"
    )


def find_end_of_leading_summaries(history: History, first: int = 0) -> int:
    """Return the end of the summaries and system messages that begin at a position.

    Args:
        history: the messages of the prompt.
        first: position at which the search begins; it is returned where no summary stands there.
    """
    log, n = history.log, len(history)
    while first < n and history.item(first).role(log) in (SUMMARY, SYSTEM):
        first += 1
    return first


def find_end_of_summaries(history: History) -> int:
    """Return the position after the last summary, or after the leading system messages."""
    roles = [history[p].role for p in range(history.head.size)]
    last = max((p for p, role in enumerate(roles) if role == "summary"), default=-1)
    if last >= 0:
        return last + 1
    return next((p for p, m in enumerate(history.messages) if m.role != "system"), len(history))


def has_summarisable_messages(history: History, before: int, start: int = 0) -> bool:
    """Return True where start..before holds more than summaries and protected messages.

    Args:
        history: any history.
        before: one past the last position that is looked at.
        start: the first one.

    Returns:
        False where a summary of the range would have nothing to say.
    """
    head, log = history.head, history.log
    if before > head.size:
        first, last = history.lo + max(start - head.size, 0), history.lo + before - head.size
        protected_rows = log.get_protected_rows(history.call)
        if last - first > bisect_left(protected_rows, last) - bisect_left(protected_rows, first):
            return True
    return any(
        i.row >= 0 and not i.is_protected(log, history.call) for i in head.items[start:before]
    )
