"""Means, medians and sums of values, some of which are unknown."""

from __future__ import annotations

from math import fsum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def mean_or_none(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None where there are none."""
    numbers = [v for v in values if v is not None]
    return fsum(numbers) / len(numbers) if numbers else None


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None; None where there are none."""
    numbers = [v for v in values if v is not None]
    return float(median(numbers)) if numbers else None


def sum_if_complete(values: Iterable[float | None]) -> float | None:
    """Return the sum of some values; None where one is None."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
