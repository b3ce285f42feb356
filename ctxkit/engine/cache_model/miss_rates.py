"""Miss rates from the counts of many sessions, and reads drawn from them."""

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
    billed_calls,
    cache_family,
    call_class,
    call_features,
    is_miss,
    read_before_reasoning,
    warm_read_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.call_features import CallFeatures
    from ctxkit.session.session import Session


MIN_CALLS = 8
"""Calls that a session must have to be judged, or drawn; shorter ones only teach."""
MIN_SESSIONS = 5
"""With fewer sessions of its own tool a prediction says so, and its interval is widened."""
_CALLS = 12
"""A wider pool counts for at most so many calls of a narrower one."""
_FIRST = "cold_start"
_SELDOM, _MOSTLY = 0.02, 0.9
"""Rates of classes of which no session tells: a call without a cause misses seldom."""
_FIRES = 3
"""The same where a cause is named: such calls are few."""
_PLAIN = frozenset({"openai", "deepseek", "kimi", "gemini"})
"""Families that bill no writes: one teaches of another where nothing else does, no router."""
_ON_PREFIX = ("resumed", "changed_earlier", "retry")
"""Causes at which the part that all sessions of a tool share is still read."""


class MissRate(NamedTuple):
    """How often a class of calls misses, and the share that it still reads then."""

    often: float
    kept: float


class MissRates:
    """What teachers say to a session of one tool and family: its own kind first, then wider."""

    def __init__(
        self, teachers: Iterable[SessionCounts], whose: SessionCounts, *, first: bool = False
    ) -> None:
        tool, family = whose.tool, whose.family
        self.every = list(teachers)
        near = [t for t in self.every if t.family == family]
        wide = [t for t in self.every if t.family in _PLAIN] if family in _PLAIN else near
        every = [t for t in near if t.tool == tool]
        self.own = [t for t in every if t.subagent == whose.subagent] or every
        kin = [t for t in self.own if t.model == whose.model]
        self.first = first
        """True where a session's own first half taught before all others."""
        long = [_long_sessions(each) for each in (kin, self.own, near, wide)]
        self.drawn = next((t for t in long if len(t) >= MIN_SESSIONS), next(filter(None, long), []))
        """The sessions of which each draw takes one."""
        self._groups = [*([[whose]] if first else []), kin, self.own, near, wide]
        self._pools = [_sum_counts(each) for each in self._groups]
        self._donors: dict[str, Sequence[Sequence[int]]] = {}
        self._prefix = _median([r for n in UNEXPLAINED_CLASSES for r in _nearest(self._pools, n)])

    def after(self, first: SessionCounts) -> MissRates:
        """Return the rates with what a session's own first half taught before all others."""
        return MissRates(self.every, first, first=True)

    @property
    def few(self) -> bool:
        """True where too few sessions of the same tool and provider teach."""
        return len(self.own) < MIN_SESSIONS

    def rate(self, name: str, teacher: SessionCounts | None = None) -> MissRate:
        """Return the rate of a class; `teacher`: as one session of the tool has it."""
        often, kept = _named_rate(name), 0.0
        narrow = name in UNEXPLAINED_CLASSES and bool(
            self.own
        )  # what no rule explains is the tool's own way
        pools = self._pools[:-2] if narrow else self._pools
        weight: float = _CALLS
        for pool in (*reversed(pools), teacher.counts if teacher else {}):
            count = pool.get(name, ClassCount())
            often, kept = _shrunk(count, often, kept, name, weight)
            weight = _enough(count) if self.first else _CALLS
        return MissRate(often, kept)

    def lows(self, asked: CallFeatures, name: str) -> Sequence[Sequence[int]]:
        """Return what a call with a cause may read at a miss, in tokens, by session."""
        if name == "reasoning_dropped":
            return ((read_before_reasoning(asked),),)
        if name == "too_short":
            return ((0,),)
        if name in _ON_PREFIX:
            return ((min(self._prefix, warm_read_tokens(asked)),),)
        return self.donors(name) or ((0,),)

    def donors(self, name: str) -> Sequence[Sequence[int]]:
        """Return what the sessions that are most alike read at misses of a class, of first calls
        at any: the nearest group of `FEW` or more, or the widest that has one.
        """
        if name in self._donors:
            return self._donors[name]
        found: list[tuple[int, ...]] = []
        for exact in (True, False):
            for group in self._groups:
                told = [_miss_reads(t, name, exact=exact) for t in group]
                found = [r for r in told if r] or found
                if len(found) >= (1 if self.first and group is self._groups[0] else MIN_SESSIONS):
                    break
            if found or not name.startswith(_FIRST):
                break
        self._donors[name] = found
        return found


