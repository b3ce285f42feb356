"""LangChain's `SummarizationMiddleware`: an old part becomes one message, the last 20 messages
stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.offline_summarisers import SummariserInput
from ctxkit.presets import shared_summaries_and_clearing as common
from ctxkit.presets.registry_and_setting_checks import (
    LARGER_SUMMARY_DIFFERENCE,
    DocumentationDifference,
    make_checked_preset,
)

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Message

SUMMARY_PREFIX = "Here is a summary of the conversation to date:\n\n"
TOO_LONG_TEXT = "Previous conversation was too long to summarize."

DIFFERENCES = (
    DocumentationDifference(
        "what the summariser is sent",
        "the last 4,000 tokens of what goes",
        "from a user message on, so it can be nothing at all: then the summary says only that it"
        " was too long",
        "as the program",
    ),
    DocumentationDifference(
        "fractions",
        "of the model's input limit",
        "an error where the profile of the model is not known",
        "of the window",
    ),
    DocumentationDifference(
        "size",
        "tokens of the messages",
        "an estimate, or what the last reply reported",
        "the prompt's tokens",
    ),
    LARGER_SUMMARY_DIFFERENCE,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class LangChainSummary(common.LangChainKeepSummary):
    """Keep by LangChain's measure; the summariser sees only the end of what goes."""

    trim_tokens: int | None = 4000
    """Tokens of what goes, its newest, that the summariser is sent; None: all."""

    def passages(self, history: History, first: int) -> list[SummariserInput]:
        """Return the passage that is sent to the summariser."""
        start, most, total = 0, self.trim_tokens, history.before(first, estimated=True)
        if most is not None and total > most:
            # the newest tokens that fit, then forward to a request or summary
            start = first
            while start > 0 and total - history.before(start - 1, estimated=True) <= most:
                start -= 1
            while start < first and history[start].role not in ("user", "summary"):
                start += 1
        return [SummariserInput(history, first, start, self.limit, self.summary_instructions())]

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the summary; LangChain's own sentence where nothing is left to summarise."""
        if not self.passages_behind_front(history, first)[0].positions:
            return self.prefix + TOO_LONG_TEXT
        return super().write_summary(history, first)


@make_checked_preset
def langchain_summary(
    *,
    context_window: int | None = None,
    trigger: Any = None,
    keep: tuple[str, float] = ("messages", 20),
    trim_tokens_to_summarize: int | None = 4000,
    summary_prompt: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of LangChain's summarization middleware, 1.5.0; without a trigger nothing is
    ever compacted.

    Source: `langchain/agents/middleware/summarization.py` of langchain 1.5.0 (no trigger, 20
    messages, 4,000 tokens, the cut moves back to the reply whose results it would part).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        trigger: `("tokens", n)`, `("messages", n)`, `("fraction", x)`; a dict: all of them; a list:
            any of them.
        keep: what is kept, in the same words.
        trim_tokens_to_summarize: tokens of what goes, its newest, that the summariser sees; None:
            all.
        summary_prompt: instructions for the summariser, instead of the default ones.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that do nothing unless `trigger` is set; then one message in place of all but what
        `keep` names.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.langchain_summary(trigger=("messages", 50))
        >>> rules.parameters["trigger"]
        ('messages', 50)
    """
    due = common.make_langchain_trigger(trigger)
    policy = LangChainSummary(
        keep_messages=1,
        keep=common.check_langchain_clause(keep, "keep"),
        trim_tokens=trim_tokens_to_summarize,
        prefix=SUMMARY_PREFIX,
        instructions=summary_prompt or common.LANGCHAIN_INSTRUCTIONS,
    )
    return Rules(
        policy=policy if due is not None else None,
        trigger=due,
        window=context_window,
        estimator="chars/4",
        summariser=summariser,
    )
