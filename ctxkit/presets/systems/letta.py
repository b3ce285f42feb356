"""Letta: summarises the oldest 30 % of the messages, or more in steps of a tenth until the rest
fits; or all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import MiddleSummary, find_end_of_removable

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import PositiveShare
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the evicted messages so that the remaining ones make sense: goals, what happened,"
    " important details, errors and fixes, what is at work now. Take up an earlier summary."
)

DIFFERENCES = (
    DocumentationDifference(
        "when",
        "when the history grows too long for the window",
        "not to be read: the server's repository is archived",
        "at nine tenths of the window, an assumption",
    ),
    DocumentationDifference(
        "where the cut falls",
        "about 70 % of the newest stay",
        "not to be read",
        "at the next place at which no call is parted from its result",
    ),
    DocumentationDifference(
        "memory blocks",
        "part of the system prompt, never compacted",
        "as documented",
        "part of the fixed prompt of a log",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class LettaSummary(MiddleSummary):
    """Summarise the oldest share of the messages, a tenth more at a time until what stays fits; or
    all of them.
    """

    share: float | None = 0.3
    """Share of the messages that is summarised; None: all."""
    goal: float = 0.9
    """Share of the window that what stays must fit, to the tokens of the summary."""

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if self.share is None:
            return find_end_of_removable(history)
        if history.steps:
            return 0
        # the tokens that may stay are those beside the first share; they do not shrink with it
        share, most = self.share, self.goal * budget.limit * (1 - self.share)
        # widen the summarised share by tenths until the rest fits
        while share < 1:
            first = history.safe(int(n * share))
            if first and history.tokens - history.before(first) <= most:
                return first
            share += 0.1
        return history.safe_before(n - 1) if n > 1 else 0


@make_checked_preset
def letta(
    *,
    context_window: int | None = None,
    mode: Literal["sliding_window", "all"] = "sliding_window",
    sliding_window_percentage: float = 0.3,
    clip_chars: int | None = 50_000,
    threshold: PositiveShare = 0.9,
    prompt: str = "",
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Letta's rules, as its documentation describes `compaction_settings`.

    Source: docs.letta.com, "Compaction (summarization)" (mode, 0.3, steps of about a tenth, 50,000
    characters; 2,000 in an earlier version of the page).

    Not confirmed: the share of the window at which it is due, which is not documented.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        mode: `sliding_window` keeps the newest messages; `all` summarises everything.
        sliding_window_percentage: share of the messages, the oldest, that is summarised at least.
        clip_chars: characters of a summary; None: any number.
        threshold: share of the window at which a compaction is due (an assumption).
        prompt: instructions for the summariser, instead of the default ones.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise the oldest share of the messages, more in steps of a tenth until the
        rest fits.

    Raises:
        BadArguments: sliding_window_percentage is not between 0 and 1.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.letta(sliding_window_percentage=0.5)
        >>> rules.parameters["sliding_window_percentage"]
        0.5
    """
    if not 0 < sliding_window_percentage < 1:
        raise BadArguments("sliding_window_percentage is a share above 0 and below 1.")
    policy = LettaSummary(
        keep_messages=1,
        share=sliding_window_percentage if mode == "sliding_window" else None,
        goal=threshold,
        limit=None if clip_chars is None else max(clip_chars // 4, 1),
        instructions=add_focus(prompt or INSTRUCTIONS, focus),
    )
    return Rules(
        policy=policy,
        trigger=Share(threshold) | Overflow(recorded=True),
        window=context_window,
        summariser=summariser,
    )
