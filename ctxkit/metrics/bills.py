"""What a replay would have cost: the recorded session's cache behaviour carried over to other prompts.

The cache model is fitted on the record (`money.Fit`) and gets from a replay only the sizes of its prompts and the
tokens that each shares with the one before. Assumptions, which every report states:

* a shared prefix is read, the rest is written (or sent fresh where the provider bills no writes);
* where the record missed for another reason than a compaction, the replay keeps at most what the record kept;
* after a compaction of the replay the part before the first changed token is read, but no more than the record's own
  compactions kept (the median);
* the call that writes a summary sends what it summarises as fresh input (`reuse=True`: reads the cached prompt instead)
  and its output is the summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ctxkit.metrics.misses import cache_life, misses
from ctxkit.metrics.money import MIN_CACHEABLE, Fit, reproduction_error
from ctxkit.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.misses import Miss
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes


class Written(NamedTuple):
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


class Bill(NamedTuple):
    """The invoice of a replay; dollars are None where a call has no price or the record no usage."""

    read: NDArray[Any]
    write: NDArray[Any]
    fresh: NDArray[Any]
    input_usd: float | None
    output_usd: float | None
    summaries_usd: float | None

    @property
    def total_usd(self) -> float | None:
        """All dollars, or None where a part is not known."""
        if self.input_usd is None or self.output_usd is None or self.summaries_usd is None:
            return None
        return self.input_usd + self.output_usd + self.summaries_usd


class Sheet(msgspec.Struct, frozen=True):
    """What a recorded session tells about the cost of replays of it; made once, used for every replay."""

    billed: NDArray[Any]
    """The calls that the record bills; all of them where it has no usage."""
    has_usage: bool
    has_cache: bool
    far: tuple[tuple[int, int], ...]
    """Calls whose cache was last used by another call than the one before: that call (-1: by none)."""
    kept: NDArray[Any]
    """Most tokens that a call can have found in the cache; the largest number where the record had a hit."""
    cold: NDArray[Any]
    """True at the first call of each agent and model: what it reads was put there by another session."""
    output: NDArray[Any]
    has_output: bool
    """True where the record tells the size of a reply."""
    prices: tuple[Price | None, ...]
    model: NDArray[Any]
    """For each call the index of its price."""
    fit: Fit
    error: float | None
    """The reproduction error of the recorded policy."""
    unexplained: float | None
    """Share of the calls with a cache split whose miss has no explanation."""
    priced: float | None
    """Share of the billed calls that have a price."""

    @classmethod
    def of(cls, session: Session, anchored: Sizes | None = None) -> Sheet:
        """Return the sheet of a recorded session."""
        found = misses(session, anchored=anchored)
        calls, usages = session.calls, [c.message.usage for c in session.calls]
        billed = np.array([u is not None and bool(u.prompt_tokens) for u in usages], bool)
        names = [c.message.model or session.model for c in calls]
        known = list(dict.fromkeys(names))
        prices = tuple(price(n) for n in known)
        model = np.array([known.index(n) for n in names], np.int64)
        have = np.array([p is not None for p in prices], bool)
        split = [u is not None and u.cache_read_tokens is not None and bool(u.prompt_tokens) for u in usages]
        riddles = sum(m is not None and m.kind == "unexplained" for m in found)
        far, cold = _far(session, billed)
        return cls(
            billed=billed if billed.any() else np.ones(len(calls), bool),
            has_usage=bool(billed.any()),
            has_cache=session.has_cache,
            far=far,
            kept=_kept(session, found),
            cold=cold,
            output=np.array([(u.output_tokens or 0) if u else 0 for u in usages], np.int64),
            has_output=any(u is not None and u.output_tokens is not None for u in usages),
            prices=prices,
            model=model,
            fit=Fit.of(session, found),
            error=reproduction_error(session, found),
            unexplained=riddles / sum(split) if any(split) else None,
            priced=float(have[model[billed]].mean()) if billed.any() else None,
        )

    def bill(
        self,
        prompts: NDArray[Any],
        shared: NDArray[Any],
        cuts: Sequence[int],
        summaries: Sequence[Written] = (),
        *,
        reuse: bool = False,
    ) -> Bill:
        """Return the invoice of a replay.

        Args:
            prompts: tokens of each call's prompt.
            shared: tokens that each shares with the prompt before.
            cuts: calls before which the replay compacted.
            summaries: the summaries that were written.
            reuse: a summary's call reads the cached prompt instead of sending what it summarises afresh.
        """
        read = self._read(prompts, shared, cuts)
        rest = prompts - read
        writes = self._writes(prompts)
        write, fresh = np.where(writes, rest, 0), np.where(writes, 0, rest)
        if not self.has_usage or None in [self.prices[m] for m in set(self.model[self.billed].tolist())]:
            return Bill(read, write, fresh, None, None, None)
        into, out = self._usd(prompts, read, write, fresh)
        return Bill(
            read, write, fresh, into, out if self.has_output else None, self.summaries_usd(summaries, reuse=reuse)
        )

    def summaries_usd(self, summaries: Sequence[Written], *, reuse: bool = False) -> float | None:
        """Return the dollars of the calls that write summaries; None where one has no price."""
        total = 0.0
        for s in summaries:
            usd = s.usd if s.usd is not None else self.summary_usd(s, reuse=reuse)
            if usd is None:
                return None
            total += usd
        return total

    def summary_usd(self, s: Written, *, reuse: bool = False) -> float | None:
        """Return the dollars of one of them, by the price of the call that it stands before."""
        known = self.at(s.call)
        if known is None:
            return None
        if not reuse:
            p = known.at(s.source) if known.tiers else known
            return s.source * p.input + s.summary * p.output
        p = known.at(s.prompt) if known.tiers else known
        return s.prompt * (p.input if p.cache_read is None else p.cache_read) + s.summary * p.output

    def at(self, call: int) -> Price | None:
        """Return the price of a call."""
        if len(self.prices) == 1:
            return self.prices[0]
        return self.prices[int(self.model[min(call, len(self.model) - 1)])] if len(self.model) else None

    # -- what the cache holds --------------------------------------------------------------------------------------

    def _read(self, prompts: NDArray[Any], shared: NDArray[Any], cuts: Sequence[int]) -> NDArray[Any]:
        if not self.has_cache:
            return np.zeros_like(prompts)
        base = np.minimum(shared, prompts)
        before = np.concatenate((prompts[:1], prompts[:-1]))
        for call, last in self.far:
            base[call] = prompts[call] if last < 0 else min(int(shared[last + 1 : call + 1].min()), int(prompts[last]))
            before[call] = prompts[call] if last < 0 else prompts[last]
        whole = base >= np.minimum(before, prompts)
        lag = self.fit.lag
        read = np.where(self.cold, base, base - np.where(whole, lag, max(lag, 0)))
        if self.fit.floor is not None and len(cuts):
            at = np.asarray([c for c in cuts if c < len(read)], np.int64)
            read[at] = np.minimum(base[at], self.fit.floor)
        read = np.clip(np.minimum(read, self.kept), 0, prompts)
        return np.asarray(np.where(prompts >= self._smallest(), read, 0))

    def _smallest(self) -> NDArray[Any]:
        least = [min((p.min_cacheable if p else None) or MIN_CACHEABLE, self.fit.smallest) for p in self.prices]
        return np.asarray(np.array(least, np.int64)[self.model])

    def _writes(self, prompts: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((prompts >= self._smallest()) & (self.has_cache and self.fit.writes))

    def _usd(
        self, prompts: NDArray[Any], read: NDArray[Any], write: NDArray[Any], fresh: NDArray[Any]
    ) -> tuple[float, float]:
        into = out = 0.0
        for i, known in enumerate(self.prices):
            if known is None:
                continue
            mine = self.billed & (self.model == i)
            edges = [0, *sorted(t.above for t in known.tiers)]
            for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
                here = mine & (prompts > low) & (prompts <= high) if len(edges) > 1 else mine
                p = known.at(low + 1 if low else 0)
                write_price = p.input if p.cache_write is None else p.cache_write
                if self.fit.hour and p.cache_write_1h is not None:
                    write_price = p.cache_write_1h
                read_price = p.input if p.cache_read is None else p.cache_read
                into += float(fresh[here].sum() * p.input + read[here].sum() * read_price)
                into += float(write[here].sum() * write_price)
                out += float(self.output[here].sum() * p.output)
        return into, out


def _far(session: Session, billed: NDArray[Any]) -> tuple[tuple[tuple[int, int], ...], NDArray[Any]]:
    """Return the calls whose cache was not last used by the call before, and where an agent and model begin."""
    last: dict[tuple[str, str | None], int] = {}
    cold = np.zeros(len(billed), bool)
    far = []
    for call in session.calls:
        if not billed[call.index]:
            continue
        key = (call.agent, call.message.model)
        before = last.get(key, -1)
        if before < 0:
            cold[call.index] = True
        if before != call.index - 1 or before < 0:
            far.append((call.index, before))
        last[key] = call.index
    return tuple(far), cold


def _kept(session: Session, found: Sequence[Miss | None]) -> NDArray[Any]:
    """Return what the recorded misses allow; one behind a compaction counts only if the pause explains it too."""
    life = cache_life(session)
    kept = np.full(len(found), np.iinfo(np.int64).max)
    for miss in found:
        if miss is None or (miss.kind == "compaction" and (miss.gap is None or miss.gap < life)):
            continue
        kept[miss.call] = miss.kept
    return kept
