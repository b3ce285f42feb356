"""Prompt-cache miss rates estimated from the logs of many developers, and simulated cache reads.

Cost: an estimate is O(training sessions), a simulation O(`N_DRAWS` x calls), vectorised by numpy.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.engine.cache_model.call_features import (
    compute_read_after_reasoning_removal,
    compute_warm_read,
)
from ctxkit.engine.cache_model.training_counts import (
    COLD_START,
    COLD_SUBAGENT,
    CallClassCounts,
    classify_call,
    get_class_base,
    get_model_tier_or_version,
    has_miss_cause,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.engine.cache_model.training_counts import SessionMissCounts

# Method: hierarchical shrinkage of miss rates, then simulation
#
# A class is what may make a call miss (`classify_call`): a base (the cause), often refined. The
# unit is the developer: calls of one person share habits and programs, so a thousand of them say
# less of another than a hundred of each of ten. Each draw weighs developers anew (Bayesian
# bootstrap); none counts for more than `_MAX_CALLS` calls of a class.
#
# 1. Rates (`draw_rates`), from wide to narrow: bases of classes over all tools, then over the tool,
#    classes over the tool, over tool and model family, the developer's own other logs, the target's
#    first half. Each is the prior of the next (back-off).
# 2. Sessions differ: each draw takes the rate of a class from a beta distribution around that.
# 3. A hit reads the shared prefix less the shortfall of the same model's hits (`hit_reads`). A miss
#    without a cause reads a share of that; one with a cause reads what the sessions most alike read
#    at such a miss (hot deck: draw a developer, then a read); so does a first call at a hit.
#
# Invariants: no read of the target is used but those of `first_half`; a miss reads at most its own
# prompt; one seed: a session always gets one prediction.

N_DRAWS = 200
_SEED = 17
_MAX_CALLS = 400
"""Calls of a class for which one developer counts at most."""
_DEFAULT_RATE, _DEFAULT_RATE_WITH_CAUSE = 0.02, 0.85
"""Miss rates of classes that no training session has: a call without a cause seldom misses."""
_DEFAULT_READ_SHARE = 0.3
_MAX_READ_SHARE = 0.97
_PRIOR_CALLS, _PRIOR_CALLS_WITH_CAUSE, _PRIOR_CALLS_OWN_HALF = 20.0, 3.0, 12.0
"""Calls for which the estimate of a wider group counts."""
_PRIOR_MISSES = 3.0
"""Misses for which the wider group's share of tokens read at misses counts."""
_SPREAD = 25.0
"""Calls that a session's own rate is worth: the larger, the less sessions differ."""
_FIRST_READ_SHARE = 0.5
"""Share of its prompt that a first call reads where no session taught it."""
_MIN_DONORS = 3
"""Fewest reads at misses of a group of sessions from which one is drawn."""


class _Group:
    """Training sessions whose counts are pooled.

    Args:
        rows: the sessions.
        by_base: True where classes of one base are taken together.
    """

    def __init__(self, rows: Sequence[SessionMissCounts], *, by_base: bool) -> None:
        self.rows = rows
        self.by_base = by_base
        self._sums: dict[str, tuple[list[str], NDArray[Any]]] = {}
        """By class or base; never stale, as neither the sessions nor their counts change."""

    def sum_by_owner(self, name: str) -> tuple[list[str], NDArray[Any]]:
        """Return the developers of a class, and its counts by developer and column."""
        key = get_class_base(name) if self.by_base else name
        if key not in self._sums:
            owners, columns = list[str](), list[tuple[int, int, int, int, int]]()
            for row in self.rows:
                count = (row.base_counts if self.by_base else row.counts).get(key)
                if count is not None:
                    owners.append(row.owner)
                    columns.append(_columns(count))
            places = {owner: i for i, owner in enumerate(dict.fromkeys(owners))}
            at, values = [places[owner] for owner in owners], np.array(columns).reshape(-1, 5)
            # Counts are whole numbers, so that sums are exact in any order.
            sums = [np.bincount(at, column, len(places)) for column in values.T]
            self._sums[key] = list(places), np.stack(sums, axis=-1)
        return self._sums[key]


class _Rates(NamedTuple):
    """Arrays by draw and class."""

    probability: NDArray[Any]
    read_share: NDArray[Any]
    """Share of the tokens that could be read which a miss without a cause still reads."""


