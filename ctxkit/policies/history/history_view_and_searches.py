"""The messages of a prompt as an edited head and an unchanged tail of the log; searches in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.history.edited_head import (
    EMPTY_HEAD,
    EditedHead,
    HeadItem,
    SizeOnlySummary,
)
from ctxkit.policies.history.growing_columns_and_sums import ROLE_CODES, SUMMARY
from ctxkit.policies.history.message_log import MessageLog
from ctxkit.session.messages import RECORD_CHARS_KEY, EditKind, Usage, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.policies.history.growing_columns_and_sums import RowAndCallSums
    from ctxkit.session.messages import Message

Mask = Any
"""A boolean for each message (array or list), or an array of positions."""

COLUMNS = (
    "tokens",
    "estimates",
    "chars",
    "roles",
    "turns",
    "calls",
    "groups",
    "agents",
    "tools",
    "times",
    "errors",
    "asks",
    "thinks",
)


class HistoryView(msgspec.Struct, frozen=True):
    """The messages of the prompt of one call, frozen.

    A message's *position* is its index in the prompt, its *row* the index in the log. Positions
    below ``len(head.items)`` are the edited head; all others are the rows `lo` to `hi` of the log,
    unchanged. Sizes are O(1); columns and messages are computed on request.
    """

    log: MessageLog
    head: EditedHead
    lo: int
    """First row of the unchanged tail."""
    hi: int
    """One past the last row of the tail."""
    call: int
    """The call whose prompt this is."""
    since: int = 0
    """The call of the last compaction that took effect; 0: none."""
    stable: int = 0
    """Tokens of the prefix that no edit of this call changed, which a cache may still hold."""
    steps: tuple[HistoryEdit, ...] = ()
    """The edits of this call."""

    # -- sizes: O(1) ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.head.size + self.hi - self.lo

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt, with the fixed part (system prompt and tools)."""
        sizes = self.log.tokens
        head_difference = self.head.tokens - sizes.P[self.lo]
        if self.call < len(sizes.C):
            return head_difference + sizes.C[self.call]
        return head_difference + sizes.P[self.hi] + self.log.fixed

    @property
    def estimated(self) -> int:
        """Size of all messages by the system's own estimate (`Rules.estimator`)."""
        sums = self.log.estimates.P
        return self.head.estimate + sums[self.hi] - sums[self.lo]

    @property
    def fixed(self) -> int:
        """Tokens of the fixed part of the prompt: system prompt and tools outside the log."""
        return self.log.fixed_in(self.call)

    def count(self, *roles: str) -> int:
        """Return the number of messages of these roles."""
        total = 0
        for role in roles:
            code = get_role_code(role)
            counts = self.log.counts[code]
            total += counts[self.hi] - counts[self.lo] + self.head.count(self.log, code)
        return total

    # -- messages: built on request -------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages in order, for sending: O(n)."""
        log = self.log
        return (*self.head.messages(log), *log.messages[self.lo : self.hi])

    def __getitem__(self, position: int) -> Message:
        """Return the message at a position; negative positions count from the end."""
        nh = self.head.size
        if not 0 <= position < nh + self.hi - self.lo:
            position = range(len(self))[position]
        if position < nh:
            return self.head.message(self.log, position)
        return self.log.messages[self.lo + position - nh]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def messages_newest_first(self) -> Iterator[Message]:
        """All messages of the log up to this call, in the prompt or not, the newest first."""
        return (self.log.messages[row] for row in range(self.hi - 1, -1, -1))

    def item(self, position: int) -> HeadItem:
        """Return the item at a position: row, sizes, and source of the message."""
        if position < self.head.size:
            return self.head.item(position)
        row = self.row(position)
        return HeadItem(row, self.log.tokens.sizes[row], self.log.estimates.sizes[row])

    def row(self, position: int) -> int:
        """Return the row of the log at a position; -1 for a message that replaced others."""
        nh = self.head.size
        return self.head.row(position) if position < nh else self.lo + position - nh

    def position(self, row: int) -> int:
        """Return the position of a row of the log.

        Raises:
            BadArguments: the prompt does not hold the row.
        """
        if self.lo <= row < self.hi:
            return self.head.size + row - self.lo
        for p in range(self.head.size):
            if self.head.row(p) == row:
                return p
        raise BadArguments(f"Row {row} is not in the prompt of call {self.call}.")

    # -- columns: one value per message, read-only arrays ---------------------------------------

    def column(self, name: str) -> NDArray[Any]:
        """Return a column: of `COLUMNS`, `rows` (-1: replaced others), `keys` (0: recorded)."""
        tail: NDArray[Any]
        if name == "stays":
            return self._protected_mask()
        if name in ("rows", "source_rows"):
            tail = np.arange(self.lo, self.hi)
        elif name == "keys":
            tail = np.zeros(self.hi - self.lo, np.int64)
        else:
            tail = self.log.column(name, self.hi)[self.lo :]
        return np.concatenate((self.head.column(self.log, name), tail)) if self.head.size else tail

    def _protected_mask(self) -> NDArray[Any]:
        """Return a mask of the messages that are protected as of the call."""
        log, head = self.log, self.head
        # Rows that become protected after this call are not protected yet.
        tail = log.column("stays", self.hi)[self.lo :]
        if log.late_stays:
            tail = tail.copy()
            for row, since in log.late_stays.items():
                if since > self.call and self.lo <= row < self.hi:
                    tail[row - self.lo] = False
        if not head.size:
            return tail
        protected_in_head = np.zeros(head.size, bool)
        protected_in_head[list(head.protected_places(log, self.call))] = True
        return np.concatenate((protected_in_head, tail))

    def front(self, name: str, n: int) -> NDArray[Any]:
        """Return the first `n` values of a column, without computing the rest.

        Args:
            name: name of the column, such as `tokens`.
            n: number of values.
        """
        if name != "stays" and n <= self.head.size:
            return self.head.column(self.log, name)[:n]
        return self.column(name)[:n]

    @property
    def sizes(self) -> NDArray[Any]:
        """Tokens of each message."""
        return self.column("tokens")

    @property
    def estimates(self) -> NDArray[Any]:
        """Size of each message by the system's own estimate."""
        return self.column("estimates")

    @property
    def chars(self) -> NDArray[Any]:
        """Characters of each message: text, reasoning, tool names and arguments."""
        return self.column("chars")

    @property
    def turns(self) -> NDArray[Any]:
        """Turn of each message, from 0; of a summary, the turn of the last message it replaced."""
        return self.column("turns")

    @property
    def calls(self) -> NDArray[Any]:
        """The first call whose prompt held each message."""
        return self.column("calls")

    @property
    def times(self) -> NDArray[Any]:
        """Time of each message in seconds since 1970; NaN: unknown."""
        return self.column("times")

    @property
    def groups(self) -> NDArray[Any]:
        """Group of each message: equal for a reply and the results of its tool calls."""
        return self.column("groups")

    @property
    def errors(self) -> NDArray[Any]:
        """True for failed calls, and for tool results that report a failure."""
        return self.column("errors")

    @property
    def stays(self) -> NDArray[Any]:
        """True for protected messages: system, pinned, pending, and their groups."""
        return self.column("stays")

    def role(self, *roles: str) -> NDArray[Any]:
        """Return a mask of the messages of these roles."""
        codes = self.column("roles")
        mask = np.zeros(len(codes), np.bool_)
        for role in roles:
            mask |= codes == get_role_code(role)
        return mask

    def agent(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the messages of agents, by name or glob in any case."""
        return self._matches_name("agent", patterns)

    def tool(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the tool results, by tool name or glob in any case."""
        if "*" in patterns:  # no need to compute the column of tools
            return self.role("tool")
        mask: NDArray[Any] = self._matches_name("tool", patterns) & self.role("tool")
        return mask

    def _matches_name(self, kind: str, patterns: tuple[str, ...]) -> NDArray[Any]:
        # Match the few distinct names, then select rows by their codes.
        codes = self.column(f"{kind}s")
        lower_patterns = [p.lower() for p in patterns]
        names = self.log.names(kind)
        matching = [
            c for c, n in enumerate(names) if any(fnmatchcase(n.lower(), p) for p in lower_patterns)
        ]
        mask: NDArray[Any] = np.isin(codes, matching)
        return mask

    def at(self, call: int) -> Self:
        """Return the history at another call: the same head, and the tail as of that call. O(1)."""
        upto = self.log.upto
        hi = upto[call] if call < len(upto) else len(self.log.messages)
        return self.__class__(self.log, self.head, self.lo, hi, call, self.since)

    @classmethod
    def start(cls, log: MessageLog, call: int = 0) -> Self:
        """Return the unedited log as of a call.

        Args:
            log: the messages and calls.
            call: number of the call, from 0; a later one than the log has gets all messages.
        """
        upto = log.upto
        return cls(log, EMPTY_HEAD, 0, upto[call] if call < len(upto) else len(log.messages), call)


def get_role_code(role: str) -> int:
    """Return the code of a role.

    Raises:
        BadArguments: there is no such role; the message names the nearest one.
    """
    code = ROLE_CODES.get(role)
    if code is None:
        raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, ROLE_CODES)}")
    return code


