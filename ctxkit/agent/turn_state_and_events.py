"""A turn's limits, spending, state, outcome and live events, and warnings about token budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.formatting_and_sanitizing import format_percent, pluralize, sanitize_line
from ctxkit._internal.redaction import StreamRedactor, redact_json
from ctxkit.agent.turn_limits_and_token_budgets import (
    LimitReached,
    Limits,
    SpentInTurn,
    TurnTimeExceeded,
)
from ctxkit.session.messages import Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ctxkit.agent.models.model import Model


@dataclass(slots=True)
class TurnState:
    """State of one turn of an agent.

    Example:
        >>> from ctxkit.agent import TurnState
        >>> state = TurnState(began=1_700_000_000.0)
        >>> state.steps, state.late
        (0, False)
    """

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
    """Result of one turn.

    Example:
        >>> import asyncio
        >>> import ctxkit as ck
        >>> from ctxkit.agent import Agent, make_model
        >>> clock = lambda: 0.0
        >>> counter = ck.tokens.default_counter()
        >>> model = make_model("scripted/tour", counter=counter, clock=clock)
        >>> agent = Agent(
        ...     ck.Session(id="demo"), model=model, rules=ck.policies.Rules(), clock=clock
        ... )
        >>> asyncio.run(agent.turn("Begin.")).ended
        'answered'
    """

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


def is_successful_compaction(end_payload: dict[str, Any]) -> bool:
    """Tell from a `compaction_end` payload whether messages were replaced, also if only by a
    marker.

    Args:
        end_payload: payload of a `compaction_end` event.

    Returns:
        False where nothing was replaced, as after a refused or failed summary.

    Example:
        >>> from ctxkit.agent.turn_state_and_events import is_successful_compaction
        >>> is_successful_compaction({"outcome": "compacted"})
        True
    """
    return end_payload.get("outcome") == "compacted" or "messages" in end_payload
