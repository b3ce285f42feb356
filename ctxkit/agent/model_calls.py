"""Model calls of the live loop: streaming, recovery from overflow, retries and prompt reports."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.models.model import Model, Request
from ctxkit.engine.prompt_checks_and_repairs import (
    PromptRepairer,
    find_thinking_before_last_compaction,
    has_api_written_summaries,
)
from ctxkit.errors import ModelError
from ctxkit.formats.chat_completions_conversion import describe_unrecorded_content
from ctxkit.policies.compaction_and_pruning_rules import get_warn_and_cutover_tokens
from ctxkit.session.messages import Message, SizeOnly, Text, Thinking, ToolCall, Usage
from ctxkit.session.overflow_errors import (
    is_malformed_prompt,
    is_overflow,
    is_silent_overflow,
    parse_window,
)
from ctxkit.tokens.live_prompt_sizes import COUNTED_TOKENS_KEY
from ctxkit.tokens.message_sizes_from_recorded_prompts import TOOLS_DIGEST_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent.compaction import Compactor
    from ctxkit.agent.models.model import Delta
    from ctxkit.agent.turn_state_and_events import TurnState
    from ctxkit.policies.history.history import History
    from ctxkit.session.messages import Edit, ToolSchema


# A call as a state machine
#
#   prepare   check the limits, compact if the rules say so, prune (`Compactor.prepare`)
#   fit       trim the prompt to the current stage, and further while it exceeds `payload_bytes`
#   send      stream the reply; a reply that came whole may still be refused (`_find_refusal`)
#   recover   broken off or empty (`again`)  send again, at most _MAX_REPEATS times
#             overflow, first time           take over the window that the error names, compact
#             overflow again, or a malformed prompt (a call without its result, a thinking budget)
#                                            trim to the next stage of `get_last_resort_stages`
#             text has arrived               raise
#             anything else                  raise
#
# Each recovery from an overflow counts towards `Limits.attempts`, so the loop ends. Trimming
# changes this one prompt, never the session. Nothing of a failed reply is run: its text is stored
# as a failed reply, which later prompts leave out, and its cost counts where it is reported.

MAX_TOOL_CALLS = 1000
"""Tool calls of one reply; of a reply with more none is run."""
_MAX_REPEATS = 2
"""Repeats of a call whose reply broke off, was empty or lacked the tool calls it announced."""


class PartialReplyError(ModelError):
    """A call that failed in the middle of its reply; the text so far is logged and never sent."""

    def __init__(self, why: str, partial_text: str, **more: Any) -> None:
        super().__init__(why, **more)
        self.words = partial_text


class ModelCaller:
    """Calls the model for an agent.

    Args:
        model: the model to call.
        tools: schemas that every prompt carries.
        compactor: keeps the context within the rules; its transcript gets the replies.
        emit: called with each event (kind, payload).
    """

    def __init__(
        self,
        model: Model,
        tools: tuple[ToolSchema, ...],
        compactor: Compactor,
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._model, self._tools, self._compactor, self._emit = model, tools, compactor, emit
        self._name = redact(model.name)
        self._transcript, self._composition = compactor.transcript, PromptCharacterCounter()
        self._guard = PromptRepairer(
            model.name, keeps_thinking=has_api_written_summaries(compactor.rules.policy)
        )
        self._guard.stale |= find_thinking_before_last_compaction(compactor.transcript.session)
        self._schema_chars = sum(s.chars or 0 for s in tools)
        self._tools_logged = find_last_tools_digest(self._transcript.session.path) == digest_tools(
            tools
        )
        """True if the log already has the digest of the tools that are offered."""
        if window := _window_from_overflow(self._transcript.session.log, self._name):
            compactor.adopt_window(window)

    async def call(self, turn: TurnState) -> Message:
        """Call the model and store its reply; recover from overflows and broken replies.

        Returns:
            The reply as stored.

        Raises:
            LimitReached: the call would exceed a limit of the turn.
            ModelError: the model failed, or the prompt does not fit even when trimmed.
            asyncio.CancelledError: the turn was stopped; the text so far is in the session, marked.
        """
        compactor, stage, compacted, repeats = self._compactor, -1, False, 0
        while True:
            turn.check(self._model, compactor.context.next_prompt_tokens, self._transcript.clock())
            await compactor.prepare(turn.spent, turn.limits)
            prompt, stage = self._fit_payload(stage, turn.limits.payload_bytes)
            turn.sent = prompt.tokens
            try:
                return self._store_reply(await self._send_prompt(prompt.messages, turn), turn)
            except ModelError as e:
                self._store_failure(e, turn)
                if e.again and repeats < _MAX_REPEATS:  # safe: none of its tool calls was run
                    repeats += 1
                    continue
                if e.window:
                    compactor.adopt_window(e.window)
                has_text = isinstance(e, PartialReplyError) and bool(e.words)
                is_malformed = not e.overflow and is_malformed_prompt(str(e))
                is_curable = (e.overflow or is_malformed) and not has_text
                if not is_curable or not turn.start_attempt():
                    raise
                if not compacted and not is_malformed:
                    compacted = True
                    if await compactor.force(turn.spent, turn.limits, "overflow"):
                        continue
                stage += 1
                if stage >= len(compactor.context.stages):
                    raise
                self._emit_trim(stage)

    def _fit_payload(self, stage: int, limit: int | None) -> tuple[History, int]:
        """Return the prompt trimmed to a stage, or further if it exceeds `limit` bytes; and the
        stage.
        """
        context = self._compactor.context
        prompt, last = context.trim(stage), len(context.stages) - 1
        while limit is not None and stage < last and count_payload_bytes(prompt.messages) > limit:
            stage += 1
            prompt = context.trim(stage)
            self._emit_trim(stage, payload=limit)
        if stage >= 0:
            self._compactor.prompts.changed(prompt.messages, f"trimmed to fit, stage {stage + 1}")
        return prompt, stage

    def _emit_trim(self, stage: int, **more: Any) -> None:
        chars = self._compactor.context.stages[stage].cap
        self._emit("context_exceeded_recovery", {"stage": stage + 1, "chars": chars, **more})
        self._emit("context_budget_cutover", {"reason": "context_exceeded"})

    async def _send_prompt(self, messages: tuple[Message, ...], turn: TurnState) -> Message:
        name, seq = self._name, turn.spent.calls + 1
        messages = self._apply_guard(messages, turn)
        position = {"turn": self._transcript.turn, "step": turn.steps}
        request = Request(messages=messages, tools=self._tools, **position)
        report = self._composition.count(
            messages, seq=seq, schema_chars=self._schema_chars, tokens=turn.sent
        )
        self._emit("inner_call_context", report)
        self._emit("model_call", {"model": name, "message_count": len(messages), "call_seq": seq})
        stream = ReplyEventEmitter(self._emit, turn.check_deadline)
        try:
            reply = await self._model(request, stream)
        except asyncio.CancelledError:
            why = turn.over if turn.late else "interrupted by the user"
            pruning = self._record_pruning()
            failed_reply = self._transcript.store_failure(
                name, why, "aborted", stream.words, self._changed_window, pruning
            )
            self._compactor.context.add(failed_reply)
            self._emit("cancelled", {"chars": len(stream.words), "why": why})
            raise
        except ModelError as e:
            error_fields = {"overflow": e.overflow, "again": e.again, "window": e.window}
            raise PartialReplyError(redact(str(e)), stream.words, **error_fields) from None
        except Exception as e:  # noqa: BLE001  a model of the user's may raise anything
            why = f"{name}: {type(e).__name__}: {redact(str(e))[:1000]}"
            raise PartialReplyError(why, stream.words, overflow=is_overflow(e)) from None
        refused = _find_refusal(reply, name, self._compactor.context.run.budget.limit)
        if refused is not None:  # a reply that is not used is billed too
            turn.spent.add_summary(reply.usage or Usage(), name, free=turn.spent.free)
            raise refused
        self._compactor.note_answered_prompt(messages)
        return reply

    def _apply_guard(self, messages: tuple[Message, ...], turn: TurnState) -> tuple[Message, ...]:
        """Return the prompt without what the provider would refuse, and record what changed."""
        guarded, guard = self._guard.apply(messages), self._guard
        if guard.dropped_n:
            self._emit("provider_guard", {"rule": "changed_thinking", "n": guard.dropped_n})
        if len(guarded) > len(messages):
            self._emit("provider_guard", {"rule": "first_role", "n": 1})
        if guarded != messages:
            prompts = self._compactor.prompts
            prompts.changed(guarded, "provider guard")
            turn.sent = sum(item.tokens for item in prompts.latest.sent_last())
        return guarded

    def _store_reply(self, reply: Message, turn: TurnState) -> Message:
        tools_digest = {} if self._tools_logged else {TOOLS_DIGEST_KEY: digest_tools(self._tools)}
        counted = (
            {} if reply.usage is None else {COUNTED_TOKENS_KEY: self._compactor.context.counted}
        )
        details = {**reply.details, **tools_digest, **counted, **self._changed_thresholds}
        details |= self._record_pruning()
        reply, self._tools_logged = (
            replace(reply, context_window=self._changed_window, details=details),
            True,
        )
        stored = self._transcript.add(reply, "a")
        self._compactor.context.add(stored)
        turn.requested_calls = reply.tool_calls
        turn.steps, usage = turn.steps + 1, stored.usage
        turn.spent.add(usage, self._model.name, turn.sent)
        self._compactor.budget.add_call(usage)
        counts = {
            "input_tokens": usage and usage.prompt_tokens,
            "output_tokens": usage and usage.output_tokens,
        }
        ended = {"model": stored.model, "finish_reason": stored.stop, "call_seq": turn.spent.calls}
        self._emit("model_response", {**ended, **counts})
        return stored

    def _record_pruning(self) -> dict[str, Any]:
        """Return what prunings changed of the last prompt, redacted as the log is."""
        details: dict[str, Any] = self._compactor.context.record_pruning()
        return dict(redact_json(details, get_environment_secrets()))

    @property
    def _changed_thresholds(self) -> dict[str, int]:
        """Budget thresholds that differ from those that the session began with."""
        initial = self._transcript.session.details
        set_at = get_warn_and_cutover_tokens(self._compactor.rules)
        return {k: n for k, n in set_at.items() if n != (initial.get(k) or 0)}

    @property
    def _changed_window(self) -> int | None:
        """The current window if it differs from the one that the session began with, else None."""
        window = self._compactor.context.run.budget.limit
        return None if window == self._transcript.session.context_window else window

    def _store_failure(self, error: ModelError, turn: TurnState) -> None:
        turn.spent.add(None, self._model.name)
        partial_text = error.words if isinstance(error, PartialReplyError) else ""
        pruning = self._record_pruning()
        failed_reply = self._transcript.store_failure(
            self._name, str(error), "error", partial_text, self._changed_window, pruning
        )
        self._compactor.context.add(failed_reply)
        payload = {"error": str(error), "overflow": error.overflow}
        self._emit("model_error", {**payload, "again": error.again or None})


def _find_refusal(reply: Message, name: str, window: int) -> ModelError | None:
    """Return why a complete reply is not accepted, or None if it is."""
    calls = len(reply.tool_calls)
    if is_silent_overflow(reply, window):
        why = f"{name} cut the prompt: it is larger than {window:,} tokens."
        return ModelError(why, overflow=True)
    if calls > MAX_TOOL_CALLS:
        return ModelError(
            f"{name} asked for {calls:,} tool calls in one reply, and at most {MAX_TOOL_CALLS:,}"
            " are taken; none was run. Ask for smaller steps."
        )
    long = sum(len(getattr(part, "text", "")) for part in reply.parts) > MAX_REPLY_CHARS
    return ModelError(f"{name}: {REPLY_TOO_LONG}") if long else None


def find_last_tools_digest(path: Sequence[Message | Edit]) -> str | None:
    """Return the digest of the tools at the last reply that stores one, or None."""
    return next(
        (e.details[TOOLS_DIGEST_KEY] for e in reversed(path) if e.details.get(TOOLS_DIGEST_KEY)),
        None,
    )


def digest_tools(tools: Sequence[ToolSchema]) -> str:
    """Return a digest of tool schemas, twelve hexadecimal digits."""
    return sha256(msgspec.json.encode(tools, order="deterministic")).hexdigest()[:12]


def _window_from_overflow(log: Sequence[Message | Edit], model: str) -> int | None:
    """Return the window that the model's last failed call in a log names, if that overflowed."""
    for entry in reversed(log):
        failed = isinstance(entry, Message) and entry.error and entry.model == model
        if failed and isinstance(entry, Message) and is_overflow(entry.error or ""):
            return parse_window(entry.error or "")
    return None


