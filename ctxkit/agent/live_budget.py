"""Token budgets of a live session: prompt tokens since the last compaction, and their warnings."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ctxkit.policies.context_rules import budget_thresholds
from ctxkit.policies.triggers import NearMessageCap
from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.turn import Limits
    from ctxkit.policies.context_rules import Rules
    from ctxkit.session.messages import Usage
    from ctxkit.session.session import Session


class LiveBudget:
    """Prompt tokens since the last compaction and in this turn, and events about their thresholds.

    A cycle lasts from one compaction to the next; the cap on messages is warned of once a cycle.

    Args:
        rules: their settings `warn_at`, `cutover_at` and `max_single_turn_input_tokens` (fuseraft's
            names), or a trigger on tokens spent.
        session: the session so far.
        emit: called with each event (kind, payload).
    """

    def __init__(
        self, rules: Rules, session: Session, emit: Callable[[str, dict[str, Any]], None]
    ) -> None:
        thresholds = budget_thresholds(rules)
        self.warn_at: int | None = thresholds["warn_at"] or None
        self.cutover_at: int | None = thresholds["cutover_at"] or None
        self.max_turn_tokens: int | None = (
            rules.parameters.get("max_single_turn_input_tokens") or None
        )
        self.cumulative, self.turn = _tokens_since_compaction(session), 0
        self._emit, self._cap_warned = emit, False
        self._rules_cap: tuple[int, float] = (
            rules.parameters.get("max_tail_messages") or 0,
            rules.parameters.get("context_cap_fraction") or 0.0,
        )

    def begin_turn(self) -> None:
        """Begin a turn."""
        self.turn = 0

    def add_call(self, usage: Usage | None) -> None:
        """Add the prompt tokens of a call."""
        tokens = (usage.prompt_tokens if usage else None) or 0
        self.cumulative += tokens
        self.turn += tokens

    def emit_warning(self, trigger: str, tokens: int, messages: int) -> None:
        """Emit a warning whose condition was met."""
        if trigger == NearMessageCap.word:
            self._emit_near_cap(messages, *self._rules_cap)
            return
        sums = {
            "cumulative_input_tokens": self.cumulative,
            "warn_at": self.warn_at,
            "cutover_at": self.cutover_at,
        }
        self._emit("context_budget_warn", {**sums, "trigger": trigger, "tokens": tokens})

    def emit_cutover(self, trigger: str | None, tokens: int, window: int) -> None:
        """Emit `context_budget_cutover` with the budget that was exceeded."""
        if self.max_turn_tokens and self.turn >= self.max_turn_tokens:
            payload: dict[str, Any] = {
                "input_tokens": self.turn,
                "cutover_at": self.max_turn_tokens,
            }
            payload["reason"] = "single_turn_limit"
        elif self.cutover_at and self.cumulative >= self.cutover_at:
            payload = {"cumulative_input_tokens": self.cumulative, "cutover_at": self.cutover_at}
        else:
            payload = {"input_tokens": tokens, "context_window": window, "reason": trigger}
        self._emit("context_budget_cutover", payload)

    def begin_cycle(self) -> None:
        """Start a new cycle after a compaction."""
        self.cumulative, self._cap_warned = 0, False

    def warn_near_message_cap(self, messages: int, limits: Limits) -> None:
        """Emit a warning, once a cycle, if a prompt is near the cap on messages."""
        if limits.messages is None or self._cap_warned:
            return
        if messages > int(limits.messages * limits.messages_share):
            self._cap_warned = True
            self._emit_near_cap(messages, limits.messages, limits.messages_share)

    def _emit_near_cap(self, messages: int, cap: int, share: float) -> None:
        payload = {
            "messages": messages,
            "cap": cap,
            "fraction": share,
            "threshold": int(cap * share),
        }
        self._emit("context_cap_warning", payload)


def _tokens_since_compaction(session: Session) -> int:
    since = takewhile(lambda entry: not isinstance(entry, Edit), reversed(session.path))
    usages = (entry.usage for entry in since if isinstance(entry, Message) and entry.usage)
    return sum(usage.prompt_tokens or 0 for usage in usages)
