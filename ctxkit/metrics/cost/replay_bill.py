"""What a replay would have cost: the record's cache behaviour carried over to other prompts.

The cache model is fitted on the record (`money.Fit`) and gets from a replay only the sizes of its
prompts and what each shares with prompts before it. A replay is not foretold by
`engine.cache_model.prediction`: it carries over what the record itself missed, cause or none, as
other prompts at the same times would most likely have missed it, too; how far such dollars can be
off is what a prediction without the record's reads says (`prediction_low`, `prediction_high`), and
the columns
`cost_low_usd` and `cost_high_usd` put that to each row. Assumptions, which every report states:

* the longest prefix that a prompt shares with a living one before it is read, the rest is written
  (or sent fresh where the provider bills no writes), whatever made the prompt: a compaction, a mask
  or a clearing; two rules that send the same prompts at the same times cost the same;
* where the record missed for another reason than a compaction, the replay keeps at most what the
  record kept;
* the call that writes a summary sends what it summarises as fresh input (`reuse=True`: reads the
  cached prompt instead) and its output is the summary.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.engine.cache_model.call_features import get_cache_lifetime
from ctxkit.metrics.cache_misses import find_cache_misses, measure_explained_share
from ctxkit.metrics.cost.ledger import MIN_CACHEABLE, CacheFit, closure_error
from ctxkit.metrics.prompt_sizes import RunPrompts
from ctxkit.metrics.stats import mean_or_none, sum_if_complete
from ctxkit.tokens.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.cache_misses import CacheMiss
    from ctxkit.metrics.prompt_sizes import SentPrompts
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.session import Session
    from ctxkit.tokens.sizes import MessageSizes

    FourTokens = tuple[int, int, int, int]
    """Tokens read, written, fresh and put out."""


class ReplayBill(NamedTuple):
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
        return sum_if_complete((self.input_usd, self.output_usd, self.summaries_usd))


def bill_replay(
    sheet: ReplayCostModel, sent: SentPrompts, summaries: float | None = 0.0
) -> ReplayBill:
    """Return the invoice of a replay.

    Args:
        sheet: what the record tells of the cache and the prices.
        sent: the prompts of the replay's calls.
        summaries: dollars of the calls that wrote summaries; None: one has no price.
    """
    tally = TokenTally(sheet)
    if isinstance(sent, RunPrompts) and (plain := LogPrefixSums.of(sheet, sent.log)):
        plain.take(tally, sent)
    else:
        tally.each(sent, range(len(sent)))
    priced = sheet.has_usage and None not in [sheet.prices[m] for m in sheet.models]
    return tally.bill(summaries if priced else None, priced=priced)


class TokenTally:
    """Tokens by price and by the step of its tiers, as they are summed up."""

    def __init__(self, sheet: ReplayCostModel) -> None:
        self.sheet = sheet
        self.prompts, self.peak = 0, -1
        self._sums: dict[tuple[int, int], FourTokens] = {}

    def each(self, sent: SentPrompts, calls: range) -> None:
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
        self._sums[model, step] = _add_tokens(self._sums.get((model, step)), tokens)

    def bill(self, summaries: float | None, *, priced: bool) -> ReplayBill:
        """Return the invoice."""
        sheet, into, out = self.sheet, 0.0, 0.0
        every = None
        for (model, step), tokens in self._sums.items():
            (read, written, fresh, output), every = tokens, _add_tokens(every, tokens)
            known = sheet.prices[model]
            if known is None:
                continue
            p = known.at(step + 1 if step else 0)
            into += fresh * p.input + read * p.read + written * p.write(hour=sheet.fit.hour)
            out += output * p.output
        read, written, fresh, _ = every or (0, 0, 0, 0)
        return ReplayBill(
            self.prompts,
            self.peak if self.peak >= 0 else None,
            read,
            written,
            fresh,
            into if priced else None,
            out if priced and sheet.has_output else None,
            summaries,
        )


def _add_tokens(known: FourTokens | None, tokens: FourTokens) -> FourTokens:
    if known is None:
        return tokens
    (a, b, c, d), (e, f, g, h) = known, tokens
    return a + e, b + f, c + g, d + h


class LogPrefixSums:
    """Running sums over the calls of a log that follow the one before, whatever is taken
    off all.
    """

    def __init__(self, sheet: ReplayCostModel, sizes: list[int], model: int) -> None:
        self.sheet, self._model, self._sizes = sheet, model, sizes
        self._least = sheet.least[model] + max(sheet.fit.lag, 0) if sheet.has_cache else -inf
        self._most = min(sheet.edges[model], default=inf)
        """Sizes within which a prompt is cached, and has the same price."""
        billed = sheet.billed
        self._last = [sheet.last.get(c, c - 1) for c in range(len(billed))]
        self._own = own = [self._found(c, last) for c, last in enumerate(self._last)]
        odd = {c for c, n in enumerate(sheet.kept) if n < UNLIMITED_TOKENS} | set(sheet.last)
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
    def of(cls, sheet: ReplayCostModel, log: MessageLog) -> LogPrefixSums | None:
        """Return the sums of a log; None where a bill needs each call: several models, a fall."""
        if len(sheet.models) != 1 or not log.tokens.rising:
            return None
        if len(log.tokens.C) != len(sheet.billed):
            return None
        known = log.memo.get("plain calls")
        if known is None or known.sheet is not sheet:
            known = log.memo["plain calls"] = cls(sheet, log.tokens.C, *sheet.models)
        found: LogPrefixSums = known
        return found

    def take(self, tally: TokenTally, sent: RunPrompts) -> None:
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


UNLIMITED_TOKENS = 2**62
"""Larger than any prompt: what a recorded hit may have found in the cache."""


class WrittenSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary that a replay would have had written."""

    call: int
    source: int
    """Tokens that it was made from."""
    prompt: int
    """Tokens of the prompt that was compacted."""
    summary: int
    """Tokens of the summary."""
    usd: float | None = None
    """Dollars of the call, where they are known."""


