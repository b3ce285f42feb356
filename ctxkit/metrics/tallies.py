"""Tokens summed up by price: calls one by one, or whole stretches that follow the call before."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.bills import NO_LIMIT
from ctxkit.metrics.means import whole
from ctxkit.metrics.shared_prefixes import SentByRun

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.metrics.bills import Sheet
    from ctxkit.metrics.shared_prefixes import Sent

    FourTokens = tuple[int, int, int, int]
    """Tokens read, written, fresh and put out."""


class Bill(NamedTuple):
    """The invoice of a replay, over the calls that the record bills.

    Dollars are None where a call has no price or the record no usage.
    """

    prompts: int
    peak: int | None
    """The largest prompt; None where no call is billed."""
    read: int
    write: int
    fresh: int
    input_usd: float | None
    output_usd: float | None
    summaries_usd: float | None

    @property
    def total_usd(self) -> float | None:
        """All dollars, or None where a part is not known."""
        return whole((self.input_usd, self.output_usd, self.summaries_usd))


def bill(sheet: Sheet, sent: Sent, summaries: float | None = 0.0) -> Bill:
    """Return the invoice of a replay.

    Args:
        sheet: what the record tells of the cache and the prices.
        sent: the prompts of the replay's calls.
        summaries: dollars of the calls that wrote summaries; None: one has no price.
    """
    tally = Tally(sheet)
    if isinstance(sent, SentByRun) and (plain := Plain.of(sheet, sent.log)):
        plain.take(tally, sent)
    else:
        tally.each(sent, range(len(sent)))
    priced = sheet.has_usage and None not in [sheet.prices[m] for m in sheet.models]
    return tally.bill(summaries if priced else None, priced=priced)


class Tally:
    """Tokens by price and by the step of its tiers, as they are summed up."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.prompts, self.peak = 0, -1
        self._sums: dict[tuple[int, int], FourTokens] = {}

    def each(self, sent: Sent, calls: range) -> None:
        """Add calls one by one."""
        sheet = self.sheet
        for call in calls:
            if sheet.billed[call]:
                prompt = sent.prompt(call)
                read = sheet.read(call, sent)
                rest = prompt - read
                written = rest if sheet.write(call, prompt) else 0
                self.prompts += prompt
                self.peak = max(self.peak, prompt)
                tokens = read, written, rest - written, sheet.output[call]
                self.add(sheet.model[call], prompt, tokens)

    def add(self, model: int, prompt: int, tokens: FourTokens) -> None:
        """Add tokens at the step of a prompt's size."""
        edges = self.sheet.edges[model]
        step = max((e for e in edges if prompt > e), default=0) if edges else 0
        self._sums[model, step] = _both(self._sums.get((model, step)), tokens)

    def bill(self, summaries: float | None, *, priced: bool) -> Bill:
        """Return the invoice."""
        sheet, into, out = self.sheet, 0.0, 0.0
        every = None
        for (model, step), tokens in self._sums.items():
            (read, written, fresh, output), every = tokens, _both(every, tokens)
            known = sheet.prices[model]
            if known is None:
                continue
            p = known.at(step + 1 if step else 0)
            into += fresh * p.input + read * p.read + written * p.write(hour=sheet.fit.hour)
            out += output * p.output
        read, written, fresh, _ = every or (0, 0, 0, 0)
        return Bill(
            self.prompts,
            self.peak if self.peak >= 0 else None,
            read,
            written,
            fresh,
            into if priced else None,
            out if priced and sheet.has_output else None,
            summaries,
        )


def _both(known: FourTokens | None, tokens: FourTokens) -> FourTokens:
    if known is None:
        return tokens
    (a, b, c, d), (e, f, g, h) = known, tokens
    return a + e, b + f, c + g, d + h


class Plain:
    """Running sums over the calls of a log that follow the one before, whatever is taken
    off all.
    """

    def __init__(self, sheet: Sheet, sizes: list[int], model: int) -> None:
        self.sheet, self._model, self._sizes = sheet, model, sizes
        self._least = sheet.least[model] + max(sheet.fit.lag, 0) if sheet.has_cache else -inf
        self._most = min(sheet.edges[model], default=inf)
        """Sizes within which a prompt is cached, and has the same price."""
        billed = sheet.billed
        self._last = [sheet.last.get(c, c - 1) for c in range(len(billed))]
        self._own = own = [self._found(c, last) for c, last in enumerate(self._last)]
        odd = {c for c, n in enumerate(sheet.kept) if n < NO_LIMIT} | set(sheet.last)
        self._odd = sorted(c for c in odd if billed[c] and sheet.has_cache)
        plain = [b and sheet.has_cache and c not in odd for c, b in enumerate(billed)]
        columns = (
            billed,
            [n if b else 0 for n, b in zip(sizes, billed, strict=True)],
            [n if b else 0 for n, b in zip(sheet.output, billed, strict=True)],
            plain,
            [n if p else 0 for n, p in zip(own, plain, strict=True)],
        )
        sums = [[0, *accumulate(column)] for column in columns]
        self._sums = list(zip(*sums, strict=True))
        """Over the calls before each: those billed, tokens of their prompts and replies, plain ones
        among them, and what these read."""
        self._newest = [-1, *accumulate((c if b else -1 for c, b in enumerate(billed)), max)]

    def _found(self, call: int, last: int) -> int:
        """Return what a call finds of the one that used its cache last, if nothing is missed."""
        now = self._sizes[call]
        before = now if last < 0 else self._sizes[last]
        return self.sheet.found(call, min(before, now), before, now)

    @classmethod
    def of(cls, sheet: Sheet, log: Log) -> Plain | None:
        """Return the sums of a log; None where a bill needs each call: several models, a fall."""
        if len(sheet.models) != 1 or not log.tokens.rising:
            return None
        if len(log.tokens.C) != len(sheet.billed):
            return None
        known = log.memo.get("plain calls")
        if known is None or known.sheet is not sheet:
            known = log.memo["plain calls"] = cls(sheet, log.tokens.C, *sheet.models)
        found: Plain = known
        return found

    def take(self, tally: Tally, sent: SentByRun) -> None:
        """Add the calls of a run; one by one where a prompt is too short, or in another tier."""
        sheet, sizes, own = self.sheet, self._sizes, self._own
        odd, lasts = self._odd, self._last
        prompts = read = output = 0
        for a, b, off, seam in sent.stretches():
            top = self._newest[b]
            peak = sizes[top] + off if off is not None and top >= a else -1
            if off is None or sizes[a] + off < self._least or peak > self._most:
                tally.each(sent, range(a, b))
                continue
            first = a + seam
            calls, prompt, replies, plain, reads = self._sums[b]
            calls_a, prompt_a, replies_a, plain_a, reads_a = self._sums[a]
            if seam:
                _, _, _, plain_a, reads_a = self._sums[first]
                read += sheet.read(a, sent) if sheet.billed[a] else 0
            for call in odd[bisect_left(odd, first) : bisect_left(odd, b)]:
                if 0 <= lasts[call] < a:
                    read += sheet.read(call, sent)
                else:  # it moves with the prompts
                    read += sheet.left(call, own[call] + off)
            prompts += prompt - prompt_a + off * (calls - calls_a)
            read += reads - reads_a + off * (plain - plain_a)
            output += replies - replies_a
            tally.peak = max(tally.peak, peak)
        rest = prompts - read
        written = rest if sheet.has_cache and sheet.fit.writes else 0
        tally.prompts += prompts
        tally.add(self._model, 0, (read, written, rest - written, output))
