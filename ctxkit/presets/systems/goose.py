"""Goose: at 80 % of the window everything becomes a summary, with the last request behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.registry_and_setting_checks import (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import (
    BaseCustomCutSummary,
    as_summary_message,
    find_end_of_removable,
)
from ctxkit.session.messages import Message, Text, get_plain_text

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Proportion
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the conversation: the user's intent, files, errors, decisions, pending tasks, next"
    " step."
)
CONTINUE_NOTE = (
    "The context was compacted: what was said is in the message before. Go on without"
    " mentioning it."
)

DIFFERENCES = (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference(
        "when",
        "before a reply",
        "before the reply to a request, and after an overflow",
        "before each call, and after an overflow",
    ),
    DocumentationDifference(
        "pairs of call and result",
        "older ones are summarised in the background",
        "turned off in the program (`ENABLE_TOOL_PAIR_SUMMARIZATION`)",
        "never",
    ),
    DocumentationDifference(
        "a request that is too large for the summariser",
        "not said",
        "results are left out of the middle: 10, 20, 50 per cent, all",
        "the summariser is asked once, with all",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SummaryWithLastRequest(BaseCustomCutSummary):
    """Summarise everything, and repeat the last request after the summary."""

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the end of the messages; a pending request is kept instead of repeated."""
        last = len(history) - 1
        if last >= 0 and history[last].role == "user":
            return history.safe_before(last)
        return find_end_of_removable(history)

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the summary, the line that the work continues, and a removed last request."""
        summary_text = super().write_summary(history, first)
        if isinstance(summary_text, int):
            return summary_text
        summary = as_summary_message(summary_text)
        request = history.nth_last("user", 1)
        again = get_plain_text(history[request]) if self.front(history) <= request < first else ""
        parts = (*summary.parts, Text(CONTINUE_NOTE), *((Text(again),) if again else ()))
        return structs.replace(summary, parts=parts)


@make_checked_preset
def goose(
    *,
    context_window: int | None = None,
    auto_compact_threshold: Proportion = 0.8,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Goose's rules.

    Source: `crates/goose/src/context_mgmt/mod.rs` of block/goose at 0036b81 (0.8, `>`, off at 0 and
    at 1, all messages summarised, the user's last message that is text alone repeated).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        auto_compact_threshold: share of the window above which it compacts
            (`GOOSE_AUTO_COMPACT_THRESHOLD`); 0 or 1: only after an overflow.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise everything and repeat the last request, due above a share of the window
        or after an overflow error.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.goose(auto_compact_threshold=0.7)
        >>> rules.parameters["auto_compact_threshold"]
        0.7
    """
    full: Any = Overflow(recorded=True)
    if 0 < auto_compact_threshold < 1:
        full = Share(auto_compact_threshold) | full
    return Rules(
        policy=SummaryWithLastRequest(instructions=add_focus(INSTRUCTIONS, focus)),
        trigger=full,
        window=context_window,
        summariser=summariser,
    )
