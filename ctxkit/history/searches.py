"""Where: searches over what is shown, from running sums and lists of rows; they return
positions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.history.view import View, role_code

if TYPE_CHECKING:
    from ctxkit.history.columns import Measure


class Searches(View, frozen=True, gc=False):
    """A view with its searches: O(log n) over the untouched tail (`safe`: O(group)), O(items) over
    the head.
    """

    def back(self, tokens: int, estimated: bool = False) -> int:
        """Return the last position from which at least `tokens` are shown (Pi's walk back); 0 where
        there are fewer.
        """
        sums = (self.log.estimates if estimated else self.log.tokens).P
        lo, hi, nh = self.lo, self.hi, self.head.size
        aim = sums[hi] - tokens
        if aim >= sums[lo]:
            return nh + bisect_right(sums, aim, lo, hi + 1) - 1 - lo
        if not nh:
            return 0
        head = self.head.sums(estimated)
        return max(bisect_right(head, head[-1] + aim - sums[lo]) - 1, 0)

    def fitting(self, budget: int, *, start: int = 0, estimated: bool = False) -> int:
        """Return the first position from which the messages fit the budget, together with what
        remains before them.

        What remains: the first `start` messages, everything that `stays`, and in tokens (not
        estimates) the fixed part.
        """
        if not estimated:
            budget -= self.fixed
        log, head = self.log, self.head
        stays = log.stays_at(self.call)
        if not stays or stays[-1] < self.lo:
            front = head.front(log, self.call)
            if front is not None:  # what stays stands first
                lead = len(front.items)
                if lead < start:
                    lead, remains = start, self.before(start, estimated=estimated)
                else:
                    remains = front.estimate if estimated else front.tokens
                found = self._suffix(budget - remains, lead, estimated)
                return found if found > lead else start
        remains = self.before(start, estimated=estimated)
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
            return self.head.before(position, estimated=estimated)
        sums = self._measure(estimated).P
        whole = self.head.estimate if estimated else self.head.tokens
        return whole + sums[self.lo + position - nh] - sums[self.lo]

    def safe(self, position: int) -> int:
        """Return the first safe cut at or after a position; 0 where none is left (a verb then
        changes nothing).
        """
        nh = self.head.size
        if position >= nh:
            ahead = self.lo - nh
            found = self.log.cuts_at(self.call).find(1, position + ahead, self.hi)
            return found - ahead if found >= 0 else 0
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
        nh = self.head.size
        row = self.lo + max(position - nh, 0)
        for p in range(position, nh):
            if self.head.row(p) >= 0:
                row = self.head.row(p)
                break
        return row >= self.hi or bool(self.log.cuts_at(self.call)[row])

    def nth_last(self, role: str, n: int) -> int:
        """Return the position of the n-th last message of a role (1: the last); -1 where there are
        fewer.
        """
        if n < 1:
            raise BadArguments(f"The {n}-th last message is none; count from 1.")
        rows = self.log.of_role[role_code(role)]
        at = bisect_left(rows, self.hi) - n
        if at >= 0 and rows[at] >= self.lo:
            return self.head.size + rows[at] - self.lo
        left = n - (bisect_left(rows, self.hi) - bisect_left(rows, self.lo))
        return self._nth_last_head(role_code(role), left)

    def next(self, position: int, *roles: str) -> int:
        """Return the first position at or after one that has one of these roles; -1 where there is
        none.
        """
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

    # -- inside
    # ----------------------------------------------------------------------------------------------

    def _measure(self, estimated: bool) -> Measure:
        return self.log.estimates if estimated else self.log.tokens

    def _suffix(self, budget: int, start: int, estimated: bool) -> int:
        """Return the first position >= start from which at most `budget` is shown."""
        sums = (self.log.estimates if estimated else self.log.tokens).P
        nh, lo, hi = self.head.size, self.lo, self.hi
        if start < nh:
            room = budget - (sums[hi] - sums[lo])
            if room >= 0:
                head = self.head.sums(estimated)
                return bisect_left(head, head[-1] - room, start, nh + 1)
        ahead = lo - nh
        return bisect_left(sums, sums[hi] - budget, max(ahead + start, lo), hi) - ahead

    def _staying(self, start: int, stop: int, estimated: bool) -> int:
        """Return the tokens of what stays among the positions start..stop."""
        log, nh = self.log, self.head.size
        total = 0
        if start < nh:
            places = self.head.firm(log, self.call)
            firm = (self.head.item(p) for p in places if start <= p < stop)
            total = sum(i.estimate if estimated else i.tokens for i in firm)
        stays = log.stays_at(self.call)
        if stop > nh and stays:
            sizes = self._measure(estimated).sizes
            a = bisect_left(stays, self.lo + max(start - nh, 0))
            b = bisect_left(stays, self.lo + stop - nh)
            total += sum(sizes[r] for r in stays[a:b])
        return total

    def _nth_last_head(self, code: int, left: int) -> int:
        for p in range(self.head.size - 1, -1, -1):
            left -= self.head.items[p].role(self.log) == code
            if left == 0:
                return p
        return -1
