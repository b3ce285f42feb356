"""Runs side by side, each a lane: brought from cut to cut all at once, as the engine brings on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.sweeps.stack.cuts import cut_of
from ctxkit.sweeps.stack.dues import due_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.orders import Order
    from ctxkit.sweeps.stack.tables import Sizes, Table

    Ints = NDArray[Any]


class Cuts(NamedTuple):
    """The cuts of all lanes, those of one lane together and in order."""

    lane: Ints
    call: Ints
    row: Ints
    """First row that is kept."""
    size: Ints
    """Tokens of the summary that it put in; 0: none."""
    first: Ints
    """For each lane the place of its first cut, and the end of all: one value more than lanes."""


class Lanes:
    """The runs that are still on their way; all numbers are arrays, one value a lane."""

    _COLUMNS = ("lane", "session", "limit", "reserve", "call", "stop", "lo", "front", "front_estimate")
    _MORE = ("head", "estimate", "since", "summed")

    def __init__(self, table: Table, orders: Sequence[Order], sessions: Ints, limits: Ints) -> None:
        self.table = table
        settings, logs = len(orders), len(sessions)
        self.lane = np.arange(settings * logs)
        self.session = np.repeat(sessions, settings)
        self.numbers = {name: np.tile(_column(orders, name), logs) for name in orders[0].numbers}
        window = self.numbers.pop("window")
        self.limit = np.where(window > 0, window, limits[self.session])
        self.reserve = self.numbers.pop("reserve")
        self.call, self.stop = table.begin[self.session], table.stop[self.session]
        self.lo = table.start[self.session]
        self.front, self.front_estimate = table.tokens.head[self.session], table.estimates.head[self.session]
        """Tokens and estimates of what stays in front."""
        self.head, self.estimate = self.front, self.front_estimate
        """Those of all that stands before the untouched tail."""
        self.since = self.call
        """The call of the last cut."""
        self.summed = np.zeros(len(self.lane), np.int64)
        """Tokens of the summary that stands there."""
        self.refused = self.reserve + table.fixed[self.stop] >= self.limit
        """Lanes whose rules cannot work on their log: the engine says why."""

    def keep(self, which: NDArray[Any]) -> None:
        """Go on with these lanes alone."""
        for name in (*self._COLUMNS, *self._MORE):
            setattr(self, name, getattr(self, name)[which])
        self.numbers = {name: values[which] for name, values in self.numbers.items()}

    def take(self, did: NDArray[Any], call: Ints, row: Ints, size: Ints) -> None:
        """Write down cuts before a call; `did` tells which lanes have one."""
        whole = bool(did.all())
        for name, values in (("lo", row), ("since", call), ("summed", size)):
            setattr(self, name, values if whole else np.where(did, values, getattr(self, name)))
        self.head, self.estimate = self.front + self.summed, self.front_estimate + self.summed

    def measure(self, *, estimated: bool) -> Sizes:
        """Return sizes in tokens or in the system's own measure."""
        return self.table.estimates if estimated else self.table.tokens

    def offset(self, *, estimated: bool = False) -> Ints:
        """Return what is added to the log's running sum to give the size of what is shown."""
        head = self.estimate if estimated else self.head
        return np.asarray(head - self.measure(estimated=estimated).P[self.lo])


def run(lanes: Lanes, order: Order) -> tuple[Cuts, Ints]:
    """Bring lanes to the end of their logs; return their cuts, and the lanes that the engine has to run."""
    done: list[tuple[Ints, ...]] = []
    odd = [lanes.lane[lanes.refused]]
    ranks = np.zeros(len(lanes.lane), np.int64)
    first, cut = due_of(order.due, lanes), cut_of(order.cut, lanes)
    if lanes.refused.any():
        lanes.keep(~lanes.refused)
    while len(lanes.lane) and cut is not None:
        call = first(lanes, lanes.call, lanes.stop)
        on = call < lanes.stop
        ending = len(on) - int(np.count_nonzero(on))
        if ending * 8 > len(on):  # leaving lanes out has its price too
            lanes.keep(on)
            call, on, ending = call[on], on[on], 0
            if not len(lanes.lane):
                break
        row, size = cut(lanes, np.minimum(call, lanes.stop - 1) if ending else call)
        did = (row > lanes.lo) & on if ending else row > lanes.lo
        found = (lanes.lane, call, row, size)
        if not did.all():
            found = tuple(values[did] for values in found)
        wrong = ~lanes.table.safe[found[2]]
        if wrong.any():  # behind it the log goes on with what belongs before it
            odd.append(found[0][wrong])
        done.append((*found, ranks[found[0]]))
        ranks[found[0]] += 1
        lanes.take(did, call, row, size)
        lanes.call = np.minimum(call + 1, lanes.stop)
    return _sorted(done, ranks), np.unique(np.concatenate(odd))


def _sorted(done: list[tuple[Ints, ...]], ranks: Ints) -> Cuts:
    """Put the cuts of each lane together: the place of each is known from its number."""
    first = np.concatenate(([0], np.cumsum(ranks)))
    lane, *columns, rank = (
        [np.concatenate(column) for column in zip(*done, strict=True)] if done else [np.zeros(0, np.int64)] * 5
    )
    order = np.empty(len(lane), np.int64)
    order[first[lane] + rank] = np.arange(len(lane))
    call, row, size = (column[order] for column in columns)
    return Cuts(np.repeat(np.arange(len(ranks)), ranks), call, row, size, first)


def _column(orders: Sequence[Order], name: str) -> NDArray[Any]:
    values = [order.numbers[name] for order in orders]
    whole = all(v == int(v) for v in values)
    return np.array([int(v) for v in values], np.int64) if whole else np.array(values, np.float64)