def _miss_reads(teacher: SessionCounts, name: str, *, exact: bool) -> tuple[int, ...]:
    if exact:
        return teacher.counts[name].reads if name in teacher.counts else ()
    return tuple(r for k, c in teacher.counts.items() if k.startswith(_FIRST) for r in c.reads)


def _named_rate(name: str) -> float:
    """Return the rate before anything was seen: a cause holds, a call without one hits."""
    return _SELDOM if name in UNEXPLAINED_CLASSES else _MOSTLY


def _enough(count: ClassCount) -> float:
    """Return how many calls hold twelve misses: beside one half others count as that."""
    return max(_CALLS, min(1.0, _CALLS / max(count.misses, 1)) * count.calls)


def _shrunk(
    count: ClassCount, often: float, kept: float, name: str, weight: float
) -> tuple[float, float]:
    """Return the rate of a count, drawn to a wider pool's by so many calls of it.

    Of unnamed classes by tokens, not by misses: small misses come early, where little is lost.
    """
    if not count.calls:
        return often, kept
    if name not in UNEXPLAINED_CLASSES:
        return (count.misses + _FIRES * often) / (count.calls + _FIRES), kept
    mean = count.expected / count.calls
    share = (count.lost + weight * mean * often * (1 - kept)) / (count.expected + weight * mean)
    if count.misses:
        held = 1 - count.lost / max(count.lost + sum(count.reads), 1)
        kept = (count.misses * held + kept) / (count.misses + 1)
    return min(share / (1 - kept), 1.0), kept


def _long_sessions(teachers: Iterable[SessionCounts]) -> list[SessionCounts]:
    return [t for t in teachers if sum(c.calls for c in t.counts.values()) >= MIN_CALLS]


def _sum_counts(teachers: Iterable[SessionCounts]) -> dict[str, ClassCount]:
    out: dict[str, ClassCount] = {}
    for t in teachers:
        for name, count in t.counts.items():
            out[name] = out.get(name, ClassCount()) + count
    return out


def _nearest(pools: Iterable[dict[str, ClassCount]], name: str) -> Sequence[int]:
    """Return the reads at misses of a class by the nearest pool that has any."""
    return next((p[name].reads for p in pools if name in p and p[name].reads), ())


def _median(values: Sequence[int]) -> int:
    return round(median(values)) if values else 0


MAX_READS = 64
"""Reads of misses that are kept of each class."""


class ClassCount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Calls of one class."""

    calls: int = 0
    misses: int = 0
    expected: int = 0
    """Tokens that could have been read."""
    lost: int = 0
    """Tokens of them that were not, at misses."""
    reads: tuple[int, ...] = ()
    """Tokens that were read all the same at each miss; of first calls at each."""

    def __add__(self, other: ClassCount) -> ClassCount:
        return ClassCount(
            self.calls + other.calls,
            self.misses + other.misses,
            self.expected + other.expected,
            self.lost + other.lost,
            self.reads + other.reads,
        )


class SessionCounts(msgspec.Struct, frozen=True):
    """What one recorded session teaches."""

    session: str
    """Its id: a session never teaches itself."""
    head: tuple[int, ...]
    """Its first prompts: a log that begins with the same is a copy of it."""
    tool: str
    """The program that wrote the log."""
    family: str
    model: str
    """The model of its calls; empty where the log does not say."""
    subagent: bool
    counts: dict[str, ClassCount]
    stretch: float | None = None
    """Half widths of its own interval, unstretched, by which its dollars were above what others
    foretold; negative: below.
    """


HEAD_PROMPTS = 5
"""Prompts by which a copy is known."""


def count_session(session: Session, stop: int | None = None) -> SessionCounts:
    """Return what a session teaches, or its first `stop` billed calls."""
    every = call_features(session)
    known = every[:stop]
    reads = recorded_reads(session)[:stop]
    counts: dict[str, ClassCount] = {}
    for a, read in zip(known, reads, strict=True):
        if a.headless:
            continue
        name = call_class(a)
        counts[name] = counts.get(name, ClassCount()) + _count_call(a, read)
    few = {n: msgspec.structs.replace(c, reads=c.reads[:MAX_READS]) for n, c in counts.items()}
    who = session.id, first_prompts(every), session.format, main_family(every, session)
    return SessionCounts(*who, session.model or "", bool(session.parent), few)


def _count_call(a: CallFeatures, read: int) -> ClassCount:
    if a.before is None:
        return ClassCount(1, 0, a.prompt, 0, (read,))
    if not is_miss(a.shared, read):
        return ClassCount(1, 0, a.shared, 0)
    return ClassCount(1, 1, a.shared, a.shared - read, (read,))


def main_family(known: Sequence[CallFeatures], session: Session) -> str:
    """Return the family of most of a session's calls."""
    names = Counter(a.family for a in known)
    return max(names, key=names.__getitem__) if names else cache_family(session, None)


