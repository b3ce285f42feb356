"""Aider: a chat history above a few thousand tokens becomes a summary and its newest half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Above, Both
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import BaseCustomCutSummary, is_request_pending

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Positive
    from ctxkit.tokens import ContextBudget

MIN_HISTORY_TOKENS, MAX_HISTORY_TOKENS, WINDOW_DIVISOR = 1024, 8192, 16
MIN_SPLIT = 4
"""Messages up to which all are summarised."""
INSTRUCTIONS = (
    "Summarise this conversation about code briefly, as the user would tell it: functions, files,"
    " packages."
)

DIFFERENCES = (
    DocumentationDifference(
        "what counts",
        "the chat history",
        "only messages of earlier turns; files and the repository's map are sent apart",
        "all messages but the pending request",
    ),
    DocumentationDifference(
        "size of a message",
        "tokens",
        "of its JSON, by the model's tokenizer",
        "a quarter of its characters",
    ),
    DocumentationDifference(
        "a result that is still too large",
        "not said",
        "is summarised again, up to three times, then whole",
        "stays: the next turn summarises it again",
    ),
    DocumentationDifference(
        "when",
        "after a reply",
        "in the background, by the weak model",
        "before the next turn's call",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class AiderSummary(BaseCustomCutSummary):
    """Keep the newest messages below half of the limit; the head ends with a reply."""

    estimated: bool = True
    limit_tokens: int = MIN_HISTORY_TOKENS
    """Tokens that the history may have."""

    # Aider splits its history at half of the limit, counted from the end, and moves the split back
    # until the head ends with a reply. The pending request is not part of the history. Where the
    # head would have no more than `MIN_SPLIT` messages, everything but that request is summarised.
    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept: behind a reply."""
        n = len(history) - 1  # the pending request
        if n <= MIN_SPLIT:
            return history.safe_before(max(n, 0))
        # half of the limit from the end, then back to a reply
        whole, p = history.before(n, estimated=True), n
        while p and whole - history.before(p - 1, estimated=True) < self.limit_tokens // 2:
            p -= 1
        while p > 1 and history[p - 1].role != "assistant":
            p -= 1
        return history.safe_before(n if p <= MIN_SPLIT else p)


@make_checked_preset
def aider(
    *,
    context_window: int | None = None,
    max_chat_history_tokens: Positive | None = None,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Aider's rules.

    Source: `aider/history.py` of Aider-AI/aider at 041f3a4 (`ChatSummary`: `>`, half, four
    messages, the head ends with a reply); `aider/models.py` at 5dc9490 (a sixteenth of the
    window, from 1,024 to 8,192).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        max_chat_history_tokens: tokens that the history may have; None: a sixteenth of the window,
            1,024 to 8,192.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules whose summary takes the older half of the history, due where the user has spoken and
        the history is above the limit by Aider's estimate.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.aider(max_chat_history_tokens=4_000)
        >>> rules.parameters["max_chat_history_tokens"]
        4000
    """
    limit = max_chat_history_tokens
    if limit is None:
        limit = min(
            max((context_window or 200_000) // WINDOW_DIVISOR, MIN_HISTORY_TOKENS),
            MAX_HISTORY_TOKENS,
        )
    return Rules(
        policy=AiderSummary(limit_tokens=limit, instructions=add_focus(INSTRUCTIONS, focus)),
        trigger=Both((Above(limit, estimated=True), is_request_pending)),
        window=context_window,
        estimator="chars/4",
        summariser=summariser,
    )
