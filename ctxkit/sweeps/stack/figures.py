"""What runs side by side add up to: tokens sent, those that no cache held, the largest prompt, the cuts."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.sweeps.stack.lanes import Lanes, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.sweeps.stack.orders import Order
    from ctxkit.sweeps.stack.tables import Table

    Ints = NDArray[Any]


class Bill(NamedTuple):
    """One value a lane, as a `Run` has them."""

    total: Ints
    fresh: Ints
    peak: Ints
    cuts: Ints


class Runs:
    """All settings on all sessions, each pair a lane: lane ``session * settings + setting``."""

    def __init__(self, table: Table, orders: Sequence[Order], sessions: Ints, limits: Ints) -> None:
        """Run them.

        Args:
            table: the logs.
            orders: one a setting, all of one shape.
            sessions: which of the logs.
            limits: for each log of the table the window that holds where the rules name none.
        """
        self.table, self.orders, self.settings = table, orders, len(orders)
        self.session = np.repeat(sessions, self.settings)
        self.cuts, self.odd = run(Lanes(table, orders, sessions, limits), orders[0])
        """The cuts of all lanes; the lanes that the engine has to run."""
        self.begin, self.stop = table.begin[self.session], table.stop[self.session]

    @property
    def cuts_n(self) -> Ints:
        """Cuts of each lane."""
        return np.diff(self.cuts.first)

    # -- for each cut --------------------------------------------------------------------------------------------------

    @cached_property
    def log(self) -> Ints:
        """The log of each cut."""
        return self.session[self.cuts.lane]

    @cached_property
    def opens(self) -> NDArray[Any]:
        """True for the first cut of a lane."""
        opens = np.ones(len(self.cuts.lane), bool)
        opens[1:] = self.cuts.lane[1:] != self.cuts.lane[:-1]
        return opens

    @cached_property
    def closes(self) -> NDArray[Any]:
        """True for the last cut of a lane."""
        return np.append(self.opens[1:], True)[: len(self.opens)]

    @cached_property
    def until(self) -> Ints:
        """The call of the next cut of the lane, or the end of its log."""
        until = np.append(self.cuts.call[1:], 0)[: len(self.opens)]
        return np.where(self.closes, self.stop[self.cuts.lane], until)

    @cached_property
    def off(self) -> Ints:
        """What is added to the log's running sum for the sizes of prompts, from the cut on."""
        sizes = self.table.tokens
        return np.asarray(sizes.head[self.log] + self.cuts.size - sizes.P[self.cuts.row])

    @cached_property
    def off_before(self) -> Ints:
        """The same before the cut."""
        return self.carried(self.off, -self.table.tokens.base[self.log])

    @cached_property
    def row_before(self) -> Ints:
        """First row of the tail before the cut."""
        return self.carried(self.cuts.row, self.table.start[self.log])

    def carried(self, values: Ints, start: Ints | int) -> Ints:
        """Return for each cut the value of the one before, or what stood at the start."""
        before = np.empty_like(values)
        before[1:] = values[:-1]
        return np.where(self.opens, start, before)

    @cached_property
    def stable(self) -> Ints:
        """Tokens in front that the cut did not touch."""
        return np.asarray(self.table.fixed[self.cuts.call] + self.table.tokens.head[self.log])

    # -- for each lane -------------------------------------------------------------------------------------------------

    @cached_property
    def first_call(self) -> Ints:
        """The call of the first cut, or the end of the log."""
        out = np.array(self.stop)
        out[self.cuts.lane[self.opens]] = self.cuts.call[self.opens]
        return out

    def summed(self, values: Ints) -> Ints:
        """Return the sums of whole numbers over the cuts of each lane."""
        sums = np.concatenate(([0], np.cumsum(values)))
        return np.asarray(sums[self.cuts.first[1:]] - sums[self.cuts.first[:-1]])

    def most(self, values: Ints, start: Ints) -> Ints:
        """Return the largest of some values over the cuts of each lane, and of a value a lane."""
        out, have = np.array(start), np.flatnonzero(self.cuts_n)
        if len(have):
            out[have] = np.maximum(out[have], np.maximum.reduceat(values, self.cuts.first[have]))
        return out

    def bill(self) -> Bill:
        """Return what was sent, by the clock of the orders' cache."""
        table, sizes, cuts = self.table, self.table.tokens, self.cuts
        cold, before, n, f = table.cold(self.orders[0].counting[-1])
        start, base = -sizes.base[self.session], sizes.base[self.session]
        begin, stop, first = self.begin, self.stop, self.first_call
        total = sizes.Q[stop] - sizes.Q[begin] + start * (first - begin)
        total += self.summed(self.off * (self.until - cuts.call))
        own, here = self.off + base[cuts.lane], cuts.call
        prompt = self.off + sizes.C[here]
        cached = np.minimum(self.off_before + sizes.base[self.log] + before[here], self.stable)
        fresh = np.where(cold[here] | (cached == 0), prompt, np.maximum(prompt - cached, 0))
        fresh += f[self.until] - f[here + 1] + own * (n[self.until] - n[here + 1])
        whole = np.where(first > begin, start + sizes.C[np.maximum(first - 1, begin)], 0)
        peak = self.most(self.off + sizes.C[self.until - 1], whole)
        return Bill(total, f[first] - f[begin] + self.summed(fresh), peak, self.cuts_n)