class MissRateEstimator:
    """Miss rates for one target session by training sessions of other developers.

    Args:
        training: counts of other developers' sessions.
        target: the session that is predicted; its counts are never used.
        own: counts of other sessions of the same developer.
        first_half: counts of the target's own first half; None: it is not known.
    """

    def __init__(
        self,
        training: Iterable[SessionMissCounts],
        target: SessionMissCounts,
        *,
        own: Iterable[SessionMissCounts] = (),
        first_half: SessionMissCounts | None = None,
    ) -> None:
        self.target = target
        self.own = list(own)
        self.training = list(training)
        self.first_half = first_half
        rows = [*self.training, *self.own]
        halves = [first_half] if first_half is not None else []
        self._developers = {
            name: i for i, name in enumerate(sorted({r.owner for r in [*rows, *halves]}))
        }
        self.same_kind = [row for row in rows if row.kind == target.kind]
        """Sessions of the same tool, model family and kind of agent."""

    @property
    def teachers(self) -> int:
        """Developers whose sessions are of the same kind."""
        return len({row.owner for row in self.same_kind})

    @property
    def is_model_seen(self) -> bool:
        """Whether a session of the model's family, by any tool, has read from a cache."""
        family = self.target.kind[1]
        return any(row.kind[1] == family for row in (*self.training, *self.own))

    def with_own_half(self, first_half: SessionMissCounts) -> MissRateEstimator:
        """Return the estimator with the target's own first half as the narrowest group."""
        other = copy(self)  # the other groups are the same
        other.first_half = first_half
        names = sorted({*self._developers, first_half.owner})
        other._developers = {name: i for i, name in enumerate(names)}  # noqa: SLF001
        return other

    def draw_weights(self, rng: np.random.Generator) -> NDArray[Any]:
        """Return the weight of each developer, by draw."""
        return rng.exponential(size=(N_DRAWS, len(self._developers)))

    def draw_rates(self, names: Sequence[str], weights: NDArray[Any]) -> _Rates:
        """Return the estimated rates of classes, by draw and class.

        Args:
            names: classes, as `classify_call` returns them.
            weights: weight of each developer, by draw.
        """
        caused = np.array([has_miss_cause(name) for name in names], bool)
        shape = (N_DRAWS, len(names))
        default = np.where(caused, _DEFAULT_RATE_WITH_CAUSE, _DEFAULT_RATE)
        rates = _Rates(np.broadcast_to(default, shape), np.full(shape, _DEFAULT_READ_SHARE))
        for group in self._groups:
            if not group.rows:  # nothing updates the rates
                continue
            counts = self._pool_counts(group, names)
            pooled = np.einsum("wd,dck->kwc", weights, counts)
            rates = _update_rates(rates, pooled, caused, _PRIOR_CALLS)
        if self.first_half is not None:
            half, none = self.first_half.counts, CallClassCounts()
            counts = np.array([_columns(half.get(name, none)) for name in names], float)
            # By column, draw and class: the target's own counts are the same in every draw.
            own = np.broadcast_to(counts.T[:, None, :], (5, *shape))
            rates = _update_rates(rates, own, caused, _PRIOR_CALLS_OWN_HALF)
        return rates

    @cached_property
    def _groups(self) -> list[_Group]:
        """Groups of training sessions from wide to narrow; the first half is not in them, so the
        estimator with it shares them and their sums.
        """
        tool, family, _ = self.target.kind
        same_tool = [row for row in self.training if row.tool == tool]
        same_family = [row for row in same_tool if get_model_tier_or_version(row.model) == family]
        own = [row for row in self.own if row.kind[:2] == (tool, family)]
        return [
            _Group(self.training, by_base=True),
            _Group(same_tool, by_base=True),
            _Group(same_tool, by_base=False),
            _Group(same_family, by_base=False),
            _Group(own, by_base=False),
        ]

    def _pool_counts(self, group: _Group, names: Sequence[str]) -> NDArray[Any]:
        """Return the counts of a group by developer, class and column, capped by developer."""
        counts = np.zeros((len(self._developers), len(names), 5))
        for i, name in enumerate(names):
            owners, sums = group.sum_by_owner(name)
            counts[[self._developers[owner] for owner in owners], i] = sums
        calls = counts[:, :, :1]
        capped: NDArray[Any] = counts * np.minimum(1.0, _MAX_CALLS / np.maximum(calls, 1.0))
        return capped

    def hit_reads(self, calls: Sequence[CallFeatures]) -> NDArray[Any]:
        """Return what each call reads at a hit: the shared prefix less the model's shortfall.

        Where no session of the model taught it, `compute_warm_read` says it by the block size.
        """
        by_developer = self._shortfalls
        if by_developer is None:
            return np.array([compute_warm_read(call) for call in calls], float)
        of_prompt, of_reply = np.median(by_developer, axis=0)
        keeps_reply = abs(of_reply) < abs(of_prompt)
        short = of_reply if keeps_reply else of_prompt
        before = np.array([call.before or 0 for call in calls], float)
        prompt = np.array([call.prompt for call in calls], float)
        whole = before + np.array([call.reply for call in calls], float) if keeps_reply else before
        is_cached = np.minimum(before, prompt) >= [call.least for call in calls]
        reads: NDArray[Any] = np.clip(np.minimum(whole, prompt) - short, 0.0, prompt) * is_cached
        return reads

    @cached_property
    def _shortfalls(self) -> list[Any] | None:
        """The median shortfalls of each developer, of the same model, else its family."""
        family = self.target.kind[1]
        rows = (*self.training, *self.own)
        same_model = [row for row in rows if row.model == self.target.model]
        for group in (
            same_model,
            [r for r in rows if get_model_tier_or_version(r.model) == family],
        ):
            values = defaultdict[str, list[Any]](list)
            for row in group:
                if row.shortfall is not None:
                    values[row.owner].append((row.shortfall.of_prompt, row.shortfall.of_reply))
            if values:
                return [np.median(each, axis=0) for each in values.values()]
        return None

    def draw_miss_reads(
        self, name: str, weights: NDArray[Any], rng: np.random.Generator
    ) -> NDArray[Any] | None:
        """Return by draw what a call of a class with a cause reads at a miss, in tokens.

        Args:
            name: the class.
            weights: weight of each developer, by draw.
            rng: random numbers.

        Returns:
            Tokens of one session, drawn by developer first; None where no session has any.
        """
        reads = self._find_donor_reads(name)
        if not reads:
            return None
        owners = list(reads)
        shares = weights[:, [self._developers[owner] for owner in owners]] + 1e-9
        limits = np.cumsum(shares, axis=1)
        at = (limits < rng.random((len(weights), 1)) * limits[:, -1:]).sum(axis=1)
        quantile = rng.random(len(weights))
        picked = (reads[owners[min(i, len(owners) - 1)]] for i in at.tolist())
        return np.array([r[int(q * len(r))] for r, q in zip(picked, quantile, strict=True)], float)

    def _find_donor_reads(self, name: str) -> dict[str, list[int]]:
        """Return the reads at misses of a class, by developer, of the sessions most alike."""
        base, target = get_class_base(name), self.target
        if self.first_half is not None and (own := _collect_reads([self.first_half], base)):
            return own
        donors = self._list_donors(base)
        if not donors and base.startswith(COLD_START) and base != COLD_SUBAGENT:
            # First calls of any kind stand in for those of this cache life.
            donors = self._list_donors(base := COLD_START)
        kind, era = target.kind[:2], target.era
        alike: list[tuple[int, Callable[[_Donor], bool]]] = [
            (1, lambda d: d.is_own and d.is_same_program),
            (1, lambda d: d.is_same_program),
            (_MIN_DONORS, lambda d: d.row.kind[:2] == kind and d.row.era == era),
            (_MIN_DONORS, lambda d: d.row.kind[:2] == kind),
            (_MIN_DONORS, lambda d: d.row.tool == target.tool and d.row.era == era),
            (_MIN_DONORS, lambda d: d.row.tool == target.tool),
            (1, lambda _: True),
        ]
        for least, is_alike in alike:
            reads = _collect_reads((d.row for d in donors if is_alike(d)), base)
            if sum(map(len, reads.values())) >= least:
                return reads
        return {}

    def _list_donors(self, base: str) -> list[_Donor]:
        """Return the sessions that have reads at misses of a base."""
        rows = [(row, True) for row in self.own] + [(row, False) for row in self.training]
        program = self.target.tool, self.target.version, self.target.model
        return [
            _Donor(row, is_own, (row.tool, row.version, row.model) == program)
            for row, is_own in rows
            if _get_miss_reads(row, base)
        ]


