"""Semantic Kernel's history reducers: beyond a number of messages the oldest are summarised or
dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Count
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets.registry_and_setting_checks import (
    LARGER_SUMMARY_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the conversation in at most five sentences: what remains and what is unclear;"
    " integrate earlier summaries; say nothing of the summary itself."
)

DIFFERENCES = (
    DocumentationDifference(
        "target_count", "required", "no default", "20, so that the preset can be compared"
    ),
    DocumentationDifference(
        "calls and results",
        "left out of what the summariser sees",
        "`include_function_content_in_summary` puts them in",
        "the summariser sees them",
    ),
    LARGER_SUMMARY_DIFFERENCE,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SummarisationReducer(Summary):
    """Summarise the oldest, so that the target remains; a user message within the threshold begins
    what is kept.
    """

    apart: bool = False
    target: int = 20
    """Messages that are kept."""
    threshold: int = 0
    """Messages beyond the target that are put up with."""

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        return find_reduction_cut(history, self.target, self.threshold)


@dataclass(frozen=True, kw_only=True, repr=False)
class TruncationReducer(DataclassPolicy):
    """Drop the oldest, so that the target remains."""

    target: int = 20
    """Messages that are kept."""
    threshold: int = 0
    """Messages beyond the target that are put up with."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the last messages."""
        first = find_reduction_cut(history, self.target, self.threshold)
        return history.drop(first, f"more than {self.target} messages")


# The cut is found in three steps. (1) `target` messages are counted from the end. (2) From there
# the cut moves back over a run of calls and results, so that none is parted. (3) Within `threshold`
# messages before the target it moves back to a user message, if there is one. A first system
# message and a first summary are not among the messages that are reduced; the system message counts
# towards the target. Cost: linear in run and threshold.
def find_reduction_cut(history: History, target: int, threshold: int) -> int:
    """Return where what is kept begins: the target, back over tool use, then to a user message."""
    n = len(history)
    if n <= target + threshold:
        return 0
    if history[0].role == "system" and n > target:  # it is put back in front, and counts
        target -= 1
        if not target:
            return n
    # a summary at the front is not part of the messages to reduce
    offset = int(history[0].role == "summary")
    least = n - threshold - target
    if least <= offset:
        return 0
    first = n - target
    first = find_tool_run_start(history, first, offset)
    request = next((p for p in range(first, least - 1, -1) if history[p].role == "user"), first)
    return history.safe_before(request)


def find_tool_run_start(history: History, position: int, start: int) -> int:
    """Return where the run of tool use begins that a position is in, `start` at the earliest."""
    # recorded messages have a table of runs; only those of the head are looked at singly
    nh, lo = history.head.size, history.lo
    if position >= nh and _uses_tools(history[position]):
        rows = _run_starts(history.log)
        position = nh + max(rows[lo + position - nh], lo) - lo
        if position > nh:
            return max(position, start)
    while (
        position > start and _uses_tools(history[position]) and _uses_tools(history[position - 1])
    ):
        position -= 1
    return position


def _run_starts(log: MessageLog) -> list[int]:
    """Return for each row of a log the first row of its run of tool use; else the row itself."""
    # the table is kept with the log and extended as it grows: linear over a session
    starts: list[int] = log.memo.setdefault("runs of tools", [])
    for row in range(len(starts), len(log)):
        goes_on = row > 0 and _uses_tools(log.messages[row - 1]) and _uses_tools(log.messages[row])
        starts.append(starts[row - 1] if goes_on else row)
    return starts


def _uses_tools(message: Message) -> bool:
    """Return whether a message is a tool's result or holds a call."""
    return message.role == "tool" or bool(message.tool_calls)


@make_checked_preset
def semantic_kernel(
    *,
    method: Literal["summary", "truncation"] = "summary",
    context_window: int | None = None,
    target_count: Positive = 20,
    threshold_count: Natural = 0,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of `ChatHistorySummarizationReducer` or `ChatHistoryTruncationReducer`,
    1.45.0.

    Source: `semantic_kernel/contents/history_reducer/` of semantic-kernel 1.45.0 (one summary for
    all, five sentences, the first system message stays and counts).

    Args:
        method: `summary` or `truncation`.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        target_count: messages that remain.
        threshold_count: messages beyond them before anything is done; within it a user message is
            looked for.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise or drop the oldest messages, due above a number of messages.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.semantic_kernel(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    policy: Any = TruncationReducer(target=target_count, threshold=threshold_count)
    if method == "summary":
        policy = SummarisationReducer(
            keep_messages=target_count,
            target=target_count,
            threshold=threshold_count,
            instructions=add_focus(INSTRUCTIONS, focus),
        )
    return Rules(
        policy=policy,
        trigger=Count(target_count + threshold_count + 1),
        window=context_window,
        summariser=summariser,
    )
