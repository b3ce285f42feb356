"""What is shown: an edited head and an untouched tail of the log, with columns, counts and searches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.history.columns import ROLE_CODES
from ctxkit.history.head import EMPTY, Head, Item
from ctxkit.history.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ctxkit.history.columns import Measure
    from ctxkit.messages import Message

Mask = Any
"""Booleans, one a shown message: an array, a list; or the positions themselves."""

COLUMNS = ("tokens", "estimates", "chars", "roles", "turns", "calls", "groups", "agents", "tools", "times", "errors")


class View(msgspec.Struct, frozen=True, gc=False):
    """The messages shown at one call. A message's *position* is its place among them, from 0; a *row* is its place in the log.

    Positions below `len(head.items)` are edited; those after it are rows `lo` to `hi` of the log as they were said.
    """

    log: Log
    head: Head
    lo: int
    """First row of the untouched tail."""
    hi: int
    """One past its last row."""
    call: int
    """The call that is about to be sent."""
    since: int = 0
    """The call of the last edit that is kept (0: none yet)."""
    stable: int = 0
    """Tokens of the prompt that the edits of this call left as they were: the part that a cache may still hold."""

    # -- sizes: O(1) -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.head.size + self.hi - self.lo

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt, the fixed part (system prompt and tools outside the log) included."""
        P = self.log.tokens.P
        return self.fixed + self.head.tokens + P[self.hi] - P[self.lo]

    @property
    def estimated(self) -> int:
        """Size of all messages in the measure that the system itself believes in (`Rules.estimator`); no fixed part."""
        P = self.log.estimates.P
        return self.head.estimate + P[self.hi] - P[self.lo]

    @property
    def fixed(self) -> int:
        """Tokens of the prompt that no message holds."""
        at = self.log.fixed_at
        return at[self.call] if self.call < len(at) else self.log.fixed

    def count(self, *roles: str) -> int:
        """Return how many messages of these roles are shown."""
        total = 0
        for role in roles:
            code = role_code(role)
            counts = self.log.counts[code]
            total += counts[self.hi] - counts[self.lo] + self.head.count(self.log, code)
        return total

    # -- messages: made only when asked for ----------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages shown, in order: O(shown), meant for sending."""
        log = self.log
        return (*(i.message(log) for i in self.head.items), *log.messages[self.lo : self.hi])

    def __getitem__(self, position: int) -> Message:
        """Return one message; negatives count from the end."""
        return self.item(range(len(self))[position]).message(self.log)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def item(self, position: int) -> Item:
        """Return what stands at a position."""
        if position < self.head.size:
            return self.head.items[position]
        row = self.row(position)
        return Item(row, self.log.tokens.sizes[row], self.log.estimates.sizes[row])

    def row(self, position: int) -> int:
        """Return the log's row at a position; -1 for a message that stands for others."""
        nh = self.head.size
        return self.head.items[position].row if position < nh else self.lo + position - nh

    def position(self, row: int) -> int:
        """Return the position of a log's row; BadArguments where it is not shown."""
        if self.lo <= row < self.hi:
            return self.head.size + row - self.lo
        for p, item in enumerate(self.head.items):
            if item.row == row:
                return p
        raise BadArguments(f"Row {row} is not shown at call {self.call}.")

    # -- columns: one value a shown message, arrays that must not be written to -----------------------------------------

    def column(self, name: str) -> NDArray[Any]:
        """Return a column: one of `COLUMNS`, or `rows` (-1: stands for others), `keys` (0: as said), `stays`."""
        if name in ("rows", "stands"):
            tail: NDArray[Any] = np.arange(self.lo, self.hi)
        elif name == "keys":
            tail = np.zeros(self.hi - self.lo, np.int64)
        else:
            tail = self.log.column(name, self.hi)[self.lo :]
        return np.concatenate((self.head.column(self.log, name), tail)) if self.head.size else tail

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
        """True where no policy may remove the message: system, pinned, pending, and what is grouped with them."""
        return self.column("stays")

    def role(self, *roles: str) -> NDArray[Any]:
        """Return a mask of the messages of these roles."""
        return np.isin(self.column("roles"), [role_code(r) for r in roles])

    def agent(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the messages of agents by name or glob, upper and lower case alike."""
        return self._named("agent", patterns)

    def tool(self, *patterns: str) -> NDArray[Any]:
        """Return a mask of the tool results by tool name or glob, upper and lower case alike."""
        return self._named("tool", patterns) & self.role("tool")

    def _named(self, kind: str, patterns: tuple[str, ...]) -> NDArray[Any]:
        codes = self.column(f"{kind}s")
        low = [p.lower() for p in patterns]
        names = self.log.names(kind)
        found = [c for c, n in enumerate(names) if any(fnmatchcase(n.lower(), p) for p in low)]
        return np.isin(codes, found)

    # -- searches: O(log n); they return positions -----------------------------------------------------------------------

    def back(self, tokens: int, *, estimated: bool = False) -> int:
        """Return the last position from which at least `tokens` are shown (Pi's walk back); 0 where there are not so many."""
        P = self._measure(estimated).P
        aim = P[self.hi] - tokens
        if aim >= P[self.lo] or not self.head.size:
            return max(self.head.size + bisect_right(P, aim, self.lo, self.hi + 1) - 1 - self.lo, 0)
        sums = self.head.sums[estimated]
        return max(bisect_right(sums, sums[-1] + aim - P[self.lo]) - 1, 0)

    def fitting(self, budget: int, *, start: int = 0, estimated: bool = False) -> int:
        """Return the first position from which the messages fit the budget, together with what remains before them.

        What remains: the first `start` messages, everything that `stays`, and in tokens (not estimates) the fixed part.
        """
        remains = self.before(start, estimated=estimated) + (0 if estimated else self.fixed)
        found = self._suffix(budget - remains, start, estimated)
        while True:
            stay = self._staying(start, found, estimated)
            again = self._suffix(budget - remains - stay, start, estimated)
            if again <= found:
                return found
            found = again

    def before(self, position: int, *, estimated: bool = False) -> int:
        """Return the tokens of the messages before a position, without the fixed part."""
        nh = self.head.size
        if position < nh:
            return self.head.sums[estimated][position]
        P = self._measure(estimated).P
        whole = self.head.estimate if estimated else self.head.tokens
        return whole + P[self.lo + position - nh] - P[self.lo]

    def safe(self, position: int) -> int:
        """Return the first safe cut at or after a position; 0 where none is left (a verb then changes nothing)."""
        nh = self.head.size
        if position >= nh:
            log, row = self.log, self.lo + position - nh
            if row >= self.hi:
                return 0
            after = log.cuts_before[row]
            cut = log.cuts[after] if after < len(log.cuts) else self.hi
            return nh + cut - self.lo if cut < self.hi else 0
        while position < nh and not self.is_safe(position):
            position += 1
        return position if position < nh else self.safe(nh)

    def safe_before(self, position: int) -> int:
        """Return the last safe cut at or before a position; 0 where there is none."""
        position = min(position, len(self))
        while position > 0 and not self.is_safe(position):
            position -= 1
        return position

    def is_safe(self, position: int) -> bool:
        """Return True where no call stands before the position and its result at or after it."""
        for p in range(position, self.head.size):
            if self.head.items[p].row >= 0:
                row = self.head.items[p].row
                break
        else:
            row = self.lo + max(position - self.head.size, 0)
        if row >= self.hi:
            return True
        cuts, at = self.log.cuts, self.log.cuts_before[row]
        return at < len(cuts) and cuts[at] == row

    def nth_last(self, role: str, n: int) -> int:
        """Return the position of the n-th last message of a role (1: the last); -1 where there are fewer."""
        if n < 1:
            raise BadArguments(f"The {n}-th last message is none; count from 1.")
        rows = self.log.of_role[role_code(role)]
        at = bisect_left(rows, self.hi) - n
        if at >= 0 and rows[at] >= self.lo:
            return self.head.size + rows[at] - self.lo
        left = n - (bisect_left(rows, self.hi) - bisect_left(rows, self.lo))
        return self._nth_last_head(role_code(role), left)

    def next(self, position: int, *roles: str) -> int:
        """Return the first position at or after one that has one of these roles; -1 where there is none."""
        codes = [role_code(r) for r in roles]
        for p in range(position, self.head.size):
            if self.head.items[p].role(self.log) in codes:
                return p
        start = self.lo + max(position - self.head.size, 0)
        found = self.hi
        for code in codes:
            rows = self.log.of_role[code]
            at = bisect_left(rows, start)
            found = min(found, rows[at] if at < len(rows) else found)
        return self.head.size + found - self.lo if found < self.hi else -1

    def at(self, call: int) -> Self:
        """Return the same edits with the tail as it is when `call` is about to be sent: O(1)."""
        upto = self.log.upto
        hi = upto[call] if call < len(upto) else len(self.log.messages)
        return type(self)(self.log, self.head, self.lo, hi, call, self.since)

    @classmethod
    def start(cls, log: Log, call: int = 0) -> Self:
        """Return the log as it was said, before any edit."""
        return cls(log, EMPTY, 0, 0, 0).at(call)

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _measure(self, estimated: bool) -> Measure:
        return self.log.estimates if estimated else self.log.tokens

    def _suffix(self, budget: int, start: int, estimated: bool) -> int:
        """Return the first position >= start from which at most `budget` is shown."""
        P, nh = self._measure(estimated).P, self.head.size
        if start < nh:
            sums = self.head.sums[estimated]
            room = budget - (P[self.hi] - P[self.lo])
            if room >= 0:
                return bisect_left(sums, sums[-1] - room, start, nh + 1)
        first = self.lo + max(start - nh, 0)
        return nh + min(bisect_left(P, P[self.hi] - budget, first, self.hi + 1), self.hi) - self.lo

    def _staying(self, start: int, stop: int, estimated: bool) -> int:
        """Return the tokens of what stays among the positions start..stop."""
        log, nh, which = self.log, self.head.size, 2 if estimated else 1
        total = sum(i[which] for i in self.head.items[start:stop] if i.stays(log)) if start < nh else 0
        if stop > nh and log.stays:
            sizes = self._measure(estimated).sizes
            a = bisect_left(log.stays, self.lo + max(start - nh, 0))
            b = bisect_left(log.stays, self.lo + stop - nh)
            total += sum(sizes[r] for r in log.stays[a:b])
        return total

    def _nth_last_head(self, code: int, left: int) -> int:
        for p in range(self.head.size - 1, -1, -1):
            left -= self.head.items[p].role(self.log) == code
            if left == 0:
                return p
        return -1


def role_code(role: str) -> int:
    """Return the code of a role; BadArguments with the nearest right word for an unknown one."""
    code = ROLE_CODES.get(role)
    if code is None:
        raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, ROLE_CODES)}")
    return code
