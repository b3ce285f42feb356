"""Limits of a turn, what it has spent, and the monitor of an agent's token budget."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import get_warn_and_cutover_tokens
from ctxkit.policies.triggers import MessageCapWarning
from ctxkit.session.messages import Edit, Message
from ctxkit.tokens.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.messages import Usage
    from ctxkit.session.session import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one turn; None means no limit.

    Example:
        >>> from ctxkit.agent import Limits
        >>> Limits(calls=20, cost_usd=0.50).calls
        20
    """

    calls: int | None = 40
    """Model calls."""
    tokens: int | None = None
    """Billed tokens of prompts and replies together."""
    cost_usd: float | None = None
    """US dollars, checked before each call with its counted prompt at the cache-write price."""
    seconds: float | None = None
    """Wall-clock seconds; time spent waiting for an approval is not counted."""
    attempts: int = 4
    """Recovery attempts after overflows and replies cut by length: one compaction, three trims."""
    payload_bytes: int | None = None
    """Bytes of the messages of a prompt; a larger prompt is trimmed before it is sent."""
    messages: int | None = None
    """Messages of a prompt; above it one warning per compaction cycle is emitted, nothing more."""
    messages_share: float = 0.8
    """Share of `messages` above which the warning is emitted (fuseraft's fraction of its cap)."""

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "cost_usd", "seconds", "payload_bytes", "messages"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadArguments(f"The limit {name} is above 0, or None for none; not {value}.")
        if self.attempts < 0:
            raise BadArguments(f"The limit attempts is 0 or more, not {self.attempts}.")

    def within(self, rules: Rules) -> Limits:
        """Return these limits, with the payload limit of the rules where that is smaller.

        Args:
            rules: their parameter `max_payload_bytes` is the limit in bytes; without it nothing
                changes.
        """
        limit, of_rules = self.payload_bytes, rules.parameters.get("max_payload_bytes") or None
        least = min((n for n in (limit, of_rules) if n is not None), default=None)
        return self if least == limit else replace(self, payload_bytes=least)

    def __str__(self) -> str:
        limits = {"calls": self.calls, "tokens": self.tokens, "$": self.cost_usd, "s": self.seconds}
        return ", ".join(f"{v:g} {k}" for k, v in limits.items() if v is not None) or "no limits"


@dataclass(slots=True)
class SpentInTurn:
    """Tokens, calls and cost of a turn so far.

    Example:
        >>> from ctxkit.agent import SpentInTurn
        >>> from ctxkit.session import Usage
        >>> spent = SpentInTurn()
        >>> spent.add(Usage(input_tokens=900, output_tokens=100), "claude-sonnet-4-5")
        >>> spent.calls, spent.tokens
        (1, 1000)
    """

    calls: int = 0
    """Model calls of the conversation; not those of summaries and memory notes."""
    fresh: int = 0
    """Prompt tokens that were not read from a cache."""
    cached: int = 0
    """Prompt tokens that were read from a cache."""
    output: int = 0
    """Tokens of replies."""
    cost_usd: float | None = 0.0
    """US dollars; None as soon as the price of one call is not known."""
    seconds: float = 0.0
    """Duration of the turn so far."""
    free: bool = False
    """True for a model that costs nothing: a scripted or a local one."""
    unbilled: int = 0
    """Prompt tokens of calls without reported usage, as counted here; they count for the limits."""
    models: dict[str, Price | None] = field(default_factory=dict)
    """Price of each model that was called; None: unknown."""

    @property
    def tokens(self) -> int:
        """Tokens billed."""
        return self.fresh + self.cached + self.output

    def add(self, usage: Usage | None, model: str, counted_prompt: int = 0) -> None:
        """Add one call; `counted_prompt` is its prompt's size, used if no usage was reported.

        Args:
            usage: usage that the provider reported; None: none.
            model: name of the model.
            counted_prompt: tokens of the prompt by our count.
        """
        self.calls += 1
        if usage is not None and usage.prompt_tokens is not None:
            self._add_usage(usage, model, free=self.free)
        else:
            self.unbilled += counted_prompt

    def add_summary(self, usage: Usage, model: str, *, free: bool) -> None:
        """Add a call outside the conversation: a summary or a memory note.

        Args:
            usage: tokens of the call.
            model: name of the model, for the price.
            free: the call costs nothing, as of a script.
        """
        self._add_usage(usage, model, free=free)

    def _add_usage(self, usage: Usage, model: str, *, free: bool) -> None:
        cached = usage.cache_read_tokens or 0
        self.fresh += (usage.prompt_tokens or 0) - cached
        self.cached += cached
        self.output += usage.output_tokens or 0
        if free or self.cost_usd is None:
            return
        model_price, cost = self._get_price(model), usage.cost_usd
        if cost is None and model_price:
            cost = model_price.cost_usd(usage)
        self.cost_usd = None if cost is None else self.cost_usd + cost

    def exceeded_limit(
        self, limits: Limits, model: str, prompt: int, *, free: bool | None = None
    ) -> str | None:
        """Return the limit that the next call would exceed, as a phrase, or None.

        Args:
            limits: the limits to check.
            model: name of the model to call.
            prompt: tokens of the prompt to send.
            free: whether that model costs nothing; None: as the turn's model.

        Raises:
            BadArguments: there is a limit in dollars and no price for the model.
        """
        if limits.calls is not None and self.calls >= limits.calls:
            return f"the limit of {limits.calls} calls"
        if limits.tokens is not None and self.tokens + self.unbilled + prompt > limits.tokens:
            return f"the limit of {limits.tokens:,} tokens"
        if limits.seconds is not None and self.seconds >= limits.seconds:
            return f"the limit of {limits.seconds:g} seconds"
        if limits.cost_usd is not None and not (self.free if free is None else free):
            model_price = self._get_price(model)
            if model_price is None or self.cost_usd is None:
                raise BadArguments(
                    f"No price is known for {model}, so a limit in dollars cannot be kept: drop it."
                )
            write_price = model_price.at(prompt).write()
            if self.cost_usd + (self.unbilled + prompt) * write_price > limits.cost_usd:
                return f"the limit of ${limits.cost_usd:g}"
        return None

    def _get_price(self, model: str) -> Price | None:
        if model not in self.models:
            self.models[model] = price(model)
        return self.models[model]


class LimitReached(Exception):
    """The next call would exceed a limit; the text names it."""


class TurnTimeExceeded(asyncio.CancelledError):
    """The turn's time is over, and the event loop never ran, so its timeout could not fire."""


class TokenBudgetMonitor:
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
        thresholds = get_warn_and_cutover_tokens(rules)
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
        """Emit a warning whose condition was met.

        Args:
            trigger: name of the condition.
            tokens: size of the prompt.
            messages: number of messages in it.
        """
        if trigger == MessageCapWarning.word:
            self._emit_near_cap(messages, *self._rules_cap)
            return
        sums = {
            "cumulative_input_tokens": self.cumulative,
            "warn_at": self.warn_at,
            "cutover_at": self.cutover_at,
        }
        self._emit("context_budget_warn", {**sums, "trigger": trigger, "tokens": tokens})

    def emit_cutover(self, trigger: str | None, tokens: int, window: int) -> None:
        """Emit `context_budget_cutover` with the budget that was exceeded.

        Args:
            trigger: reason of the compaction; None: none.
            tokens: size of the prompt.
            window: context window in tokens.
        """
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
        """Emit a warning, once a cycle, if a prompt is near the cap on messages.

        Args:
            messages: number of messages in the prompt.
            limits: limits of the turn; without a cap on messages there is no warning.
        """
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