EditInfo = tuple[EditKind, str, str | None, Usage | None]
"""Kind and reason of an edit, the policy's name for its method, and the summariser's usage."""


class HistoryEdit(msgspec.Struct, frozen=True):
    """The effect of one verb on a history; `History.edits` turns it into a recorded `Edit`."""

    info: EditInfo
    was: Any
    """The history before."""
    at: Any
    """Removed or changed positions of the history before: an array, or a pair (first, one past the
    last), which excludes protected messages.
    """
    new: tuple[HeadItem, ...] | None
    """The new items; None: those at the same positions of the history after."""
    added: bool = False
    """True where messages were only inserted, before the position `at`."""
    error: str = ""
    """Error of the summary that this edit replaced; empty: none failed."""

    @property
    def kind(self) -> EditKind:
        """Kind of the edit."""
        return self.info[0]

    @property
    def usage(self) -> Usage | None:
        """Usage of the summariser's call, real or estimated."""
        return self.info[3]

    @property
    def first(self) -> int:
        """The first position that differs from the history before."""
        if isinstance(self.at, tuple):
            return int(self.at[0])
        return int(self.at[0]) if len(self.at) else len(self.was)

    def positions(self) -> list[int]:
        """Return the positions of the history before that were removed or changed."""
        if self.added:
            return []
        if not isinstance(self.at, tuple):
            return [int(p) for p in self.at]
        stays = self.was.stays
        return [p for p in range(*self.at) if not stays[p]]

    def written_tokens(self, log: MessageLog) -> int:
        """Return the tokens that a model wrote: those of summaries, else of all new items.

        Messages inserted together with a summary are the user's own, or files attached again. The
        part of a summary that is computed from the record is not written by the model either.
        """
        new = self.new or ()
        if len(new) == 1 and isinstance(new[0].source, SizeOnlySummary):
            return new[0].tokens
        summaries = [_model_written_tokens(i, log) for i in new if i.role(log) == SUMMARY]
        return sum(summaries) if summaries else sum(i.tokens for i in new)


