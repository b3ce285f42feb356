"""The mean and the median of those of some values that are known, and the sum where all are."""

from __future__ import annotations

from math import fsum
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of what is not None; None where all is."""
    known = [v for v in values if v is not None]
    return fsum(known) / len(known) if known else None


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of what is not None; None where all is."""
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None


def whole(values: Iterable[float | None]) -> float | None:
    """Return the sum of some values; None where one is None."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
