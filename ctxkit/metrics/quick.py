"""The bill of a run from running sums: what `Sheet.bill` gives, to the token, at the cost of a run's edits.

Between two compactions a call's prompt is the log's plus one number, and so is what it reads from the cache; both are
summed up once for the session. Only calls that the cache treats in a way of their own are looked at one by one: misses,
the first of an agent and model, those after a call that was not billed, and those at a compaction.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.history import TOOL

if TYPE_CHECKING:
    from ctxkit.engine import Run
    from ctxkit.history import Log
    from ctxkit.metrics.bills import Sheet
    from ctxkit.metrics.compaction import Compaction
    from ctxkit.prices import Price

_ALWAYS = 2**62
"""Larger than any prompt: a recorded hit."""


class Sums(NamedTuple):
    """Tokens of a run over the calls that the record bills."""

    prompts: int
    peak: int
    read: int


class Quick:
    """Running sums over the calls of one log for one sheet; None of `of` where they cannot say."""

    def __init__(self, sheet: Sheet, log: Log, known: Price | None) -> None:
        self.sheet, self.log, self.price = sheet, log, known
        self.prompts = sizes = log.tokens.C
        fit = sheet.fit
        self.lag, self.floor = fit.lag, fit.floor
        self.smallest = max(int(n) for n in sheet._smallest().tolist()) if sizes else 0  # noqa: SLF001  two halves of one
        self.tier = min((t.above for t in known.tiers), default=inf) if known is not None else inf
        self.billed, self.kept = sheet.billed.tolist(), sheet.kept.tolist()
        self.last = dict(sheet.far)
        odd = {c for c, kept in enumerate(self.kept) if kept < _ALWAYS and self.billed[c]} | set(self.last)
        self.output = int(sheet.output[sheet.billed].sum())
        self.cold = [c for c, cold in enumerate(sheet.cold.tolist()) if cold]
        before = [sizes[0], *sizes[:-1]] if sizes else []
        own = [min(min(b, n) - self.lag, n) for b, n in zip(before, sizes, strict=True)]
        plain = [b and c not in odd for c, b in enumerate(self.billed)]
        self.next_odd = _next(odd, len(sizes))
        """For each call the first one from it on that is looked at by itself."""
        self.last_billed = [-1, *accumulate((c if b else -1 for c, b in enumerate(self.billed)), max)]
        """For each call the last billed one before it: prompts rise within a stretch."""
        self.N = [0, *accumulate(plain)]
        self.R = [0, *accumulate(r if p else 0 for r, p in zip(own, plain, strict=True))]
        self.B = [0, *accumulate(self.billed)]
        self.S = [0, *accumulate(n if b else 0 for n, b in zip(sizes, self.billed, strict=True))]

    @classmethod
    def of(cls, sheet: Sheet, log: Log) -> Quick | None:
        """Return the sums of a log, or None where a run's bill needs every call: several models, a shrinking log."""
        models = set(sheet.model[sheet.billed].tolist())
        if len(models) != 1 or not log.tokens.rising or not sheet.has_cache or log.calls != len(sheet.billed):
            return None
        return cls(sheet, log, sheet.prices[models.pop()])

    def sums(self, done: Run) -> Sums | None:
        """Return the tokens of a run without pruning; None where a prompt is below the cache's least or in a tier."""
        total = peak = read = 0
        sizes, billed = self.prompts, self.billed
        at: list[tuple[int, int]] = []
        """First call and offset of each stretch, for calls that look back."""
        shared: dict[int, int] = {}
        for first, b, off, kept in done.billed.stretches(done.call):
            a = first
            if kept is not None:
                size = sizes[a] + off
                if size < self.smallest:
                    return None
                before = sizes[a - 1] + at[-1][1] if a and at else 0
                shared[a] = min(kept, before, size)
                at.append((a, off))
                if billed[a]:
                    total += size
                    peak = max(peak, size)
                    read += self._odd(a, at, shared)
                a += 1
            if a < b:
                if sizes[a] + off < self.smallest + max(self.lag, 0):
                    return None
                at.append((a, off))
                total += self.S[b] - self.S[a] + off * (self.B[b] - self.B[a])
                read += self.R[b] - self.R[a] + off * (self.N[b] - self.N[a])
                most = self.last_billed[b]
                if most >= a and sizes[most] + off > peak:
                    peak = sizes[most] + off
                c = self.next_odd[a]
                while c < b:
                    read += self._odd(c, at, shared)
                    c = self.next_odd[c + 1]
        if peak > self.tier:
            return None
        return Sums(total, peak, read)

    def usd(self, sums: Sums) -> tuple[float, float | None] | None:
        """Return the dollars of prompts and replies; None without a price."""
        p, sheet = self.price, self.sheet
        if p is None:
            return None
        rest, writes = sums.prompts - sums.read, sheet.fit.writes
        price = p.input if p.cache_write is None else p.cache_write
        if sheet.fit.hour and p.cache_write_1h is not None:
            price = p.cache_write_1h
        into = float(
            (0 if writes else rest) * p.input + sums.read * (p.input if p.cache_read is None else p.cache_read)
        )
        return into + float((rest if writes else 0) * price), float(
            self.output * p.output
        ) if sheet.has_output else None

    def _prompt(self, c: int, at: list[tuple[int, int]]) -> int:
        i = len(at) - 1
        while i and at[i][0] > c:
            i -= 1
        return self.prompts[c] + at[i][1]

    def _odd(self, c: int, at: list[tuple[int, int]], shared: dict[int, int]) -> int:
        """Return what one call reads: `Sheet._read` for a single call."""
        prompt, last = self._prompt(c, at), self.last.get(c, c - 1)
        if last < 0:
            base = before = prompt
        else:
            before = self._prompt(last, at)
            base = min(before, prompt, shared.get(c, prompt))
            for k in range(last + 1, c):
                base = min(base, shared.get(k, base), self._prompt(k, at))
        lag = 0 if c in self.cold else self.lag if base >= min(before, prompt) else max(self.lag, 0)
        read = base - lag
        if c in shared and self.floor is not None:
            read = min(base, self.floor)
        return int(max(min(read, self.kept[c], prompt), 0))


def _next(odd: set[int], n: int) -> list[int]:
    out = [n] * (n + 1)
    for c in range(n - 1, -1, -1):
        out[c] = c if c in odd else out[c + 1]
    return out


class Prompts:
    """The prompts of a run without pruning: between cuts the log's, moved by what the cut before took out."""

    def __init__(self, log: Log) -> None:
        self.C = log.tokens.C

    def __len__(self) -> int:
        return len(self.C)

    def at(self, call: int, cut: Compaction) -> int:
        """Return the prompt of a call between a cut and the next one."""
        return self.C[call] + cut.after - self.C[cut.call]

    def reaches(self, full: float, cut: Compaction, stop: int) -> int | None:
        """Return how many calls after a cut the prompt is at least `full` again; None: not before the call `stop`."""
        found = bisect_left(self.C, full - cut.after + self.C[cut.call], cut.call, stop)
        return found - cut.call if found < stop else None


def hidden(done: Run) -> tuple[int, int]:
    """Return what `replays.hidden` does for a run without pruning, from counts."""
    log, lo, items = done.log, done.history.lo, done.history.head.items
    stand = [i.row for i in items if i.row >= 0 and i.maker is None]
    return lo - len(stand), log.counts[TOOL][lo] - sum(log.roles[r] == TOOL for r in stand)
