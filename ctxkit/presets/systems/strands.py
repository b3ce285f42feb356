"""Strands Agents: a window of 40 messages, or a summary of the oldest 30 % where the window
overflows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Both, Count, Overflow, Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import MiddleSummary, is_request_pending
from ctxkit.session.messages import get_plain_text

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, PositiveShare
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget

EDGE_CHARS = 200
"""Characters that a cut result keeps at each end."""
TRUNCATED_MARK = "\n... [the middle was removed] ...\n"
INSTRUCTIONS = (
    "Write a structured summary in the third person: topics and questions, tools that were run with"
    " their results, code and technical facts, key insights. Bullet points, no conversation."
)

DIFFERENCES = (
    DocumentationDifference(
        "what counts as a message",
        "messages",
        "all results of one reply are one message",
        "each result is one",
    ),
    DocumentationDifference(
        "when the window is applied",
        "after each turn; with `per_turn` before each call, or every so many",
        "as documented",
        "before the first call of a turn, or before each call",
    ),
    DocumentationDifference(
        "an overflow",
        "the oldest results are cut to 200 characters at each end, one message a try",
        "then the window, else it fails",
        "all results that are long enough at once, then the window",
    ),
    DocumentationDifference(
        "proactive compression",
        "off; `True` means 0.7 of the window",
        "as documented",
        "off; a share turns it on",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SlidingMessageWindow(DataclassPolicy):
    """Keep the last messages, from a user message on; where the window overflowed, cut results
    first.
    """

    window_size: int = 40
    """Messages that are kept."""
    pin_first: int = 0
    """Messages at the beginning that stay."""
    truncate: bool = True
    """Whether long results are cut after an overflow."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the window."""
        if self.truncate and Overflow(recorded=True)(history, budget):
            # after an overflow the window moves only where no result can be cut any more
            new = self.truncate_results(history)
            if new is not history:
                return new
        return self.slide_window(history) if len(history) > self.window_size else history

    def slide_window(self, history: History) -> History:
        """Return the last messages, from a user message on, else from a call with its result."""
        # prefer a request as the first message, else any position that separates no pair
        n = len(history)
        start = n - self.window_size
        request = history.next(start, "user") if self.window_size else n
        cut = request if request >= 0 else history.safe(start)
        first = min(self.pin_first, n)
        first = (history.safe(first) or n) if first else 0
        return history.drop(cut, f"older than the last {self.window_size} messages", start=first)

    def truncate_results(self, history: History) -> History:
        """Return the history with long results cut to both ends."""
        changes: dict[int, Message | str] = {}
        long = history.role("tool") & (history.chars > 2 * EDGE_CHARS + len(TRUNCATED_MARK))
        for p in np.flatnonzero(long).tolist():
            text = get_plain_text(history[p])
            # a result that was cut before is not cut again
            if TRUNCATED_MARK not in text:
                changes[p] = message_content_and_truncation.replace_text(
                    history[p],
                    message_content_and_truncation.truncate_middle(
                        text, EDGE_CHARS, EDGE_CHARS, TRUNCATED_MARK
                    ),
                )
        return history.shorten(changes, reason="long results are cut to both ends")


@dataclass(frozen=True, kw_only=True, repr=False)
class OldestShareSummary(MiddleSummary):
    """Summarise the oldest share of the messages, never the last few; once for each call."""

    ratio: float = 0.3
    """Share of the messages that is summarised."""
    preserve: int = 10
    """Messages at the end that are never summarised."""

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        n = len(history)
        count = min(max(1, int(n * self.ratio)), n - self.preserve)
        # `steps` holds what this call has done already: one summary for each call
        return 0 if count <= 0 or history.steps else history.safe(count)


@make_checked_preset
def strands(
    *,
    method: Literal["window", "summary"] = "window",
    context_window: int | None = None,
    window_size: Natural = 40,
    should_truncate_results: bool = True,
    per_turn: bool = False,
    pin_first: Natural = 0,
    proactive_compression: PositiveShare | None = None,
    summary_ratio: float = 0.3,
    preserve_recent_messages: Natural = 10,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of Strands' conversation managers, 1.62.0.

    Source: `strands/agent/conversation_manager/` of strands-agents 1.62.0.

    Args:
        method: `window` (the default manager) or `summary`.
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        window_size: messages that the window keeps; 0: none.
        should_truncate_results: whether an overflow cuts long results before anything is dropped.
        per_turn: apply the window before each call, not only when a turn begins.
        pin_first: messages at the beginning that are never dropped or summarised.
        proactive_compression: share of the window at which it acts without an overflow; None: it
            does not.
        summary_ratio: share of the messages that a summary takes (0.1 to 0.8).
        preserve_recent_messages: messages at the end that are never summarised.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that keep the newest messages or, by `method`, summarise the oldest share; due beyond
        the window of messages or after an overflow error.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.strands(method="summary")
        >>> rules.parameters["method"]
        'summary'
    """
    trigger: Any = Overflow(recorded=True)
    if proactive_compression is not None:
        trigger = trigger | Share(proactive_compression, or_equal=True)
    policy: Any = OldestShareSummary(
        keep_messages=max(preserve_recent_messages, 1),
        keep_first=pin_first,
        ratio=max(0.1, min(0.8, summary_ratio)),
        preserve=preserve_recent_messages,
        instructions=add_focus(INSTRUCTIONS, focus),
    )
    if method == "window":
        policy = SlidingMessageWindow(
            window_size=window_size, pin_first=pin_first, truncate=should_truncate_results
        )
        full = Count(window_size + 1)
        # the window moves when a turn begins, with `per_turn` before each call
        trigger = trigger | (full if per_turn else Both((full, is_request_pending)))
    return Rules(
        policy=policy,
        trigger=trigger,
        window=context_window,
        summariser=summariser,
    )
