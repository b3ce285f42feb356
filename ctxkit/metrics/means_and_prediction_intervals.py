"""Means, medians and sums of values of which some are unknown, and prediction intervals."""

from __future__ import annotations

from math import exp, fsum, log, sqrt
from statistics import NormalDist, fmean, median, stdev
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None where there are none."""
    numbers = [v for v in values if v is not None]
    return fsum(numbers) / len(numbers) if numbers else None


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None; None where there are none."""
    numbers = sorted([v for v in values if v is not None])
    if not numbers:
        return None
    half, is_odd = divmod(len(numbers), 2)
    return float(numbers[half] if is_odd else (numbers[half - 1] + numbers[half]) / 2)


def sum_if_complete(values: Iterable[float | None]) -> float | None:
    """Return the sum of some values; None where one is None."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_counts_if_complete(values: list[int | None]) -> int | None:
    """Return the sum of some counts; None where one is None, or there are none."""
    numbers = [v for v in values if v is not None]
    return sum(numbers) if numbers and len(numbers) == len(values) else None


# By ranks: the next value has each of the n + 1 ranks among n values with equal probability,
# whatever the distribution, so it is between the k-th smallest and the k-th largest with
# probability 1 - 2 k / (n + 1). Ends between two ranks are interpolated. n + 1 must be at least
# 2 / (1 - share).
#
# By a log-normal fit, for fewer values: the interval of Student's t for one more value,
# m +- t s sqrt(1 + 1 / n), with mean m and standard deviation s of the logarithms.

SHARE = 0.8
"""Default probability that an interval contains the next value."""
MIN_VALUES = 4
"""Fewest values for which there is an interval."""


class PredictionInterval(msgspec.Struct, frozen=True):
    """The expected next value; `low` and `high` are None if there are too few values."""

    middle: float
    low: float | None = None
    high: float | None = None

    def contains(self, value: float) -> bool | None:
        """Return whether a value is in the interval; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= value <= self.high


def predict_interval(values: Sequence[float], share: float = SHARE) -> PredictionInterval | None:
    """Return the interval that contains the next value with a given probability.

    Args:
        values: earlier values, in any order; without values the result is None.
        share: the probability, above 0 and below 1.

    Returns:
        The median and the interval; its ends are None where there are too few values for the share.

    Example:
        >>> predict_interval([1, 2, 3, 4, 5, 6, 7, 8, 9])
        PredictionInterval(middle=5, low=1.0, high=9.0)
    """
    if not values:
        return None
    middle, n = median(values), len(values)
    if n < MIN_VALUES:
        return PredictionInterval(middle)
    rank = round((1 - share) / 2 * (n + 1), 9)
    if rank >= 1:
        ordered = sorted(values)
        return PredictionInterval(
            middle, _interpolate(ordered, rank - 1), _interpolate(ordered, n - rank)
        )
    if min(values) <= 0:
        return PredictionInterval(middle)
    logs = [log(v) for v in values]
    half = _student_quantile((1 + share) / 2, n - 1) * stdev(logs) * sqrt(1 + 1 / n)
    return PredictionInterval(middle, exp(fmean(logs) - half), exp(fmean(logs) + half))


def _interpolate(ordered: Sequence[float], place: float) -> float:
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t (Cornish-Fisher expansion; within 1 % from 3 degrees)."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
