"""Microsoft's agent-framework: at half the budget old tool uses become one line each, at 0.8 the
oldest groups are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.triggers import Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.session.messages import Message, Text, get_plain_text

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, PositiveShare
    from ctxkit.tokens import ContextBudget

MAX_LINE_CHARS = 4096
TRUNCATED_MARK = "... [truncated]"

DIFFERENCES = (
    DocumentationDifference(
        "the window",
        "`max_context_window_tokens` and `max_output_tokens` are required",
        "no defaults",
        "the model's window, and 16,384 tokens for the reply as in its example",
    ),
    DocumentationDifference(
        "what is excluded",
        "is marked, not deleted",
        "and can be taken in again",
        "the session keeps its whole log; the view is derived",
    ),
    DocumentationDifference(
        "counting",
        "an estimate of four characters a token",
        "of each message as JSON",
        "the prompt's tokens for when, the estimate for how much",
    ),
    DocumentationDifference(
        "reasoning beside a call",
        "belongs to the call's group",
        "goes with it",
        "it goes with the call",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CollapseThenDrop(DataclassPolicy):
    """Collapse old tool uses above one share of the budget, drop the oldest groups above
    another.
    """

    eviction: float = 0.5
    """Share of the budget that collapses old tool uses, and down to which groups are dropped."""
    truncation: float = 0.8
    """Share of the budget above which the oldest groups are dropped."""
    keep_groups: int = 4
    """Replies with tool calls at the end that stay whole."""
    first_user: bool = False
    """Whether the first user message always stays."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history after one phase or both."""
        new = history
        if new.tokens > self.eviction * budget.prompt_limit:
            new = self.collapse_tool_uses(new)
        # the second phase weighs what the first one left, and frees down to the lower share
        if new.tokens > self.truncation * budget.prompt_limit:
            new = self.drop_oldest(new, int(self.eviction * budget.prompt_limit))
        return new

    def collapse_tool_uses(self, history: History) -> History:
        """Return the history with a line in place of each old tool use."""
        asks = history.column("asks") & history.role("assistant")
        # replies with calls, and the results of each call group by position
        replies = np.flatnonzero(asks).tolist()
        old = replies[: max(len(replies) - self.keep_groups, 0)]
        if not old:
            return history
        stays, groups = history.stays, history.groups
        results: dict[int, list[int]] = {}
        for p in np.flatnonzero(history.role("tool")).tolist():
            results.setdefault(int(groups[p]), []).append(p)
        changes: dict[int, Message | str | None] = {}
        for p in old:
            reply, results_here = (
                history[p],
                [(r, history[r]) for r in results.get(int(groups[p]), ())],
            )
            names = {c.id: c.name for c in reply.tool_calls}
            answers = {m.call_id: (r, m) for r, m in results_here if m.call_id in names}
            all_answered = len(answers) == len(reply.tool_calls)
            # a use with a missing result, or with a protected message, stays as it is
            if not all_answered or stays[p] or any(stays[r] for r, _ in answers.values()):
                continue
            lines = [
                f"{name}: {get_plain_text(answers[i][1])}".strip() for i, name in names.items()
            ]
            text = Text(format_tool_results_line(lines))
            changes[p] = Message(role="assistant", id=reply.id, agent=reply.agent, parts=(text,))
            changes |= dict.fromkeys(r for r, _ in answers.values())
        if not changes:
            return history
        new = history.replace(
            changes, reason=f"tool uses before the last {self.keep_groups} are collapsed"
        )
        return keep_if_smaller(history, new)

    def drop_oldest(self, history: History, budget: int) -> History:
        """Return the history without its oldest groups, until the budget holds."""
        start = 0
        if self.first_user:
            request = history.next(0, "user")
            start = request + 1 if request >= 0 else 0
        n = len(history)
        if n < 2:  # it may be the reply alone that a log begins with
            return history
        # at least the last group stays, also where it alone is over the budget
        first = min(history.fitting(budget, start=start), n - 1)
        first = history.safe(first) or history.safe_before(n - 1)
        return history.drop(first, "the oldest groups are over the budget", start=start)


def format_tool_results_line(results: list[str]) -> str:
    """Return the line that stands for a tool use."""
    text = f"[Tool results: {'; '.join(results)}]"
    return (
        text
        if len(text) <= MAX_LINE_CHARS
        else text[: MAX_LINE_CHARS - len(TRUNCATED_MARK) - 1] + TRUNCATED_MARK + "]"
    )


@make_checked_preset
def agent_framework(
    *,
    context_window: int | None = None,
    max_output_tokens: int = 16_384,
    tool_eviction_threshold: PositiveShare = 0.5,
    truncation_threshold: PositiveShare = 0.8,
    keep_last_tool_call_groups: Natural = 4,
    preserve_first_user_group: bool = False,
) -> Rules:
    """Return the rules of `ContextWindowCompactionStrategy`, 1.23.0.

    Source: `agent_framework/_compaction.py` of agent-framework-core 1.23.0 (0.5, 0.8, four groups,
    4,096 characters).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        max_output_tokens: tokens of it that are reserved for the reply.
        tool_eviction_threshold: share of the rest above which old tool uses become one line each.
        truncation_threshold: share of the rest above which the oldest groups are dropped, down to
            the other share.
        keep_last_tool_call_groups: replies with tool calls at the end that stay whole.
        preserve_first_user_group: whether the first user message always stays.

    Returns:
        Rules whose policy runs before each call above the first share: it collapses old tool uses,
        then drops whole groups.

    Raises:
        BadArguments: truncation_threshold is below tool_eviction_threshold.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.agent_framework(keep_last_tool_call_groups=2)
        >>> rules.parameters["keep_last_tool_call_groups"]
        2
    """
    if truncation_threshold < tool_eviction_threshold:
        raise BadArguments("truncation_threshold must not lie below tool_eviction_threshold.")
    policy = CollapseThenDrop(
        eviction=tool_eviction_threshold,
        truncation=truncation_threshold,
        keep_groups=keep_last_tool_call_groups,
        first_user=preserve_first_user_group,
    )
    return Rules(
        policy=policy,
        trigger=Share(tool_eviction_threshold, of="budget"),
        window=context_window,
        reserve=max_output_tokens,
    )
