"""Stretch factors of the 80 % interval, calibrated on the errors of other developers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.miss_rate_estimator import MissRateEstimator
    from ctxkit.engine.cache_model.training_counts import Evidence, SessionMissCounts

# How an interval is calibrated (`compute_interval_stretch`).
#
# `SessionMissCounts.past` has the signed error of each training session, in half widths of its own
# raw interval, predicted without the logs of its developer. For a wanted coverage c the stretch is
# the pair of factors (below, above) with the smallest sum that covers c of these errors, each
# developer counting alike (`_fit_stretch`).
#
# Such a pair covers less of a further developer than of those it was fitted to. So c itself is
# calibrated (`measure_left_out_coverage`): each developer is left out in turn, the pair is fitted
# to the others and held against the one left out. The smallest c is taken from which on the pairs
# hold `COVERAGE` of what was left out, half way between the share of the sessions and the mean over
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
MIN_STRETCH = 1.0
"""Smallest factor by which an interval is stretched: none is narrower than the raw one."""
DEVELOPER_SHARE = 0.5
"""Weight of the mean over developers in the coverage that is calibrated; the rest is that of the
share of all sessions.
"""
CoverageStart: TypeAlias = Literal["after_last_failure", "first_success", "as_wanted"]
"""Which share to cover is taken of those that are tried."""
DEFAULT_START: CoverageStart = "after_last_failure"
_STEPS = 21
"""Divisions of the uncovered share that are tried."""
_COVERAGES = np.linspace(COVERAGE, 1.0, 21)
"""Shares to cover that are tried."""


def compute_interval_stretch(
    rates: MissRateEstimator, calls: int, evidence: Evidence
) -> tuple[float, float] | None:
    """Return the factors by which an interval is stretched downwards and upwards.

    Args:
        rates: the session's rates, with their training sessions.
        calls: its number of billed calls.
        evidence: what was known of its developer.

    Returns:
        The factors; None where too few developers' errors are known.
    """
    is_near = rates.teachers >= MIN_DEVELOPERS
    rows = select_calibration_sessions(rates.training, rates.target, calls, is_near=is_near)
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
    return measure_left_out_coverage(errors, owners).choose_stretch()


class LeaveOneDeveloperOutCoverage(NamedTuple):
    """What the factors that are fitted without a developer hold of that developer's errors.

    Each array has one value for each share to cover that is tried.
    """

    of_developers: NDArray[Any]
    """Share held, in the mean over developers."""
    of_sessions: NDArray[Any]
    """Share held of all sessions."""
    below: NDArray[Any]
    """Factor below, fitted to all developers."""
    above: NDArray[Any]
    """Factor above."""

    def choose_stretch(
        self, developer_share: float = DEVELOPER_SHARE, start: CoverageStart = DEFAULT_START
    ) -> tuple[float, float]:
        """Return the factors (below, above) fitted to the smallest share to cover with which at
        least `COVERAGE` of the left-out errors were held.

        Args:
            developer_share: weight of `of_developers`; the rest is that of `of_sessions`.
            start: which share is taken: the smallest above all that hold less, the smallest that
                holds enough, or `COVERAGE` itself.
        """
        coverage = developer_share * self.of_developers + (1 - developer_share) * self.of_sessions
        is_enough = coverage >= COVERAGE - 1e-9
        at, last = 0, len(coverage) - 1
        if start == "first_success":
            at = int(np.argmax(is_enough)) if is_enough.any() else last
        elif start == "after_last_failure" and not is_enough.all():
            at = min(int(np.flatnonzero(~is_enough)[-1]) + 1, last)
        return float(self.below[at]), float(self.above[at])


def measure_left_out_coverage(
    errors: NDArray[Any], owners: Sequence[str], min_stretch: float = MIN_STRETCH
) -> LeaveOneDeveloperOutCoverage:
    """Leave each developer out in turn and measure what factors fitted to the others hold of them.

    Args:
        errors: signed errors in half widths, positive where the record is above.
        owners: developer of each; two or more different ones.
        min_stretch: smallest factor.
    """
    names = np.array(owners)
    shares, covered_n = np.zeros(len(_COVERAGES)), np.zeros(len(_COVERAGES))
    developers = sorted(set(owners))
    for name in developers:
        own = names == name
        others = _sort_errors(errors[~own], names[~own].tolist())
        downs, ups = _fit_stretch(others, _COVERAGES, min_stretch)
        left_out = errors[own][:, None]
        is_covered = (left_out >= -downs) & (left_out <= ups)
        shares += is_covered.mean(axis=0)
        covered_n += is_covered.sum(axis=0)
    factors = _fit_stretch(_sort_errors(errors, owners), _COVERAGES, min_stretch)
    return LeaveOneDeveloperOutCoverage(shares / len(developers), covered_n / len(errors), *factors)


def select_calibration_sessions(
    training: Sequence[SessionMissCounts], target: SessionMissCounts, calls: int, *, is_near: bool
) -> list[SessionMissCounts]:
    """Return the training sessions whose errors stretch an interval: those of the same tool and
    kind of agent, of like length and of as many or as few teachers where enough developers are
    among them; none where too few are.

    Args:
        training: sessions of other developers.
        target: the session that is predicted.
        calls: its number of billed calls.
        is_near: whether `MIN_DEVELOPERS` developers or more taught its kind.
    """
    tool, _, subagent = target.kind
    kind = [
        row
        for row in training
        if row.past and row.past.teachers and (row.tool, row.subagent) == (tool, subagent)
    ]
    near = [r for r in kind if r.past and (r.past.teachers >= MIN_DEVELOPERS) == is_near]
    length = [row for row in near if (row.calls >= LONG_CALLS) == (calls >= LONG_CALLS)]
    return next(filter(_has_enough_developers, (length, near, kind)), [])


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
    errors: _SortedErrors, coverages: NDArray[Any], min_stretch: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return by coverage the factors of the smallest sum; any part of the rest may be below."""
    below = np.linspace(0.0, 1.0, _STEPS)[None, :] * (1 - coverages)[:, None]
    last = len(errors.values) - 1
    lows, highs = (
        errors.values[np.minimum(np.searchsorted(errors.share, at - 1e-9), last)]
        for at in (below, below + coverages[:, None])
    )
    downs, ups = np.maximum(-lows, min_stretch), np.maximum(highs, min_stretch)
    best = np.argmin(downs + ups, axis=1)[:, None]
    return np.take_along_axis(downs, best, 1)[:, 0], np.take_along_axis(ups, best, 1)[:, 0]


def _has_enough_developers(rows: Sequence[SessionMissCounts]) -> bool:
    return len({row.owner for row in rows}) >= MIN_DEVELOPERS
