"""Prompt-cache miss rates estimated from many sessions, and simulated cache reads.

Cost: counting a session is O(calls). A simulation is O(`N_DRAWS` x calls), vectorised by numpy.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit.engine.cache_model.call_features import (
    UNEXPLAINED_CLASSES,
    classify_call,
    compute_read_before_reasoning,
    compute_warm_read,
    get_cache_family,
    get_call_features,
    is_miss,
    select_billed_calls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.session.session import Session

# How cache misses are estimated.
#
# Input: for each training session, counts per class of calls (`classify_call`: the likely cause of
# a miss, or the position of the call where there is no cause). The table of the committed training
# sessions comes with ctxkit. The session that is predicted (the target) is never among them, and
# neither is a copy of it.
#
# 1. Back-off estimate (`MissRates.estimate`). Training sessions form nested groups: same model, in
#    same role (main agent or subagent) of the same tool, in same provider family, in all families
#    that bill no cache writes. From the widest group to the narrowest, each estimate is the prior
#    of the next: it counts as `_PRIOR_CALLS` calls beside those of the narrower group (shrinkage).
# 2. Simulation (`simulate_reads`). Each draw picks one training session (bootstrap over sessions),
#    so that sessions differ as real ones do; the estimate is shrunk once more towards that session.
#    Then each call misses or hits with its class's probability (Bernoulli).
#
# Invariants: a hit reads what `compute_warm_read` says; a call reads at most its own prompt; one
# seed, so the same session always gets the same prediction.

MIN_CALLS = 8
"""Calls that a session needs to be judged or resampled; shorter ones only add to the counts."""
MIN_SESSIONS = 5
"""With fewer training sessions of its own tool a prediction says so, and is less certain."""
_PRIOR_CALLS = 12
"""Calls that the estimate of a wider group counts for, in classes without a cause."""
_PRIOR_CALLS_WITH_CAUSE = 3
"""The same in classes with a cause: such calls are few."""
_DEFAULT_RATE, _DEFAULT_RATE_WITH_CAUSE = 0.02, 0.9
"""Miss rates of classes that no training session has: a call without a cause seldom misses."""
_COLD_START = "cold_start"
_FREE_WRITE_FAMILIES = frozenset({"openai", "deepseek", "kimi", "gemini"})
"""Families that bill no cache writes, routers left out: where nothing else is known of one of
them, the others are used.
"""
_PREFIX_CAUSES = ("resumed", "changed_earlier", "retry")
"""Causes at which the prefix that all sessions of a tool share is still read."""
MAX_READS = 64
"""Reads of misses that are stored of each class."""
HEAD_PROMPTS = 5
"""Prompt sizes by which a copy of a session is recognised."""
N_DRAWS = 200
_SEED = 17
TABLE_FILE = "taught.json"


class ClassCount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Calls of one class, their misses, and the tokens of both."""

    calls: int = 0
    misses: int = 0
    expected: int = 0
    """Tokens that could have been read."""
    lost: int = 0
    """Tokens of them that were not read, at misses."""
    reads: tuple[int, ...] = ()
    """Tokens that were still read at each miss; of first calls, at each call."""

    def __add__(self, other: ClassCount) -> ClassCount:
        return ClassCount(
            self.calls + other.calls,
            self.misses + other.misses,
            self.expected + other.expected,
            self.lost + other.lost,
            self.reads + other.reads,
        )


class SessionCounts(msgspec.Struct, frozen=True):
    """Counts of one recorded session, by class of calls, and what the session is."""

    session: str
    """Its id: a session is never used to predict itself."""
    head: tuple[int, ...]
    """Its first prompt sizes: a log that begins with the same ones is a copy of it."""
    tool: str
    """The program that wrote the log."""
    family: str
    model: str
    """The model of its calls; empty where the log does not say."""
    subagent: bool
    counts: dict[str, ClassCount]
    stretch: float | None = None
    """Signed error of its own prediction, in half widths of the unstretched interval: positive
    where the recorded dollars were above the prediction, negative where below.
    """


