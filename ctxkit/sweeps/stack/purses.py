"""What the recorded sessions tell about money, as columns over their logs: running sums over the calls they bill."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.metrics.bills import Sheet
    from ctxkit.prices import Price
    from ctxkit.sweeps.stack.tables import Table

    Ints = NDArray[Any]
    Flags = NDArray[Any]
    Floats = NDArray[Any]


ALWAYS = 2**62
"""Larger than any prompt: what the cache kept where the record had a hit."""


def billable(sheet: Sheet, log: Log) -> bool:
    """Say whether running sums can tell what runs on a log cost: one model, and a rising log of the same calls."""
    models = set(sheet.model[sheet.billed].tolist())
    return len(models) == 1 and log.tokens.rising and log.calls == len(sheet.billed)


class Purse:
    """Sheets laid end to end as the logs of a table are; sums rise with the table's, whose offsets they take."""

    def __init__(self, table: Table, sheets: Sequence[Sheet]) -> None:
        self.sheets = sheets
        self.models = [int(s.model[s.billed][0]) for s in sheets]
        prices = [s.prices[m] for s, m in zip(sheets, self.models, strict=True)]
        self.prices: list[Price | None] = prices
        self.cached = self._each(lambda s: s.has_cache, np.bool_)
        """Whether the record tells what the cache held; else all is fresh."""
        self.writes = self._each(lambda s: s.has_cache and s.fit.writes, np.bool_)
        self.lag = self._each(lambda s: s.fit.lag)
        self.floor = self._each(lambda s: ALWAYS if s.fit.floor is None else s.fit.floor)
        self.smallest = self._each(lambda s: int(s._smallest().max()) if s.has_cache else 0)  # noqa: SLF001  its other half
        self.known = np.array([s.has_usage and p is not None for s, p in zip(sheets, prices, strict=True)], bool)
        """Whether dollars are known."""
        self.answers = self._each(lambda s: s.has_output, np.bool_)
        self.output = self._each(lambda s: int(s.output[s.billed].sum()))
        self.tier = np.array([min((t.above for t in p.tiers), default=inf) if p else inf for p in prices])
        self.input = self._price(lambda p: p.input)
        self.reply = self._price(lambda p: p.output)
        self.read = self._price(lambda p: p.input if p.cache_read is None else p.cache_read)
        self.reads = np.array([p is not None and p.cache_read is not None for p in prices], bool)
        """Whether reads have a price of their own."""
        self.reset = self._price(lambda p: p.cache_write or p.input)
        self.write = np.array([_write(s, p) for s, p in zip(sheets, prices, strict=True)])
        self._calls(table)

    def _each(self, value: Callable[[Sheet], Any], dtype: Any = np.int64) -> NDArray[Any]:
        return np.array([value(s) for s in self.sheets], dtype)

    def _price(self, value: Callable[[Any], float]) -> Floats:
        return np.array([0.0 if p is None else value(p) for p in self.prices])

    def _calls(self, table: Table) -> None:
        """Make the columns over calls."""
        n, C = int(table.calls[-1]), table.tokens.C  # noqa: N806  as it is called there
        self.billed, self.odd, self.cold, self.other = (np.zeros(n, bool) for _ in range(4))
        self.kept, self.last = np.full(n, ALWAYS), np.arange(n) - 1
        """Most tokens that a call can have found; the call that last used its cache (-1: none did)."""
        for i, (begin, stop) in enumerate(zip(table.begin.tolist(), table.stop.tolist(), strict=True)):
            sheet = self.sheets[i]
            self.other[begin:stop] = sheet.model != self.models[i]
            self.billed[begin:stop], self.cold[begin:stop] = sheet.billed, sheet.cold
            self.kept[begin:stop] = np.minimum(sheet.kept, ALWAYS)
            for call, last in sheet.far:
                self.last[begin + call] = begin + last if last >= 0 else -1
                self.odd[begin + call] = True
        self.odd |= self.kept < ALWAYS
        self.odd &= self.billed
        of = np.repeat(np.arange(len(self.sheets)), np.diff(table.calls))
        plain = self.billed & ~self.odd
        before = np.concatenate((C[:1], C[:-1]))
        own = np.minimum(np.minimum(before, C) - self.lag[of], C)
        self.B, self.S = _sums(self.billed), _sums(np.where(self.billed, C, 0))
        self.N, self.R = _sums(plain), _sums(np.where(plain, own, 0))
        """Billed calls and their prompts, plain ones and what they read, before each call."""
        where = np.where(self.billed, np.arange(n), -1)
        self.last_billed = np.concatenate(([-1], np.maximum.accumulate(where)))
        """The last billed call before each call."""
        self.odd_calls = [np.flatnonzero(self.odd[a:b]) + a for a, b in zip(table.begin, table.stop, strict=True)]


def _write(sheet: Sheet, p: Price | None) -> float:
    if p is None:
        return 0.0
    if sheet.fit.hour and p.cache_write_1h is not None:
        return p.cache_write_1h
    return p.input if p.cache_write is None else p.cache_write


def _sums(values: NDArray[Any]) -> Ints:
    return np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
