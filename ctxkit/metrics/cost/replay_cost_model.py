"""Cost model of a recorded session (prices, fitted cache), and the bills of its replays."""

# Bill of a replay by a model of the prompt cache (prefix caching)
#
# Nobody sent a replay's prompts, so their cache reads are modelled, from each prompt's size, the
# length of the prefix that it shares with earlier prompts, and what is fitted on the record
# (`CacheModelParameters`). Assumptions, which every report states:
#
# * A call reads the longest prefix that it shares with a prompt still in the cache, less a fitted
#   lag; the rest is written (or sent fresh where the provider bills no writes).
# * Where the record missed for another reason than a compaction, the replay reads at most as much
#   as the record at that call: other prompts would most likely have missed too.
# * The call that writes a summary sends its source as fresh input (`reuse=True`: it reads the
#   cached prompt instead), and its output is the summary.
#
# Invariant: rules that send the same prompts at the same times cost the same. Misses are carried
# over, not predicted; a prediction without the record's reads
# (`engine.cache_model.input_cost_prediction`) gives the range `cost_low_usd` to `cost_high_usd`.
#
# Cost: O(calls) once for each language model of the record (prefix sums), then for each of them
# O(compactions + recorded misses + switches of agent) per run, as prompts between compactions
# differ from the record's by a constant; O(calls) per run with a pruning. Where the record's
# prompts shrink, a run also searches the calls between compactions for the smallest and the largest
# prompt.

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, compress, pairwise
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.engine.cache_model.call_features import HOUR, MIN_CACHEABLE_TOKENS, get_cache_lifetime
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.cache_misses import CacheMiss, find_cache_misses, measure_explained_share
from ctxkit.metrics.cost.call_and_summary_charges import CallCharge, SessionBill, make_charge
from ctxkit.metrics.means_and_prediction_intervals import mean_or_none, sum_if_complete
from ctxkit.metrics.prompt_sizes_and_contents import RunPromptSizes
from ctxkit.session.messages import Usage
from ctxkit.tokens.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ctxkit.metrics.prompt_sizes_and_contents import PromptAndSharedPrefixSizes
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import ModelCall, Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes

    FourTokens = tuple[int, int, int, int]
    """Tokens read from the cache, written to it, sent fresh, and output."""

__all__ = ["bill_modelled_reads", "closure_error"]
__dir__ = make_dunder_dir(__all__)


class ReplayBill(NamedTuple):
    """The bill of a replay, over the calls that the record bills.

    Dollars are None if a call has no price or the record has no usage.
    """

    prompts: int
    peak: int | None
    """Tokens of the largest prompt; None where no call is billed."""
    read: int
    write: int
    fresh: int
    input_usd: float | None
    output_usd: float | None
    summaries_usd: float | None
    """Dollars of the calls that wrote summaries; None where one has no price."""

    @property
    def cost_usd(self) -> float | None:
        """All dollars; None if a part is unknown."""
        return sum_if_complete((self.input_usd, self.output_usd, self.summaries_usd))


def bill_replay(
    cost_model: ReplayCostModel, sent: PromptAndSharedPrefixSizes, summaries: float | None = 0.0
) -> ReplayBill:
    """Return the bill of a replay.

    Args:
        cost_model: the cost model of the record.
        sent: the prompts of the replay's calls.
        summaries: dollars of the calls that wrote summaries; None: one has no price.

    Returns:
        Sums over the calls that the record bills: tokens by class and dollars.
    """
    tally = TokenSumsByPriceTier(cost_model)
    if isinstance(sent, RunPromptSizes) and (sums := LogPrefixSums.of(cost_model, sent.log)):
        for sums_of_model in sums:
            sums_of_model.add_run(tally, sent)
    else:
        tally.add_calls(sent, range(len(sent)))
    priced = cost_model.has_usage and None not in [cost_model.prices[m] for m in cost_model.models]
    return tally.bill(summaries, priced=priced)


