"""Compaction and clearing by the provider (Anthropic, OpenAI), with sizes where they are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxkit.policies.base import DataclassPolicy
from ctxkit.policies.clearing import Clear
from ctxkit.policies.compaction_refusals import keep_if_smaller
from ctxkit.session.messages import Message, SizeOnly
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from ctxkit.policies.base import Natural, Positive
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget

OPENAI_COMPACT_SHARE = 0.7
"""Share of the window at which Fased lets OpenAI compact; 80,000 tokens where it is unknown."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ProviderCompaction(DataclassPolicy):
    """Compaction by the provider: Anthropic clears old tool results, OpenAI inserts an opaque item.

    OpenAI replaces the old messages by an encrypted item, which nobody can read. It is modelled
    as a message with an assumed size and no text.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(ProviderCompaction(threshold=4_000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('shortened', 6713, 3927)]
    """

    provider: Literal["anthropic", "openai"] = "anthropic"
    """`anthropic` clears tool uses, `openai` compacts."""
    threshold: Positive | None = None
    """Prompt tokens above which it acts; None: 100,000 (Anthropic), 0.7 of the window (OpenAI)."""
    keep_last: Natural = 3
    """Newest tool results that Anthropic keeps; newest user messages that OpenAI keeps."""
    clear_at_least: Natural = 0
    """Minimum number of tokens that Anthropic must free."""
    item_tokens: Positive = 1500
    """Size of OpenAI's item in tokens: an assumption, as no log records it."""

    def limit(self, budget: ContextBudget) -> int:
        """Return the prompt tokens above which the provider acts."""
        if self.threshold is not None:
            return self.threshold
        if self.provider == "anthropic":
            return int(get_value("clearing_trigger", "claude"))
        return int(OPENAI_COMPACT_SHARE * budget.limit)

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history after the provider's compaction."""
        if history.tokens <= self.limit(budget):
            return history
        if self.provider == "anthropic":
            return Clear(keep_last=self.keep_last, at_least=self.clear_at_least)(history, budget)
        # OpenAI keeps the newest user messages and all that follows them.
        cut = history.safe_before(max(history.nth_last("user", max(self.keep_last, 1)), 0))
        return replace_with_opaque_item(history, cut, self.item_tokens)


def replace_with_opaque_item(history: History, first: int, tokens: int) -> History:
    """Return the history with an item of `tokens` in place of all before `first`, if smaller."""
    item = make_opaque_item(tokens)
    new = history.summarise(first, item, "the provider compacts", tokens=tokens, method="native")
    return keep_if_smaller(history, new)


def make_opaque_item(tokens: int) -> Message:
    """Return OpenAI's encrypted item as a message with an assumed size and no text."""
    return Message(role="summary", kind="native", parts=(SizeOnly("compaction", tokens=tokens),))