def _model_written_tokens(item: HeadItem, log: MessageLog) -> int:
    message = item.message(log)
    record_chars = message.details.get(RECORD_CHARS_KEY, 0)
    if not record_chars:
        return item.tokens
    return min(log.counter(get_plain_text(message)[record_chars:]), item.tokens)


def find_suffix_of_tokens(view: HistoryView, tokens: int, estimated: bool = False) -> int:
    """Return the last position whose suffix has at least `tokens`, by bisection of running sums.

    Args:
        view: the history.
        tokens: minimum size of the suffix.
        estimated: measure by the system's own estimate (`Rules.estimator`), not by counted tokens.
    """
    sums = _size_column(view, estimated).P
    lo, hi, nh = view.lo, view.hi, view.head.size
    target = sums[hi] - tokens
    if target >= sums[lo]:
        return nh + bisect_right(sums, target, lo, hi + 1) - 1 - lo
    if not nh:
        return 0
    # The suffix begins in the head: bisect its own running sums.
    head = view.head.sums(estimated)
    return max(bisect_right(head, head[-1] + target - sums[lo]) - 1, 0)


def find_suffix_within_budget(
    view: HistoryView, budget: int, *, start: int = 0, estimated: bool = False
) -> int:
    """Return the first position whose suffix fits a budget, with what remains before it.

    Protected messages remain, wherever they stand. If they all stand at the front, one bisection
    is enough. Else their tokens depend on the cut: the cut is moved on until it no longer changes
    (fixed-point iteration; the cut only grows, so it ends).

    Args:
        view: the history.
        budget: tokens, or size by the system's own estimate.
        start: number of messages at the front that remain.
        estimated: measure by the system's own estimate (`Rules.estimator`), not by counted tokens.
    """
    if not estimated:
        budget -= view.fixed
    log, head = view.log, view.head
    protected_rows = log.get_protected_rows(view.call)
    if not protected_rows or protected_rows[-1] < view.lo:
        front = head.front(log, view.call)
        if front is not None:  # all protected messages are at the front
            front_size = len(front.items)
            if front_size < start:
                front_size, remains = start, count_tokens_before(view, start, estimated=estimated)
            else:
                remains = front.estimate if estimated else front.tokens
            cut = _find_suffix(view, budget - remains, front_size, estimated)
            return cut if cut > front_size else start
    remains = count_tokens_before(view, start, estimated=estimated)
    cut = _find_suffix(view, budget - remains, start, estimated)
    while True:
        # Protected messages before the cut remain, so the rest of the budget is smaller.
        protected_tokens = _protected_tokens(view, start, cut, estimated)
        next_cut = _find_suffix(view, budget - remains - protected_tokens, start, estimated)
        if next_cut <= cut:
            return cut
        cut = next_cut


