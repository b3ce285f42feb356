"""Jev (fast-jev-compaction): no summary; a scorer chooses the tool calls and results to drop, and
all text stays verbatim.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  read by dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.history.growing_columns_and_sums import TOOL
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import find_api_message_starts
from ctxkit.session.messages import (
    Message,
    get_plain_text,
)

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Proportion
    from ctxkit.tokens import ContextBudget

SLACK_CHARS = 120
"""Characters beyond the head up to which a result is left whole: its note would be as long."""

DIFFERENCES = (
    DocumentationDifference(
        "who decides",
        "a hosted model scores each call and each result",
        "it is sent the whole conversation without results",
        "every old result goes and every call stays, unless `scorer` is given",
    ),
    DocumentationDifference(
        "when",
        "where Claude Code compacts",
        "in its hook, also by hand",
        "above a share of the window that is set here",
    ),
    DocumentationDifference(
        "where too little is freed",
        "Claude Code's own summary",
        "below a share that the plugin's options name",
        "nothing more is done",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoredResultTrim(DataclassPolicy):
    """Cut old results to their head, or leave them out with their calls; text is never touched."""

    preserve_recent: Natural = 6
    """Messages at the end whose calls stay; results in a row are one message."""
    head_chars: Natural = 300
    """Characters that a cut result keeps."""
    threshold: Proportion = 0.5
    """Minimum score at which a call, or a result, stays."""
    scorer: Callable[[Message], tuple[float, float]] | None = None
    """``(result) -> (keep its call, keep it)``, each from 0 to 1; None: ``(1, 0)``."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the history with less of its old results."""
        starts = find_api_message_starts(history)
        if self.preserve_recent >= len(starts):
            return history
        edge = int(starts[-self.preserve_recent]) if self.preserve_recent else len(history)
        cut: dict[int, Message | str] = {}
        gone: list[int] = []
        results = (history.column("roles") == TOOL) & ~history.stays
        if self.scorer is None:  # none is left out, so only long ones are looked at
            results &= history.chars > self.head_chars + SLACK_CHARS
        # low score of the result: shorten it; low score of the call too: drop both
        for p in np.flatnonzero(results[:edge]).tolist():
            message = history[p]
            call, result = (1.0, 0.0) if self.scorer is None else self.scorer(message)
            if result >= self.threshold:
                continue
            if call < self.threshold:
                gone.append(p)
            elif (short := self.short(message)) is not message:
                cut[p] = short
        new = history.shorten(cut, reason="old results are cut to their head")
        return drop_results_and_calls(new, gone)

    def short(self, message: Message) -> Message:
        """Return a result as head and note; itself with images, or where that is not shorter."""
        text = get_plain_text(message)
        if len(text) <= self.head_chars + SLACK_CHARS or message_content_and_truncation.has_images(
            message
        ):
            return message
        head = f"{text[: self.head_chars]}\n" if self.head_chars else ""
        failed = " (error)" if message.is_error else ""
        note = (
            f"[cut {len(text) - self.head_chars} characters of this result{failed}; run the tool"
            " again if needed]"
        )
        return message_content_and_truncation.replace_text(message, head + note)


def drop_results_and_calls(history: History, positions: list[int]) -> History:
    """Return the history without some results and the calls they answer; a reply's text stays."""
    if not positions:
        return history
    groups, rows, places = history.log.groups, history.column("rows").tolist(), set(positions)
    dropped_calls: dict[int, set[str | None]] = {}
    for p in positions:
        # ids of calls are unique in a group (a reply and its results), not in a log
        dropped_calls.setdefault(groups[rows[p]], set()).add(history[p].call_id)
    remaining = []
    for p, message in enumerate(history.messages):
        if p in places:
            continue
        new = message_content_and_truncation.without_calls(message, dropped_calls.get(rows[p], ()))
        # a reply that held nothing but the dropped calls goes, too
        if new is message or new.parts:
            remaining.append(new)
    return history.become(remaining, "calls and results that are no longer needed", method="jev")


@make_checked_preset
def jev(
    *,
    context_window: int | None = None,
    compact_at: float = 0.8,
    keep_threshold: float = 0.5,
    preserve_recent_messages: int = 6,
    truncate_head_chars: int = 300,
    scorer: Any = None,
) -> Rules:
    """Return Jev's rules: all but the last messages lose tool results, but never text.

    Source: `src/compact.ts` of tamaratran/fast-jev-compaction at 15c1ea2 (`DEFAULT_OPTIONS`: 0.5,
    6, 300; the decisions on a call; the slack of 120 characters).

    Not confirmed: the share at which it compacts (0.8).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        compact_at: share of the window above which it compacts; there Claude Code decides.
        keep_threshold: minimum score at which a call, or a result, stays.
        preserve_recent_messages: messages at the end whose calls stay.
        truncate_head_chars: characters that a cut result keeps.
        scorer: scores a result, ``(message) -> (keep its call, keep it)``; None: keep all
            calls and no old result.

    Returns:
        Rules that cut or drop scored tool results and write no summary, due above a share of the
        window or after an overflow error.

    Raises:
        BadArguments: scorer cannot be called.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.jev(compact_at=0.7)
        >>> rules.parameters["compact_at"]
        0.7
    """
    if scorer is not None and not callable(scorer):
        raise BadArguments(
            f"scorer is called with a result and returns two scores; {scorer!r} cannot be called."
        )
    policy = ScoredResultTrim(
        preserve_recent=preserve_recent_messages,
        head_chars=truncate_head_chars,
        threshold=keep_threshold,
        scorer=scorer,
    )
    return Rules(
        policy=policy,
        trigger=Share(compact_at) | Overflow(recorded=True),
        window=context_window,
    )
