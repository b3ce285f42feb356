"""OpenHands' software agent SDK: a summary replaces the older half of the events, except the first
two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.triggers import Above, Count, Overflow
from ctxkit.presets.registry_and_setting_checks import (
    LARGER_SUMMARY_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import MiddleSummary

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget

DIFFERENCES = (
    DocumentationDifference(
        "what counts",
        "events",
        "each tool call and each result is an event, the calls of one reply too",
        "messages: calls in one reply are one",
    ),
    DocumentationDifference(
        "nothing that could be condensed",
        "not said",
        "above the size it is put off; above the tokens and on request everything is summarised",
        "as the program; after an overflow too",
    ),
    LARGER_SUMMARY_DIFFERENCE,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenHandsSummary(MiddleSummary):
    """Summarise the middle: the first events stay, and half of the allowed events remain in all."""

    max_size: int = 240
    """Messages above which it is due."""
    max_tokens: int | None = None
    """Tokens above which it is due, where that is less than the window."""
    minimum_progress: float = 0.1
    """Share of the messages that must be forgotten at least."""

    whole: bool = False
    """Forget everything, where a condensation must be and there is nothing else to forget."""

    # A condensation is soft where there are too many events and the tokens still fit: it may fail
    # without harm. Otherwise (too many tokens, an overflow, by hand) it is hard: if the middle
    # cannot be forgotten, everything is, once for each call.
    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with its middle summarised; if that fails and must be, all of it."""
        new = super().__call__(history, budget)
        soft = len(history) > self.max_size and history.tokens <= self.get_max_tokens(budget)
        if new is not history or self.whole or soft or history.steps:
            return new
        return replace(self, whole=True, keep_first=0)(history, budget)

    def get_max_tokens(self, budget: ContextBudget) -> int:
        """Return the tokens above which it is due."""
        return min(self.max_tokens or budget.limit, budget.limit)

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first of the last messages that are kept."""
        n = len(history)
        if self.whole:
            return history.safe_before(n)
        # Tail length by each limit that is exceeded (events, tokens); the shorter tail wins.
        tails = []
        # half of the events stay, of which the summary is one: hence `- keep_first - 1`
        if n > self.max_size:
            tails.append(self.max_size // 2 - self.keep_first - 1)
        most = self.get_max_tokens(budget)
        if history.tokens > most:  # what is left is below the half, not at it
            tails.append(n - history.fitting(most // 2 - 1, start=min(self.keep_first, n)))
        if not tails:  # asked for: by hand, or after an overflow; once is enough
            tails = [n if history.steps else n // 2 - self.keep_first - 1]
        end = n - max(min(tails), 0)
        cut = history.safe(end) if end < n else history.safe_before(n)
        return cut if cut - self.front(history) >= self.minimum_progress * n else 0


@make_checked_preset
def openhands(
    *,
    context_window: int | None = None,
    max_size: int = 240,
    max_tokens: int | None = None,
    keep_first: int = 2,
    minimum_progress: float = 0.1,
    summariser: Any = None,
) -> Rules:
    """Return the rules of OpenHands' `LLMSummarizingCondenser`.

    Source: `context/condenser/llm_summarizing_condenser.py` of openhands-sdk 1.58 (the
    class's own defaults; its `default_condenser` sets a max_size of 80 and a keep_first of 4).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        max_size: events above which a condensation is due; half of them remain.
        max_tokens: tokens of the prompt above which it is due, the window's at the most; less than
            half of them remain.
        keep_first: events at the beginning that are never forgotten.
        minimum_progress: share of the events that a condensation must forget.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that put one event in place of the middle, due above the number of messages or tokens,
        or after an overflow error.

    Raises:
        BadArguments: keep_first is not below half of max_size less one, or minimum_progress is not
            from 0 up to 1.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.openhands(max_size=120)
        >>> rules.parameters["max_size"]
        120
    """
    if max_size < 1 or keep_first < 0 or max_size // 2 - keep_first - 1 <= 0:
        raise BadArguments(
            f"keep_first ({keep_first}) must lie below half of max_size ({max_size}) less one: "
            "otherwise a condensation keeps nothing of the end."
        )
    if not 0 <= minimum_progress < 1:
        raise BadArguments("minimum_progress is a share from 0 up to 1.")
    trigger: Any = Count(max_size + 1) | Overflow(recorded=True) | Overflow()
    if max_tokens is not None:
        trigger = trigger | Above(max_tokens)
    policy = OpenHandsSummary(
        keep_messages=max_size // 2 - keep_first - 1,
        keep_first=keep_first,
        max_size=max_size,
        max_tokens=max_tokens,
        minimum_progress=minimum_progress,
    )
    return Rules(
        policy=policy,
        trigger=trigger,
        window=context_window,
        summariser=summariser,
    )
