"""What a turn may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.prices import Price, price

if TYPE_CHECKING:
    from ctxkit.messages import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one turn; None: none."""

    calls: int | None = 40
    """Calls to the model."""
    tokens: int | None = None
    """Tokens billed, prompts and replies together."""
    cost_usd: float | None = None
    """Dollars; checked before each call with the counted prompt at the price of a cache write."""
    seconds: float | None = None
    """Seconds on the clock."""
    attempts: int = 4
    """Compactions and trims for overflows and cut replies in a turn: one and three stages."""
    payload_bytes: int | None = None
    """Bytes of the messages sent; larger prompts are trimmed for the call before they are sent."""
    messages: int | None = None
    """Messages of a prompt: a warning is told, once between two compactions; no call is held."""
    messages_share: float = 0.8
    """Share of `messages` above which it is told (fuseraft's fraction of its cap)."""

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "cost_usd", "seconds", "payload_bytes", "messages"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadArguments(f"The limit {name} is above 0, or None for none; not {value}.")
        if self.attempts < 0:
            raise BadArguments(f"The limit attempts is 0 or more, not {self.attempts}.")

    def __str__(self) -> str:
        known = {"calls": self.calls, "tokens": self.tokens, "$": self.cost_usd, "s": self.seconds}
        return ", ".join(f"{v:g} {k}" for k, v in known.items() if v is not None) or "no limits"


@dataclass(slots=True)
class SpentInTurn:
    """What a turn has used so far."""

    calls: int = 0
    fresh: int = 0
    cached: int = 0
    output: int = 0
    cost_usd: float | None = 0.0
    """None as soon as a call's price is not known."""
    seconds: float = 0.0
    free: bool = False
    """True for a model that costs nothing: the scripted one, a local one."""
    unbilled: int = 0
    """Prompt tokens, counted here, of replies without usage: the limits count them too."""
    models: dict[str, Price | None] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens billed."""
        return self.fresh + self.cached + self.output

    def add(self, usage: Usage | None, model: str, counted: int = 0) -> None:
        """Add one call; `counted` is its prompt where the model tells no usage."""
        self.calls += 1
        if usage is not None and usage.prompt_tokens is not None:
            self._bill(usage, model, free=self.free)
        else:
            self.unbilled += counted

    def add_summary(self, usage: Usage, model: str, *, free: bool) -> None:
        """Add a call that is none of the conversation: a summary, a note to memory."""
        self._bill(usage, model, free=free)

    def _bill(self, usage: Usage, model: str, *, free: bool) -> None:
        cached = usage.cache_read_tokens or 0
        self.fresh += (usage.prompt_tokens or 0) - cached
        self.cached += cached
        self.output += usage.output_tokens or 0
        if free or self.cost_usd is None:
            return
        known, cost = self._price(model), usage.cost_usd
        if cost is None and known:
            cost = known.cost_usd(usage)
        self.cost_usd = None if cost is None else self.cost_usd + cost

    def exceeded(
        self, limits: Limits, model: str, prompt: int, *, free: bool | None = None
    ) -> str | None:
        """Return which limit the next call would pass, in words, or None; `free`: whether that
        model costs nothing.

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
            known = self._price(model)
            if known is None or self.cost_usd is None:
                raise BadArguments(
                    f"No price is known for {model}, so a limit in dollars cannot be kept: drop it."
                )
            dearest = known.at(prompt).write()
            if self.cost_usd + (self.unbilled + prompt) * dearest > limits.cost_usd:
                return f"the limit of ${limits.cost_usd:g}"
        return None

    def _price(self, model: str) -> Price | None:
        if model not in self.models:
            self.models[model] = price(model)
        return self.models[model]
