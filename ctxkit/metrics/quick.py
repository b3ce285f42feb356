"""The prompts of a run without pruning, from the log's sizes and where it was compacted."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.metrics.compaction import Compaction


class QuickPrompts:
    """The prompts of a run without pruning: between cuts the log's, moved by what the cut before
    took out.
    """

    def __init__(self, log: Log) -> None:
        self.C = log.tokens.C

    def __len__(self) -> int:
        return len(self.C)

    def at(self, call: int, cut: Compaction) -> int:
        """Return the prompt of a call between a cut and the next one."""
        return self.C[call] + cut.after - self.C[cut.call]

    def reaches(self, full: float, cut: Compaction, stop: int) -> int | None:
        """Return how many calls after a cut the prompt is at least `full` again; None: not before
        the call `stop`.
        """
        found = bisect_left(self.C, full - cut.after + self.C[cut.call], cut.call, stop)
        return found - cut.call if found < stop else None