class TokenSumsByPriceTier:
    """Running sums of tokens, by price and price tier."""

    def __init__(self, cost_model: ReplayCostModel) -> None:
        self.cost_model = cost_model
        self.prompts, self.peak = 0, -1
        self._sums: dict[tuple[int, int], FourTokens] = {}
        """Sums by price and lower edge of the tier."""

    def add_calls(self, sent: PromptAndSharedPrefixSizes, calls: Iterable[int]) -> None:
        """Add calls one by one.

        Args:
            sent: tokens of the prompts, and of the prefix that each shares with the prompt before.
            calls: numbers of the calls, from 0; those that were not billed are skipped.
        """
        cost_model = self.cost_model
        for call in calls:
            if cost_model.billed[call]:
                prompt = sent.prompt(call)
                read = cost_model.count_read_tokens(call, sent)
                unread = prompt - read
                written = unread if cost_model.is_billed_for_writes(call, prompt) else 0
                self.prompts += prompt
                self.peak = max(self.peak, prompt)
                tokens = read, written, unread - written, cost_model.output[call]
                self.add_tokens(cost_model.model[call], prompt, tokens)

    def add_tokens(self, model: int, prompt: int, tokens: FourTokens) -> None:
        """Add tokens in the price tier of a prompt's size.

        Args:
            model: index of the model in the cost model.
            prompt: tokens of the call's prompt, which decide the tier.
            tokens: tokens read from the cache, written to it, sent uncached, and of the reply.
        """
        edges = self.cost_model.tier_edges[model]
        tier = max((e for e in edges if prompt > e), default=0) if edges else 0
        self._sums[model, tier] = _sum_tokens(self._sums.get((model, tier)), tokens)

    def bill(self, summaries: float | None, *, priced: bool) -> ReplayBill:
        """Return the bill of the added calls.

        Args:
            summaries: US dollars of the summaries; None: unknown.
            priced: all models have a price; else dollars are None.
        """
        cost_model, input_usd, output_usd = self.cost_model, 0.0, 0.0
        total = None
        for (model, tier), tokens in self._sums.items():
            (read, written, fresh, output), total = tokens, _sum_tokens(total, tokens)
            model_price = cost_model.prices[model]
            if model_price is None:
                continue
            # A prompt just above the edge has the tier's price.
            p = model_price.at(tier + 1 if tier else 0)
            input_usd += (
                fresh * p.input + read * p.read + written * p.write(hour=cost_model.fit.hour)
            )
            output_usd += output * p.output
        read, written, fresh, _ = total or (0, 0, 0, 0)
        return ReplayBill(
            self.prompts,
            self.peak if self.peak >= 0 else None,
            read,
            written,
            fresh,
            input_usd if priced else None,
            output_usd if priced and cost_model.has_output else None,
            summaries,
        )


def _sum_tokens(total: FourTokens | None, tokens: FourTokens) -> FourTokens:
    if total is None:
        return tokens
    (a, b, c, d), (e, f, g, h) = total, tokens
    return a + e, b + f, c + g, d + h


class _CallSums(NamedTuple):
    """What prefix sums need of the calls of a model apart from their prompts, for logs that share
    their rows.

    Sums are over the calls that precede each call.
    """

    cost_model: ReplayCostModel
    billed: list[bool]
    """True for each call of the model that the record bills."""
    last: list[int]
    """For each call the last one in its cache, or -1."""
    special: list[int]
    """Billed calls that are not plain: the cache had another last user, or the record missed."""
    plain: list[bool]
    last_billed: list[int]
    """The last billed call before each call, or -1."""
    calls_n: list[int]
    """Sums of the billed calls."""
    outputs: list[int]
    """Sums of their output, in tokens."""
    plain_n: list[int]
    """Sums of the plain calls."""

    @classmethod
    def of(cls, cost_model: ReplayCostModel, log: MessageLog, model: int) -> _CallSums:
        """Return the sums of a log, made once for all that share its rows."""
        key = ("call sums", model)
        sums: _CallSums | None = log.memo.get(key)
        if sums is None or sums.cost_model is not cost_model:
            sums = log.memo[key] = cls._make_sums(cost_model, model)
        return sums

    @classmethod
    def _make_sums(cls, cost_model: ReplayCostModel, model: int) -> _CallSums:
        """Return the sums over the calls of one model (values in the order of the fields)."""
        has_cache = cost_model.has_cache
        billed = [
            b and m == model for b, m in zip(cost_model.billed, cost_model.model, strict=True)
        ]
        special = {c for c, n in enumerate(cost_model.read_limits) if n < UNLIMITED_TOKENS} | set(
            cost_model.last_cache_user
        )
        plain = [b and has_cache and c not in special for c, b in enumerate(billed)]
        outputs = (n if b else 0 for n, b in zip(cost_model.output, billed, strict=True))
        return cls(
            cost_model,
            billed,
            [cost_model.last_cache_user.get(c, c - 1) for c in range(len(billed))],
            sorted(c for c in special if billed[c] and has_cache),
            plain,
            # the last billed call so far has the largest number
            [-1, *accumulate((c if b else -1 for c, b in enumerate(billed)), max)],
            [0, *accumulate(billed)],
            [0, *accumulate(outputs)],
            [0, *accumulate(plain)],
        )


