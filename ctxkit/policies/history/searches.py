"""Searches in a history: positions by tokens or role, and safe cuts. See `History`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.policies.history.history_view import get_role_code

if TYPE_CHECKING:
    from ctxkit.policies.history.columns import SizeSums
    from ctxkit.policies.history.history_view import HistoryView


def find_back(view: HistoryView, tokens: int, estimated: bool = False) -> int:
    """Return the last position whose suffix has at least `tokens`, by bisection of running sums."""
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


def find_fitting(view: HistoryView, budget: int, *, start: int = 0, estimated: bool = False) -> int:
    """Return the first position whose suffix fits a budget, with what remains before it.

    Protected messages remain, wherever they stand. If they all stand at the front, one bisection
    is enough. Else their tokens depend on the cut: the cut is moved on until it no longer changes
    (fixed-point iteration; the cut only grows, so it ends).
    """
    if not estimated:
        budget -= view.fixed
    log, head = view.log, view.head
    protected_rows = log.stays_at(view.call)
    if not protected_rows or protected_rows[-1] < view.lo:
        front = head.front(log, view.call)
        if front is not None:  # all protected messages are at the front
            front_size = len(front.items)
            if front_size < start:
                front_size, remains = start, tokens_before(view, start, estimated=estimated)
            else:
                remains = front.estimate if estimated else front.tokens
            cut = _find_suffix(view, budget - remains, front_size, estimated)
            return cut if cut > front_size else start
    remains = tokens_before(view, start, estimated=estimated)
    cut = _find_suffix(view, budget - remains, start, estimated)
    while True:
        # Protected messages before the cut remain, so the rest of the budget is smaller.
        protected_tokens = _protected_tokens(view, start, cut, estimated)
        next_cut = _find_suffix(view, budget - remains - protected_tokens, start, estimated)
        if next_cut <= cut:
            return cut
        cut = next_cut


def tokens_before(view: HistoryView, position: int, *, estimated: bool = False) -> int:
    """Return the tokens of the messages before a position, without the fixed part."""
    nh = view.head.size
    if position < nh:
        return view.head.before(position, estimated=estimated)
    sums = _size_column(view, estimated).P
    whole = view.head.estimate if estimated else view.head.tokens
    return whole + sums[view.lo + position - nh] - sums[view.lo]


def next_safe_cut(view: HistoryView, position: int) -> int:
    """Return the first safe cut at or after a position; 0 where there is none."""
    nh = view.head.size
    if position >= nh:
        row_offset = view.lo - nh
        cut = view.log.cuts_at(view.call).find(1, position + row_offset, view.hi)
        return cut - row_offset if cut >= 0 else 0
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
    """Return True where a cut before a position parts no tool call from its result."""
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
        raise BadArguments(f"There is no {n}-th last message: count from 1.")
    rows = view.log.of_role[get_role_code(role)]
    at = bisect_left(rows, view.hi) - n
    if at >= 0 and rows[at] >= view.lo:
        return view.head.size + rows[at] - view.lo
    in_head = n - (bisect_left(rows, view.hi) - bisect_left(rows, view.lo))
    return _nth_last_head(view, get_role_code(role), in_head)


def find_next(view: HistoryView, position: int, *roles: str) -> int:
    """Return the first position from one on with one of these roles; -1: there is none."""
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


def _size_column(view: HistoryView, estimated: bool) -> SizeSums:
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
        places = view.head.firm(log, view.call)
        protected_items = (view.head.item(p) for p in places if start <= p < stop)
        total = sum(i.estimate if estimated else i.tokens for i in protected_items)
    protected_rows = log.stays_at(view.call)
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
