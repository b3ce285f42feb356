"""Policies over lanes: for each lane the first row that is kept before a call, and what is put in place of the rest.

Where a policy does nothing, the row is the first of what is shown as it was said. Searches go over all logs as one and
are then held between a lane's own rows, so that a row before them says the same as a position in the edited head.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.lanes import Lanes

    Ints = NDArray[Any]
    Rows = Callable[[Lanes, Ints, Ints], Ints]
    """Lanes, their calls and the ends of their rows: the first rows kept."""
    Cut = Callable[[Lanes, Ints], tuple[Ints, Ints]]


def cut_of(kind: tuple[Any, ...], lanes: Lanes) -> Cut | None:
    """Return what a policy does; None where it does nothing."""
    match kind:
        case ("nothing",):
            return None
        case ("summary", keep, estimated, how, made, apart, must_shrink):
            if keep in ("share", "most fraction"):
                lanes.numbers["keep"] = (lanes.numbers["keep"] * lanes.limit).astype(np.int64)
            return partial(_summarised, _ROWS[how](keep, estimated), (made, apart, must_shrink))
        case ("window", estimated):
            return partial(_windowed, estimated)
        case ("window share",):
            lanes.numbers["keep"] = (lanes.numbers["keep"] * lanes.limit).astype(np.int64)
            return _shared
        case _:
            return partial(_dropped, _nth_user)


# -- where -------------------------------------------------------------------------------------------------------------


def _where(keep: str, estimated: bool, lanes: Lanes, hi: Ints) -> Ints:
    """Return the row from which on the newest is kept, in whatever measure, before any cut is looked for."""
    n = lanes.numbers["keep"]
    if keep == "messages":
        return np.asarray(hi - n)
    sizes = lanes.measure(estimated=estimated)
    sums = sizes.P
    if keep not in ("most tokens", "most fraction"):
        return np.asarray(np.minimum(sizes.rows.find(sums[hi] - n, "right") - 1, hi))
    n = np.maximum(n, 1)
    found = np.minimum(sizes.rows.find(sums[hi] - (n + 1), "right"), hi - 1)
    all_fits = lanes.offset() + sums[hi] <= n
    return np.asarray(np.where(all_fits, lanes.lo, found))


def _on(keep: str, estimated: bool) -> Rows:
    if keep == "turns":
        return _nth_user

    def rows(lanes: Lanes, _call: Ints, hi: Ints) -> Ints:
        row = np.maximum(_where(keep, estimated, lanes, hi), lanes.lo)
        return _safe(lanes, row, hi)

    return rows


def _back_from(keep: str, estimated: bool) -> Rows:
    if keep == "turns":
        return _nth_user
    return lambda lanes, _, hi: _back(lanes, _where(keep, estimated, lanes, hi))


def _turn_of(keep: str, estimated: bool) -> Rows:
    """Return a search that keeps whole turns."""

    def rows(lanes: Lanes, _call: Ints, hi: Ints) -> Ints:
        table, row = lanes.table, _where(keep, estimated, lanes, hi)
        user, known = _last_user(lanes, np.maximum(row, lanes.lo))
        found = np.where(user >= hi, hi, table.cut_before[np.minimum(user, hi)])
        return np.asarray(np.where(known & (row >= lanes.lo), found, lanes.lo))

    return rows


def _as_pi_did(keep: str, estimated: bool) -> Rows:
    """Return a search for Pi's cut: never at or before the first message said after the last compaction."""

    def rows(lanes: Lanes, _call: Ints, hi: Ints) -> Ints:
        table, row = lanes.table, np.maximum(_where(keep, estimated, lanes, hi), lanes.lo)
        since = (lanes.summed > 0) & (lanes.since > table.begin[lanes.session])
        least = np.where(since, np.maximum(table.upto[lanes.since], lanes.lo), lanes.lo)
        found = table.next_cut[np.maximum(row, least)]
        return np.asarray(np.where((found < hi) & (found > least), found, lanes.lo))

    return rows


_ROWS: dict[str, Callable[[str, bool], Rows]] = {
    "on": _on,
    "back": _back_from,
    "turn": _turn_of,
    "quirks": _as_pi_did,
}


def _safe(lanes: Lanes, row: Ints, hi: Ints) -> Ints:
    """Return the first safe cut from a row on; the last one before it where none is left."""
    table = lanes.table
    found = table.next_cut[row]
    late = found >= hi
    if late.any():
        found[late] = _back(lanes, np.minimum(row, hi - 1))[late]
    return found


