"""LangChain's deepagents: at 0.85 of the window, a summary that names the file of the removed
messages; the newest tenth stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.presets import shared_summaries_and_clearing as common
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.tokens import ContextBudget

TRUNCATED_MARK = "...(argument truncated)"
SUMMARY_PREFIX = (
    "Here is a summary of the conversation to date; all of it is kept in a file under"
    " /conversation_history/, to be read where a detail is needed:\n\n"
)

DIFFERENCES = (
    DocumentationDifference(
        "the file of what went",
        "the whole history is written to /conversation_history/",
        "appended at each compaction",
        "named in the summary; a replay writes no file",
    ),
    DocumentationDifference(
        "media", "inline images are moved to files", "before the summary", "left as they are"
    ),
    DocumentationDifference(
        "models without a profile",
        "170,000 tokens and six messages",
        "and arguments are cut from 20 messages on",
        "a window is always known here: pass these by `trigger`, `keep`, `truncate_args_trigger`",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class DeepAgentsSummary(common.LangChainKeepSummary):
    """Cut long arguments of old calls first; where a summary is still due, keep the end."""

    keep: tuple[str, float] = ("fraction", 0.10)
    trigger: Any = None
    """Says whether a summary is due."""
    args_keep: tuple[str, float] | None = ("fraction", 0.10)
    """What keeps its arguments, in the same words; None: all do."""
    max_length: int = 2000
    """Characters of an argument above which it is cut."""
    tools: tuple[str, ...] = ("write_file", "edit_file", "execute")
    """Names of the tools whose arguments are cut."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with short arguments, summarised where that is still due."""
        # shorter arguments alone may suffice: the trigger is asked again before a summary
        new = self.shorten_arguments(history, budget)
        if self.trigger is not None and not self.trigger(new, budget):
            return new
        return super().__call__(new, budget)

    def shorten_arguments(self, history: History, budget: ContextBudget) -> History:
        """Return the history with long arguments of old calls cut."""
        if self.args_keep is None:
            return history
        # positions in front of the cut are old; the mask is in order, so the loop may stop there
        old = common.find_langchain_cut(history, budget, self.args_keep)
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(history.role("assistant") & ~history.stays).tolist():
            if p >= old:
                break
            changed = message_content_and_truncation.replace_arguments(
                history[p], self._shorten_call
            )
            if changed != history[p]:
                changes[p] = changed
        return history.shorten(changes, reason="long arguments of old calls are cut")

    def _shorten_call(self, call: ToolCall) -> dict[str, Any] | None:
        if call.name not in self.tools:
            return None
        texts = {k: v for k, v in call.arguments.items() if isinstance(v, str)}
        short = {k: v[:20] + TRUNCATED_MARK for k, v in texts.items() if len(v) > self.max_length}
        return {**call.arguments, **short} if short else None


@make_checked_preset
def deepagents(
    *,
    context_window: int | None = None,
    trigger: Any = ("fraction", 0.85),
    keep: tuple[str, float] = ("fraction", 0.10),
    truncate_args_trigger: Any = ("fraction", 0.85),
    truncate_args_keep: tuple[str, float] = ("fraction", 0.10),
    truncate_args_max_length: int = 2000,
    summary_prompt: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of deepagents' summarization middleware, 0.7.32, for a model whose window is
    known.

    Source: `deepagents/middleware/summarization.py` of deepagents 0.7.32 (0.85, 0.10, 2,000
    characters, the first 20 of which stay; without a profile of the model 170,000 tokens, six
    messages).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        trigger: `("tokens", n)`, `("messages", n)`, `("fraction", x)`; a dict: all of them; a list:
            any of them.
        keep: what is kept, in the same words.
        truncate_args_trigger: when long arguments of old calls are cut, in the same words; None:
            never.
        truncate_args_keep: what keeps its arguments.
        truncate_args_max_length: characters of an argument above which it is cut.
        summary_prompt: instructions for the summariser, instead of the default ones.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that shorten old arguments first, and summarise where that is not enough.

    Raises:
        BadArguments: trigger is None.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.deepagents(trigger=("fraction", 0.8))
        >>> rules.parameters["trigger"]
        ('fraction', 0.8)
    """
    due = common.make_langchain_trigger(trigger)
    args = common.make_langchain_trigger(truncate_args_trigger)
    if due is None:
        raise BadArguments("deepagents needs a trigger, such as ('fraction', 0.85).")
    policy = DeepAgentsSummary(
        keep_messages=1,
        keep=common.check_langchain_clause(keep, "keep"),
        trigger=due,
        args_keep=(
            None
            if args is None
            else common.check_langchain_clause(truncate_args_keep, "truncate_args_keep")
        ),
        max_length=truncate_args_max_length,
        prefix=SUMMARY_PREFIX,
        instructions=summary_prompt or common.LANGCHAIN_INSTRUCTIONS,
    )
    return Rules(
        policy=policy,
        trigger=due if args is None or args == due else due | args,
        window=context_window,
        estimator="chars/4",
        summariser=summariser,
    )
