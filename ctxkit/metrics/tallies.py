"""Tokens summed up by price: calls one by one, or whole stretches that follow the call before."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.metrics.bills import NO_LIMIT
from ctxkit.metrics.means import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.bills import Sheet, WrittenSummary
    from ctxkit.metrics.shared_prefixes import Sent


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


def bill(
    sheet: Sheet, sent: Sent, summaries: Sequence[WrittenSummary] = (), *, reuse: bool = False
) -> Bill:
    """Return the invoice of a replay.

    Args:
        sheet: what the record tells of the cache and the prices.
        sent: the prompts of the replay's calls.
        summaries: the summaries that were written.
        reuse: a summary's call reads the cached prompt instead of sending all it summarises.
    """
    tally, plain = Tally(sheet), Plain.of(sheet, sent)
    for start, stop, off in sent.stretches():
        done = off is not None and plain is not None and plain.take(tally, sent, (start, stop, off))
        if not done:
            tally.each(sent, range(start, stop))
    models = set(sheet.model[sheet.billed].tolist())
    priced = sheet.has_usage and None not in [sheet.prices[m] for m in models]
    extra = sheet.summaries_usd(summaries, reuse=reuse) if priced else None
    return tally.bill(extra, priced=priced)


class Tally:
    """Tokens by price and by the step of its tiers, as they are summed up."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.prompts, self.peak = 0, -1
        self._sums: dict[tuple[int, int], list[int]] = {}
        self._edges = [tuple(sorted(t.above for t in p.tiers)) if p else () for p in sheet.prices]

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
                output = int(sheet.output[call])
                self.add(int(sheet.model[call]), prompt, (read, written, rest - written, output))

    def add(self, model: int, prompt: int, tokens: tuple[int, int, int, int]) -> None:
        """Add tokens read, written, fresh and put out, at the step of a prompt's size."""
        edges = self._edges[model]
        step = max((e for e in edges if prompt > e), default=0) if edges else 0
        sums = self._sums.setdefault((model, step), [0, 0, 0, 0])
        for i, n in enumerate(tokens):
            sums[i] += n

    def tier(self, model: int) -> float:
        """Return the size above which a prompt of a model has another price."""
        return self._edges[model][0] if self._edges[model] else inf

    def bill(self, summaries: float | None, *, priced: bool) -> Bill:
        """Return the invoice."""
        sheet, into, out = self.sheet, 0.0, 0.0
        for (model, step), (read, written, fresh, output) in self._sums.items():
            known = sheet.prices[model]
            if known is None:
                continue
            p = known.at(step + 1 if step else 0)
            into += fresh * p.input + read * p.read + written * p.write(hour=sheet.fit.hour)
            out += output * p.output
        read, written, fresh, _ = (
            sum(column) for column in zip((0,) * 4, *self._sums.values(), strict=True)
        )
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


class Plain:
    """Running sums over the calls of a log that follow the one before, whatever is taken
    off all.
    """

    def __init__(self, sheet: Sheet, sizes: list[int], model: int) -> None:
        self.sheet, self._model, self._sizes = sheet, model, sizes
        self._least = sheet.least[model] + max(sheet.fit.lag, 0)
        billed, kept = sheet.billed.tolist(), sheet.kept.tolist()
        odd = {c for c, n in enumerate(kept) if n < NO_LIMIT and billed[c]} | set(sheet.last)
        pairs = zip([0, *sizes], sizes, strict=False)
        own = [sheet.hit(min(before, now), before, now) for before, now in pairs]
        plain = [b and c not in odd for c, b in enumerate(billed)]
        self._odd = sorted(c for c in odd if billed[c])
        self._calls = [0, *accumulate(billed)]
        self._plain = [0, *accumulate(plain)]
        self._reads = [0, *accumulate(r if p else 0 for r, p in zip(own, plain, strict=True))]
        self._prompts = [0, *accumulate(n if b else 0 for n, b in zip(sizes, billed, strict=True))]
        self._output = [0, *accumulate(sheet.output[c] if b else 0 for c, b in enumerate(billed))]
        self._last = [-1, *accumulate((c if b else -1 for c, b in enumerate(billed)), max)]

    @classmethod
    def of(cls, sheet: Sheet, sent: Sent) -> Plain | None:
        """Return the sums of a log; None where a bill needs each call: several models, a fall."""
        models, log = set(sheet.model[sheet.billed].tolist()), sent.log
        if log is None or len(models) != 1 or not (log.tokens.rising and sheet.has_cache):
            return None
        if len(log.tokens.C) != len(sheet.billed):
            return None
        known = log.memo.get("plain calls")
        if known is None or known.sheet is not sheet:
            known = log.memo["plain calls"] = cls(sheet, log.tokens.C, models.pop())
        found: Plain = known
        return found

    def take(self, tally: Tally, sent: Sent, stretch: tuple[int, int, int]) -> bool:
        """Add a stretch of calls at once; False where a prompt is too short, or in another tier."""
        a, b, off = stretch
        last = self._last[b]
        peak = self._sizes[last] + off if last >= a else -1
        if self._sizes[a] + off < self._least or peak > tally.tier(self._model):
            return False
        prompts = self._prompts[b] - self._prompts[a] + off * (self._calls[b] - self._calls[a])
        read = self._reads[b] - self._reads[a] + off * (self._plain[b] - self._plain[a])
        i = bisect_left(self._odd, a)
        while i < len(self._odd) and self._odd[i] < b:
            read += self.sheet.read(self._odd[i], sent)
            i += 1
        rest, output = prompts - read, int(self._output[b] - self._output[a])
        written = rest if self.sheet.fit.writes else 0
        tally.prompts += prompts
        tally.peak = max(tally.peak, peak)
        tally.add(self._model, 0, (read, written, rest - written, output))
        return True
