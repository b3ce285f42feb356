"""A turn's limits, spending, state, outcome and live events, and warnings about token budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit._internal.formatting_and_sanitizing import format_percent, pluralize, sanitize_line
from ctxkit._internal.redaction import StreamRedactor, get_environment_secrets, redact_json
from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import get_warn_and_cutover_tokens
from ctxkit.policies.triggers import MessageCapWarning
from ctxkit.session.messages import Edit, Message, ToolCall
from ctxkit.tokens.prices import Price, price

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ctxkit.agent.models.model import Model
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
        """Return these limits, with the payload of the rules where that is smaller."""
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


@dataclass(slots=True)
class TurnState:
    """State of one turn of an agent."""

    limits: Limits = field(default_factory=Limits)
    """Limits of the turn."""
    spent: SpentInTurn = field(default_factory=SpentInTurn)
    """What the turn has used of them."""
    began: float = 0.0
    """Seconds since 1970."""
    last: Message = field(default_factory=lambda: Message(role="assistant"))
    """The last reply, as stored."""
    requested_calls: tuple[ToolCall, ...] = ()
    """Its tool calls as the model sent them, not redacted, in the same order; tools run on these.
    """
    steps: int = 0
    """Replies so far; failed calls do not count, so a retry asks for the same step."""
    attempts: int = 0
    """Recovery attempts so far: compactions and trims after overflows and cut replies."""
    sent: int = 0
    """Tokens of the last prompt that was sent."""
    deadline: asyncio.Timeout | None = None
    """Timeout of the turn; None: it has no time limit."""
    task: asyncio.Task[Any] | None = None
    """The task that runs the turn."""
    timed_out: bool = False
    """True where `hold` ended the turn rather than the timeout itself."""

    def check(self, model: Model, tokens: int, now: float) -> None:
        """Check the limits before a call with a prompt of `tokens` tokens.

        Args:
            model: the model that is called.
            tokens: counted tokens of the prompt.
            now: time by the clock of the turn, in seconds.

        Raises:
            LimitReached: the call would exceed a limit.
            BadArguments: there is a limit in dollars and no price for the model.
        """
        self.spent.seconds = now - self.began
        reason = self.spent.exceeded_limit(self.limits, model.name, tokens)
        if reason:
            raise LimitReached(reason)

    def check_deadline(self) -> None:
        """Raise if the turn's time is over.

        A stream whose pieces have all arrived never yields to the event loop, so the timeout of
        `asyncio` cannot fire; this check takes its place. Called from outside the turn's own task
        (a callback, a thread) it does nothing, as the loop is free to run then.

        Raises:
            TurnTimeExceeded: the time is over.
        """
        if self.deadline is None or self.task is None or _running_task() is not self.task:
            return
        when = self.deadline.when()
        if when is not None and asyncio.get_running_loop().time() >= when:
            if not self.deadline.expired():  # an expiring deadline cannot be moved any more
                self.deadline.reschedule(None)
            self.timed_out = True
            raise TurnTimeExceeded

    @asynccontextmanager
    async def paused(self, clock: Callable[[], float]) -> AsyncIterator[None]:
        """Stop the turn's clock inside the block, while a person decides about a tool call."""
        loop, paused_at = asyncio.get_running_loop(), clock()
        deadline = None if self.late else self.deadline
        remaining = None if deadline is None else deadline.when()
        if deadline is not None and remaining is not None:
            remaining -= loop.time()
            deadline.reschedule(None)
        try:
            yield
        finally:
            self.began += clock() - paused_at
            if deadline is not None and remaining is not None:
                deadline.reschedule(loop.time() + remaining)

    def start_attempt(self) -> bool:
        """Count one more recovery attempt; return False if none is left."""
        if self.attempts >= self.limits.attempts:
            return False
        self.attempts += 1
        return True

    @property
    def late(self) -> bool:
        """True if the turn's time is over."""
        return self.timed_out or (self.deadline is not None and self.deadline.expired())

    @property
    def over(self) -> str:
        """Phrase for a turn that ran out of time."""
        return f"stopped at the limit of {self.limits.seconds or 0:g} seconds"


def _running_task() -> asyncio.Task[Any] | None:
    """Return the task that runs in this thread, or None."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


TurnEnd = Literal["answered", "limit", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Result of one turn."""

    text: str
    """The last reply's text."""
    ended: TurnEnd
    """How the turn ended."""
    why: str
    """Reason for ending at a limit or an error, one sentence; else empty or a note on the reply."""
    spent: SpentInTurn
    """Tokens, calls and cost of the turn."""
    compactions: int
    """Compactions during the turn."""
    context_tokens: int
    """Size of the session in tokens (see `tokens.live_prompt_sizes.get_current_size`)."""
    context_window: int
    """The model's context window in tokens."""
    notice: str
    """Notice about the model that every output shows, such as that no LLM was called."""

    def account(self) -> str:
        """Return one line with calls, tokens, dollars, context usage and compactions."""
        s = self.spent
        cost = "no price known" if s.cost_usd is None else f"${s.cost_usd:.4f}"
        if s.free and s.cost_usd == 0:
            cost = "free"
        full = self.context_tokens / self.context_window if self.context_window else 0.0
        parts = [
            pluralize(s.calls, "call"),
            f"{s.fresh:,} fresh / {s.cached:,} cached / {s.output:,} out",
            cost,
            f"context {self.context_tokens:,}/{self.context_window:,} ({format_percent(full)})",
            pluralize(self.compactions, "compaction"),
        ]
        if s.unbilled:
            parts.append(f"about {s.unbilled:,} tokens of which the model told no usage")
        return " · ".join(p for p in (*parts, sanitize_line(self.why, 300), self.notice) if p)


