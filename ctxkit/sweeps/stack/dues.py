"""Triggers over lanes: for each lane the first call in start..stop at which a compaction is due, or stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.lanes import Lanes

    Ints = NDArray[Any]
    Due = Callable[[Lanes, Ints, Ints], Ints]


def due_of(kinds: Sequence[tuple[Any, ...]], lanes: Lanes) -> Due:
    """Return the search for the first call at which any of some triggers is due."""
    parts = [_one(kind, f"{i}", lanes) for i, kind in enumerate(kinds)]
    if len(parts) == 1:
        return parts[0]

    def first(lanes: Lanes, start: Ints, stop: Ints) -> Ints:
        for part in parts:
            stop = part(lanes, start, stop)
        return stop

    return first


def _one(kind: tuple[Any, ...], i: str, lanes: Lanes) -> Due:
    table, numbers = lanes.table, lanes.numbers
    match kind:
        case ("above", estimated):
            return partial(_above, f"limit{i}", estimated=estimated)
        case ("share", of, or_equal, estimated):
            room = lanes.limit if of == "limit" else np.maximum(lanes.limit - lanes.reserve, 0)
            limit = numbers[f"share{i}"] * room
            limit = np.ceil(limit) - 1 if or_equal else limit
            whole = limit.astype(np.int64)
            numbers[f"limit{i}"] = whole if (whole == limit).all() else limit
            return partial(_above, f"limit{i}", estimated=estimated)
        case ("full",):
            numbers[f"limit{i}"] = lanes.limit
            return partial(_above, f"limit{i}", estimated=False)
        case ("count", roles):
            return partial(_count, f"n{i}", "summary" in roles or not roles, not roles, *table.said(roles))
        case ("turns",) | ("spent",):
            return partial(_turns, f"n{i}") if kind == ("turns",) else partial(_spent, f"limit{i}")
        case ("opening", *inner):
            return partial(_opening, _one(tuple(inner), i, lanes), table.after("turn"))
        case ("after", what, seconds):
            return partial(_after, table.after(what, seconds))
        case _:
            return _always if kind == ("always",) else _never


def _between(found: Ints, start: Ints, stop: Ints) -> Ints:
    return np.minimum(np.maximum(found, start), stop)


def _above(name: str, lanes: Lanes, start: Ints, stop: Ints, *, estimated: bool) -> Ints:
    sizes, limit = lanes.measure(estimated=estimated), lanes.numbers[name]
    aim = limit - (offset := lanes.offset(estimated=estimated))
    if aim.dtype != np.int64:  # rounded as the engine rounds: with the offset of the one log
        base = sizes.base[lanes.session]
        aim = np.floor(limit - (offset + base)).astype(np.int64) + base
    return _between(sizes.calls.find(aim, "right"), start, stop)


def _count(  # noqa: PLR0917  a partial's
    name: str, summaries: bool, any_: bool, by_call: Ints, by_row: Ints, lanes: Lanes, start: Ints, stop: Ints
) -> Ints:
    left = lanes.numbers[name] + by_row[lanes.lo]
    if summaries:
        left = left - (lanes.summed > 0)
    if any_:
        left = left - lanes.table.stay[lanes.session]
    return _between(np.searchsorted(by_call, left), start, stop)


def _turns(name: str, lanes: Lanes, start: Ints, stop: Ints) -> Ints:
    turns: Any = lanes.table.turns
    return _between(np.searchsorted(turns, turns[lanes.since] + lanes.numbers[name]), start, stop)


def _spent(name: str, lanes: Lanes, start: Ints, stop: Ints) -> Ints:
    sums, since, offset = lanes.table.tokens.Q, lanes.since, lanes.offset()
    aim = lanes.numbers[name] + sums[since] + offset * since
    while True:
        going = start < stop
        if not going.any():
            return start
        middle = (start + stop) >> 1
        reached = offset * middle + sums[middle] >= aim
        stop = np.where(going & reached, middle, stop)
        start = np.where(going & ~reached, middle + 1, start)


def _opening(part: Due, calls: Ints, lanes: Lanes, start: Ints, stop: Ints) -> Ints:
    return np.minimum(calls[part(lanes, start, stop)], stop)


def _always(_lanes: Lanes, start: Ints, _stop: Ints) -> Ints:
    return start


def _never(_lanes: Lanes, _start: Ints, stop: Ints) -> Ints:
    return stop


def _after(calls: Ints, _lanes: Lanes, start: Ints, stop: Ints) -> Ints:
    return np.minimum(calls[start], stop)
