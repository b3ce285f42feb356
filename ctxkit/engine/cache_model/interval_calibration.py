"""Stretch factors of the 80 % interval, calibrated on the errors of other developers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.miss_rates import MissRates
    from ctxkit.engine.cache_model.training_counts import Evidence, SessionCounts

# How an interval is calibrated (`compute_interval_stretch`).
#
# `SessionCounts.past` has the signed error of each training session, in half widths of its own raw
# interval, predicted without the logs of its developer. For a wanted coverage c the stretch is the
# pair of factors (below, above) with the smallest sum that covers c of these errors, each developer
# counting alike (`_fit_stretch`).
#
# Such a pair covers less of a further developer than of those it was fitted to. So c itself is
# calibrated (`calibrate_stretch`): each developer is left out in turn, the pair is fitted to the
# others and held against the one left out. The smallest c is taken from which on the pairs hold
# `COVERAGE` of what was left out, half way between the share of the sessions and the mean over
# developers: the first alone is that of the developers with many logs, the second that of those
# with one or two.
#
# Invariants: the developer of the target is never among the training sessions; each kind of
# evidence (`Evidence`) is calibrated by errors of predictions that had the same.
# Cost: O(developers x coverages x steps) numpy operations on sorted errors.

COVERAGE = 0.8
"""Share of the records that are in their intervals."""
MIN_DEVELOPERS = 4
"""Developers whose errors calibrate an interval; by fewer a wider group of sessions does."""
LONG_CALLS = 40
"""Calls from which a session is long; errors of long ones calibrate long ones."""
_MIN_STRETCH = 0.3
"""Smallest factor by which an interval is stretched."""
_STEPS = 21
"""Divisions of the uncovered share that are tried."""
_COVERAGES = np.linspace(COVERAGE, 1.0, 21)
"""Shares to cover that are tried."""


def compute_interval_stretch(
    rates: MissRates, calls: int, evidence: Evidence
) -> tuple[float, float] | None:
    """Return the factors by which an interval is stretched downwards and upwards.

    Args:
        rates: the session's rates, with their training sessions.
        calls: its number of billed calls.
        evidence: what was known of its developer.

    Returns:
        The factors; None where too few developers' errors are known.
    """
    rows = _select_calibrating(rates, calls)
    if not rows:
        return None
    errors = [row.past.get_bill(evidence).stretch for row in rows if row.past]
    return calibrate_stretch(np.array(errors), [row.owner for row in rows])


def calibrate_stretch(errors: NDArray[Any], owners: Sequence[str]) -> tuple[float, float]:
    """Return the factors that hold `COVERAGE` of the errors of developers left out in turn.

    Args:
        errors: signed errors in half widths, positive where the record is above.
        owners: developer of each; two or more different ones.

    Example:
        >>> low, high = calibrate_stretch(np.array([-1.0, 0.5, 2.0, 1.0]), ["a", "b", "c", "d"])
        >>> low, high
        (1.0, 2.0)
    """
    names = np.array(owners)
    shares, covered_n = np.zeros(len(_COVERAGES)), np.zeros(len(_COVERAGES))
    developers = sorted(set(owners))
    for name in developers:
        own = names == name
        downs, ups = _fit_stretch(_sort_errors(errors[~own], names[~own].tolist()), _COVERAGES)
        left_out = errors[own][:, None]
        is_covered = (left_out >= -downs) & (left_out <= ups)
        shares += is_covered.mean(axis=0)
        covered_n += is_covered.sum(axis=0)
    coverage = (shares / len(developers) + covered_n / len(errors)) / 2
    too_few = np.flatnonzero(coverage < COVERAGE - 1e-9)
    at = min(int(too_few[-1]) + 1, len(_COVERAGES) - 1) if len(too_few) else 0
    downs, ups = _fit_stretch(_sort_errors(errors, owners), _COVERAGES[at : at + 1])
    return float(downs[0]), float(ups[0])


class _SortedErrors(NamedTuple):
    values: NDArray[Any]
    share: NDArray[Any]
    """Share of the weight up to each error, each developer counting alike."""


def _sort_errors(errors: NDArray[Any], owners: Sequence[str]) -> _SortedErrors:
    sessions = Counter(owners)
    weights = np.array([1 / sessions[owner] for owner in owners])
    order = np.argsort(errors)
    return _SortedErrors(errors[order], np.cumsum(weights[order]) / weights.sum())


def _fit_stretch(
    errors: _SortedErrors, coverages: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return by coverage the factors of the smallest sum; any part of the rest may be below."""
    below = np.linspace(0.0, 1.0, _STEPS)[None, :] * (1 - coverages)[:, None]
    last = len(errors.values) - 1
    lows, highs = (
        errors.values[np.minimum(np.searchsorted(errors.share, at - 1e-9), last)]
        for at in (below, below + coverages[:, None])
    )
    downs, ups = np.maximum(-lows, _MIN_STRETCH), np.maximum(highs, _MIN_STRETCH)
    best = np.argmin(downs + ups, axis=1)[:, None]
    return np.take_along_axis(downs, best, 1)[:, 0], np.take_along_axis(ups, best, 1)[:, 0]


def _select_calibrating(rates: MissRates, calls: int) -> list[SessionCounts]:
    """Return the training sessions whose errors stretch an interval: those of the same tool and
    kind of agent, of like length and of as many or as few teachers where enough developers are
    among them; none where too few are.
    """
    tool, _, subagent = rates.target.kind
    is_near = rates.teachers >= MIN_DEVELOPERS
    kind = [
        row
        for row in rates.training
        if row.past and row.past.teachers and (row.tool, row.subagent) == (tool, subagent)
    ]
    near = [r for r in kind if r.past and (r.past.teachers >= MIN_DEVELOPERS) == is_near]
    length = [row for row in near if (row.calls >= LONG_CALLS) == (calls >= LONG_CALLS)]
    return next(filter(_has_enough_developers, (length, near, kind)), [])


def _has_enough_developers(rows: Sequence[SessionCounts]) -> bool:
    return len({row.owner for row in rows}) >= MIN_DEVELOPERS