class ReplayCostModel(msgspec.Struct, frozen=True):
    """What a recorded session tells about the cost of replays of it; made once, used for every
    replay.
    """

    billed: tuple[bool, ...]
    """For each call whether the record bills it; all of them where it has no usage."""
    has_usage: bool
    has_cache: bool
    last: dict[int, int]
    """Calls whose cache was last used by another call than the one before: that call
    (-1: by none).
    """
    kept: tuple[int, ...]
    """Most tokens that a call can have found in the cache; the largest number where the record had
    a hit.
    """
    cold: tuple[bool, ...]
    """True at the first call of each agent and model: what it reads was put there by another
    session.
    """
    output: tuple[int, ...]
    has_output: bool
    """True where the record tells the size of a reply."""
    prices: tuple[Price | None, ...]
    model: tuple[int, ...]
    """For each call the index of its price."""
    models: frozenset[int]
    """Those of the billed calls."""
    least: tuple[int, ...]
    """For each price the smallest prompt that is cached."""
    edges: tuple[tuple[int, ...], ...]
    """For each price the sizes above which a prompt has another one, rising."""
    fit: CacheFit
    closure: float | None
    """The closure error of the recorded policy."""
    unexplained: float | None
    """Share of the calls with a cache split whose miss has no explanation."""
    explained: float | None
    """Share of the lost tokens whose miss has a cause."""
    priced: float | None
    """Share of the billed calls that have a price."""

    @classmethod
    def of(cls, session: Session, anchored: MessageSizes | None = None) -> ReplayCostModel:
        """Return the sheet of a recorded session."""
        found = find_cache_misses(session, anchored=anchored)
        calls, usages = session.calls, [c.message.usage for c in session.calls]
        billed = [u is not None and bool(u.prompt_tokens) for u in usages]
        has_usage = any(billed)
        names = [c.message.model or session.model for c in calls]
        known = list(dict.fromkeys(names))
        prices = tuple(price(n) for n in known)
        model = tuple(map(known.index, names))
        have = [prices[m] is not None for m, b in zip(model, billed, strict=True) if b]
        split = [
            u is not None and u.cache_read_tokens is not None and bool(u.prompt_tokens)
            for u in usages
        ]
        riddles = sum(m is not None and m.kind == "unexplained" for m in found)
        last, cold = _last_cache_users(session, billed)
        fit = CacheFit.of(session, found)
        least = (p.min_cacheable if p else None for p in prices)
        return cls(
            billed=tuple(billed) if has_usage else (True,) * len(calls),
            has_usage=has_usage,
            has_cache=session.has_cache,
            last=last,
            kept=_cached_at_misses(session, found),
            cold=cold,
            output=tuple((u.output_tokens or 0) if u else 0 for u in usages),
            has_output=any(u is not None and u.output_tokens is not None for u in usages),
            prices=prices,
            model=model,
            models=frozenset(m for m, b in zip(model, billed, strict=True) if b or not has_usage),
            least=tuple(min(n or MIN_CACHEABLE, fit.smallest) for n in least),
            edges=tuple(tuple(sorted(t.above for t in p.tiers)) if p else () for p in prices),
            fit=fit,
            closure=closure_error(session, found),
            unexplained=riddles / sum(split) if any(split) else None,
            explained=measure_explained_share(found),
            priced=mean_or_none(have),
        )

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the replies that are billed; None where the record does not tell them."""
        told = zip(self.output, self.billed, strict=True)
        return sum(n for n, b in told if b) if self.has_output else None

    def read(self, call: int, sent: SentPrompts) -> int:
        """Return the tokens that one call reads: the one definition of it."""
        prompt = sent.prompt(call)
        if not self.has_cache or prompt < self.least[self.model[call]]:
            return 0
        last = self.last.get(call, call - 1)
        if last < 0:
            base = before = prompt
        else:
            before, base = sent.prompt(last), min(sent.shared(call), prompt)
            if last < call - 1:
                base = min(before, *(sent.shared(k) for k in range(last + 1, call + 1)))
        return self.left(call, self.found(call, base, before, prompt))

    def found(self, call: int, base: int, before: int, prompt: int) -> int:
        """Return what a call finds of a shared prefix, if nothing is missed."""
        return base if self.cold[call] else self.hit(base, before, prompt)

    def left(self, call: int, found: int) -> int:
        """Return what is read of what a call would find: no more than the record's own call."""
        return max(min(found, self.kept[call]), 0)

    def hit(self, base: int, before: int, prompt: int) -> int:
        """Return what is read of a shared prefix: whole blocks, or (negative lag) the reply too."""
        lag = self.fit.lag
        return min(base - (lag if base >= min(before, prompt) else max(lag, 0)), prompt)

    def write(self, call: int, prompt: int) -> bool:
        """Return True where what a call does not read is written to the cache, and billed so."""
        return self.has_cache and self.fit.writes and prompt >= self.least[self.model[call]]

    def summaries_usd(
        self, summaries: Sequence[WrittenSummary], *, reuse: bool = False
    ) -> float | None:
        """Return the dollars of the calls that write summaries; None where one has no price."""
        return sum_if_complete([self.summary_usd(s, reuse=reuse) for s in summaries])

    def summary_usd(self, s: WrittenSummary, *, reuse: bool = False) -> float | None:
        """Return the dollars of one of them: as known, else by the price of the call that it stands
        before.
        """
        known = self.at(s.call)
        if known is None or s.usd is not None:
            return s.usd
        return known.asked_usd(s.prompt if reuse else s.source, s.summary, cached=reuse)

    def at(self, call: int) -> Price | None:
        """Return the price of a call."""
        if len(self.prices) <= 1:
            return self.prices[0] if self.prices else None
        return self.prices[self.model[min(call, len(self.model) - 1)]]


def _last_cache_users(
    session: Session, billed: Sequence[bool]
) -> tuple[dict[int, int], tuple[bool, ...]]:
    """Return the calls whose cache was not last used by the call before, and where an agent and
    model begin.
    """
    last: dict[tuple[str, str | None], int] = {}
    cold = [False] * len(billed)
    other = {}
    for call in session.calls:
        if not billed[call.index]:
            continue
        key = (call.agent, call.message.model)
        before = last.get(key, -1)
        cold[call.index] = before < 0
        if before != call.index - 1 or before < 0:
            other[call.index] = before
        last[key] = call.index
    return other, tuple(cold)


def _cached_at_misses(session: Session, found: Sequence[CacheMiss | None]) -> tuple[int, ...]:
    """Return what the recorded misses allow; one behind a compaction counts only if the pause
    explains it too.
    """
    life = get_cache_lifetime(session)
    kept = [UNLIMITED_TOKENS] * len(found)
    for miss in found:
        if miss is None or (miss.kind == "compaction" and (miss.gap is None or miss.gap < life)):
            continue
        kept[miss.call] = miss.kept
    return tuple(kept)
