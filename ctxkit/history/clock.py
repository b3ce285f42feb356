"""Which calls found the provider's cache cold, and what of each no cache held."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.history.columns import GrowingColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history.log import Log


class Clock:
    """Calls that found the cache cold, and running sums over the calls before each, as they would
    be without edits.

    The first call is cold; another one where it was sent `life` seconds or more after the one
    before was done. Where a time is unknown the cache counts as warm. `N[c]` cold calls come before
    call `c`; `F[c]` is what the calls before it were sent that no cache held: all that a cold one
    was sent, and what a warm one had more than the one before.
    """

    __slots__ = ("F", "N", "_fresh", "calls", "cold", "life", "log")

    def __init__(self, log: Log, life: float) -> None:
        if not life > 0:
            raise BadArguments(
                f"A cache that lives {life} seconds is none; give a number above 0, or infinity."
            )
        self.log, self.life = log, life
        self.cold: list[bool] = []
        self.calls: list[int] = []
        self.N: list[int] = [0]
        self.F: list[int] = [0]
        self._fresh = GrowingColumn(
            lambda a, b: [new - old for old, new in pairwise(self.F[a : b + 1])], np.int64
        )

    @classmethod
    def of(cls, log: Log, life: float) -> Clock:
        """Return the clock of a log, made once for each `life` and brought up to its calls."""
        key = ("clock", life)
        clock: Clock | None = log.memo.get(key)
        if clock is None:
            clock = log.memo[key] = cls(log, life)
        return clock.sync()

    def sync(self) -> Clock:
        """Bring the columns up to the calls that the log has by now."""
        log, known, fixed = self.log, len(self.cold), self.log.fixed_at
        if known == len(log.upto):
            return self
        sent, done, sizes = log.sent, log.done, log.tokens.C
        for c in range(known, len(log.upto)):
            cold = c == 0 or sent[c] - done[c - 1] >= self.life
            shrunk = 0 if cold else max(fixed[c - 1] - fixed[c], 0)
            more = sizes[c] if cold else max(sizes[c] + shrunk - sizes[c - 1], 0)
            self.cold.append(cold)
            if cold:
                self.calls.append(c)
            self.N.append(self.N[-1] + cold)
            self.F.append(self.F[-1] + more)
        return self

    def alive(self, before: int, call: int) -> bool:
        """Return True where the cache of one call is still there at a later one; unknown: it is."""
        return not self.log.sent[call] - self.log.done[before] >= self.life

    def fresh(self, upto: int) -> NDArray[Any]:
        """Return the tokens that each call before `upto` was sent and no cache held, not to be
        written to.
        """
        return self._fresh.upto(upto)
