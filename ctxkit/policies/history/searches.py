"""Searches for positions: by tokens, by role, and for cuts that part no call from its result."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.policies.history.view import role_code

if TYPE_CHECKING:
    from ctxkit.policies.history.columns import SizeSums
    from ctxkit.policies.history.view import HistoryView


def find_back(view: HistoryView, tokens: int, estimated: bool = False) -> int:
    """Return what `History.back` says."""
    sums = _size_column(view, estimated).P
    lo, hi, nh = view.lo, view.hi, view.head.size
    aim = sums[hi] - tokens
    if aim >= sums[lo]:
        return nh + bisect_right(sums, aim, lo, hi + 1) - 1 - lo
    if not nh:
        return 0
    head = view.head.sums(estimated)
    return max(bisect_right(head, head[-1] + aim - sums[lo]) - 1, 0)


def find_fitting(view: HistoryView, budget: int, *, start: int = 0, estimated: bool = False) -> int:
    """Return what `History.fitting` says."""
    if not estimated:
        budget -= view.fixed
    log, head = view.log, view.head
    stays = log.stays_at(view.call)
    if not stays or stays[-1] < view.lo:
        front = head.front(log, view.call)
        if front is not None:  # what stays stands first
            lead = len(front.items)
            if lead < start:
                lead, remains = start, tokens_before(view, start, estimated=estimated)
            else:
                remains = front.estimate if estimated else front.tokens
            cut = _fitting_suffix(view, budget - remains, lead, estimated)
            return cut if cut > lead else start
    remains = tokens_before(view, start, estimated=estimated)
    cut = _fitting_suffix(view, budget - remains, start, estimated)
    while True:
        stay = _staying_tokens(view, start, cut, estimated)
        again = _fitting_suffix(view, budget - remains - stay, start, estimated)
        if again <= cut:
            return cut
        cut = again


def tokens_before(view: HistoryView, position: int, *, estimated: bool = False) -> int:
    """Return the tokens of the messages before a position, without the fixed part."""
    nh = view.head.size
    if position < nh:
        return view.head.before(position, estimated=estimated)
    sums = _size_column(view, estimated).P
    whole = view.head.estimate if estimated else view.head.tokens
    return whole + sums[view.lo + position - nh] - sums[view.lo]


def next_safe_cut(view: HistoryView, position: int) -> int:
    """Return what `History.safe` says."""
    nh = view.head.size
    if position >= nh:
        ahead = view.lo - nh
        cut = view.log.cuts_at(view.call).find(1, position + ahead, view.hi)
        return cut - ahead if cut >= 0 else 0
    while position < nh and not is_safe_cut(view, position):
        position += 1
    return position if position < nh else next_safe_cut(view, nh)


def last_safe_cut(view: HistoryView, position: int) -> int:
    """Return the last safe cut at or before a position; 0 where there is none."""
    position = min(position, len(view))
    while position > 0 and not is_safe_cut(view, position):
        position -= 1
    return position


def is_safe_cut(view: HistoryView, position: int) -> bool:
    """Return True where no call stands before the position and its result at or after it."""
    nh = view.head.size
    row = view.lo + max(position - nh, 0)
    for p in range(position, nh):
        if view.head.row(p) >= 0:
            row = view.head.row(p)
            break
    return row >= view.hi or bool(view.log.cuts_at(view.call)[row])


def find_nth_last(view: HistoryView, role: str, n: int) -> int:
    """Return the position of the n-th last message of a role (1: the last); -1: none."""
    if n < 1:
        raise BadArguments(f"The {n}-th last message is none; count from 1.")
    rows = view.log.of_role[role_code(role)]
    at = bisect_left(rows, view.hi) - n
    if at >= 0 and rows[at] >= view.lo:
        return view.head.size + rows[at] - view.lo
    left = n - (bisect_left(rows, view.hi) - bisect_left(rows, view.lo))
    return _nth_last_head(view, role_code(role), left)


def find_next(view: HistoryView, position: int, *roles: str) -> int:
    """Return what `History.next` says."""
    codes = [role_code(r) for r in roles]
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


def _size_column(view: HistoryView, estimated: bool) -> SizeSums:
    return view.log.estimates if estimated else view.log.tokens


def _fitting_suffix(view: HistoryView, budget: int, start: int, estimated: bool) -> int:
    """Return the first position >= start from which at most `budget` is shown."""
    sums = _size_column(view, estimated).P
    nh, lo, hi = view.head.size, view.lo, view.hi
    if start < nh:
        room = budget - (sums[hi] - sums[lo])
        if room >= 0:
            head = view.head.sums(estimated)
            return bisect_left(head, head[-1] - room, start, nh + 1)
    ahead = lo - nh
    return bisect_left(sums, sums[hi] - budget, max(ahead + start, lo), hi) - ahead


def _staying_tokens(view: HistoryView, start: int, stop: int, estimated: bool) -> int:
    """Return the tokens of what stays among the positions start..stop."""
    log, nh = view.log, view.head.size
    total = 0
    if start < nh:
        places = view.head.firm(log, view.call)
        firm = (view.head.item(p) for p in places if start <= p < stop)
        total = sum(i.estimate if estimated else i.tokens for i in firm)
    stays = log.stays_at(view.call)
    if stop > nh and stays:
        sizes = _size_column(view, estimated).sizes
        a = bisect_left(stays, view.lo + max(start - nh, 0))
        b = bisect_left(stays, view.lo + stop - nh)
        total += sum(sizes[r] for r in stays[a:b])
    return total


def _nth_last_head(view: HistoryView, code: int, left: int) -> int:
    for p in range(view.head.size - 1, -1, -1):
        left -= view.head.items[p].role(view.log) == code
        if left == 0:
            return p
    return -1