class LogPrefixSums:
    """Prefix sums over a model's calls of a log, for runs whose prompts differ by constants.

    A call is plain if the call before it used its cache last and the record did not miss. If all
    prompts of consecutive calls are the log's plus one offset, so is every read of a plain call:
    sums over them follow from two prefix sums and the offset. The reads of other (special)
    calls are added one by one.
    """

    def __init__(self, cost_model: ReplayCostModel, log: MessageLog, model: int) -> None:
        sizes = log.tokens.C
        self.cost_model, self._model, self._sizes = cost_model, model, sizes
        self._calls = _CallSums.of(cost_model, log, model)
        billed = self._calls.billed
        losses = [max(before - now, 0) for before, now in pairwise(log.fixed_at)]
        self._never_shrinks = log.tokens.rising and not any(losses)
        self._shared = [*sizes[:1], *(n - loss for n, loss in zip(sizes, losses, strict=False))]
        """Tokens that each prompt of the log shares with the one before it; the first: all."""
        # Bounds of the sizes at which a prompt is cached, its read is not below 0, and its price is
        # that of the lowest tier.
        self._min_size = (
            cost_model.min_cacheable_tokens[model] + max(cost_model.fit.lag, 0)
            if cost_model.has_cache
            else -inf
        )
        self._max_size = min(cost_model.tier_edges[model], default=inf)
        self._reads = reads = self._find_cached() if billed else []
        """The tokens that each call reads of the log's prompts if nothing is missed."""
        self._billed_sizes = [
            n if b else -UNLIMITED_TOKENS for n, b in zip(sizes, billed, strict=True)
        ]
        calls = self._calls
        prompts = [n if b else 0 for n, b in zip(sizes, billed, strict=True)]
        plain_reads = [n if p else 0 for n, p in zip(reads, calls.plain, strict=True)]
        sums = [0, *accumulate(prompts)], [0, *accumulate(plain_reads)]
        self._sums = list(zip(*sums, calls.calls_n, calls.outputs, calls.plain_n, strict=True))
        """Over the calls before each: the tokens of the billed prompts, those that plain calls
        read, and the sums of `_CallSums`.
        """

    def _find_cached(self) -> list[int]:
        """Return for each call the tokens that it reads from its last cache user if nothing is
        missed.
        """
        sizes, last = np.array(self._sizes), np.array(self._calls.last)
        before, shared, calls = sizes[last], np.array(self._shared), np.arange(len(last))
        is_first = last < 0
        before[is_first] = shared[is_first] = sizes[is_first]
        for call in np.flatnonzero(~is_first & (last < calls - 1)).tolist():
            # the shortest prefix common to all calls in between
            common = self._shared[last[call] + 1 : call + 1]
            shared[call] = min(self._sizes[last[call]], *common)
        reads: list[int] = self.cost_model.count_expected_reads(shared, before, sizes).tolist()
        return reads

    @classmethod
    def of(cls, cost_model: ReplayCostModel, log: MessageLog) -> list[LogPrefixSums]:
        """Return the sums of a log for each model with billed calls, made once.

        Args:
            cost_model: the cost model of the session.
            log: its messages and calls; it keeps the sums. With other calls than the session it
                has none.
        """
        if len(log.tokens.C) != len(cost_model.billed):
            return []
        memo = log.prompt_size_memo
        sums: list[LogPrefixSums] = memo.get("plain calls", [])
        if not sums or sums[0].cost_model is not cost_model:
            models = dict.fromkeys(compress(cost_model.model, cost_model.billed))
            sums = memo["plain calls"] = [cls(cost_model, log, m) for m in models]
        return sums

    def _find_extremes(self, start: int, stop: int) -> tuple[int, int]:
        """Return the smallest size or shared prefix of the log's calls start..stop, and the largest
        size of those that are billed (below 0: none is), where the log's prompts also shrink.
        """
        smallest = min(self._shared[start + 1 : stop], default=self._sizes[start])
        return smallest, max(self._billed_sizes[start:stop])

    def add_run(self, tally: TokenSumsByPriceTier, sent: RunPromptSizes) -> None:
        """Add the calls of a run: by sums, or one by one where prompts between two compactions
        differ from the log's by no constant, are too short or are in another tier.

        Args:
            tally: the sums to which the calls are added.
            sent: the prompts of the run.
        """
        cost_model, calls, special = self.cost_model, self._calls, self._calls.special
        sizes, last_billed, read_limits = self._sizes, calls.last_billed, cost_model.read_limits
        prompts = read = output = 0
        # A seam: the first call shares only a part of the previous prompt.
        for start, stop, offset, has_seam in sent.spans():
            if self._never_shrinks:  # the first prompt is the smallest, the last one the largest
                smallest, last = sizes[start], last_billed[stop]
                largest = sizes[last] if last >= start else -UNLIMITED_TOKENS
            else:
                smallest, largest = self._find_extremes(start, stop)
            if (
                offset is None
                or smallest + offset < self._min_size
                or largest + offset > self._max_size
            ):
                tally.add_calls(sent, (c for c in range(start, stop) if calls.billed[c]))
                continue
            prompts_to, reads_to, calls_to, output_to, plain_to = self._sums[stop]
            prompts_from, reads_from, calls_from, output_from, plain_from = self._sums[start]
            first = start
            if has_seam:  # the first call shares less with the previous call, so it is not plain
                first += 1
                _, reads_from, _, _, plain_from = self._sums[first]
                if calls.billed[start]:
                    read += cost_model.count_read_tokens(start, sent)
            prompts += prompts_to - prompts_from + offset * (calls_to - calls_from)
            output += output_to - output_from
            read += reads_to - reads_from + offset * (plain_to - plain_from)
            for call in special[bisect_left(special, first) : bisect_left(special, stop)]:
                if 0 <= calls.last[call] < start:
                    read += cost_model.count_read_tokens(call, sent)
                else:  # both prompts have the same offset: as `limit_read`, in a third of its time
                    cached, limit = self._reads[call] + offset, read_limits[call]
                    read += 0 if cached < 0 else limit if limit < cached else cached  # noqa: FURB136
            tally.peak = max(tally.peak, largest + offset)
        rest = prompts - read
        written = rest if cost_model.has_cache and cost_model.fit.writes else 0
        tally.prompts += prompts
        tally.add_tokens(self._model, 0, (read, written, rest - written, output))


