"""Cline: near the window, a summary and whole turns, about 20,000 tokens; in version 3 half of
the messages were dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.registry_and_setting_checks import (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import DropOlderHalf

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History

INSTRUCTIONS = (
    "Summarise the coding session so that the work can go on: what was done, decisions, files, next"
    " steps."
)
INPUT_SHARE = 0.9
"""Share of the window that a prompt may have, where the model names no limit of its own."""

DIFFERENCES = (
    LAST_CALL_DIFFERENCE,
    DocumentationDifference(
        "size of a message",
        "not said",
        "a quarter of the characters of its JSON",
        "a quarter of its characters",
    ),
    DocumentationDifference(
        "basic strategy",
        "not said",
        "after an overflow, and where it is chosen: all requests, the last answers that fit, and"
        " notes on what went",
        "the summary is made there, too",
    ),
    DocumentationDifference(
        "what the summariser is sent",
        "not said",
        "results of at most 2,000 characters, fitted into its own window",
        "the messages",
    ),
    DocumentationDifference(
        "3.x: repeated reads",
        "files that were read again are shortened first; where that frees 30 %, nothing is dropped",
        "as documented",
        "the messages are dropped at once: put `superseded` before it for the reads",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ClineSummary(Summary):
    """Keep the newest tokens and the last turn whole, never less; summarise the rest."""

    apart: bool = False
    estimated: bool = True

    def move_to_safe_cut(self, history: History, position: int) -> int:
        """Return the cut at or before a position, and at or before the last request."""
        # the last request and all behind it stay, even where they are more than the tokens kept
        last = history.nth_last("user", 1)
        return history.safe_before(min(position, last) if last > 0 else position)


def get_reserve_for_window(window: int) -> int:
    """Return the tokens that Cline 3.x holds free of a window."""
    reserves = {64_000: 27_000, 128_000: 30_000, 200_000: 40_000}
    return reserves.get(window, min(40_000, window // 5))


@make_checked_preset
def cline(
    *,
    version: Literal["sdk", "3"] = "sdk",
    context_window: int | None = None,
    max_input_tokens: int | None = None,
    trigger_ratio: float = 0.9,
    preserve_recent_tokens: int = 20_000,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Cline's rules.

    Source: `sdk/packages/core/src/extensions/context/` of cline/cline at 21cb8d2
    (`compaction-shared.ts`: 0.9 of the window, 0.9 of that, 20,000, the cut;
    `compaction.ts`: `>=`); for version 3 `src/core/context/context-management/` before 791d238
    (`context-window-utils.ts`, `getNextTruncationRange`).

    Args:
        version: `sdk` (the core of today) or `3` (first pair kept, half of the rest dropped, or
            three quarters).
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        max_input_tokens: tokens of prompt that it takes; None: 0.9 of the window.
        trigger_ratio: share of these from which a compaction is due; not for version 3.
        preserve_recent_tokens: tokens at the end that stay as they are, with the whole last turn.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise all but the newest tokens and the last turn, due near the window or
        after an overflow error.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.cline(version="3")
        >>> rules.parameters["version"]
        '3'
    """
    more: dict[str, Any] = {"estimator": "chars/4"}
    if version == "3":
        reserve = get_reserve_for_window(context_window or 200_000)
        full = Share(1.0, of="budget", or_equal=True) | Overflow(recorded=True)
        return Rules(
            policy=DropOlderHalf(), trigger=full, window=context_window, reserve=reserve, **more
        )
    policy = ClineSummary(
        keep_tokens=preserve_recent_tokens, instructions=add_focus(INSTRUCTIONS, focus)
    )
    # without a limit on input, nine tenths of the window count as one
    share = trigger_ratio * (INPUT_SHARE if max_input_tokens is None else 1.0)
    window = context_window if max_input_tokens is None else max_input_tokens
    return Rules(
        policy=policy,
        trigger=Share(share, or_equal=True) | Overflow(recorded=True),
        window=window,
        summariser=summariser,
        **more,
    )
