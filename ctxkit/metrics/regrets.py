"""The best that could have been kept in the same room, with the record's future in hand:
a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctxkit.metrics.time_spans import tallied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.metrics.forgotten import Forgotten

    Ints = NDArray[np.int64]

HARDEST = 16
"""Moments at which the best set of messages is looked for: those with the most out of sight that is
still needed.
"""


class Best:
    """The best messages that could have stood where something was forgotten."""

    def __init__(self, of: Forgotten) -> None:
        self._of = of

    @property
    def least(self) -> float:
        """How many needed items no messages of the same size could have kept, at least.

        It is that of the moment where this is hardest, of the `HARDEST` with the most out of sight.
        """
        out, least = self._out(), 0.0
        for moment in np.argsort(-out, kind="stable")[:HARDEST].tolist():
            if out[moment] > least:
                least = max(least, self.missing(moment))
        return least

    def _out(self) -> Ints:
        """Return for each moment how many items are out of sight that are still needed."""
        of = self._of
        n, first, last = len(of.times), of.first, of.last
        mine = np.flatnonzero(of.due)
        due = tallied((n,), (), first[mine], np.maximum(last[mine], first[mine]))
        start, stop = of.retained.counts(of.times)
        item = of.retained.things
        stop = np.minimum(stop, last[item])
        keep = of.due[item] & (start < stop)
        return np.asarray(due - tallied((n,), (), start[keep], stop[keep]))

    def missing(self, moment: int) -> float:
        """Return what is due at a moment less what the best messages said so far could hold of it.

        A fractional knapsack by size into what is shown; an item that several messages hold counts
        for each: a bound.
        """
        memory, shown = self._of.memory, self._of.shown
        time, call = int(self._of.times[moment]), int(shown.moments[moment])
        due = (self._of.gone <= time) & (memory.last_use >= call)
        n = int(due.sum())
        upto = int(np.searchsorted(memory.arrival, call, "right"))
        end = memory.named.starts[upto]
        counts = np.bincount(
            memory.named.owner[:end][due[memory.named.values[:end]]], minlength=upto
        )
        holders = np.flatnonzero(counts)
        value, size = counts[holders], np.maximum(memory.size[holders], 1)
        best = np.argsort(-value / size, kind="stable")
        value, size = value[best], size[best]
        left = self._room(time, upto) - np.cumsum(size) + size
        return n - min(float((value * np.clip(left / size, 0.0, 1.0)).sum()), float(n))

    def _room(self, time: int, upto: int) -> float:
        """Return the tokens of what is shown at a time."""
        shown, size = self._of.shown, self._of.memory.size
        room = int(size[:upto][shown.until[:upto] > time].sum())
        for rows, sizes in ((shown.again, size), (shown.texts, shown.size)):
            at = (rows[:, 1] <= time) & (time < rows[:, 2])
            room += int(sizes[rows[at, 0]].sum())
        return float(room)
