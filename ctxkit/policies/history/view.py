"""The messages shown at a call, as an edited head and an untouched tail of the log, and the steps
that led there.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.history.columns import ROLE_CODES, SUMMARY
from ctxkit.policies.history.head import EMPTY_HEAD, EditedHead, HeadItem
from ctxkit.policies.history.log import MessageLog
from ctxkit.session.messages import EditKind, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.session.messages import Message


Mask = Any
"""Booleans, one a shown message: an array, a list; or the positions themselves."""

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
    """The messages shown at one call. A message's *position* is its place among them, a *row* its
    place in the log.

    Positions below `len(head.items)` are edited; those after it are rows `lo` to `hi` of the log as
    they were said.
    """

    log: MessageLog
    head: EditedHead
    lo: int
    """First row of the untouched tail."""
    hi: int
    """One past its last row."""
    call: int
    """The call that is about to be sent."""
    since: int = 0
    """The call of the last edit that is kept (0: none yet)."""
    stable: int = 0
    """Tokens at the front that no edit of this call touched: a cache may hold these at least."""
    steps: tuple[HistoryEdit, ...] = ()
    """What was done at this call."""

    # -- sizes: O(1) ------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.head.size + self.hi - self.lo

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt, the fixed part (system prompt and tools outside the log)
        included.
        """
        measure = self.log.tokens
        off = self.head.tokens - measure.P[self.lo]
        if self.call < len(measure.C):
            return off + measure.C[self.call]
        return off + measure.P[self.hi] + self.log.fixed

    @property
    def estimated(self) -> int:
        """Size of all messages in the measure that the system itself believes in
        (`Rules.estimator`); no fixed part.
        """
        sums = self.log.estimates.P
        return self.head.estimate + sums[self.hi] - sums[self.lo]

    @property
    def fixed(self) -> int:
        """Tokens of the prompt that no message holds."""
        return self.log.fixed_in(self.call)

    def count(self, *roles: str) -> int:
        """Return how many messages of these roles are shown."""
        total = 0
        for role in roles:
            code = role_code(role)
            counts = self.log.counts[code]
            total += counts[self.hi] - counts[self.lo] + self.head.count(self.log, code)
        return total

    # -- messages: made only when asked for -------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages shown, in order: O(shown), meant for sending."""
        log = self.log
        return (*self.head.messages(log), *log.messages[self.lo : self.hi])

    def __getitem__(self, position: int) -> Message:
        """Return one message; negatives count from the end."""
        nh = self.head.size
        if not 0 <= position < nh + self.hi - self.lo:
            position = range(len(self))[position]
        if position < nh:
            return self.head.message(self.log, position)
        return self.log.messages[self.lo + position - nh]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def said(self) -> Iterator[Message]:
        """The messages of the log up to this call, shown or not, the newest first."""
        return (self.log.messages[row] for row in range(self.hi - 1, -1, -1))

    def item(self, position: int) -> HeadItem:
        """Return what stands at a position."""
        if position < self.head.size:
            return self.head.item(position)
        row = self.row(position)
        return HeadItem(row, self.log.tokens.sizes[row], self.log.estimates.sizes[row])

    def row(self, position: int) -> int:
        """Return the log's row at a position; -1 for a message that stands for others."""
        nh = self.head.size
        return self.head.row(position) if position < nh else self.lo + position - nh

    def position(self, row: int) -> int:
        """Return the position of a log's row; BadArguments where it is not shown."""
        if self.lo <= row < self.hi:
            return self.head.size + row - self.lo
        for p in range(self.head.size):
            if self.head.row(p) == row:
                return p
        raise BadArguments(f"Row {row} is not shown at call {self.call}.")

    # -- columns: one value a shown message, arrays that must not be written to -------------------

    def column(self, name: str) -> NDArray[Any]:
        """Return a column: one of `COLUMNS`, or `rows` (-1: stands for others), `keys` (0: as
        said), `stays`.
        """
        tail: NDArray[Any]
        if name == "stays":
            return self._stays()
        if name in ("rows", "stands"):
            tail = np.arange(self.lo, self.hi)
        elif name == "keys":
            tail = np.zeros(self.hi - self.lo, np.int64)
        else:
            tail = self.log.column(name, self.hi)[self.lo :]
        return np.concatenate((self.head.column(self.log, name), tail)) if self.head.size else tail

    def _stays(self) -> NDArray[Any]:
        """Return what stays as of the call: what came to stay later does not yet."""
        log, head = self.log, self.head
        tail = log.column("stays", self.hi)[self.lo :]
        if log.late_stays:
            tail = tail.copy()
            for row, since in log.late_stays.items():
                if since > self.call and self.lo <= row < self.hi:
                    tail[row - self.lo] = False
        if not head.size:
            return tail
        firm = np.zeros(head.size, bool)
        firm[list(head.firm(log, self.call))] = True
        return np.concatenate((firm, tail))

    def front(self, name: str, n: int) -> NDArray[Any]:
        """Return the first `n` values of a column."""
        if name != "stays" and n <= self.head.size:
            return self.head.column(self.log, name)[:n]
        return self.column(name)[:n]

    @property
    def sizes(self) -> NDArray[Any]:
        """Tokens of each message."""
        return self.column("tokens")

    @property
    def estimates(self) -> NDArray[Any]:
        """Size of each message in the system's own measure."""
        return self.column("estimates")

    @property
    def chars(self) -> NDArray[Any]:
        """Characters of each message: text, thinking, tool names and arguments."""
        return self.column("chars")

    @property
    def turns(self) -> NDArray[Any]:
        """Zero-based turn of each message; of a summary: that of the last message it stands for."""
        return self.column("turns")

    @property
    def calls(self) -> NDArray[Any]:
        """The call at which each message was first in the prompt."""
        return self.column("calls")

    @property
    def times(self) -> NDArray[Any]:
        """Seconds since 1970 (NaN: unknown)."""
        return self.column("times")

    @property
    def groups(self) -> NDArray[Any]:
        """Equal for a reply and the results of its tool calls: they go together."""
        return self.column("groups")

    @property
    def errors(self) -> NDArray[Any]:
        """True for failed calls and tool results that report failure."""
        return self.column("errors")

    @property
    def stays(self) -> NDArray[Any]:
        """True where no policy may remove the message: system, pinned, pending, and what is grouped
        with them.
        """
        return self.column("stays")

    def role(self, *roles: str) -> NDArray[Any]:
        """Return a mask of the messages of these roles."""
        codes = self.column("roles")
        mask = np.zeros(len(codes), np.bool_)
        for role in roles:
            mask |= codes == role_code(role)
        return mask

    def agent(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the messages of agents by name or glob, upper and lower case alike."""
        return self._named("agent", patterns)

    def tool(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the tool results by tool name or glob, upper and lower case alike."""
        if "*" in patterns:  # all of them: their names need not be looked at
            return self.role("tool")
        mask: NDArray[Any] = self._named("tool", patterns) & self.role("tool")
        return mask

    def _named(self, kind: str, patterns: tuple[str, ...]) -> NDArray[Any]:
        codes = self.column(f"{kind}s")
        low = [p.lower() for p in patterns]
        names = self.log.names(kind)
        matching = [c for c, n in enumerate(names) if any(fnmatchcase(n.lower(), p) for p in low)]
        mask: NDArray[Any] = np.isin(codes, matching)
        return mask

    def at(self, call: int) -> Self:
        """Return the same edits with the tail as it is when `call` is about to be sent: O(1)."""
        upto = self.log.upto
        hi = upto[call] if call < len(upto) else len(self.log.messages)
        return self.__class__(self.log, self.head, self.lo, hi, call, self.since)

    @classmethod
    def start(cls, log: MessageLog, call: int = 0) -> Self:
        """Return the log as it was said, before any edit."""
        upto = log.upto
        return cls(log, EMPTY_HEAD, 0, upto[call] if call < len(upto) else len(log.messages), call)


def role_code(role: str) -> int:
    """Return the code of a role; BadArguments with the nearest right word for an unknown one."""
    code = ROLE_CODES.get(role)
    if code is None:
        raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, ROLE_CODES)}")
    return code


