"""What the budgets of a live session say: warnings once between two compactions, cut-overs, the cap
on messages.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ctxkit.messages import Edit, Message
from ctxkit.policies.thresholds import thresholds
from ctxkit.policies.triggers import NearCap

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.limits import Limits
    from ctxkit.messages import Usage
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session


class LiveBudget:
    """Tokens sent since the last compaction and in this turn, beside the thresholds of the rules.

    Args:
        rules: their settings `warn_at`, `cutover_at` and `max_single_turn_input_tokens`, as
            fuseraft names them, or a trigger on tokens spent.
        session: where it goes on.
        tell: is told what happens (event, payload).
    """

    def __init__(
        self, rules: Rules, session: Session, tell: Callable[[str, dict[str, Any]], None]
    ) -> None:
        set_at = thresholds(rules)
        self.warn_at: int | None = set_at["warn_at"] or None
        self.cutover_at: int | None = set_at["cutover_at"] or None
        self.single: int | None = rules.parameters.get("max_single_turn_input_tokens") or None
        self.cumulative, self.turn = _since_compaction(session), 0
        self._tell, self._capped = tell, False
        self._cap: tuple[int, float] = (
            rules.parameters.get("max_tail_messages") or 0,
            rules.parameters.get("context_cap_fraction") or 0.0,
        )

    def begin(self) -> None:
        """Begin a turn."""
        self.turn = 0

    def called(self, usage: Usage | None) -> None:
        """Count a call."""
        tokens = (usage.prompt_tokens if usage else None) or 0
        self.cumulative += tokens
        self.turn += tokens

    def warned(self, trigger: str, tokens: int, messages: int) -> None:
        """Tell a warning that became due."""
        if trigger == NearCap.word:
            self._near(messages, *self._cap)
            return
        sums = {
            "cumulative_input_tokens": self.cumulative,
            "warn_at": self.warn_at,
            "cutover_at": self.cutover_at,
        }
        self._tell("context_budget_warn", {**sums, "trigger": trigger, "tokens": tokens})

    def cut(self, trigger: str | None, tokens: int, window: int) -> None:
        """Tell that a budget was used up and what was kept begins a new cycle."""
        if self.single and self.turn >= self.single:
            told: dict[str, Any] = {"input_tokens": self.turn, "cutover_at": self.single}
            told["reason"] = "single_turn_limit"
        elif self.cutover_at and self.cumulative >= self.cutover_at:
            told = {"cumulative_input_tokens": self.cumulative, "cutover_at": self.cutover_at}
        else:
            told = {"input_tokens": tokens, "context_window": window, "reason": trigger}
        self._tell("context_budget_cutover", told)

    def compacted(self) -> None:
        """Begin a new cycle."""
        self.cumulative, self._capped = 0, False

    def shown(self, messages: int, limits: Limits) -> None:
        """Tell, once a cycle, that a prompt nears the cap on messages."""
        if limits.messages is None or self._capped:
            return
        if messages > int(limits.messages * limits.messages_share):
            self._capped = True
            self._near(messages, limits.messages, limits.messages_share)

    def _near(self, messages: int, cap: int, share: float) -> None:
        told = {"messages": messages, "cap": cap, "fraction": share, "threshold": int(cap * share)}
        self._tell("context_window_warn", told)


def _since_compaction(session: Session) -> int:
    since = takewhile(lambda entry: not isinstance(entry, Edit), reversed(session.path))
    usages = (entry.usage for entry in since if isinstance(entry, Message) and entry.usage)
    return sum(usage.prompt_tokens or 0 for usage in usages)
