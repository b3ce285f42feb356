"""What was worked out for numbered things, looked up for many of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

KEPT = 1 << 16
"""Values that are remembered; with more it begins anew."""


class KnownValues:
    """Values by number, each worked out once."""

    def __init__(self) -> None:
        self._known: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def of(self, numbers: Ints, make: Callable[[int], int]) -> Ints:
        """Return the value of each number; `make` gives that of the number at a place."""
        known, values = self._known
        at = np.searchsorted(known, numbers)
        new = np.flatnonzero((at == len(known)) | (np.append(known, 0)[at] != numbers))
        if not len(new):
            return values[at]
        if len(known) > KEPT:
            self._known = known[:0], values[:0]
            return self.of(numbers, make)
        fresh, first, which = np.unique(numbers[new], return_index=True, return_inverse=True)
        made = np.array([make(place) for place in new[first].tolist()], np.int64)
        where = at[new[first]]
        self._known = np.insert(known, where, fresh), np.insert(values, where, made)
        found = np.append(values, 0)[at]
        found[new] = made[which]
        return found
