"""The prompts of a run without pruning, from the log's sizes and where it was compacted."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.metrics.size import Spot


class Prompts:
    """The prompts of a run without pruning: between cuts the log's, moved by what the cut before took out."""

    def __init__(self, log: Log) -> None:
        self.C = log.tokens.C

    def __len__(self) -> int:
        return len(self.C)

    def at(self, call: int, spot: Spot) -> int:
        """Return the prompt of a call between a cut and the next one."""
        return self.C[call] + spot.after - self.C[spot.call]

    def reaches(self, full: float, spot: Spot, stop: int) -> int | None:
        """Return how many calls after a cut the prompt is at least `full` again; None: not before the call `stop`."""
        found = bisect_left(self.C, full - spot.after + self.C[spot.call], spot.call, stop)
        return found - spot.call if found < stop else None
