"""Google's Agent Development Kit: summaries of events, by tokens or by number of invocations; off
by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.triggers import Above, Both, Turns
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import MiddleSummary, is_request_pending

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the conversation: what was asked, what was found and decided, what is open."
)

DIFFERENCES = (
    DocumentationDifference(
        "by invocations, what is summarised",
        "the new invocations and, before them, `overlap_size` earlier ones",
        "as the document",
        "the new invocations; those before stand in the summary before, and are not read again",
    ),
    DocumentationDifference(
        "by tokens, when",
        "after an invocation",
        "before each call of the model too; what counts is the prompt of the call before",
        "before each call; what counts is the coming prompt",
    ),
    DocumentationDifference(
        "by invocations, when",
        "after an invocation",
        "as the document",
        "before the first call of the next turn, which shows the same",
    ),
    DocumentationDifference(
        "a summary that does not pay",
        "not said",
        "not asked for where the range is no larger than the last summary; taken where it is larger"
        " than the range",
        "made, and refused where the prompt would grow",
    ),
    DocumentationDifference(
        "what counts as an event",
        "events",
        "the results of one reply are one event",
        "each result is one",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdkSummary(MiddleSummary):
    """By tokens one rolling summary, before the last events; by invocations one summary beside the
    other.
    """

    events: int | None = None
    """Messages at the end that are kept where it is by tokens."""
    interval: int | None = None
    """Turns that are summarised together where it is by invocations."""
    threshold: int = 0
    """Tokens from which it is by tokens."""

    def by_tokens(self, history: History) -> bool:
        """Say which of the two ways it is: the tokens come first."""
        return self.events is not None and (
            self.interval is None or history.tokens >= self.threshold
        )

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if self.by_tokens(history):
            return history.safe_before(max(n - (self.events or 0), 0))
        return history.safe_before(
            max(history.nth_last("user", 1), 0)
        )  # the turn that now begins is no part of it

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position that may go; by invocations, behind summaries that stand."""
        # by invocations a summary is never summarised again: only what follows the last one is
        summaries = np.flatnonzero(history.role("summary"))
        if len(summaries) and not self.by_tokens(history):
            first = int(summaries[-1]) + 1
        return super().front(history, first)


@make_checked_preset
def adk(
    *,
    context_window: int | None = None,
    compaction_interval: Positive | None = None,
    overlap_size: Natural | None = None,
    token_threshold: Positive | None = None,
    event_retention_size: Natural | None = None,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of ADK's `EventsCompactionConfig`, 2.13.0; nothing is compacted unless one
    pair is set.

    Source: `google/adk/apps/_configs.py`, `apps/compaction.py` and
    `flows/llm_flows/context/_compaction.py` of google-adk 2.13.0; its documentation (the example is
    an interval of 3 with an overlap of 1).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        compaction_interval: new user turns after which a compaction is due; with `overlap_size`.
        overlap_size: turns before the new ones that the summariser reads once more; it changes
            nothing here.
        token_threshold: tokens of the prompt at which one is due; with `event_retention_size`.
        event_retention_size: events at the end that are kept as they are.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that do nothing unless a pair is set; then one summary in place of the events before
        the last ones.

    Raises:
        BadArguments: of a pair (token_threshold and event_retention_size, or compaction_interval
            and overlap_size) only one is set.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.adk(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    if (token_threshold is None) != (event_retention_size is None):
        raise BadArguments("token_threshold and event_retention_size must be set together.")
    if (compaction_interval is None) != (overlap_size is None):
        raise BadArguments("compaction_interval and overlap_size must be set together.")
    ways: list[Any] = []
    if token_threshold is not None:
        ways.append(Above(token_threshold, or_equal=True))
    if compaction_interval is not None:
        # by invocations a compaction is due only when a turn begins
        ways.append(Both((Turns(compaction_interval), is_request_pending)))
    if not ways:
        return Rules(window=context_window)
    policy = AdkSummary(
        keep_messages=1,
        events=event_retention_size,
        interval=compaction_interval,
        threshold=token_threshold or 0,
        instructions="\n\n".join(t for t in (INSTRUCTIONS, focus) if t),
    )
    return Rules(
        policy=policy,
        trigger=ways[0] if len(ways) == 1 else ways[0] | ways[1],
        window=context_window,
        summariser=summariser,
    )
