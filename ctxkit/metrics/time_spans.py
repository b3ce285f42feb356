"""Spans of time of many things at once, as two arrays: joined, asked for, counted at once.

A thing is a number, a time one of so many bits; both are one number, ``thing << bits | time``. The
spans of one thing do not touch, and all of them are in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Spans(NamedTuple):
    """Half-open spans; `start` and `end` hold thing and time as one number."""

    start: Ints
    end: Ints
    bits: int

    @classmethod
    def of(cls, things: Ints, starts: Ints, ends: Ints, bits: int) -> Spans:
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
        return which, spread(first, n)

    def since(self, first: Ints) -> Spans:
        """Return what lies at or after a time; `first` holds that time for each thing."""
        things = self.things
        start = np.maximum(self.start, (things << self.bits) + first[things])
        keep = start < self.end
        return Spans(start[keep], self.end[keep], self.bits)

    def joined(self, other: Spans) -> Spans:
        """Return the union of both."""
        start, end = (np.concatenate(pair) for pair in zip(self[:2], other[:2], strict=True))
        return Spans.of(np.zeros_like(start), start, end, self.bits)

    def counts(self, times: Ints) -> tuple[Ints, Ints]:
        """Return for each span the first of some rising times in it, and the first behind it."""
        return np.searchsorted(times, self.starts), np.searchsorted(times, self.ends)


def spread(first: Any, n: Any) -> Ints:
    """Return the numbers from each `first` on, `n` of them each, end to end."""
    total = int(n.sum())
    skip = (
        np.repeat(first - np.concatenate(([0], np.cumsum(n)[:-1])), n)
        if total
        else np.zeros(0, np.int64)
    )
    return np.asarray(np.arange(total) + skip)


def tallied(shape: tuple[int, ...], at: tuple[Any, ...], first: Ints, stop: Ints) -> Ints:
    """Return counts over the last axis: one at each place first..stop, and at `at`."""
    out = np.zeros((*shape[:-1], shape[-1] + 1), np.int64)
    np.add.at(out, (*at, first), 1)
    np.add.at(out, (*at, stop), -1)
    return np.asarray(np.cumsum(out, axis=-1)[..., :-1])
