"""Response items and token counts of Codex as parts, replies and usage."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_messages import parse_parts
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    is_failed_exit,
    parse_arguments,
    parse_exit_code,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.session.messages import Image, Message, Part, SizeOnly, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections import Counter


class ReplyAssembler:
    """The log of a rollout, and the reply at its end that items still belong to."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self.model: str | None = None
        self.window: int | None = None
        self.called: dict[str, str] = {}
        """Id of a call to the name of its tool."""
        # Versions up to about 0.57 write the count of a call before its items, later ones after
        # them.
        self.counts_first: bool | None = None
        self._total: Any = None
        self._pending: tuple[Usage, float | None, int | None] | None = None
        """A count whose items have yet to come."""
        self._open: int | None = None
        """Index of the reply that further items belong to."""
        self._unpaid: int | None = None
        """Index of the last reply without usage."""
        self._answered = False

    def close(self) -> None:
        """Let what follows begin anew: a compaction, or a branch."""
        self.flush()
        self._open = self._unpaid = None

    def heard(self, message: Message) -> None:
        """Add what the model was told."""
        self.flush()
        self._open = None
        self.log.add(message)

    def say(self, p: dict[str, Any], parts: list[Part], when: float | None) -> None:
        """Add what the model said to the reply that is open, or begin one."""
        if self.counts_first is None:
            self.counts_first = self._pending is not None
        if not self.counts_first and self._answered:
            self._open = None
        if self._open is not None:
            old = self.log.entries[self._open]
            if type(old) is Message and len(old.parts) < MAX_PARTS:
                self.log.replace(
                    self._open, msgspec.structs.replace(old, parts=(*old.parts, *parts))
                )
                return
        usage, ended, window = self._pending or (None, when, self.window)
        self._pending, self._answered = None, False
        self._open = self.log.say(
            "assistant",
            parts,
            p.get("id"),
            time=ended if ended is not None else when,
            usage=usage,
            model=self.model,
            context_window=window,
        )
        self._unpaid = self._open if usage is None else None

    def call(self, p: dict[str, Any], call: ToolCall, when: float | None) -> None:
        """Add a call to its reply."""
        self.called[call.id] = call.name
        self.say(p, [call], when)

    def answer(
        self,
        call: str,
        parts: tuple[Part, ...],
        when: float | None,
        *,
        kind: str = "",
        failed: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add a call's result; what the model says next is a new reply, but after server tools."""
        self._answered = self._answered or not kind
        self.log.say(
            "tool",
            parts,
            kind=kind,
            time=when,
            tool=self.called.get(call),
            call_id=call or None,
            is_error=failed,
            details=details or {},
        )

    def count(self, info: dict[str, Any], record: dict[str, Any]) -> None:
        """Take the count of one call; one whose total did not grow repeats the one before."""
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if type(last) is not dict or (total is not None and total == self._total):
            return
        self._total = total
        self.window = count_or_none(info.get("model_context_window")) or self.window
        usage = parse_codex_usage(as_dict(last))
        if usage is None:
            return
        when = parse_timestamp(record.get("timestamp"))
        if self.counts_first is None:
            self.counts_first = self._unpaid is None
        if self.counts_first:
            self.flush()
            self._pending, self._open = (usage, when, self.window), None
            return
        self._pay(usage, when)

    def _pay(self, usage: Usage, when: float | None) -> None:
        old = self.log.entries[self._unpaid] if self._unpaid is not None else None
        if type(old) is Message and self._unpaid is not None:
            paid = msgspec.structs.replace(
                old, usage=usage, time=when or old.time, context_window=self.window
            )
            self.log.replace(self._unpaid, paid)
        else:
            self._pending = (usage, when, self.window)
            self.flush()
        self._open = self._unpaid = None

    def flush(self) -> None:
        """Write a call that was counted and of which no item came."""
        if self._pending is None:
            return
        usage, when, window = self._pending
        self._pending = None
        self.log.say(
            "assistant",
            time=when,
            usage=usage,
            model=self.model,
            context_window=window,
            visible=False,
        )

    def failed(self, stop: str, said: str | None, when: float | None) -> None:
        """Add a call that failed or was broken off."""
        self.flush()
        self.log.say(
            "assistant",
            time=when,
            model=self.model,
            visible=False,
            is_error=True,
            error=None if said is None else said[:500],
            stop=stop,
        )
        self._open = None


CALL_TYPES = {
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "web_search_call",
    "image_generation_call",
}
OUTPUT_TYPES = {
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    "local_shell_call_output",
}
SUMMARY_TYPES = {"compaction", "compaction_summary", "context_compaction"}
SERVER_CALL_TYPES = {"web_search_call", "image_generation_call"}
"""Calls that the provider runs; what it found is not in the log, but for pictures."""
_WRAPPERS = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill",
)


