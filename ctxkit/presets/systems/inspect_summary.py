"""Inspect's `CompactionSummary`: the task stays, all that follows becomes one summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.presets import shared_summaries_and_clearing as common
from ctxkit.presets.registry_and_setting_checks import (
    MEMORY_TOOL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import MiddleSummary, find_end_of_removable

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget

SUMMARY_PREFIX = "[CONTEXT COMPACTION SUMMARY]\n\n"
INSTRUCTIONS = (
    "Summarise the work so far in detail: requests, concepts, files and code, errors and fixes,"
    " problems solved, what the user said, pending tasks, current work and the next step. Keep"
    " constraints of the user word for word."
)

DIFFERENCES = (
    DocumentationDifference(
        "input of a task",
        "all messages of the sample's input stay",
        "those marked so; without any, up to the first user message",
        "up to the first user message",
    ),
    DocumentationDifference(
        "an input too long for the summariser",
        "tool output is shortened",
        "the largest output is halved, up to twelve times",
        "as it is",
    ),
    MEMORY_TOOL_DIFFERENCE,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskAndSummary(MiddleSummary):
    """Keep what comes up to the first user message; summarise all the rest."""

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position that may be summarised: behind the first user message."""
        task = history.next(0, "user")
        if task >= 0 and not history.role("summary")[:task].any():
            first = max(first, task + 1)
        return super().front(history, first)

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the end: nothing after the task is kept as it is."""
        return find_end_of_removable(history)


@make_checked_preset
def inspect_summary(
    *,
    context_window: int | None = None,
    threshold: float = 0.9,
    instructions: str = "",
    prompt: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of Inspect's summary compaction.

    Source: `inspect_ai/model/_compaction/summary.py` of inspect_ai 0.3.285.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        threshold: share of the window, or tokens where above 1, over which a compaction is due.
        instructions: further instructions for the summariser.
        prompt: instructions that replace the default ones.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise all behind the first user message, due above the threshold.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.inspect_summary(threshold=0.8)
        >>> rules.parameters["threshold"]
        0.8
    """
    policy = TaskAndSummary(
        keep_messages=1,
        prefix=SUMMARY_PREFIX,
        instructions="\n\n".join(t for t in (prompt or INSTRUCTIONS, instructions) if t),
    )
    return Rules(
        policy=policy,
        trigger=common.make_inspect_trigger(threshold),
        window=context_window,
        summariser=summariser,
    )