UNLIMITED_TOKENS = 2**62
"""Larger than any prompt: a recorded hit does not limit the read of a replay's call."""


class WrittenSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary that a model wrote, or would have written in a replay."""

    call: int
    source: int
    """Tokens of the text that it summarises."""
    prompt: int
    """Tokens of the prompt that was compacted."""
    summary: int | None
    """Tokens of the summary; None: the log lacks its text."""
    usd: float | None = None
    """Dollars of the call; None: unknown."""
    warm: bool = False
    """True where it was requested in a pause before the cache expired: it reads the prompt."""


class ReplayCostModel(msgspec.Struct, frozen=True):
    """Prices and cache behaviour of a recorded session, fitted once for all its replays.

    Example:
        >>> import ctxkit as ck
        >>> model = ReplayCostModel.of(ck.read(ck.samples.path("billing")))
        >>> model.priced_share, sum(model.billed)
        (1.0, 343)
    """

    billed: tuple[bool, ...]
    """True for each call that the record bills; where no call has usage, True for all."""
    has_usage: bool
    has_cache: bool
    last_cache_user: dict[int, int]
    """The last call in the cache of a call, for calls where it is not the one before; -1: none."""
    read_limits: tuple[int, ...]
    """Maximum tokens that each call can read; `UNLIMITED_TOKENS` where the record hit."""
    is_first_of_agent_and_model: tuple[bool, ...]
    """True at the first call of each agent and model, which reads what another session wrote."""
    output: tuple[int, ...]
    """Tokens of each reply."""
    has_output: bool
    """True where the record states the size of any reply."""
    prices: tuple[Price | None, ...]
    model: tuple[int, ...]
    """The index of each call's price."""
    models: frozenset[int]
    """Indices of the prices of billed calls."""
    min_cacheable_tokens: tuple[int, ...]
    """Tokens of the smallest prompt that is cached, by price."""
    tier_edges: tuple[tuple[int, ...], ...]
    """Lower edges of the tiers in tokens of the prompt, ascending, by price."""
    fit: CacheModelParameters
    misses: tuple[CacheMiss | None, ...]
    """The cache miss of each recorded call."""
    unexplained_share: float | None
    """Share of the calls with a cache split whose miss has no known cause."""
    explained_share: float | None
    """Share of the missed tokens whose miss has a known cause."""
    priced_share: float | None
    """Share of the billed calls that have a price."""

    @classmethod
    def of(cls, session: Session, anchored: MessageSizes | None = None) -> ReplayCostModel:
        """Return the cost model of a recorded session; it is cached until prices change.

        Args:
            session: a recorded session.
            anchored: its message sizes; None: they are measured.
        """
        names = [c.message.model or session.model for c in session.calls]
        prices = tuple(price(n) for n in dict.fromkeys(names))
        fitted: ReplayCostModel | None = session.__dict__.get("cost model")
        if fitted is None or fitted.prices != prices:
            fitted = session.__dict__["cost model"] = cls._fit(session, anchored)
        return fitted

    # Everything that a replay's bill needs of the record, as one value per call in parallel tuples.
    # A model is priced as of its first call. Where no call has usage, all calls count as billed, by
    # estimated sizes. Cost: one pass over calls for each tuple.
    @classmethod
    def _fit(cls, session: Session, anchored: MessageSizes | None) -> ReplayCostModel:
        misses = find_cache_misses(session, anchored=anchored)
        calls, usages = session.calls, [c.message.usage for c in session.calls]
        billed = [u is not None and bool(u.prompt_tokens) for u in usages]
        has_usage = any(billed)
        names = [c.message.model or session.model for c in calls]
        distinct_names = list(dict.fromkeys(names))
        times = {n: c.message.time for c, n in zip(reversed(calls), reversed(names), strict=True)}
        prices = tuple(price(n, at=times[n]) for n in distinct_names)
        model = tuple(map(distinct_names.index, names))
        has_price = [prices[m] is not None for m, b in zip(model, billed, strict=True) if b]
        has_split = [
            u is not None and u.cache_read_tokens is not None and bool(u.prompt_tokens)
            for u in usages
        ]
        unexplained_n = sum(m is not None and m.kind == "unexplained" for m in misses)
        last, is_first = _find_last_cache_users(session, billed)
        fit = CacheModelParameters.of(session, misses)
        min_cacheable = (p.min_cacheable if p else None for p in prices)
        return cls(
            billed=tuple(billed) if has_usage else (True,) * len(calls),
            has_usage=has_usage,
            has_cache=session.has_cache,
            last_cache_user=last,
            read_limits=_limit_reads_by_misses(session, misses),
            is_first_of_agent_and_model=is_first,
            output=tuple((u.output_tokens or 0) if u else 0 for u in usages),
            has_output=any(u is not None and u.output_tokens is not None for u in usages),
            prices=prices,
            model=model,
            models=frozenset(m for m, b in zip(model, billed, strict=True) if b or not has_usage),
            min_cacheable_tokens=tuple(
                min(n or MIN_CACHEABLE_TOKENS, fit.smallest) for n in min_cacheable
            ),
            tier_edges=tuple(tuple(sorted(t.above for t in p.tiers)) if p else () for p in prices),
            fit=fit,
            misses=misses,
            unexplained_share=unexplained_n / sum(has_split) if any(has_split) else None,
            explained_share=measure_explained_share(misses),
            priced_share=mean_or_none(has_price),
        )

    @property
    def output_tokens(self) -> int | None:
        """Tokens of all billed replies; None if the record does not state them."""
        if not self.has_output:
            return None
        return sum(n for n, b in zip(self.output, self.billed, strict=True) if b)

    def count_read_tokens(self, call: int, sent: PromptAndSharedPrefixSizes) -> int:
        """Return the tokens that a call reads from the cache (the only definition).

        Args:
            call: number of the call, from 0.
            sent: prompt sizes and shared prefixes of all calls.
        """
        prompt = sent.prompt(call)
        if not self.has_cache or prompt < self.min_cacheable_tokens[self.model[call]]:
            return 0
        last = self.last_cache_user.get(call, call - 1)
        if last < 0:  # the first of its agent and model: only the record's read limits it
            shared = before = prompt
        else:
            before, shared = sent.prompt(last), min(sent.shared(call), prompt)
            if last < call - 1:  # the shortest prefix common to all calls in between
                shared = min(before, *(sent.shared(k) for k in range(last + 1, call + 1)))
        return self.limit_read(call, self.count_expected_read(call, shared, before, prompt))

    def count_expected_read(self, call: int, shared: int, before: int, prompt: int) -> int:
        """Return the tokens of a shared prefix that a call reads if it does not miss.

        Args:
            call: the number of the call.
            shared: tokens of the prefix.
            before: tokens of the prompt with which it shares the prefix.
            prompt: tokens of its own prompt.
        """
        return (
            shared
            if self.is_first_of_agent_and_model[call]
            else self.count_hit_tokens(shared, before, prompt)
        )

    def count_expected_reads(
        self, shared: NDArray[Any], before: NDArray[Any], prompts: NDArray[Any]
    ) -> NDArray[Any]:
        """Return `count_expected_read` of all calls, from one value a call in each array."""
        lag = self.fit.lag
        lags = np.where(shared >= np.minimum(before, prompts), lag, max(lag, 0))
        hits = np.minimum(shared - lags, prompts)
        return np.where(self.is_first_of_agent_and_model, shared, hits)

    def limit_read(self, call: int, cached: int) -> int:
        """Return cached tokens, limited to the tokens that the recorded call could read.

        Args:
            call: number of the call, from 0.
            cached: tokens of the prefix that is in the cache.
        """
        return max(min(cached, self.read_limits[call]), 0)

    def count_hit_tokens(self, shared: int, before: int, prompt: int) -> int:
        """Return the tokens that a hit reads of a shared prefix: the prefix less the fitted lag.

        A negative lag adds the reply if the whole previous prompt is shared.

        Args:
            shared: tokens of the shared prefix.
            before: tokens of the prompt with which it is shared.
            prompt: tokens of the call's own prompt.
        """
        lag = self.fit.lag
        return min(shared - (lag if shared >= min(before, prompt) else max(lag, 0)), prompt)

    def is_billed_for_writes(self, call: int, prompt: int) -> bool:
        """Return True if a call is billed for writing the tokens that it does not read.

        Args:
            call: number of the call, from 0.
            prompt: tokens of its prompt.
        """
        return (
            self.has_cache
            and self.fit.writes
            and prompt >= self.min_cacheable_tokens[self.model[call]]
        )

    def summaries_usd(
        self, summaries: Sequence[WrittenSummary], *, reuse: bool = False
    ) -> float | None:
        """Return the dollars of the calls that write summaries; None if one has no price.

        Args:
            summaries: the summaries that the rules wrote.
            reuse: the request for a summary extends the cached prompt.
        """
        return sum_if_complete([self.summary_usd(s, reuse=reuse) for s in summaries])

    def summary_usd(self, s: WrittenSummary, *, reuse: bool = False) -> float | None:
        """Return the cost of a summary in US dollars: recorded, else by the price of the next call.

        Args:
            s: the summary, with the sizes of prompt, source and text.
            reuse: the prompt is read from the cache, as it would be if asked behind the
                conversation.

        Returns:
            US dollars; None where the model has no price.
        """
        call_price = self.at(s.call)
        if call_price is None or s.summary is None or s.usd is not None:
            return s.usd
        is_read = reuse or s.warm
        return call_price.request_usd(s.prompt if is_read else s.source, s.summary, cached=is_read)

    def at(self, call: int) -> Price | None:
        """Return the price of a call."""
        if len(self.prices) <= 1:
            return self.prices[0] if self.prices else None
        return self.prices[self.model[min(call, len(self.model) - 1)]]


