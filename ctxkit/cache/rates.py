"""What several sessions teach together: rates of misses, and what is read at one."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.cache.cache_counts import ClassCount, Taught
from ctxkit.cache.causes import UNNAMED, before_reasoning, warm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.cache.cached_calls import ForeseenCall

LONG = 8
"""Calls that a session must have to be judged, or drawn; shorter ones only teach."""
FEW = 5
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


class Rate(NamedTuple):
    """How often a class of calls misses, and the share that it still reads then."""

    often: float
    kept: float


class Rates:
    """What teachers say to a session of one tool and family: its own kind first, then wider."""

    def __init__(self, teachers: Iterable[Taught], whose: Taught, *, first: bool = False) -> None:
        tool, family = whose.tool, whose.family
        self.every = list(teachers)
        near = [t for t in self.every if t.family == family]
        wide = [t for t in self.every if t.family in _PLAIN] if family in _PLAIN else near
        every = [t for t in near if t.tool == tool]
        self.own = [t for t in every if t.subagent == whose.subagent] or every
        kin = [t for t in self.own if t.model == whose.model]
        self.first = first
        """True where a session's own first half taught before all others."""
        long = [_long(each) for each in (kin, self.own, near, wide)]
        self.drawn = next((t for t in long if len(t) >= FEW), next(filter(None, long), []))
        """The sessions of which each draw takes one."""
        self._groups = [*([[whose]] if first else []), kin, self.own, near, wide]
        self._pools = [_sum(each) for each in self._groups]
        self._donors: dict[str, Sequence[Sequence[int]]] = {}
        self._prefix = _median([r for n in UNNAMED for r in _nearest(self._pools, n)])

    def after(self, first: Taught) -> Rates:
        """Return the rates with what a session's own first half taught before all others."""
        return Rates(self.every, first, first=True)

    @property
    def few(self) -> bool:
        """True where too few sessions of the same tool and provider teach."""
        return len(self.own) < FEW

    def rate(self, name: str, teacher: Taught | None = None) -> Rate:
        """Return the rate of a class; `teacher`: as one session of the tool has it."""
        often, kept = _named_rate(name), 0.0
        narrow = name in UNNAMED and bool(self.own)  # what no rule explains is the tool's own way
        pools = self._pools[:-2] if narrow else self._pools
        weight: float = _CALLS
        for pool in (*reversed(pools), teacher.counts if teacher else {}):
            count = pool.get(name, ClassCount())
            often, kept = _shrunk(count, often, kept, name, weight)
            weight = _enough(count) if self.first else _CALLS
        return Rate(often, kept)

    def lows(self, asked: ForeseenCall, name: str) -> Sequence[Sequence[int]]:
        """Return what a call with a cause may read at a miss, in tokens, by session."""
        if name == "reasoning_dropped":
            return ((before_reasoning(asked),),)
        if name == "too_short":
            return ((0,),)
        if name in _ON_PREFIX:
            return ((min(self._prefix, warm(asked)),),)
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
                told = [_read(t, name, exact=exact) for t in group]
                found = [r for r in told if r] or found
                if len(found) >= (1 if self.first and group is self._groups[0] else FEW):
                    break
            if found or not name.startswith(_FIRST):
                break
        self._donors[name] = found
        return found


def _read(teacher: Taught, name: str, *, exact: bool) -> tuple[int, ...]:
    if exact:
        return teacher.counts[name].reads if name in teacher.counts else ()
    return tuple(r for k, c in teacher.counts.items() if k.startswith(_FIRST) for r in c.reads)


def _named_rate(name: str) -> float:
    """Return the rate before anything was seen: a cause holds, a call without one hits."""
    return _SELDOM if name in UNNAMED else _MOSTLY


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
    if name not in UNNAMED:
        return (count.misses + _FIRES * often) / (count.calls + _FIRES), kept
    mean = count.expected / count.calls
    share = (count.lost + weight * mean * often * (1 - kept)) / (count.expected + weight * mean)
    if count.misses:
        held = 1 - count.lost / max(count.lost + sum(count.reads), 1)
        kept = (count.misses * held + kept) / (count.misses + 1)
    return min(share / (1 - kept), 1.0), kept


def _long(teachers: Iterable[Taught]) -> list[Taught]:
    return [t for t in teachers if sum(c.calls for c in t.counts.values()) >= LONG]


def _sum(teachers: Iterable[Taught]) -> dict[str, ClassCount]:
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