class LiveEvent(msgspec.Struct, frozen=True):
    """One event of a live session: kind, time in seconds since 1970, turn and payload.

    Names: `turn_start turn_end model_call model_wait model_response model_error delta tool_call
    tool_result inner_call_context compaction_start compaction_end context_budget_warn
    context_budget_cutover context_cap_warning context_exceeded_recovery provider_guard
    limit_reached memory_flush artifact_failed artifact_stored sections_said memory_promoted
    memory_consolidated memory_failed cancelled moved context_report_created reply_cut_short`; a
    live session also writes `listener_failed` and `export_failed`.

    Example:
        >>> from ctxkit.agent import LiveEvent
        >>> LiveEvent(kind="turn_start", time=0.0, turn=0, payload={}).kind
        'turn_start'
    """

    kind: str
    time: float
    turn: int
    payload: dict[str, Any]


Listener = Callable[[LiveEvent], None]
_ENDS_TEXT = frozenset({
    "turn_start", "turn_end", "model_call", "model_response", "model_error", "tool_call",
    "tool_result", "cancelled", "limit_reached",
})  # fmt: skip
"""Events that end a streamed text. Others may come inside a text, even inside a secret."""


# `LiveEventEmitter.emit` is the only way by which text of a running turn reaches a listener, and so
# the screen, a saved notebook, a log and a collector. It redacts every payload, and streamed text
# across its pieces.
#
# Redaction of streamed text
#
# A secret may be split over any number of deltas, so no piece can be redacted alone. One
# `StreamRedactor` per run of deltas of one kind holds back the last word, which may be the
# beginning of a secret, and releases it when it can no longer grow: when more text follows, when a
# delta of another kind comes, or at an event of `_ENDS_TEXT`. The text emitted so far is therefore
# always a prefix of the redacted whole. Cost: linear in the length of the text.


class LiveEventEmitter:
    """Emits the events of a session to a listener, redacted.

    A `delta` is a piece of streamed text of one kind (`text`, `thinking`, `tool_call`,
    `arguments`).

    Args:
        listener: called with every event.
        clock: returns seconds since 1970.
        turn: returns the number of the current turn.
    """

    def __init__(
        self, listener: Listener, clock: Callable[[], float], turn: Callable[[], int]
    ) -> None:
        self._listener, self._clock, self._current_turn = listener, clock, turn
        self._piece_kind, self._redactor = "", StreamRedactor()

    def emit(self, kind: str, payload: dict[str, Any]) -> None:
        """Emit an event.

        Args:
            kind: name of the event.
            payload: its data as JSON values.
        """
        if kind == "delta":
            self._emit_piece(payload["kind"], payload["text"])
            return
        if kind in _ENDS_TEXT:
            self._end_text()
        self._deliver(kind, redact_json(payload))

    def _emit_piece(self, kind: str, text: str) -> None:
        if kind != self._piece_kind:
            self._end_text()
            self._piece_kind, self._redactor = kind, StreamRedactor(get_environment_secrets())
        self._emit_text(self._redactor.feed(text))
        if kind == "tool_call":  # the name of a tool comes in one piece
            self._end_text()

    def _end_text(self) -> None:
        self._emit_text(self._redactor.flush())
        self._piece_kind = ""

    def _emit_text(self, text: str) -> None:
        if text:
            self._deliver("delta", {"kind": self._piece_kind, "text": text})

    def _deliver(self, kind: str, payload: dict[str, Any]) -> None:
        self._listener(LiveEvent(kind, self._clock(), self._current_turn(), payload))


def ignore_event(_: LiveEvent) -> None:
    """Ignore an event."""


def is_compaction(payload: dict[str, Any]) -> bool:
    """Tell from a `compaction_end` payload whether messages were replaced, also if only by a
    marker.

    Args:
        payload: of a `compaction_end` event.

    Returns:
        False where nothing was replaced, as after a refused or failed summary.

    Example:
        >>> from ctxkit.agent.turn_state_and_events import is_compaction
        >>> is_compaction({"outcome": "compacted"}), is_compaction({"outcome": "failed"})
        (True, False)
    """
    return payload.get("outcome") == "compacted" or "messages" in payload


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