def _find_last_cache_users(
    session: Session, billed: Sequence[bool]
) -> tuple[dict[int, int], tuple[bool, ...]]:
    """Return `last_cache_user` and `is_first_of_agent_and_model` of a `ReplayCostModel`."""
    newest: dict[tuple[str, str | None], int] = {}
    is_first = [False] * len(billed)
    last = {}
    for call in session.calls:
        if not billed[call.index]:
            continue
        cache = (call.agent, call.message.model)
        before = newest.get(cache, -1)
        is_first[call.index] = before < 0
        if before != call.index - 1 or before < 0:
            last[call.index] = before
        newest[cache] = call.index
    return last, tuple(is_first)


def _limit_reads_by_misses(session: Session, misses: Sequence[CacheMiss | None]) -> tuple[int, ...]:
    """Return the maximum tokens that each call can read, from the recorded misses.

    A miss at a compaction limits a replay only if a pause explains it, too.
    """
    life = get_cache_lifetime(session)
    limits = [UNLIMITED_TOKENS] * len(misses)
    for miss in misses:
        if miss is None or (miss.kind == "compaction" and (miss.gap is None or miss.gap < life)):
            continue
        limits[miss.call] = miss.read_tokens
    return tuple(limits)


def _billed_calls(session: Session) -> Iterator[tuple[ModelCall, Usage, int]]:
    """Yield each call with a recorded prompt, with its usage and the tokens of the prompt."""
    for call in session.calls:
        usage = call.message.usage
        if usage is not None and usage.prompt_tokens:
            yield call, usage, usage.prompt_tokens