MAX_REPLY_CHARS = 1_000_000
"""Characters of one reply, tool calls included; a longer reply is broken off."""
REPLY_TOO_LONG = f"The reply has more than {MAX_REPLY_CHARS:,} characters; it was broken off."


class ReplyEventEmitter:
    """Receives the deltas of one reply and emits them as events.

    Args:
        emit: called with `delta` and `model_wait` events; `LiveEventEmitter.emit` redacts them.
        check_deadline: raises if the turn's time is over; called at every delta.
    """

    def __init__(
        self, emit: Callable[[str, dict[str, Any]], None], check_deadline: Callable[[], None]
    ) -> None:
        self._emit, self._check_deadline = emit, check_deadline
        self._pieces: list[str] = []
        self._chars_left = MAX_REPLY_CHARS

    @property
    def words(self) -> str:
        """The text of the reply so far, not redacted."""
        return "".join(self._pieces)

    def __call__(self, delta: Delta) -> None:
        """Receive a delta.

        Raises:
            TurnTimeExceeded: the turn's time is over.
            ModelError: the reply is too long.
        """
        self._check_deadline()
        self._chars_left -= len(delta.text)
        if self._chars_left < 0:
            raise ModelError(REPLY_TOO_LONG)
        if delta.kind == "wait":
            self._emit("model_wait", {"why": delta.text})
            return
        if delta.kind == "text":
            self._pieces.append(delta.text)
        self._emit("delta", {"kind": delta.kind, "text": delta.text})