EditInfo = tuple[EditKind, str, str | None, Usage | None]
"""Kind and reason of a step, its policy's own word for how it was done, and what the call of a
summariser cost.
"""


class HistoryEdit(msgspec.Struct, frozen=True):
    """One verb's work. Its numbers are plain; messages and ids are looked up only in `edits`."""

    words: EditInfo
    was: Any
    """The history before."""
    at: Any
    """Positions that went or changed: a pair (first, one past the last; without what stays there),
    or an array.
    """
    new: tuple[HeadItem, ...] | None
    """What came in their place; None: read it off the history after."""
    added: bool = False
    """True where messages were only put in, before the position `at`."""
    error: str = ""
    """Why the summary failed for which this was done instead; empty: none failed."""

    @property
    def kind(self) -> EditKind:
        """What was done."""
        return self.words[0]

    @property
    def usage(self) -> Usage | None:
        """What the call of a summariser cost, or would have cost."""
        return self.words[3]

    @property
    def first(self) -> int:
        """The first position that is not as before."""
        if isinstance(self.at, tuple):
            return int(self.at[0])
        return int(self.at[0]) if len(self.at) else len(self.was)

    def positions(self) -> list[int]:
        """Return the positions in the history before that went or changed."""
        if self.added:
            return []
        if not isinstance(self.at, tuple):
            return [int(p) for p in self.at]
        stays = self.was.stays
        return [p for p in range(*self.at) if not stays[p]]

    def written(self, log: MessageLog) -> int:
        """Return the tokens that a model wrote: its summary's, where other messages came with it.

        Those are the user's own words, or files that were attached again.
        """
        new = self.new or ()
        summaries = [i.tokens for i in new if i.role(log) == SUMMARY]
        return sum(summaries) if summaries else sum(i.tokens for i in new)
