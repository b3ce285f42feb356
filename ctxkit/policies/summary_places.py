"""Places in a history that bound a summary: turns, what stands in front, what was kept before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ctxkit.history import SUMMARY, SYSTEM, USER

if TYPE_CHECKING:
    from ctxkit.history import History, Log


def turn_start(history: History, position: int) -> int:
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


def boundary(history: History, *, waiting: bool = False) -> int:
    """Return the position of the first message said after the last compaction; 0 where there was
    none.

    Args:
        history: what is shown.
        waiting: the request that waited at that compaction counts as said after it.
    """
    if not history.since or not any(i.row < 0 for i in history.head.items):
        return 0
    row = history.log.upto[history.since]
    if waiting and asks_anew(history.log, row - 1, history.since):
        row -= 1
    return history.head.size + max(row - history.lo, 0)


def asks_anew(log: Log, row: int, call: int) -> bool:
    """Say whether a row is a user's request, no command, that a call is the first to send."""
    return (
        row >= 0
        and log.roles[row] == USER
        and log.first_calls[row] == call
        and log.messages[row].kind != "bash"
    )


def leading(history: History, first: int = 0) -> int:
    """Return where the summaries and system messages end that stand at a position."""
    log, n = history.log, len(history)
    while first < n and history.item(first).role(log) in (SUMMARY, SYSTEM):
        first += 1
    return first


def anything(history: History, before: int, start: int = 0) -> bool:
    """Say whether anything but summaries, and what stays, lies at the positions start..before."""
    head, log = history.head, history.log
    if before > head.size:
        first, last = history.lo + max(start - head.size, 0), history.lo + before - head.size
        stays = log.stays_at(history.call)
        if last - first > bisect_left(stays, last) - bisect_left(stays, first):
            return True
    return any(i.row >= 0 and not i.stays(log, history.call) for i in head.items[start:before])