CONTENT_KINDS = ("text", "reasoning_text", "reasoning_protected_data", "fn_call_args", "fn_results")
MESSAGE_ROLES = ("user", "assistant", "tool", "summary")


class PromptCharacterCounter:
    """Counts the characters of each prompt by kind of content, incrementally.

    A prompt usually extends the one before, so only its new messages are added to the sums; a
    prompt that does not is counted from its start. Counts of a message are cached by its id.
    """

    def __init__(self) -> None:
        self._counts_by_id: dict[str, tuple[Message, list[int]]] = {}
        self._counted_prompt: tuple[Message, ...] = ()
        self._sums = [0] * (len(CONTENT_KINDS) + 1)
        self._role_counts = dict.fromkeys(MESSAGE_ROLES, 0)

    def count(
        self, messages: Sequence[Message], *, seq: int, schema_chars: int, tokens: int
    ) -> dict[str, Any]:
        """Return the payload of an `inner_call_context` event for a prompt.

        Args:
            messages: the messages that are sent, after trimming.
            seq: number of the call in its turn, from 1.
            schema_chars: characters of the tool schemas.
            tokens: the prompt as counted here (fuseraft gives characters / 4).
        """
        self._update_sums(tuple(messages))
        *chars, blobs = self._sums
        total = sum(chars)
        return {
            "seq": seq,
            "msg_counts": dict(self._role_counts),
            "content_chars": {
                **dict(zip(CONTENT_KINDS, chars, strict=True)),
                "content_total": total,
                "tool_schema_est": schema_chars,
                "grand_total": total + schema_chars,
            },
            "protected_data_blobs": blobs,
            "est_tokens": tokens,
        }

    def _update_sums(self, messages: tuple[Message, ...]) -> None:
        """Update the sums to these messages.

        Unchanged messages are the same objects, so comparing the tuples takes no deep comparison.
        """
        counted = len(self._counted_prompt)
        if messages[:counted] != self._counted_prompt:
            self._sums = [0] * (len(CONTENT_KINDS) + 1)
            self._role_counts = dict.fromkeys(MESSAGE_ROLES, 0)
            counted = 0
        for message in messages[counted:]:
            self._sums = [
                a + b for a, b in zip(self._sums, self._count_message(message), strict=True)
            ]
            if message.role in self._role_counts:
                self._role_counts[message.role] += 1
        self._counted_prompt = messages

    def _count_message(self, message: Message) -> list[int]:
        cached = self._counts_by_id.get(message.id)
        if cached is not None and cached[0] is message:
            return cached[1]
        counts = _count_chars(message)
        self._counts_by_id[message.id] = (message, counts)
        return counts


def _count_chars(message: Message) -> list[int]:
    """Return the characters of a message by kind of content, and its number of signed parts."""
    chars, blobs = dict.fromkeys(CONTENT_KINDS, 0), 0
    for part in message.parts:
        if isinstance(part, Text):
            chars["fn_results" if message.role == "tool" else "text"] += len(part.text)
        elif isinstance(part, Thinking):
            chars["reasoning_text"] += len(part.text)
            chars["reasoning_protected_data"] += len(part.signature or "")
            blobs += part.signature is not None
        elif isinstance(part, SizeOnly):
            chars["text"] += len(describe_unrecorded_content(part))
        elif isinstance(part, ToolCall):
            chars["fn_call_args"] += len(part.raw or msgspec.json.encode(part.arguments))
    return [*chars.values(), blobs]


def count_payload_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of the messages' parts as JSON, tool arguments included."""
    return sum(len(msgspec.json.encode(m.parts)) for m in messages)
