"""Inspect's `CompactionTrim`: the oldest fifth of the conversation is dropped, the task stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets import shared_summaries_and_clearing as common
from ctxkit.presets.registry_and_setting_checks import (
    MEMORY_TOOL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Proportion
    from ctxkit.tokens import ContextBudget

DIFFERENCES = (
    DocumentationDifference(
        "where one pass does not help",
        "not said",
        "up to three passes, then the sample fails: compaction insufficient",
        "as many passes as it takes, and no failure",
    ),
    MEMORY_TOOL_DIFFERENCE,
    DocumentationDifference(
        "a cut between call and result",
        "calls keep their results",
        "an orphaned result is dropped, and so is an orphaned call",
        "the cut moves behind the result",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OldestShareTrim(DataclassPolicy):
    """Drop the oldest share of what follows the first user message, until the prompt is within the
    threshold.
    """

    threshold: float = 0.9
    """Share of the window up to 1, above it tokens."""
    preserve: float = 0.8
    """Share of the messages that one pass leaves."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with the task and its end."""
        limit = common.make_inspect_trigger(self.threshold).tokens(budget)
        # one pass drops a share of the conversation; repeat until the prompt fits
        while history.tokens > limit:
            new = self.trim_once(history)
            if new is history:
                break
            history = new
        return history

    def trim_once(self, history: History) -> History:
        """Return the history after one pass."""
        task = history.next(0, "user")
        start = task + 1 if task >= 0 else 1
        start = history.safe(start) or len(history)
        n = len(history) - start
        first = start + int(n * (1 - self.preserve))
        if first <= start:
            return history
        cut = history.safe(first) or history.safe_before(first)
        return history.drop(cut, f"the oldest of all but {self.preserve:.0%}", start=start)


@make_checked_preset
def inspect_trim(
    *, context_window: int | None = None, threshold: float = 0.9, preserve: Proportion = 0.8
) -> Rules:
    """Return the rules of Inspect's trimming compaction.

    Source: `inspect_ai/model/_compaction/trim.py` and `_trim.py` of inspect_ai 0.3.285.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        threshold: share of the window, or tokens where above 1, over which a compaction is due.
        preserve: share of the messages after the task that one pass leaves.

    Returns:
        Rules that drop the oldest fifth behind the first user message, repeated until the prompt is
        within the threshold.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.inspect_trim(threshold=0.8)
        >>> rules.parameters["threshold"]
        0.8
    """
    return Rules(
        policy=OldestShareTrim(threshold=threshold, preserve=preserve),
        trigger=common.make_inspect_trigger(threshold),
        window=context_window,
    )