def _back(lanes: Lanes, row: Ints) -> Ints:
    return np.asarray(lanes.table.cut_before[np.maximum(row, lanes.lo)])


def _nth_user(lanes: Lanes, _call: Ints, hi: Ints) -> Ints:
    """Return the cut before the n-th last message of a user."""
    table = lanes.table
    at = table.asked[hi] - lanes.numbers["keep"]
    known = at >= table.asked[lanes.lo]
    return np.where(known, _back(lanes, table.users[np.maximum(at, 0)]), lanes.lo)


def _last_user(lanes: Lanes, row: Ints) -> tuple[Ints, NDArray[Any]]:
    """Return the last row up to this one that a user said, and where there is one among what is shown."""
    table = lanes.table
    at = table.asked[row + 1] - 1
    return table.users[np.maximum(at, 0)], at >= table.asked[lanes.lo]


# -- what --------------------------------------------------------------------------------------------------------------


def _summarised(rows: Rows, how: tuple[str, bool, bool], lanes: Lanes, call: Ints) -> tuple[Ints, Ints]:
    made, apart, must_shrink = how
    table = lanes.table
    hi = table.upto[call]
    row = rows(lanes, call, hi)
    size = lanes.numbers["size"] if made == "fixed" else _share(lanes, row, hi, apart=apart)
    if must_shrink:
        sums = table.tokens.P
        after = lanes.front + size - sums[row]
        row = np.where(after < lanes.offset(), row, lanes.lo)
    return row, size


def _share(lanes: Lanes, row: Ints, hi: Ints, *, apart: bool) -> Ints:
    """Return the size of a summary that is a share of what it stands for; of two where a turn is split."""
    sums = lanes.table.tokens.P
    whole = lanes.offset() + sums[row]
    if not apart:
        return _part(lanes, whole, "limit")
    turn, known = _last_user(lanes, np.minimum(row, hi - 1))
    split = known & (turn > lanes.lo) & (turn < row) & (row < hi)
    begin = lanes.offset() + sums[np.where(split, turn, lanes.lo)]
    two = _part(lanes, begin, "limit") + _part(lanes, whole - begin, "split")
    return np.where(split, two, _part(lanes, whole, "limit"))


def _part(lanes: Lanes, tokens: Ints, limit: str) -> Ints:
    n = lanes.numbers
    size = np.rint(n["part"] * tokens).astype(np.int64)
    size = np.minimum(n["cap"], np.maximum(n["floor"], size))
    return np.asarray(np.minimum(size, n[limit]), np.int64)


def _none(lanes: Lanes) -> Ints:
    return np.zeros(len(lanes.lane), np.int64)


def _fitting(lanes: Lanes, call: Ints, hi: Ints, *, estimated: bool) -> Ints:
    """Return the first row from which all that is shown, the fixed part included, fits the budget."""
    sizes, budget = lanes.measure(estimated=estimated), lanes.numbers["keep"]
    budget = budget - (lanes.front_estimate if estimated else lanes.front)
    if not estimated:
        budget = budget - lanes.table.fixed[call]
    found = sizes.rows.find(sizes.P[hi] - budget)
    return np.asarray(np.maximum(np.minimum(found, hi - 1), lanes.lo))


def _windowed(estimated: bool, lanes: Lanes, call: Ints) -> tuple[Ints, Ints]:
    table = lanes.table
    hi = table.upto[call]
    sizes = lanes.measure(estimated=estimated)
    upto = sizes.P[hi] if estimated else sizes.C[call]
    small = lanes.offset(estimated=estimated) + upto <= lanes.numbers["keep"]
    row = _fitting(lanes, call, hi, estimated=estimated)
    pair = table.next_pair[row]
    found = np.where(pair < hi, pair, _safe(lanes, row, hi))
    return np.where(small | (row <= lanes.lo), lanes.lo, found), _none(lanes)


def _shared(lanes: Lanes, call: Ints) -> tuple[Ints, Ints]:
    table = lanes.table
    hi = table.upto[call]
    small = lanes.offset() + table.tokens.C[call] <= lanes.numbers["keep"]
    row = _fitting(lanes, call, hi, estimated=False)
    return np.where(small | (row <= lanes.lo), lanes.lo, _safe(lanes, row, hi)), _none(lanes)


def _dropped(rows: Rows, lanes: Lanes, call: Ints) -> tuple[Ints, Ints]:
    return rows(lanes, call, lanes.table.upto[call]), _none(lanes)