def first_prompts(known: Sequence[CallFeatures]) -> tuple[int, ...]:
    """Return the first prompts of a session."""
    return tuple(a.prompt for a in known[:HEAD_PROMPTS])


def recorded_reads(session: Session) -> list[int]:
    """Return what each billed call read, in tokens, as the log says."""
    usages = (c.message.usage for c in billed_calls(session))
    return [(u.cache_read_tokens or 0) if u else 0 for u in usages]


N_DRAWS = 200
_SEED = 17
"""One seed: the same session is always foretold the same."""


def draw_reads(known: Sequence[CallFeatures], rates: MissRates) -> NDArray[Any]:
    """Return reads by draw and call, in tokens.

    Each draw takes the rates of one teaching session at random, drawn to those of its tool (or
    those of the session's own first half, where it teaches), and then chance call by call. What
    calls of a class read where they miss is drawn from one session, too.
    """
    rng = np.random.default_rng(_SEED)
    kinds = [call_class(a) for a in known]
    names = sorted(set(kinds))
    at = np.array([names.index(k) for k in kinds])
    hit = np.array([warm_read_tokens(a) for a in known], np.int64)
    low, often, kept = (np.zeros((N_DRAWS, len(known))) for _ in range(3))
    teachers = [None] if rates.first or not rates.drawn else rates.drawn
    taken = rng.integers(len(teachers), size=N_DRAWS)
    for which, teacher in enumerate(teachers):
        found, rows = [rates.rate(k, teacher) for k in names], taken == which
        often[rows] = np.array([rate.often for rate in found])[at]
        kept[rows] = np.array([rate.kept for rate in found])[at]
    whose = {k: rng.random(N_DRAWS) for k in names}
    which_read = rng.random((len(known), N_DRAWS))
    for i, (a, k) in enumerate(zip(known, kinds, strict=True)):
        if k not in UNEXPLAINED_CLASSES:
            low[:, i] = np.minimum(_pick_reads(rates.lows(a, k), whose[k], which_read[i]), a.prompt)
    missing = rng.random(low.shape) < often
    unnamed = np.array([k in UNEXPLAINED_CLASSES for k in kinds], bool)
    at_miss = np.where(unnamed, kept * hit, low)
    reads = np.where(missing, at_miss, hit)
    first = np.array([a.before is None for a in known], bool)
    reads[:, first] = low[:, first]
    return reads


def _pick_reads(
    given: Sequence[Sequence[int]], whose: NDArray[Any], which: NDArray[Any]
) -> list[int]:
    """Return for each draw one read of one session, both by numbers from 0 to 1."""
    taken = (given[int(w * len(given))] for w in whose)
    return [reads[int(u * len(reads))] for reads, u in zip(taken, which, strict=True)]


TABLE_FILE = "taught.json"


@cache
def load_counts() -> tuple[SessionCounts, ...]:
    """Return what the committed sessions taught: counts alone, nothing that was said in them."""
    data = resources.files(__package__).joinpath(TABLE_FILE).read_bytes()
    return msgspec.json.decode(data, type=tuple[SessionCounts, ...])


def is_informative(session: Session) -> bool:
    """Say whether a session teaches: one that never reads a token tells of no cache."""
    reads = recorded_reads(session)
    return len(reads) > 1 and any(reads)


def without_copies(
    teachers: Iterable[SessionCounts], session: str, head: Sequence[int]
) -> list[SessionCounts]:
    """Return the teachers that are neither the session itself nor a copy of its beginning."""
    own = tuple(head)
    copy = len(own) == HEAD_PROMPTS
    return [t for t in teachers if t.session != session and not (copy and t.head == own)]