def count_tokens_before(view: HistoryView, position: int, *, estimated: bool = False) -> int:
    """Return the tokens of the messages before a position, without the fixed part.

    Args:
        view: the history.
        position: one past the last message that counts.
        estimated: whether to use the system's own estimate instead of the counter.

    Returns:
        Tokens; of all messages for the length of the history.
    """
    nh = view.head.size
    if position < nh:
        return view.head.before(position, estimated=estimated)
    sums = _size_column(view, estimated).P
    whole = view.head.estimate if estimated else view.head.tokens
    return whole + sums[view.lo + position - nh] - sums[view.lo]


def find_next_safe_cut(view: HistoryView, position: int) -> int:
    """Return the first safe cut at or after a position; 0 where there is none.

    Args:
        view: the history.
        position: index among its messages; a cut at 3 separates the first three from the rest.
    """
    nh = view.head.size
    if position >= nh:
        row_offset = view.lo - nh
        cut = view.log.get_safe_cuts(view.call).find(1, position + row_offset, view.hi)
        return cut - row_offset if cut >= 0 else 0
    while position < nh and not is_safe_cut(view, position):
        position += 1
    return position if position < nh else find_next_safe_cut(view, nh)


def find_last_safe_cut(view: HistoryView, position: int) -> int:
    """Return the last safe cut at or before a position; 0 where there is none.

    Args:
        view: the history.
        position: index among its messages; values beyond the end count as the end.
    """
    position = min(position, len(view))
    while position > 0 and not is_safe_cut(view, position):
        position -= 1
    return position


