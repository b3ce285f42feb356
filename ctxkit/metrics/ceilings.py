"""What a call costs on average where the context is compacted at some size, at a
log's prices.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.breakeven import best_trigger, requests_until_reset_pays

if TYPE_CHECKING:
    from ctxkit.metrics.paces import Pace

NEAR = 1.05
"""Ceilings that cost at most so many times the best are about as good."""
STEPS = 200
"""Sizes on either side of the best that are looked at for about the same cost."""


class Ceiling(NamedTuple):
    """What a call costs on average if the context is compacted at this size."""

    name: str
    tokens: int
    calls: float
    """From one compaction to the next."""
    usd: float
    loss: float | None = None
    """Share of what is used again that compactions at this size would take before its use: at most
    so much is lost, by summaries that keep nothing. None: nothing is used again, or no text.
    """


class Ceilings:
    """The prices of one session, and what a ceiling costs at them.

    Args:
        pace: what the session's log says.
        floor: tokens that a compaction leaves.
        front: those of them that stay as they were, so that the cache still has them.
        summary: tokens of a summary.
    """

    def __init__(self, pace: Pace, floor: int, front: int, summary: int) -> None:
        p = pace.price
        self.growth, self.floor, self.front, self.input = pace.growth, floor, front, p.input
        self.read, self.write = p.read, p.write(hour=pace.hour)
        self.carry = self.read + (pace.missed or 0.0) * max(self.write - self.read, 0.0)
        self.rewrite = (self.write - self.read) * (floor - front)
        self.floor_usd = summary * (p.input + p.output) + self.rewrite
        """What a compaction costs at any ceiling; to this comes what the summary is made from."""

    def reset(self, size: int) -> float:
        """Return the dollars of a compaction: its summary is made from all that it stands for."""
        return self.floor_usd + self.input * (size - self.floor)

    def cheapest(self, window: int) -> int:
        """Return the size that is best in dollars alone, at most the window."""
        size = best_trigger(
            floor=self.floor,
            start=self.floor,
            growth=self.growth,
            cost_usd=self.floor_usd,
            read_price=self.carry,
        )
        return min(max(round(size), self.floor + 1), window)

    def pays_after(self, size: int) -> float:
        """Return the calls after which a compaction at a size has paid for itself."""
        return requests_until_reset_pays(
            size,
            self.floor,
            cost_usd=self.reset(size) - self.rewrite,
            read_price=self.carry,
            write_price=self.write,
            front=self.front,
        )

    def wait_at_most(self, size: int, window: int) -> float:
        """Return for how many calls a compaction that is due at a size may wait for a cold one."""
        slack = self.read * (size - self.floor) - self.write * self.growth
        cost = self.rewrite / slack if slack > 0 else inf
        return min(cost, (size - self.floor) / self.growth, (window - size) / self.growth)

    def kept_usd(self, size: int) -> float:
        """Return what 1,000 more tokens in the floor cost, a call."""
        grown = self.growth / max(size - self.floor, 1)
        return 1_000 * (self.carry + (self.write - self.read) * grown)

    def near(self, best: int, window: int, *, least: int) -> tuple[int, int]:
        """Return the smallest and the largest size, from the least on, that cost about the same."""
        most = NEAR * self.at("", best).usd
        below = [least + (best - least) * k // STEPS for k in range(STEPS)]
        above = [best + (window - best) * k // STEPS for k in range(STEPS + 1)]
        fits = [n for n in (*below, *above) if self.at("", n).usd <= most]
        return min(fits), max(fits)

    def at(self, name: str, size: int) -> Ceiling:
        """Return what a call costs on average with compactions at a size."""
        cycle = max((size - self.floor) / self.growth, 1.0)
        grown = (self.write - self.read) * self.growth
        usd = self.carry * (self.floor + size) / 2 + grown + self.reset(size) / cycle
        return Ceiling(name, size, cycle, usd)
