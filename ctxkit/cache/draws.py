"""The reads that rates foretell: what each call would read, drawn many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.cache.causes import UNNAMED, kind, warm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.cache.cached_calls import ForeseenCall
    from ctxkit.cache.rates import Rates

DRAWS = 200
_SEED = 17
"""One seed: the same session is always foretold the same."""


def drawn(known: Sequence[ForeseenCall], rates: Rates) -> NDArray[Any]:
    """Return reads by draw and call, in tokens.

    Each draw takes the rates of one teaching session at random, drawn to those of its tool (or
    those of the session's own first half, where it teaches), and then chance call by call. What
    calls of a class read where they miss is drawn from one session, too.
    """
    rng = np.random.default_rng(_SEED)
    kinds = [kind(a) for a in known]
    names = sorted(set(kinds))
    at = np.array([names.index(k) for k in kinds])
    hit = np.array([warm(a) for a in known], np.int64)
    low, often, kept = (np.zeros((DRAWS, len(known))) for _ in range(3))
    teachers = [None] if rates.first or not rates.drawn else rates.drawn
    taken = rng.integers(len(teachers), size=DRAWS)
    for which, teacher in enumerate(teachers):
        found, rows = [rates.rate(k, teacher) for k in names], taken == which
        often[rows] = np.array([rate.often for rate in found])[at]
        kept[rows] = np.array([rate.kept for rate in found])[at]
    whose = {k: rng.random(DRAWS) for k in names}
    which_read = rng.random((len(known), DRAWS))
    for i, (a, k) in enumerate(zip(known, kinds, strict=True)):
        if k not in UNNAMED:
            low[:, i] = np.minimum(_read(rates.lows(a, k), whose[k], which_read[i]), a.prompt)
    missing = rng.random(low.shape) < often
    unnamed = np.array([k in UNNAMED for k in kinds], bool)
    at_miss = np.where(unnamed, kept * hit, low)
    reads = np.where(missing, at_miss, hit)
    first = np.array([a.before is None for a in known], bool)
    reads[:, first] = low[:, first]
    return reads


def _read(given: Sequence[Sequence[int]], whose: NDArray[Any], which: NDArray[Any]) -> list[int]:
    """Return for each draw one read of one session, both by numbers from 0 to 1."""
    taken = (given[int(w * len(given))] for w in whose)
    return [reads[int(u * len(reads))] for reads, u in zip(taken, which, strict=True)]