def is_safe_cut(view: HistoryView, position: int) -> bool:
    """Return True where a cut before a position parts no tool call from its result.

    Args:
        view: the history.
        position: index of the first message after the cut.
    """
    nh = view.head.size
    row = view.lo + max(position - nh, 0)
    for p in range(position, nh):
        if view.head.row(p) >= 0:
            row = view.head.row(p)
            break
    return row >= view.hi or bool(view.log.get_safe_cuts(view.call)[row])


def find_nth_last_of_role(view: HistoryView, role: str, n: int) -> int:
    """Return the position of the n-th last message of a role (1: the last); -1: none.

    Args:
        view: the history.
        role: "user", "assistant", "tool", "summary" or "system".
        n: 1 for the last message, 2 for the last but one.

    Raises:
        BadArguments: `n` is below 1, or there is no such role.
    """
    if n < 1:
        raise BadArguments(f"There is no {n}-th last message: count from 1.")
    rows = view.log.of_role[get_role_code(role)]
    at = bisect_left(rows, view.hi) - n
    if at >= 0 and rows[at] >= view.lo:
        return view.head.size + rows[at] - view.lo
    in_head = n - (bisect_left(rows, view.hi) - bisect_left(rows, view.lo))
    return _nth_last_head(view, get_role_code(role), in_head)


def find_next_of_roles(view: HistoryView, position: int, *roles: str) -> int:
    """Return the first position from one on with one of these roles; -1: there is none.

    Args:
        view: the history.
        position: first position to look at.
        roles: "user", "assistant", "tool", "summary" or "system"; the message has one of them.
    """
    codes = [get_role_code(r) for r in roles]
    for p in range(position, view.head.size):
        if view.head.items[p].role(view.log) in codes:
            return p
    start = view.lo + max(position - view.head.size, 0)
    row = view.hi
    for code in codes:
        rows = view.log.of_role[code]
        at = bisect_left(rows, start)
        row = min(row, rows[at] if at < len(rows) else row)
    return view.head.size + row - view.lo if row < view.hi else -1


def _size_column(view: HistoryView, estimated: bool) -> RowAndCallSums:
    return view.log.estimates if estimated else view.log.tokens


def _find_suffix(view: HistoryView, budget: int, start: int, estimated: bool) -> int:
    """Return the first position >= `start` whose suffix has at most `budget`."""
    sums = _size_column(view, estimated).P
    nh, lo, hi = view.head.size, view.lo, view.hi
    if start < nh:
        head_budget = budget - (sums[hi] - sums[lo])
        if head_budget >= 0:
            head = view.head.sums(estimated)
            return bisect_left(head, head[-1] - head_budget, start, nh + 1)
    row_offset = lo - nh
    return bisect_left(sums, sums[hi] - budget, max(row_offset + start, lo), hi) - row_offset


def _protected_tokens(view: HistoryView, start: int, stop: int, estimated: bool) -> int:
    """Return the tokens of the protected messages at the positions start..stop."""
    log, nh = view.log, view.head.size
    total = 0
    if start < nh:
        places = view.head.protected_places(log, view.call)
        protected_items = (view.head.item(p) for p in places if start <= p < stop)
        total = sum(i.estimate if estimated else i.tokens for i in protected_items)
    protected_rows = log.get_protected_rows(view.call)
    if stop > nh and protected_rows:
        sizes = _size_column(view, estimated).sizes
        a = bisect_left(protected_rows, view.lo + max(start - nh, 0))
        b = bisect_left(protected_rows, view.lo + stop - nh)
        total += sum(sizes[r] for r in protected_rows[a:b])
    return total


def _nth_last_head(view: HistoryView, code: int, remaining: int) -> int:
    """Return the position of the n-th last item of the head with a role, or -1."""
    for p in range(view.head.size - 1, -1, -1):
        remaining -= view.head.items[p].role(view.log) == code
        if remaining == 0:
            return p
    return -1
