"""CPU seconds of a function: the median of several rounds, or of two functions called in turns.

Garbage is collected before each round.
"""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def measure_cpu(work: Callable[[], object], rounds: int = 5, *, warm: bool = False) -> float:
    """Return the CPU seconds of all threads in a call of `work`, the median of some rounds.

    With `warm`, one more call comes first and is not counted.
    """
    seconds = []
    if warm:
        work()
    for _ in range(rounds):
        gc.collect()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def measure_in_turns(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 7
) -> tuple[float, float]:
    """Return the CPU seconds of two functions in the round with the median ratio.

    Both are called in turns, because a core changes its speed.
    """
    seconds_by_round = sorted(
        ((measure_cpu(ours, 1), measure_cpu(theirs, 1)) for _ in range(rounds)),
        key=lambda seconds: seconds[1] / seconds[0],
    )
    return seconds_by_round[rounds // 2]


def make_bounded_row(name: str, ours: float, bound: float, unit: str) -> dict[str, object]:
    """Return a row of the table whose peer is an upper bound."""
    figures = {"ours": ours, "peer": bound, "unit": unit, "ratio": ours / bound}
    return {"name": name, **figures, "goal": "<= 1"}
