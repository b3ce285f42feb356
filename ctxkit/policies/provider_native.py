"""Compaction and clearing on the provider's side (Anthropic, OpenAI), sized as far as known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxkit.policies.base import ConfiguredPolicy
from ctxkit.policies.clearing import Clear
from ctxkit.session.messages import Message, SizeOnly

if TYPE_CHECKING:
    from ctxkit.policies.base import Natural, Positive
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget

OPENAI_COMPACT_SHARE = 0.7
"""Share of the window at which Fased lets OpenAI compact; window unknown: at 80,000 tokens."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Native(ConfiguredPolicy):
    """Anthropic clears old tool results, OpenAI puts an encrypted item in the place of what is old:
    both on their side.

    What OpenAI's item holds nobody can see: it stands as a message of a known size only.
    """

    provider: Literal["anthropic", "openai"] = "anthropic"
    """`anthropic` clears tool uses, `openai` compacts."""
    threshold: Positive | None = None
    """Tokens above which it acts; None: 100,000 (Anthropic), 0.7 of the window (OpenAI)."""
    keep_last: Natural = 3
    """Tool results that Anthropic leaves; user messages from the end that OpenAI leaves."""
    clear_at_least: Natural = 0
    """Anthropic clears only where this frees at least so many tokens."""
    item_tokens: Positive = 1500
    """Size of OpenAI's item, in tokens: an assumption, since no log shows it."""

    def limit(self, room: ContextBudget) -> int:
        """Return the tokens above which the provider acts."""
        if self.threshold is not None:
            return self.threshold
        return 100_000 if self.provider == "anthropic" else int(OPENAI_COMPACT_SHARE * room.limit)

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return the history as the provider would cut it."""
        if history.tokens <= self.limit(room):
            return history
        if self.provider == "anthropic":
            return Clear(keep_last=self.keep_last, at_least=self.clear_at_least)(history, room)
        cut = history.safe_before(max(history.nth_last("user", max(self.keep_last, 1)), 0))
        return replace_with_opaque_item(history, cut, self.item_tokens)


def replace_with_opaque_item(history: History, cut: int, tokens: int) -> History:
    """Return a history with OpenAI's item, of so many tokens, in the place of all before a cut;
    itself where that would not be smaller.
    """
    item = Message(role="summary", kind="native", parts=(SizeOnly("compaction", tokens=tokens),))
    new = history.summarise(cut, item, "the provider compacts", tokens=tokens, method="native")
    return new if new.tokens < history.tokens else history
