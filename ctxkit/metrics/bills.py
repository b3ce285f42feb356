"""What a replay would have cost: the recorded session's cache behaviour carried over to other
prompts.

The cache model is fitted on the record (`money.Fit`) and gets from a replay only the sizes of its
prompts and what each shares with prompts before it. A replay is not foretold by
`cache.predictions`: it carries over what the record itself missed, cause or none, as other prompts
at the same times would most likely have missed it, too; how far such dollars can be off is what a
prediction without the record's reads says (`prediction_low`, `prediction_high`), and the columns
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

from typing import TYPE_CHECKING

import msgspec

from ctxkit.metrics.means import mean, whole
from ctxkit.metrics.misses import cache_life, explained, misses
from ctxkit.metrics.money import MIN_CACHEABLE, Fit, closure_error
from ctxkit.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.misses import Miss
    from ctxkit.metrics.shared_prefixes import Sent
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes

NO_LIMIT = 2**62
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


class Sheet(msgspec.Struct, frozen=True):
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
    fit: Fit
    closure: float | None
    """The closure error of the recorded policy."""
    unexplained: float | None
    """Share of the calls with a cache split whose miss has no explanation."""
    explained: float | None
    """Share of the lost tokens whose miss has a cause."""
    priced: float | None
    """Share of the billed calls that have a price."""

    @classmethod
    def of(cls, session: Session, anchored: Sizes | None = None) -> Sheet:
        """Return the sheet of a recorded session."""
        found = misses(session, anchored=anchored)
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
        last, cold = _last(session, billed)
        fit = Fit.of(session, found)
        least = (p.min_cacheable if p else None for p in prices)
        return cls(
            billed=tuple(billed) if has_usage else (True,) * len(calls),
            has_usage=has_usage,
            has_cache=session.has_cache,
            last=last,
            kept=_kept(session, found),
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
            explained=explained(found),
            priced=mean(have),
        )

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the replies that are billed; None where the record does not tell them."""
        told = zip(self.output, self.billed, strict=True)
        return sum(n for n, b in told if b) if self.has_output else None

    def read(self, call: int, sent: Sent) -> int:
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
        return whole([self.summary_usd(s, reuse=reuse) for s in summaries])

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


def _last(session: Session, billed: Sequence[bool]) -> tuple[dict[int, int], tuple[bool, ...]]:
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


def _kept(session: Session, found: Sequence[Miss | None]) -> tuple[int, ...]:
    """Return what the recorded misses allow; one behind a compaction counts only if the pause
    explains it too.
    """
    life = cache_life(session)
    kept = [NO_LIMIT] * len(found)
    for miss in found:
        if miss is None or (miss.kind == "compaction" and (miss.gap is None or miss.gap < life)):
            continue
        kept[miss.call] = miss.kept
    return tuple(kept)
