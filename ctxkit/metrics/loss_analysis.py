"""Which items compactions removed, what became of them, which were needed later, and an oracle
bound.

An item is *gone* from the first call on that is no longer shown a message that held it, as it was
said; then it is *retained* at the calls that are shown a message or a text that says it,
*recoverable* where a file, an artifact or an archive holds it that is named there, else *lost*. It
is *taken* whenever it goes out of sight.

A *moment* is a call before which something changed. All figures are those of the moments or follow
from the times between which each item was in sight, so that nothing grows with moments times items.

A thing is a number, a time one of so many bits; both are one number, ``thing << bits | time``. The
spans of one thing do not touch, and all of them are in order.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from ctxkit.metrics.items import ITEM_FAMILIES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.metrics.item_index import ItemIndex
    from ctxkit.metrics.items import Item
    from ctxkit.metrics.visibility import Visibility

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


ItemFate = Literal["retained", "recoverable", "lost"]
ITEM_FATES: tuple[ItemFate, ...] = get_args(ItemFate)
NO_CALL = 1 << 62
"""A call that never comes."""
CONSTRAINT_FAMILY = ITEM_FAMILIES.index("constraint")
"""The family of what the user asked for."""


class RemovedItems(NamedTuple):
    """Each time that an item went out of sight, by item and then by time."""

    item: Ints
    time: Ints
    found: Flags
    """True where it could have been fetched again."""
    needed: Ints
    """The first call from then on that names it, before it is taken again; `NEVER` where none does.
    """


class NeededLostItems(NamedTuple):
    """What was taken and named later, charged to the last time before its first such use."""

    item: Ints
    delay: Ints
    """Calls from then to that use."""
    found: Flags


class LossAnalysis:
    """What was lost of a session's items under what its calls were shown."""

    def __init__(self, memory: ItemIndex, shown: Visibility) -> None:
        self.memory, self.shown = memory, shown
        self._bits = int(shown.end).bit_length()
        self.times = 2 * shown.moments + 1
        self.gone = np.full(memory.n, shown.end)
        """For each item when it was gone first; `shown.end`: never."""
        held = memory.held
        until = shown.until[held.owner]
        mine = until < shown.end
        np.minimum.at(self.gone, held.values[mine], until[mine])
        self.is_gone = self.gone < shown.end
        self.first = np.searchsorted(self.times, self.gone)
        """The moment at which each item was gone first."""
        self.due = self.is_gone & (memory.last_use >= self.gone // 2)
        """Items that are needed after they were gone."""
        self.last = np.searchsorted(shown.moments, memory.last_use, "right")
        """One past the last moment before which each item is still needed."""

    # -- when what was in sight --------------------------------------------------------------------

    @cached_property
    def seen(self) -> TimeSpans:
        """When each item that is gone, and each path of a file, is in sight."""
        wanted = self.is_gone.copy()
        wanted[self.memory.paths] = True
        return self._sight(wanted, texts=True)

    def _sight(self, wanted: Flags, *, texts: bool) -> TimeSpans:
        """Return when some items are in sight.

        Without texts it is as if all that was put in said nothing.
        """
        memory, shown = self.memory, self.shown
        mine = wanted[memory.names_item]
        item, row = memory.names_item[mine], memory.names_row[mine]
        put_in = shown.texts if texts else shown.texts[:0]
        held = [memory.named.of(which) for which in shown.again[:, 0].tolist()]
        held += [shown.said[which] for which in put_in[:, 0].tolist()]
        spans, n = np.concatenate((shown.again, put_in)), [len(items) for items in held]
        items = np.concatenate((item, *held))
        starts = np.concatenate((2 * memory.arrival[row], np.repeat(spans[:, 1], n)))
        ends = np.concatenate((shown.until[row], np.repeat(spans[:, 2], n)))
        keep = wanted[items]
        return TimeSpans.of(items[keep], starts[keep], ends[keep], self._bits)

    @cached_property
    def _found(self) -> TimeSpans:
        """When each item that is gone is named by a file or kept elsewhere."""
        memory, shown, end = self.memory, self.shown, self.shown.end
        at = np.flatnonzero(shown.until[memory.filed.owner] < end)
        item, path, since = (
            memory.filed.values[at],
            memory.paths[at],
            shown.until[memory.filed.owner[at]],
        )
        which, span = self.seen.of_each(path)
        start = np.maximum(self.seen.starts[span], since[which])
        stop = self.seen.ends[span]
        keep = start < stop
        held, rows = memory.held, shown.elsewhere[:, 0]
        n = held.starts[rows + 1] - held.starts[rows]
        kept, kept_since = (
            held.values[expand_ranges(held.starts[rows], n)],
            np.repeat(shown.elsewhere[:, 1], n),
        )
        return TimeSpans.of(
            np.concatenate((item[which][keep], kept)),
            np.concatenate((start[keep], kept_since)),
            np.concatenate((stop[keep], np.full(len(kept), end))),
            self._bits,
        )

    @cached_property
    def retained(self) -> TimeSpans:
        """When what is gone is in sight again."""
        return self.seen.since(self.gone)

    @cached_property
    def _at_hand(self) -> TimeSpans:
        """When what is gone is retained or recoverable."""
        return self.retained.joined(self._found.since(self.gone))

    # -- what was taken, and needed ----------------------------------------------------------------

    @cached_property
    def taken(self) -> RemovedItems:
        """Every time that an item went out of sight."""
        seen = self.seen
        item, time = seen.things, seen.ends
        at = np.flatnonzero((time >= self.gone[item]) & (time < self.shown.end))
        item, time = item[at], time[at]
        until = np.append(time[1:] // 2, NO_CALL)
        until[:-1][item[1:] != item[:-1]] = NO_CALL
        needed = self.memory.first_uses(item, time // 2)
        return RemovedItems(
            item, time, self._found.hold(item, time), np.where(needed < until, needed, NO_CALL)
        )

    @cached_property
    def charged(self) -> NeededLostItems:
        """What was needed of it."""
        taken = self.taken
        told = np.flatnonzero(taken.needed < NO_CALL)
        item, at = np.unique(taken.item[told], return_index=True)
        at = told[at]
        return NeededLostItems(item, taken.needed[at] - taken.time[at] // 2, taken.found[at])

    @cached_property
    def staked(self) -> tuple[Ints, Ints]:
        """Items named later that cuts took as they were said, each once, and when.

        From then on only what was put in their place could say them. What is `charged` is among
        them.
        """
        bare = self._sight(self.due, texts=False)
        item, time = bare.things, bare.ends
        went = (time >= self.gone[item]) & (time < self.shown.end)
        item, at = np.unique(item[went], return_index=True)
        time = time[went][at]
        needed = self.memory.last_use[item] >= time // 2
        return item[needed], time[needed]

    @property
    def recall(self) -> float | None:
        """The share of what was at stake that the texts put in said until it was named, by weight.

        0 for texts that say nothing, 1 for such that say all; None where none was put in, or
        nothing was at stake.
        """
        weight = self.memory.weight
        stake = float(weight[self.staked[0]].sum())
        if not stake or not len(self.shown.texts):
            return None
        return 1 - float(weight[self.charged.item].sum()) / stake

    @cached_property
    def window(self) -> tuple[Ints, Ints, Flags]:
        """What was gone and named before the next moment: item, moment, whether in sight."""
        memory, shown = self.memory, self.shown
        moment = (np.searchsorted(shown.moments, np.arange(memory.calls), "right") - 1)[
            memory.used.owner
        ]
        item = memory.used.values
        mine = (moment >= 0) & (self.first[item] <= moment)
        key = np.unique(item[mine] * (len(self.times) + 1) + moment[mine])
        item, moment = key // (len(self.times) + 1), key % (len(self.times) + 1)
        return item, moment, self.seen.hold(item, self.times[moment])

    # -- figures -----------------------------------------------------------------------------------

    @property
    def rules_kept(self) -> float | None:
        """The share of the user's rules in sight, of those removed so far, over moments."""
        mine = self.memory.family == CONSTRAINT_FAMILY
        n = int((len(self.times) - self.first[mine & self.is_gone]).sum())
        start, stop = self.retained.counts(self.times)
        return int((stop - start)[mine[self.retained.things]].sum()) / n if n else None

    @property
    def both(self) -> tuple[TimeSpans, TimeSpans]:
        """When what is gone is retained, and when it is retained or recoverable."""
        return self.retained, self._at_hand

    def families(self) -> Ints:
        """Return counts by what was counted, family and moment.

        Counted are the items removed since the start that are retained, recoverable, lost; those of
        all of them that were named before the next moment, and of these those out of sight; what
        this moment took, and of that what was named later, before it was taken again; and what it
        put at stake, and of that what the texts put in said until it was named.
        """
        moments, n, of = len(self.times), len(ITEM_FAMILIES), self.memory.family
        item, moment, in_sight = self.window
        taken = self.taken
        at, needed = np.searchsorted(self.times, taken.time), taken.needed < NO_CALL

        def counted(items: Ints, places: Ints) -> Ints:
            return np.bincount(of[items] * moments + places, minlength=n * moments).reshape(
                n, moments
            )

        more = [counted(item, moment), counted(item[~in_sight], moment[~in_sight])]
        more += [counted(taken.item, at), counted(taken.item[needed], at[needed])]
        stake, since = self.staked
        since, kept = np.searchsorted(self.times, since), ~np.isin(stake, self.charged.item)
        more += [counted(stake, since), counted(stake[kept], since[kept])]
        return np.concatenate((self._fates(of, n), more))

    def cohorts(self) -> Ints:
        """Return counts of fates by the moment at which items were gone first."""
        return self._fates(self.first, len(self.times))

    def _fates(self, of: Ints, n: int) -> Ints:
        """Return counts by fate, by what `of` says of each item, and by moment."""
        moments = len(self.times)
        every = np.flatnonzero(self.is_gone)
        gone = count_over_ranges(
            (n, moments), (of[every],), self.first[every], np.full(len(every), moments)
        )
        seen, hand = (
            count_over_ranges((n, moments), (of[s.things],), *s.counts(self.times))
            for s in self.both
        )
        return np.stack((seen, hand - seen, gone - hand))

    def fates(self, moment: int = -1) -> dict[Item, ItemFate]:
        """Return what had become at a moment of each item that had been removed."""
        time = self.times[moment]
        items = np.flatnonzero(self.gone <= time)
        seen, hand = (s.hold(items, time) for s in self.both)
        names = list(self.memory.numbers)
        told = np.where(seen, 0, np.where(hand, 1, 2)).tolist()
        return {names[i]: ITEM_FATES[fate] for i, fate in zip(items.tolist(), told, strict=True)}

    def first_row(self) -> list[int]:
        """Return for each item the first row that held it among those that went first, or -1."""
        held, until = self.memory.held, self.shown.until
        first = np.full(self.memory.n, len(until))
        mine = until[held.owner] == self.gone[held.values]
        np.minimum.at(first, held.values[mine], held.owner[mine])
        return list(np.where(self.is_gone, first, -1).tolist())


ORACLE_MOMENTS = 16
"""Moments at which the best set of messages is looked for: those with the most out of sight that is
still needed.
"""


class OracleBound:
    """The best messages that could have stood where something was forgotten."""

    def __init__(self, of: LossAnalysis) -> None:
        self._of = of

    @property
    def least(self) -> float:
        """How many needed items no messages of the same size could have kept, at least.

        It is that of the moment where this is hardest, of the `HARDEST` with the most out of sight.
        """
        out, least = self._out(), 0.0
        for moment in np.argsort(-out, kind="stable")[:ORACLE_MOMENTS].tolist():
            if out[moment] > least:
                least = max(least, self.missing(moment))
        return least

    def _out(self) -> Ints:
        """Return for each moment how many items are out of sight that are still needed."""
        of = self._of
        n, first, last = len(of.times), of.first, of.last
        mine = np.flatnonzero(of.due)
        due = count_over_ranges((n,), (), first[mine], np.maximum(last[mine], first[mine]))
        start, stop = of.retained.counts(of.times)
        item = of.retained.things
        stop = np.minimum(stop, last[item])
        keep = of.due[item] & (start < stop)
        return np.asarray(due - count_over_ranges((n,), (), start[keep], stop[keep]))

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


class TimeSpans(NamedTuple):
    """Half-open spans; `start` and `end` hold thing and time as one number."""

    start: Ints
    end: Ints
    bits: int

    @classmethod
    def of(cls, things: Ints, starts: Ints, ends: Ints, bits: int) -> TimeSpans:
        """Return the union of spans in any order, each thing's own."""
        begin, end = (things << bits) + starts, (things << bits) + ends
        if not (begin[1:] >= begin[:-1]).all():
            order = np.argsort(begin, kind="stable")
            begin, end = begin[order], end[order]
        end = np.maximum.accumulate(end)
        first = np.ones(len(begin), bool)
        np.greater(begin[1:], end[:-1], out=first[1:])
        at = np.flatnonzero(first)
        return cls(begin[at], end[np.append(at[1:] - 1, -1)] if len(at) else end, bits)

    @property
    def things(self) -> Ints:
        """Whose each span is."""
        return self.start >> self.bits

    @property
    def starts(self) -> Ints:
        """When each begins."""
        return self.start & ((1 << self.bits) - 1)

    @property
    def ends(self) -> Ints:
        """When each ends."""
        return self.end & ((1 << self.bits) - 1)

    def hold(self, things: Ints, times: Ints | int) -> Flags:
        """Say of pairs of a thing and a time whether a span holds them."""
        if not len(self.start):
            return np.zeros(len(things), bool)
        key = (things << self.bits) + times
        at = np.searchsorted(self.start, key, "right") - 1
        return np.asarray((at >= 0) & (self.end[np.maximum(at, 0)] > key))

    def of_each(self, things: Ints) -> tuple[Ints, Ints]:
        """Return for some things every span of theirs: which of the things, and which span."""
        first = np.searchsorted(self.start, things << self.bits)
        n = np.searchsorted(self.start, (things + 1) << self.bits) - first
        which = np.repeat(np.arange(len(things)), n)
        return which, expand_ranges(first, n)

    def since(self, first: Ints) -> TimeSpans:
        """Return what lies at or after a time; `first` holds that time for each thing."""
        things = self.things
        start = np.maximum(self.start, (things << self.bits) + first[things])
        keep = start < self.end
        return TimeSpans(start[keep], self.end[keep], self.bits)

    def joined(self, other: TimeSpans) -> TimeSpans:
        """Return the union of both."""
        start, end = (np.concatenate(pair) for pair in zip(self[:2], other[:2], strict=True))
        return TimeSpans.of(np.zeros_like(start), start, end, self.bits)

    def counts(self, times: Ints) -> tuple[Ints, Ints]:
        """Return for each span the first of some rising times in it, and the first behind it."""
        return np.searchsorted(times, self.starts), np.searchsorted(times, self.ends)


def expand_ranges(first: Any, n: Any) -> Ints:
    """Return the numbers from each `first` on, `n` of them each, end to end."""
    total = int(n.sum())
    skip = (
        np.repeat(first - np.concatenate(([0], np.cumsum(n)[:-1])), n)
        if total
        else np.zeros(0, np.int64)
    )
    return np.asarray(np.arange(total) + skip)


def count_over_ranges(shape: tuple[int, ...], at: tuple[Any, ...], first: Ints, stop: Ints) -> Ints:
    """Return counts over the last axis: one at each place first..stop, and at `at`."""
    out = np.zeros((*shape[:-1], shape[-1] + 1), np.int64)
    np.add.at(out, (*at, first), 1)
    np.add.at(out, (*at, stop), -1)
    return np.asarray(np.cumsum(out, axis=-1)[..., :-1])
