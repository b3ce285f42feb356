"""What a policy would do to a whole log, in whole numbers: a replay that is asked only for its bill needs no more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.history import USER
from ctxkit.policies.summarisers import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import Log
    from ctxkit.policies.summary import Summary
    from ctxkit.tokens import Room

    Step = Callable[[int, int, int], tuple[int, int]]
    """What the policy does at one call: from the first untouched row, the call, and the tokens of what stands before
    that row, to the first and the last of these as they are afterwards. The same row: nothing is done."""
    Where = Callable[[int, int], int]
    """From the first untouched row and one past the last row shown to the first row that is kept, a safe cut."""


class Leap(NamedTuple):
    """A policy that leaves in front what stays, perhaps a summary of a known size, and the newest rows as said."""

    step: Step
    summary: int = 0
    """Tokens of the summary; 0: none is put."""
    floor: float = -inf
    """It does nothing to a prompt of so many tokens or fewer."""


def lead(log: Log) -> int | None:
    """Return how many rows stay, where they are the log's first rows and nothing else; else None."""
    n = len(log.stays)
    return n if log.last_stay == n - 1 else None


def summary(policy: Summary, log: Log, where: Where | None) -> Leap | None:
    """Return the leap of a policy that puts one summary of a fixed size behind what stays; None where it does more."""
    first, made = lead(log), policy.summariser
    if where is None or first is None or type(made) is not Fixed:
        return None
    sums, upto, n, shrinks = log.tokens.P, log.upto, first, policy.must_shrink
    size = min(made.tokens, policy.limit or made.tokens)
    new = sums[n] + size

    def step(lo: int, call: int, before: int) -> tuple[int, int]:
        row = where(lo, upto[call])
        if row <= lo or row <= n or (shrinks and new - sums[row] >= before - sums[lo]):
            return lo, before
        return row, new

    return Leap(step, size)


def kept(policy: Summary, log: Log, room: Room) -> Where | None:
    """Return where a policy cuts; None where it keeps whole turns by their tokens or messages."""
    if policy.keep_turns is not None:
        return newest_turns(log, policy.keep_turns)
    if not policy.split_turns:
        return None
    if policy.keep_messages is not None:
        return newest_messages(log, policy.keep_messages)
    keep = policy.keep_tokens if policy.keep_tokens is not None else 20_000
    if policy.keep_share is not None:
        keep = int(room.limit * policy.keep_share)
    return newest_tokens(log, keep, estimated=policy.estimated)


def newest_tokens(log: Log, keep: int, *, estimated: bool) -> Where:
    """Return where the newest `keep` tokens begin: at the first safe cut after the row at which they are reached."""
    sums, is_cut = (log.estimates if estimated else log.tokens).P, log.is_cut

    def where(lo: int, hi: int) -> int:
        aim = sums[hi] - keep
        if aim < sums[lo]:
            return lo
        row = bisect_right(sums, aim, lo, hi + 1) - 1
        return row if row < hi and is_cut[row] else safe(is_cut, row, lo, hi)

    return where


def newest_messages(log: Log, keep: int) -> Where:
    """Return where the newest `keep` messages begin: at the first safe cut from there on."""
    return lambda lo, hi: safe(log.is_cut, hi - keep, lo, hi) if hi - keep > lo else lo


def newest_turns(log: Log, keep: int) -> Where:
    """Return where the newest `keep` turns begin, each from its user message on."""
    users, is_cut = log.of_role[USER], log.is_cut

    def where(lo: int, hi: int) -> int:
        at = bisect_left(users, hi) - keep
        return is_cut.rfind(1, lo, users[at] + 1) if at >= 0 and users[at] >= lo else lo

    return where


def safe(is_cut: bytearray, row: int, lo: int, hi: int) -> int:
    """Return the first safe cut from a row on, else the last one before it; below `lo` where there is none."""
    found = is_cut.find(1, row, hi)
    return found if found >= 0 else is_cut.rfind(1, lo, min(row + 1, hi))