# The bill of the record by the same model: every call reads the prefix that it shares with the
# previous call, less a constant lag, except where the log shows a miss. Only the lag is fitted (a
# mean over hits), so the closure error, modelled / recorded input dollars - 1, is measured in
# sample: it shows that miss classes and prices account for the bill, not that reads can be
# predicted (for a figure out of sample see `engine.cache_model.input_cost_prediction`).
@accepts_session
def bill_modelled_reads(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> SessionBill:
    """Return the modelled bill of the recorded prompts, without summaries.

    A call reads the prefix that it shares with the previous call; the rest is written, or sent
    fresh where the provider bills no writes or the prompt is too short to be cached. A classified
    miss reads as many tokens as in the log; after a compaction, the median of such reads.

    Args:
        session: a recorded session with usage.
        misses: its cache misses; None: found here.
    """
    charges: list[CallCharge] = []
    for call, _, usage, p in _model_usages(session, misses):
        usd = None if p is None else p.cost_usd(usage)
        charges.append(make_charge(call, usage, p, usd, None if usd is None else "derived"))
    return SessionBill(tuple(charges))


def _model_usages(
    session: Session, misses: Sequence[CacheMiss | None] | None
) -> Iterator[tuple[int, Usage, Usage, Price | None]]:
    """Yield the number of each billed call, its recorded and its modelled usage, and its prices."""
    misses = find_cache_misses(session) if misses is None else misses
    fit = CacheModelParameters.of(session, misses)
    last: dict[tuple[str, str | None], int] = {}
    for call, u, prompt in _billed_calls(session):
        miss, key = misses[call.index], (call.agent, call.message.model)
        if miss is None:
            shared = max(last.get(key, 0) - fit.lag, 0)
        else:
            shared = (
                fit.floor
                if miss.kind == "compaction" and fit.floor is not None
                else miss.read_tokens
            )
        p = price(call.message.model or session.model, at=call.message.time)
        smallest = min((p.min_cacheable if p else None) or MIN_CACHEABLE_TOKENS, fit.smallest)
        usage = _split_usage(
            prompt, min(shared, prompt) if prompt >= smallest else 0, u.output_tokens, fit, smallest
        )
        yield call.index, u, usage, p
        last[key] = prompt


@accepts_session
def closure_error(
    session: Session, misses: Sequence[CacheMiss | None] | None = None
) -> float | None:
    """Return the relative error of modelled input dollars: modelled / recorded - 1.

    The model is fitted on the same session, so this is near zero even if its reads cannot be
    predicted.

    Args:
        session: a recorded session.
        misses: its cache misses; None: found here.

    Returns:
        A fraction; None without a cache split or prices.

    Example:
        >>> import ctxkit as ck
        >>> abs(closure_error(ck.samples.path("billing"))) < 0.05
        True
    """
    if not session.has_cache:
        return None
    recorded = modelled = 0.0
    for _, recorded_usage, modelled_usage, p in _model_usages(session, misses):
        if p is None:
            return None
        recorded += p.prompt_usd(recorded_usage)
        modelled += p.prompt_usd(modelled_usage)
    return modelled / recorded - 1 if recorded else None


class CacheModelParameters(msgspec.Struct, frozen=True):
    """The parameters of the cache model that are fitted on a log."""

    lag: int
    """Mean tokens by which the read of a hit is smaller than the previous prompt (providers cache
    whole blocks); negative: the reply is read too.
    """
    floor: int | None
    """Median tokens read after a compaction; None where the log has none."""
    smallest: int
    """Tokens of the smallest prompt that was read from the cache in the log."""
    writes: bool
    """True where the provider bills cache writes separately."""
    hour: bool
    """True where most writes live an hour."""

    @classmethod
    def of(cls, session: Session, misses: Sequence[CacheMiss | None]) -> CacheModelParameters:
        """Fit the cache model to a session's calls and their misses.

        Args:
            session: a recorded session.
            misses: for each call its cache miss; None: no miss.
        """
        shortfalls: list[int] = []
        smallest, writes = MIN_CACHEABLE_TOKENS, False
        last_prompt: dict[tuple[str, str | None], int] = {}  # a cache is of one agent and model
        for call, usage, prompt in _billed_calls(session):
            key = (call.agent, call.message.model)
            writes = writes or bool(usage.cache_write_tokens or usage.cache_write_1h_tokens)
            if not writes:
                model_price = price(call.message.model or session.model)
                writes = model_price is not None and model_price.writes_unread
            if usage.cache_read_tokens:
                smallest = min(smallest, prompt)
            if misses[call.index] is None and key in last_prompt:  # a hit: how far it falls short
                shortfalls.append(last_prompt[key] - (usage.cache_read_tokens or 0))
            last_prompt[key] = prompt
        after_compaction = [
            m.read_tokens for m in misses if m is not None and m.kind == "compaction"
        ]
        return cls(
            lag=round(sum(shortfalls) / len(shortfalls)) if shortfalls else 0,
            floor=int(median(after_compaction)) if after_compaction else None,
            smallest=smallest,
            writes=writes,
            hour=get_cache_lifetime(session) == HOUR,
        )


def _split_usage(
    prompt: int, shared: int, output: int | None, fit: CacheModelParameters, smallest: int
) -> Usage:
    """Return the usage of a call that reads `shared` tokens, and writes the rest or sends it fresh.

    A prompt with fewer tokens than `smallest` is not cached.
    """
    rest = prompt - shared
    cacheable = fit.writes and prompt >= smallest
    return Usage(
        input_tokens=0 if cacheable else rest,
        cache_read_tokens=shared,
        cache_write_tokens=rest if cacheable and not fit.hour else 0,
        cache_write_1h_tokens=rest if cacheable and fit.hour else 0,
        output_tokens=output,
    )
