"""Roo Code: a summary of everything at a share of the window; if that fails, the older half is
dropped.
"""

from __future__ import annotations

from typing import Any

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.policy_base_and_chains import Fallback
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.registry_and_setting_checks import (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    check_between,
    check_window,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import DropOlderHalf, SummariseAll

BUFFER_SHARE = 0.1
"""Share of the window that is reserved in addition to the reply."""
INSTRUCTIONS = (
    "Summarise the conversation so far: requests, what was done, problems, pending tasks, next"
    " step."
)

DIFFERENCES = (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference(
        "what the summary holds besides",
        "the work goes on as if nothing had happened",
        "commands of the first message, outlines of the files that were read, the editor's state",
        "none of these: the log does not hold them",
    ),
    DocumentationDifference(
        "default of the share",
        "100 % in the settings",
        "a setting of the profile goes first",
        "100 %: then the buffer decides",
    ),
    DocumentationDifference(
        "a summary that fails",
        "the older half is hidden instead",
        "only where the prompt is over what is allowed; below that nothing is done",
        "the older half goes in both cases",
    ),
    DocumentationDifference(
        "a hidden half",
        "messages are hidden and come back where the user goes back",
        "a line says how many were hidden",
        "they are dropped, without that line",
    ),
)


@make_checked_preset
def roo(
    *,
    context_window: int | None = None,
    max_tokens: int = 8192,
    auto_condense_context: bool = True,
    auto_condense_context_percent: int = 100,
    custom_condensing_prompt: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Roo Code's rules.

    Source: `src/core/context-management/index.ts` (0.1 of the window, half, even) and
    `src/core/condense/index.ts` (the summary of everything, 5 to 100 %) of RooCodeInc/Roo-Code at
    cb83656; `packages/types/src/providers/anthropic.ts` at 2d8837c (8,192).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        max_tokens: tokens reserved for the reply.
        auto_condense_context: whether a summary is made; else the older half is dropped.
        auto_condense_context_percent: per cent of the window from which a summary is made (5 to
            100).
        custom_condensing_prompt: instructions for the summariser, instead of the default ones.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise everything at a share of the window, and drop half of the messages
        where that does not help.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.roo(auto_condense_context_percent=80)
        >>> rules.parameters["auto_condense_context_percent"]
        80
    """
    check_between(5, 100, auto_condense_context_percent=auto_condense_context_percent)
    half = DropOlderHalf(keep_first=1, quarter=False, pairs="all")
    window = context_window or 200_000
    reserve = max_tokens + int(BUFFER_SHARE * window)
    check_window(window, reserve)
    policy: Any = half
    full: Any = Share(1.0, of="budget") | Overflow(recorded=True)
    if auto_condense_context:
        policy = Fallback(
            [SummariseAll(instructions=custom_condensing_prompt or INSTRUCTIONS), half]
        )
        full = Share(auto_condense_context_percent / 100, or_equal=True) | full
    return Rules(
        policy=policy,
        trigger=full,
        window=context_window,
        reserve=reserve,
        summariser=summariser,
    )