def count_session(session: Session, stop: int | None = None) -> SessionCounts:
    """Count a session's calls and misses by class, of its first `stop` billed calls only if given.

    The id, first prompts and family are those of the whole session in any case.
    """
    calls = get_call_features(session)
    counts: dict[str, ClassCount] = {}
    for call, read in zip(calls[:stop], get_recorded_reads(session)[:stop], strict=True):
        if call.headless:
            continue
        name = classify_call(call)
        counts[name] = counts.get(name, ClassCount()) + _count_call(call, read)
    counts = {n: msgspec.structs.replace(c, reads=c.reads[:MAX_READS]) for n, c in counts.items()}
    return SessionCounts(
        session=session.id,
        head=get_first_prompts(calls),
        tool=session.format,
        family=find_main_family(calls, session),
        model=session.model or "",
        subagent=bool(session.parent),
        counts=counts,
    )


def _count_call(call: CallFeatures, read: int) -> ClassCount:
    if call.before is None:
        return ClassCount(1, 0, call.prompt, 0, (read,))
    if not is_miss(call.shared, read):
        return ClassCount(1, 0, call.shared, 0)
    return ClassCount(1, 1, call.shared, call.shared - read, (read,))


def find_main_family(calls: Sequence[CallFeatures], session: Session) -> str:
    """Return the provider family of most of a session's calls."""
    families = Counter(call.family for call in calls)
    return max(families, key=families.__getitem__) if families else get_cache_family(session, None)


def get_first_prompts(calls: Sequence[CallFeatures]) -> tuple[int, ...]:
    """Return the tokens of the first prompts of a session."""
    return tuple(call.prompt for call in calls[:HEAD_PROMPTS])


def get_recorded_reads(session: Session) -> list[int]:
    """Return what each billed call read, in tokens, as the log says."""
    usages = (c.message.usage for c in select_billed_calls(session))
    return [(u.cache_read_tokens or 0) if u else 0 for u in usages]


class MissRate(NamedTuple):
    """The probability that a call of a class misses, and what it still reads then."""

    probability: float
    read_share: float
    """Share of the tokens that it could have read."""


