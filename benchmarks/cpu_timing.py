"""CPU seconds of some work: the median of some rounds, or of two works done in turns; garbage is
collected between.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def cpu(work: Callable[[], object], rounds: int = 5, *, warm: bool = False) -> float:
    """CPU seconds of all threads, the median of some rounds; `warm`: after one that does
    not count.
    """
    taken = []
    if warm:
        work()
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def paired(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 7
) -> tuple[float, float]:
    """CPU seconds of two works done in turns, in the round with the median ratio: a core changes
    its speed.
    """
    taken = sorted(
        ((cpu(ours, 1), cpu(theirs, 1)) for _ in range(rounds)), key=lambda pair: pair[1] / pair[0]
    )
    return taken[rounds // 2]


def bounded(name: str, ours: float, most: float, unit: str) -> dict[str, object]:
    """A row whose peer is a bound."""
    figures = {"ours": ours, "peer": most, "unit": unit, "ratio": ours / most}
    return {"name": name, **figures, "goal": "<= 1"}