class _Donor(NamedTuple):
    """A session whose reads at misses can be those of the target."""

    row: SessionMissCounts
    is_own: bool
    """True where it is of the target's developer."""
    is_same_program: bool
    """True where tool, version and model are those of the target."""


def _collect_reads(rows: Iterable[SessionMissCounts], base: str) -> dict[str, list[int]]:
    """Return the reads at misses of the classes of a base, by developer."""
    reads: dict[str, list[int]] = {}
    for row in rows:
        if row_reads := _get_miss_reads(row, base):
            reads.setdefault(row.owner, []).extend(row_reads)
    return reads


def _get_miss_reads(row: SessionMissCounts, base: str) -> Sequence[int]:
    """Return the reads at misses of a session's classes of a base; `COLD_START`: of any life."""
    if base == COLD_START:
        counts = [count for name, count in row.counts.items() if name.startswith(base)]
        return [read for count in counts for read in count.reads]
    count = row.base_counts.get(base)
    return () if count is None else count.reads


def _columns(count: CallClassCounts) -> tuple[int, int, int, int, int]:
    """Return the five columns of count arrays, in the terms of `CallClassCounts`."""
    return count.calls, count.misses, count.expected, count.lost, count.missed


def _update_rates(
    prior: _Rates, pooled: NDArray[Any], caused: NDArray[Any], prior_calls: float
) -> _Rates:
    """Return the rates of pooled counts, shrunk towards a prior.

    With a cause by calls; without one by tokens, as small misses come early in a session, where
    little is lost: the lost share of the readable tokens is estimated, and the probability is that
    share over what one miss loses.
    """
    calls, misses, expected, lost, missed = pooled
    mean = expected / np.maximum(calls, 1e-9)
    weight = _PRIOR_MISSES * mean
    read_share = np.clip(
        (missed - lost + weight * prior.read_share) / np.maximum(missed + weight, 1e-9),
        0.0,
        _MAX_READ_SHARE,
    )
    prior_lost = prior_calls * mean * prior.probability * (1 - prior.read_share)
    lost_share = (lost + prior_lost) / np.maximum(expected + prior_calls * mean, 1e-9)
    by_tokens = np.clip(lost_share / (1 - read_share), 0.0, 1.0)
    k = _PRIOR_CALLS_WITH_CAUSE
    by_calls = (misses + k * prior.probability) / (calls + k)
    has_calls = calls > 0
    return _Rates(
        np.where(has_calls, np.where(caused, by_calls, by_tokens), prior.probability),
        np.where(has_calls, read_share, prior.read_share),
    )


