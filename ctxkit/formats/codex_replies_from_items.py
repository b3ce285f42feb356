"""Codex response items and token counts, assembled into replies with usage."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_message_and_usage_parsers import parse_parts_and_results
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    is_failed_exit,
    json_to_text,
    parse_arguments,
    parse_exit_code,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import (
    Attachment,
    Message,
    Part,
    SizeOnly,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from collections import Counter


# A rollout has no marker for the end of an API call; only the order of items and token counts tells
# which belong together. State:
#   open reply      reasoning, text and calls are added to it; an input, a result followed by a new
#                   item, an error or a token count ends it
#   without usage   the reply that the next token count belongs to
#   pending usage   a token count that came before its items
# Versions up to about 0.57 write the token count of a call before its items, later ones after them.
# The first count or item of a file decides which (`counts_first`). A count whose total did not
# change repeats an earlier one. A count without items becomes an invisible reply, so that no usage
# is lost.


class ReplyAssembler:
    """Builder of a rollout's log that groups items into one reply per API call."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self.model: str | None = None
        self.context_window: int | None = None
        self.tool_by_call: dict[str, str] = {}
        """The name of a call's tool by the call's id."""
        self.counts_first: bool | None = None
        """True if token counts come before their items; None until that is known."""
        self._last_total: Any = None
        self._pending_usage: tuple[Usage, float | None, int | None] | None = None
        """Usage, time and context window of a token count that came before its items."""
        self._open_reply: int | None = None
        """Index of the reply that further items are added to."""
        self._reply_without_usage: int | None = None
        """Index of the last reply without usage."""
        self._has_result = False

    def begin_new_reply(self) -> None:
        """End the open reply, before a compaction or a branch."""
        self.flush_pending_usage()
        self._open_reply = self._reply_without_usage = None

    def add_input(self, message: Message) -> None:
        """Add a message to the model, which ends the open reply."""
        self.flush_pending_usage()
        self._open_reply = None
        self.builder.add(message)

    def add_reply_parts(self, item: dict[str, Any], parts: list[Part], time: float | None) -> None:
        """Add parts to the open reply, or begin a new one.

        Args:
            item: the item of the log; its id becomes that of a new reply.
            parts: content to add.
            time: POSIX time of the item; None: unknown.
        """
        if self.counts_first is None:
            self.counts_first = self._pending_usage is not None
        if not self.counts_first and self._has_result:
            self._open_reply = None
        if self._open_reply is not None:
            reply = self.builder.entries[self._open_reply]
            if type(reply) is Message and len(reply.parts) < MAX_PARTS:
                self.builder.replace(
                    self._open_reply, msgspec.structs.replace(reply, parts=(*reply.parts, *parts))
                )
                return
        usage, counted_at, window = self._pending_usage or (None, time, self.context_window)
        self._pending_usage, self._has_result = None, False
        self._open_reply = self.builder.add_message(
            "assistant",
            parts,
            item.get("id"),
            time=counted_at if counted_at is not None else time,
            usage=usage,
            model=self.model,
            context_window=window,
        )
        self._reply_without_usage = self._open_reply if usage is None else None

    def add_call(self, item: dict[str, Any], call: ToolCall, time: float | None) -> None:
        """Add a tool call to the open reply.

        Args:
            item: the item of the log.
            call: the tool call that it holds.
            time: POSIX time of the item; None: unknown.
        """
        self.tool_by_call[call.id] = call.name
        self.add_reply_parts(item, [call], time)

    def add_result(
        self,
        call_id: str,
        parts: tuple[Part, ...],
        time: float | None,
        *,
        kind: str = "",
        is_error: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add the result of a call.

        Args:
            call_id: id of the call.
            parts: content of the result.
            time: seconds since 1970; None: unknown.
            kind: kind of a server tool; its result does not end the reply. Empty: a client's tool,
                and a new reply follows.
            is_error: the call failed.
            details: more about the result, such as `exit_code`.
        """
        self._has_result = self._has_result or not kind
        self.builder.add_message(
            "tool",
            parts,
            kind=kind,
            time=time,
            tool=self.tool_by_call.get(call_id),
            call_id=call_id or None,
            is_error=is_error,
            details=details or {},
        )

    def read_token_count(self, info: dict[str, Any], record: dict[str, Any]) -> None:
        """Read the token count of one call; one with an unchanged total is a repetition.

        Args:
            info: tokens of the last call and of all calls so far, and the context window.
            record: the whole line, for its timestamp.
        """
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if type(last) is not dict or (total is not None and total == self._last_total):
            return
        self._last_total = total
        self.context_window = count_or_none(info.get("model_context_window")) or self.context_window
        usage = parse_codex_usage(as_dict(last))
        if usage is None:
            return
        time = parse_timestamp(record.get("timestamp"))
        if self.counts_first is None:
            self.counts_first = self._reply_without_usage is None
        if self.counts_first:
            self.flush_pending_usage()
            self._pending_usage, self._open_reply = (usage, time, self.context_window), None
            return
        self._attach_usage(usage, time)

    def _attach_usage(self, usage: Usage, time: float | None) -> None:
        reply = (
            self.builder.entries[self._reply_without_usage]
            if self._reply_without_usage is not None
            else None
        )
        if type(reply) is Message and self._reply_without_usage is not None:
            with_usage = msgspec.structs.replace(
                reply, usage=usage, time=time or reply.time, context_window=self.context_window
            )
            self.builder.replace(self._reply_without_usage, with_usage)
        else:
            self._pending_usage = (usage, time, self.context_window)
            self.flush_pending_usage()
        self._open_reply = self._reply_without_usage = None

    def flush_pending_usage(self) -> None:
        """Add an invisible reply for a pending token count without items."""
        if self._pending_usage is None:
            return
        usage, time, window = self._pending_usage
        self._pending_usage = None
        self.builder.add_message(
            "assistant",
            time=time,
            usage=usage,
            model=self.model,
            context_window=window,
            visible=False,
        )

    def add_failed_call(self, stop_reason: str, message: str | None, time: float | None) -> None:
        """Add an invisible reply for a call that failed or was aborted.

        Args:
            stop_reason: "error" or "aborted".
            message: the log's message about it; None: there is none.
            time: seconds since 1970; None: unknown.
        """
        self.flush_pending_usage()
        self.builder.add_message(
            "assistant",
            time=time,
            model=self.model,
            visible=False,
            is_error=True,
            error=None if message is None else message[:500],
            stop=stop_reason,
        )
        self._open_reply = None


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
"""Calls that the provider runs; their results are not in the log, except for images."""
_WRAPPER_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill",
)


def parse_content(content: Any, skipped: Counter[str]) -> tuple[Part, ...]:
    """Return a content as parts, without images that have no data.

    Args:
        content: a string, a part, or a list of parts.
        skipped: counts what is not understood, by kind; it is changed.
    """
    if type(content) is str:
        return (Text(content),) if content else ()
    parts, _ = parse_parts_and_results(content, skipped)
    return tuple(p for p in parts if type(p) is not Attachment or p.data or p.url)


def is_context_wrapper(parts: tuple[Part, ...]) -> bool:
    """Return True if an input is context that Codex itself wrote."""
    return bool(parts) and type(parts[0]) is Text and parts[0].text.startswith(_WRAPPER_PREFIXES)


def parse_summary_item(item: dict[str, Any], kind: str) -> tuple[Part, ...]:
    """Return the parts of a summary: its text, and the size of its encrypted content.

    Args:
        item: the raw item.
        kind: kind of the part that stands for encrypted content.
    """
    text, encrypted = (
        str_or_none(item.get("summary")) or str_or_none(item.get("text")),
        as_str(item.get("encrypted_content")),
    )
    return ((Text(text),) if text else ()) + (
        (SizeOnly(kind, chars=len(encrypted)),) if encrypted else ()
    )


def parse_reasoning_item(item: dict[str, Any]) -> Thinking:
    """Return reasoning as its summary and the size of its encrypted text."""
    texts = [
        as_str(as_dict(s).get("text"))
        for s in (*as_list(item.get("summary")), *as_list(item.get("content")))
    ]
    return Thinking(
        "\n".join(s for s in texts if s), None, len(as_str(item.get("encrypted_content")))
    )


def parse_call_item(item: dict[str, Any], item_type: str, call_id: str) -> ToolCall:
    """Return a tool call; a call of no named function gets the name of its item type.

    Args:
        item: the raw item.
        item_type: its type, such as `function_call` or `local_shell_call`.
        call_id: id by which the result refers to it.
    """
    if item_type in ("function_call", "custom_tool_call"):
        return ToolCall(
            call_id,
            as_str(item.get("name")),
            *parse_arguments(item.get("arguments", item.get("input"))),
        )
    arguments, raw = parse_arguments(
        item.get("action", item.get("arguments", item.get("revised_prompt")))
    )
    return ToolCall(call_id, item_type.removesuffix("_call"), arguments, raw)


def parse_output_item(
    item: dict[str, Any], skipped: Counter[str]
) -> tuple[tuple[Part, ...], bool, dict[str, Any]]:
    """Parse the output of a call.

    Args:
        item: the raw item.
        skipped: counts what is not understood, by kind; it is changed.

    Returns:
        The parts, whether the call failed, and details (`exit_code`).
    """
    output = item.get("output", item.get("tools"))
    details: dict[str, Any] = {}
    is_failed = item.get("status") in ("failed", "error")
    if type(output) is str and output.startswith('{"output":'):
        inner_output, raw = parse_arguments(output)
        if raw is None and type(inner_output.get("output")) is str:
            output, metadata = inner_output["output"], as_dict(inner_output.get("metadata"))
            if type(metadata.get("exit_code")) is int:
                details = {"exit_code": metadata["exit_code"]}
    elif type(output) is dict:
        is_failed = is_failed or output.get("success") is False
        output = output.get("content", output.get("text", output))
    parts = parse_content(output if type(output) in (str, list) else json_to_text(output), skipped)
    if not details and parts and type(parts[0]) is Text:
        code = parse_exit_code(parts[0].text)
        details = {} if code is None else {"exit_code": code}
    return parts, is_failed or is_failed_exit(details.get("exit_code")), details


def parse_codex_usage(last: dict[str, Any]) -> Usage | None:
    """Return a call's usage, with `input_tokens` without cached ones; None if it has no tokens."""
    input_tokens, cache_read = (
        count_or_none(last.get("input_tokens")),
        count_or_none(last.get("cached_input_tokens")),
    )
    cache_write, output_tokens = (
        count_or_none(last.get("cache_write_input_tokens")),
        count_or_none(last.get("output_tokens")),
    )
    if not (input_tokens or output_tokens):
        return None
    uncached = (
        None
        if input_tokens is None
        else max(input_tokens - (cache_read or 0) - (cache_write or 0), 0)
    )
    return Usage(
        input_tokens=uncached,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output_tokens,
        reasoning_tokens=count_or_none(last.get("reasoning_output_tokens")),
    )


def make_message_key(message: Message) -> bytes:
    """Return the key by which a message is recognized when a compaction repeats it."""
    key = msgspec.json.encode(
        (message.role if message.role != "summary" else "user", message.call_id, message.parts)
    )
    # A long key is hashed, so that images are not stored twice.
    return key if len(key) < 64 else blake2b(key, digest_size=32).digest()


def get_ids_before_first_prompt(visible: list[Message]) -> set[str]:
    """Return the ids of the messages before the first user input: Codex's own context."""
    ids: set[str] = set()
    for message in visible:
        if message.role not in ("system", "user") or (
            message.role == "user" and message.kind != "wrapper"
        ):
            break
        ids.add(message.id)
    return ids