def parse_content(content: Any, skipped: Counter[str]) -> tuple[Part, ...]:
    """Return a content as parts, pictures without data left out."""
    if type(content) is str:
        return (Text(content),) if content else ()
    parts, _ = parse_parts(content, skipped)
    return tuple(p for p in parts if type(p) is not Image or p.data or p.url)


def is_context_wrapper(parts: tuple[Part, ...]) -> bool:
    """Say whether an input is context that Codex writes itself."""
    return bool(parts) and type(parts[0]) is Text and parts[0].text.startswith(_WRAPPERS)


def parse_sealed_summary(p: dict[str, Any], kind: str) -> tuple[Part, ...]:
    """Return a summary whose text may be encrypted: then its size is all that is known."""
    said, blob = (
        str_or_none(p.get("summary")) or str_or_none(p.get("text")),
        as_str(p.get("encrypted_content")),
    )
    return ((Text(said),) if said else ()) + ((SizeOnly(kind, chars=len(blob)),) if blob else ())


def parse_reasoning_item(p: dict[str, Any]) -> Thinking:
    """Return reasoning: its summary, and the size of what is encrypted."""
    said = [
        as_str(as_dict(s).get("text"))
        for s in (*as_list(p.get("summary")), *as_list(p.get("content")))
    ]
    return Thinking("\n".join(s for s in said if s), None, len(as_str(p.get("encrypted_content"))))


def parse_call_item(p: dict[str, Any], kind: str, own: str) -> ToolCall:
    """Return a call; those that are no functions are named by their kind."""
    if kind in ("function_call", "custom_tool_call"):
        return ToolCall(
            own, as_str(p.get("name")), *parse_arguments(p.get("arguments", p.get("input")))
        )
    given, raw = parse_arguments(p.get("action", p.get("arguments", p.get("revised_prompt"))))
    return ToolCall(own, kind.removesuffix("_call"), given, raw)


def parse_output_item(
    p: dict[str, Any], skipped: Counter[str]
) -> tuple[tuple[Part, ...], bool, dict[str, Any]]:
    """Return what a call gave, if it failed, and details; output can be JSON with an exit code."""
    output = p.get("output", p.get("tools"))
    details: dict[str, Any] = {}
    failed = p.get("status") in ("failed", "error")
    if type(output) is str and output.startswith('{"output":'):
        inner, raw = parse_arguments(output)
        if raw is None and type(inner.get("output")) is str:
            output, about = inner["output"], as_dict(inner.get("metadata"))
            if type(about.get("exit_code")) is int:
                details = {"exit_code": about["exit_code"]}
    elif type(output) is dict:
        failed = failed or output.get("success") is False
        output = output.get("content", output.get("text", output))
    parts = parse_content(output if type(output) in (str, list) else to_text(output), skipped)
    if not details and parts and type(parts[0]) is Text:
        code = parse_exit_code(parts[0].text)
        details = {} if code is None else {"exit_code": code}
    return parts, failed or is_failed_exit(details.get("exit_code")), details


def parse_codex_usage(last: dict[str, Any]) -> Usage | None:
    """Return a call's usage, cached tokens taken out of the input; None if nothing was billed."""
    whole, cached = (
        count_or_none(last.get("input_tokens")),
        count_or_none(last.get("cached_input_tokens")),
    )
    write, output = (
        count_or_none(last.get("cache_write_input_tokens")),
        count_or_none(last.get("output_tokens")),
    )
    if not (whole or output):
        return None
    fresh = None if whole is None else max(whole - (cached or 0) - (write or 0), 0)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=cached,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=count_or_none(last.get("reasoning_output_tokens")),
    )


def make_message_key(m: Message) -> bytes:
    """Return what a message is recognised by when a compaction repeats it."""
    key = msgspec.json.encode((m.role if m.role != "summary" else "user", m.call_id, m.parts))
    return (
        key if len(key) < 64 else blake2b(key, digest_size=32).digest()
    )  # images are not held twice


def initial_context_ids(shown: list[Message]) -> set[str]:
    """Return the ids of what stood before the first input: the context that Codex writes itself."""
    out: set[str] = set()
    for m in shown:
        if m.role not in ("system", "user") or (m.role == "user" and m.kind != "wrapper"):
            break
        out.add(m.id)
    return out