class MissRates:
    """Miss rates for one target session: a back-off estimate over groups of training sessions.

    Args:
        training: counts of other sessions.
        target: the session that is predicted; its counts are used only with `has_own_half`.
        has_own_half: whether the target's counts are those of its own first half, which then is
            the narrowest group.
    """

    def __init__(
        self,
        training: Iterable[SessionCounts],
        target: SessionCounts,
        *,
        has_own_half: bool = False,
    ) -> None:
        self.training = list(training)
        self.has_own_half = has_own_half
        family = target.family
        same_family = [s for s in self.training if s.family == family]
        any_family = same_family
        if family in _FREE_WRITE_FAMILIES:
            any_family = [s for s in self.training if s.family in _FREE_WRITE_FAMILIES]
        same_tool = [s for s in same_family if s.tool == target.tool]
        self.same_role = [s for s in same_tool if s.subagent == target.subagent] or same_tool
        """Training sessions of the same tool, provider family and role."""
        same_model = [s for s in self.same_role if s.model == target.model]
        groups = [same_model, self.same_role, same_family, any_family]
        long_groups = [_select_long_sessions(group) for group in groups]
        self.drawn = next(
            (group for group in long_groups if len(group) >= MIN_SESSIONS),
            next(filter(None, long_groups), []),
        )
        """The sessions of which each draw takes one: the narrowest group that has enough."""
        self._groups = [[target], *groups] if has_own_half else groups
        self._pools = [_sum_counts(group) for group in self._groups]
        self._donor_reads: dict[str, Sequence[Sequence[int]]] = {}
        # what misses without a cause still read is the prefix that all sessions of a tool share
        prefixes = [r for name in UNEXPLAINED_CLASSES for r in _narrowest_reads(self._pools, name)]
        self._shared_prefix = round(median(prefixes)) if prefixes else 0

    def with_own_half(self, first_half: SessionCounts) -> MissRates:
        """Return the rates with the target's own first half as the narrowest group."""
        return MissRates(self.training, first_half, has_own_half=True)

    @property
    def has_few_sessions(self) -> bool:
        """True where there are too few training sessions of the same tool and provider."""
        return len(self.same_role) < MIN_SESSIONS

    def estimate(self, class_name: str, source: SessionCounts | None = None) -> MissRate:
        """Return the rate of a class of calls; with `source`, as that one training session has it.

        Args:
            class_name: as `classify_call` returns it.
            source: a session towards which the estimate is shrunk at the end; None: none.
        """
        has_cause = class_name not in UNEXPLAINED_CLASSES
        rate = MissRate(_DEFAULT_RATE_WITH_CAUSE if has_cause else _DEFAULT_RATE, 0.0)
        # misses without a cause depend on the tool, so the two groups of all tools are left out
        pools = self._pools if has_cause or not self.same_role else self._pools[:-2]
        prior_calls: float = _PRIOR_CALLS
        for pool in (*reversed(pools), source.counts if source else {}):
            count = pool.get(class_name, ClassCount())
            if count.calls:
                rate = (
                    _update_with_cause(rate, count)
                    if has_cause
                    else _update_without_cause(rate, count, prior_calls)
                )
            prior_calls = _calls_of_prior_misses(count) if self.has_own_half else _PRIOR_CALLS
        return rate

    def miss_reads(self, call: CallFeatures, class_name: str) -> Sequence[Sequence[int]]:
        """Return what a call of a class with a cause may read at a miss: tokens, by session."""
        if class_name == "reasoning_dropped":
            return ((compute_read_before_reasoning(call),),)
        if class_name == "too_short":
            return ((0,),)
        if class_name in _PREFIX_CAUSES:
            return ((min(self._shared_prefix, compute_warm_read(call)),),)
        return self.donor_reads(class_name) or ((0,),)

    def donor_reads(self, class_name: str) -> Sequence[Sequence[int]]:
        """Return the reads at misses of a class, in tokens, of the sessions that are most alike.

        A class of cold starts that no session has (another version of the program) takes the reads
        of all cold starts.
        """
        if class_name not in self._donor_reads:
            reads = self._reads_of_narrowest(
                lambda s: s.counts[class_name].reads if class_name in s.counts else ()
            )
            if not reads and class_name.startswith(_COLD_START):
                reads = self._reads_of_narrowest(_cold_start_reads)
            self._donor_reads[class_name] = reads
        return self._donor_reads[class_name]

    def _reads_of_narrowest(
        self, reads_of: Callable[[SessionCounts], tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """Return the reads, by session, of the narrowest group of which enough sessions have any
        (of the own first half one is enough), else of the widest group that has any.
        """
        reads: list[tuple[int, ...]] = []
        for group in self._groups:
            reads = [r for r in map(reads_of, group) if r] or reads
            is_own_half = self.has_own_half and group is self._groups[0]
            if len(reads) >= (1 if is_own_half else MIN_SESSIONS):
                break
        return reads


def _update_with_cause(prior: MissRate, count: ClassCount) -> MissRate:
    """Return the rate of a count shrunk towards a prior, by calls."""
    misses = count.misses + _PRIOR_CALLS_WITH_CAUSE * prior.probability
    return prior._replace(probability=misses / (count.calls + _PRIOR_CALLS_WITH_CAUSE))


def _update_without_cause(prior: MissRate, count: ClassCount, prior_calls: float) -> MissRate:
    """Return the rate of a count shrunk towards a prior, by tokens.

    Not by calls: small misses come early in a session, where little is lost. The lost share of the
    readable tokens is estimated first; the probability is that share over what one miss loses.
    """
    tokens_per_call = count.expected / count.calls
    lost = count.lost + prior_calls * tokens_per_call * prior.probability * (1 - prior.read_share)
    lost_share = lost / (count.expected + prior_calls * tokens_per_call)
    read_share = prior.read_share
    if count.misses:
        read_at_misses = 1 - count.lost / max(count.lost + sum(count.reads), 1)
        read_share = (count.misses * read_at_misses + read_share) / (count.misses + 1)
    return MissRate(min(lost_share / (1 - read_share), 1.0), read_share)


def _calls_of_prior_misses(count: ClassCount) -> float:
    """Return how many of a count's calls hold `_PRIOR_CALLS` misses; at least `_PRIOR_CALLS`.

    So many calls of all other sessions count beside those of a session's own first half.
    """
    return max(_PRIOR_CALLS, min(1.0, _PRIOR_CALLS / max(count.misses, 1)) * count.calls)


def _cold_start_reads(session: SessionCounts) -> tuple[int, ...]:
    return tuple(
        read
        for name, count in session.counts.items()
        if name.startswith(_COLD_START)
        for read in count.reads
    )


def _select_long_sessions(sessions: Iterable[SessionCounts]) -> list[SessionCounts]:
    return [s for s in sessions if sum(c.calls for c in s.counts.values()) >= MIN_CALLS]


def _sum_counts(sessions: Iterable[SessionCounts]) -> dict[str, ClassCount]:
    total: dict[str, ClassCount] = {}
    for session in sessions:
        for name, count in session.counts.items():
            total[name] = total.get(name, ClassCount()) + count
    return total


def _narrowest_reads(pools: Iterable[dict[str, ClassCount]], class_name: str) -> Sequence[int]:
    """Return the reads at misses of a class by the narrowest pool that has any."""
    return next((p[class_name].reads for p in pools if class_name in p and p[class_name].reads), ())


def simulate_reads(calls: Sequence[CallFeatures], rates: MissRates) -> NDArray[Any]:
    """Simulate what each call reads from the cache.

    Args:
        calls: the billed calls, in order.
        rates: the estimated miss rates of their session.

    Returns:
        Tokens, by draw and call: an array of `N_DRAWS` rows.
    """
    rng = np.random.default_rng(_SEED)
    classes = [classify_call(call) for call in calls]
    names = sorted(set(classes))
    class_index = np.array([names.index(name) for name in classes])
    has_cause = np.array([name not in UNEXPLAINED_CLASSES for name in classes], bool)
    is_first_call = np.array([call.before is None for call in calls], bool)
    read_at_hit = np.array([compute_warm_read(call) for call in calls], np.int64)
    drawn_read, probability, read_share = (np.zeros((N_DRAWS, len(calls))) for _ in range(3))
    # step 1: each draw takes the rates of one training session (a first half speaks for itself)
    sources = [None] if rates.has_own_half or not rates.drawn else rates.drawn
    source_of_draw = rng.integers(len(sources), size=N_DRAWS)
    for i, source in enumerate(sources):
        estimates, draws = [rates.estimate(name, source) for name in names], source_of_draw == i
        probability[draws] = np.array([e.probability for e in estimates])[class_index]
        read_share[draws] = np.array([e.read_share for e in estimates])[class_index]
    # step 2: what calls with a cause would read; all calls of a class use one session in a draw
    donor_quantile = {name: rng.random(N_DRAWS) for name in names}
    read_quantile = rng.random((len(calls), N_DRAWS))
    for i in np.flatnonzero(has_cause).tolist():
        donors = rates.miss_reads(calls[i], classes[i])
        picks = _pick_reads(donors, donor_quantile[classes[i]], read_quantile[i])
        drawn_read[:, i] = np.minimum(picks, calls[i].prompt)
    # step 3: each call misses or not; a first call has no rate, all of its read is drawn
    is_missed = rng.random(drawn_read.shape) < probability
    read_at_miss = np.where(has_cause, drawn_read, read_share * read_at_hit)
    reads = np.where(is_missed, read_at_miss, read_at_hit)
    reads[:, is_first_call] = drawn_read[:, is_first_call]
    return reads


def _pick_reads(
    donors: Sequence[Sequence[int]], donor_quantile: NDArray[Any], read_quantile: NDArray[Any]
) -> list[int]:
    """Return for each draw one read of one session, both picked by numbers from 0 to 1."""
    picked = (donors[int(q * len(donors))] for q in donor_quantile)
    return [reads[int(q * len(reads))] for reads, q in zip(picked, read_quantile, strict=True)]


@cache
def load_counts() -> tuple[SessionCounts, ...]:
    """Read the counts of the committed training sessions; they hold no text of the sessions."""
    data = resources.files(__package__).joinpath(TABLE_FILE).read_bytes()
    return msgspec.json.decode(data, type=tuple[SessionCounts, ...])


def is_informative(session: Session) -> bool:
    """Return whether a session can be counted: one that never reads a token shows no cache."""
    reads = get_recorded_reads(session)
    return len(reads) > 1 and any(reads)


def exclude_copies(
    training: Iterable[SessionCounts], session_id: str, head: Sequence[int]
) -> list[SessionCounts]:
    """Return the counts that are neither of the session itself nor of a copy of its beginning.

    Args:
        training: counts of sessions.
        session_id: the session's id.
        head: tokens of its first prompts, as `get_first_prompts` returns them.
    """
    prompts = tuple(head)
    can_be_copied = len(prompts) == HEAD_PROMPTS
    return [
        s for s in training if s.session != session_id and not (can_be_copied and s.head == prompts)
    ]