class SimulatedReads(NamedTuple):
    """What each call reads from the cache, in tokens."""

    draws: NDArray[Any]
    """By draw and call."""
    rules_only: NDArray[Any]
    """By call, with no unexplained miss: a hit where no cause holds, else the median draw."""


def simulate_reads(calls: Sequence[CallFeatures], rates: MissRateEstimator) -> SimulatedReads:
    """Simulate what each call reads from the cache.

    Args:
        calls: the billed calls, in order.
        rates: the miss rates of their session.
    """
    rng = np.random.default_rng(_SEED)
    classes = [classify_call(call) for call in calls]
    names = sorted(set(classes))
    places = {name: i for i, name in enumerate(names)}
    class_index = np.array([places[name] for name in classes], int)
    weights = rates.draw_weights(rng)
    estimated = rates.draw_rates(names, weights)
    clipped = np.clip(estimated.probability, 1e-4, 1 - 1e-4)
    probability = rng.beta(_SPREAD * clipped, _SPREAD * (1 - clipped))
    at_hit = rates.hit_reads(calls)
    # By draw and call what a miss reads, then what each draw reads: one array, as memory for
    # another of this size takes longer than to fill it.
    draws = np.take(estimated.read_share, class_index, axis=1)
    draws *= at_hit
    for name in filter(has_miss_cause, names):
        donors = rates.draw_miss_reads(name, weights, rng)
        for i in np.flatnonzero(class_index == places[name]).tolist():
            draws[:, i] = _read_with_cause(calls[i], name, donors)
    is_missed = rng.random(draws.shape) < np.take(probability, class_index, axis=1)
    # A first call reads nothing or a prefix; any other either all that is cached or less.
    first = np.array([i for i, call in enumerate(calls) if call.before is None], int)
    first_reads = np.where(is_missed[:, first], 0.0, draws[:, first])
    np.copyto(draws, at_hit, where=~is_missed)
    draws[:, first] = first_reads
    caused = np.flatnonzero([has_miss_cause(name) for name in classes])
    rules_only = at_hit.copy()
    rules_only[caused] = np.median(draws[:, caused], axis=0)
    return SimulatedReads(draws, rules_only)


def _read_with_cause(call: CallFeatures, name: str, donors: NDArray[Any] | None) -> Any:
    """Return by draw what a call with a cause reads at a miss, and a first call at a hit."""
    base = get_class_base(name)
    if base == "reasoning_dropped":
        return float(compute_read_after_reasoning_removal(call))
    if base == "too_short":
        return 0.0
    if donors is None:
        return _FIRST_READ_SHARE * call.prompt if call.before is None else 0.0
    return np.minimum(donors, max(call.prompt - 3, 0))
