"""Inspect's `CompactionEdit`: old tool results and old thinking are cleared permanently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets import shared_summaries_and_clearing as common
from ctxkit.presets.registry_and_setting_checks import (
    MEMORY_TOOL_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)
from ctxkit.session.messages import Text

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget

REMOVED_PLACEHOLDER = "(Tool result removed)"

DIFFERENCES = (
    DocumentationDifference(
        "where it does not help",
        "not said",
        "up to three passes, then the sample fails: compaction insufficient",
        "one pass; where it is not enough the prompt stays over the threshold",
    ),
    MEMORY_TOOL_DIFFERENCE,
    DocumentationDifference(
        "one tool use",
        "a call with its result",
        "the tools of the provider's server count as well",
        "results in the log",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ThinkingAndToolClearing(DataclassPolicy):
    """Clear old thinking and old tool uses, or put a text in place of a whole use."""

    keep: Natural = 3
    """Tool uses at the end that stay whole."""
    exclude: tuple[str, ...] = ()
    """Names or globs of the tools whose uses are neither cleared nor counted."""
    thinking_turns: int | None = 1
    """Replies at the end that keep their thinking; None: all keep it."""
    keep_inputs: bool = True
    """Whether the calls stay where their results are cleared."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the history without old thinking and old tool results."""
        new = self.clear_thinking(history)
        if self.keep_inputs:
            return new.shorten(
                self._find_old_results(new),
                REMOVED_PLACEHOLDER,
                reason="old tool results are removed",
            )
        changes = self.replace_old_uses(new)
        shorter = new.replace(changes, reason="old tool uses are removed") if changes else new
        # a note may be longer than the use that it stands for
        return shorter if shorter.tokens < new.tokens else new

    def clear_thinking(self, history: History) -> History:
        """Return the history without the thinking of old replies."""
        if self.thinking_turns is None:
            return history
        replies = np.flatnonzero(history.role("assistant"))
        old = replies[: max(len(replies) - self.thinking_turns, 0)]
        old = old[history.column("thinks")[old] & ~history.stays[old]]
        shortened = {
            p: message_content_and_truncation.without_reasoning(history[p]) for p in old.tolist()
        }
        # a reply that holds nothing but thinking would be left empty: it stays whole
        changes = {p: new for p, new in shortened.items() if new.parts}
        return history.shorten(changes, reason="old thinking is cleared")

    def _find_old_results(self, history: History) -> np.ndarray:
        """Return the positions of the results that are removed, oldest first."""
        recorded = history.column("rows") >= 0
        rows = np.flatnonzero(history.role("tool") & recorded & ~history.tool(*self.exclude))
        rows = rows[: max(len(rows) - self.keep, 0)]
        return np.asarray(rows[~history.stays[rows]])

    def replace_old_uses(self, history: History) -> dict[int, Message | str | None]:
        """Return the changes that leave of each old use one line in its reply."""
        old, rows = self._find_old_results(history).tolist(), history.column("rows").tolist()
        groups = history.log.groups
        # the group of a result is the row of the reply whose call it answers
        gone = {(groups[rows[p]], history[p].call_id) for p in old}
        changes: dict[int, Message | str | None] = dict.fromkeys(old)
        for p in np.flatnonzero(history.role("assistant") & ~history.stays).tolist():
            calls = [c for c in history[p].tool_calls if (rows[p], c.id) in gone]
            if calls:
                left = message_content_and_truncation.without_calls(
                    history[p], {c.id for c in calls}
                )
                notes = tuple(Text(_describe_call(c.name)) for c in calls)
                changes[p] = msgspec.structs.replace(left, parts=(*left.parts, *notes))
        return changes


def _describe_call(tool: str) -> str:
    return f"[Tool call: {tool} (parameters and results removed from history)]"


@make_checked_preset
def inspect_edit(
    *,
    context_window: int | None = None,
    threshold: float = 0.9,
    keep_thinking_turns: Natural | Literal["all"] = 1,
    keep_tool_uses: int = 3,
    keep_tool_inputs: bool = True,
    exclude_tools: tuple[str, ...] = (),
) -> Rules:
    """Return the rules of Inspect's editing compaction.

    Source: `inspect_ai/model/_compaction/edit.py` of inspect_ai 0.3.285.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        threshold: share of the window, or tokens where above 1, over which a compaction is due.
        keep_thinking_turns: replies at the end that keep their thinking, or `all`.
        keep_tool_uses: tool uses at the end that stay whole; excluded tools do not count among
            them.
        keep_tool_inputs: whether the calls stay where their results are cleared; else both
            become one line.
        exclude_tools: tools whose uses are never cleared.

    Returns:
        Rules that clear old thinking and tool uses in the history itself, due above the threshold.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.inspect_edit(keep_tool_uses=5)
        >>> rules.parameters["keep_tool_uses"]
        5
    """
    thinking = None if keep_thinking_turns == "all" else keep_thinking_turns
    policy: Any = ThinkingAndToolClearing(
        keep=keep_tool_uses,
        exclude=("tool_search", *exclude_tools),
        thinking_turns=thinking,
        keep_inputs=keep_tool_inputs,
    )
    return Rules(
        policy=policy,
        trigger=common.make_inspect_trigger(threshold),
        window=context_window,
    )
