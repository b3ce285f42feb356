"""CPU seconds of some work: the median of some rounds."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cpu(work: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of all threads, the median of some rounds."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)
