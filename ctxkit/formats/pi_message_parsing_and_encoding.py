"""Conversion of Pi messages to session messages and back to entries."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.untrusted_record_parsing import (
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    format_timestamp,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import (
    MISSING_START_KIND,
    USER_VISIBLE_KEY,
    Attachment,
    Edit,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from ctxkit.session.session import Session


_STOP_REASONS_FROM_PI = {"toolUse": "tool"}
_FAILED_STOP_REASONS = ("error", "aborted")
"""Replies with these stop reasons are not sent again, except for their text in versions 1 and 2
(as recorded prompts show)."""
_TEXT_PART_TYPES = (Text, Thinking)


def parse_reply(
    record: dict[str, Any], message: dict[str, Any], message_id: str, *, is_version_1_or_2: bool
) -> tuple[Message, tuple[Part, ...]]:
    """Return a reply, and all its parts if it failed with calls that were not run.

    Args:
        record: the entry.
        message: its message.
        message_id: the id of the new message.
        is_version_1_or_2: True for versions 1 and 2, which sent the text of a failed reply.
    """
    stop_reason = message.get("stopReason")
    ended_at, began_at = (
        parse_timestamp(record.get("timestamp")),
        parse_timestamp(message.get("timestamp")),
    )
    details: dict[str, Any] = (
        {"provider": message["provider"]} if type(message.get("provider")) is str else {}
    )
    all_parts = parts = parse_pi_parts(message.get("content"))
    is_failed = stop_reason in _FAILED_STOP_REASONS
    if is_failed:
        parts = _drop_unrun_calls(all_parts, details)
    latency = (
        None
        if ended_at is None or began_at is None or not 0 <= ended_at - began_at < 86400
        else round(ended_at - began_at, 3)
    )
    reply = Message(
        role="assistant",
        id=message_id,
        parts=parts,
        time=began_at if ended_at is None else ended_at,
        visible=is_visible_to_model(message)
        and (
            not is_failed
            or (is_version_1_or_2 and any(p.text for p in parts if isinstance(p, _TEXT_PART_TYPES)))
        ),
        is_error=is_failed,
        error=str_or_none(message.get("errorMessage")),
        usage=parse_pi_usage(message.get("usage")),
        model=str_or_none(message.get("model")),
        stop=_STOP_REASONS_FROM_PI.get(stop_reason, stop_reason)
        if type(stop_reason) is str
        else None,
        latency=latency,
        details=details,
    )
    reply = apply_kind_and_user_visibility(reply, message)
    return reply, () if parts is all_parts else all_parts


def _drop_unrun_calls(parts: tuple[Part, ...], details: dict[str, Any]) -> tuple[Part, ...]:
    """Return a failed reply's parts without its calls, which are listed in `details` instead."""
    calls = [p for p in parts if type(p) is ToolCall]
    if not calls:
        return parts
    details["calls_not_run"] = [
        {"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls
    ]
    return tuple(p for p in parts if type(p) is not ToolCall)


def parse_result(
    record: dict[str, Any], message: dict[str, Any], message_id: str, *, is_visible: bool
) -> Message:
    """Return the result of a call as a message.

    Args:
        record: the raw entry.
        message: its raw message.
        message_id: id of the new message.
        is_visible: the model sees it.
    """
    result = Message(
        role="tool",
        id=message_id,
        parts=parse_pi_parts(message.get("content")),
        time=parse_timestamp(record.get("timestamp")) or parse_timestamp(message.get("timestamp")),
        tool=str_or_none(message.get("toolName")),
        call_id=str_or_none(message.get("toolCallId")),
        is_error=message.get("isError") is True,
        visible=is_visible,
    )
    return apply_kind_and_user_visibility(result, message)


def parse_user_shell_command(
    record: dict[str, Any], message: dict[str, Any], message_id: str
) -> Message:
    """Return a shell command of the user and its output as a message.

    Args:
        record: the raw entry.
        message: its raw message; `excludeFromContext` makes it invisible.
        message_id: id of the new message.
    """
    command, exit_code = as_str(message.get("command")), message.get("exitCode")
    is_failed = message.get("cancelled") is True or (type(exit_code) is int and exit_code != 0)
    return Message(
        role="user",
        id=message_id,
        kind="bash",
        parts=(Text(f"Ran `{command}`\n```\n{as_str(message.get('output'))}\n```"),),
        time=parse_timestamp(record.get("timestamp")) or parse_timestamp(message.get("timestamp")),
        visible=message.get("excludeFromContext") is not True,
        is_error=is_failed,
        details={"command": command, "exit_code": exit_code if type(exit_code) is int else None},
    )


def is_visible_to_model(message: dict[str, Any]) -> bool:
    """Return True unless the message is marked as not sent to the model (by ai)."""
    metadata = message.get("metadata")
    return type(metadata) is not dict or metadata.get("agentVisible") is not False


def apply_kind_and_user_visibility(message: Message, raw: dict[str, Any]) -> Message:
    """Return a message with the metadata of the agent `ai`: its kind, and whether the user sees it.

    Args:
        message: the parsed message.
        raw: the raw message.
    """
    metadata = raw.get("metadata")
    if type(metadata) is not dict:
        return message
    kind = str_or_none(metadata.get("kind"))
    if kind and kind != "tool_result":  # which every result is
        message = replace(message, kind=kind)
    if metadata.get("userVisible") is False:
        message = replace(message, details={**message.details, USER_VISIBLE_KEY: False})
    return message


def parse_pi_usage(value: Any) -> Usage | None:
    """Return the usage of a call; None for all zeros, which a failed call has."""
    if type(value) is not dict:
        return None
    uncached, output = count_or_none(value.get("input")), count_or_none(value.get("output"))
    cache_read, cache_write = (
        count_or_none(value.get("cacheRead")),
        count_or_none(value.get("cacheWrite")),
    )
    if not (uncached or cache_read or cache_write or output):
        return None
    cost = value.get("cost")
    return Usage(
        input_tokens=uncached,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output,
        reasoning_tokens=count_or_none(value.get("reasoning")),
        cost_usd=float_or_none(cost.get("total")) if type(cost) is dict else None,
    )


def parse_pi_parts(content: Any) -> tuple[Part, ...]:
    """Return the content of a Pi message, a string or a list, as parts.

    Raises:
        ValueError: a part is no object.
    """
    if type(content) is str:
        return (Text(content),) if content else ()
    parts: list[Part] = []
    for raw_part in as_list(content):
        if type(raw_part) is not dict:
            raise ValueError("expected the parts of a message to be objects")
        part_type = raw_part.get("type")
        if part_type == "text":
            parts.append(Text(as_str(raw_part.get("text"))))
        elif part_type == "thinking":
            signature = str_or_none(raw_part.get("thinkingSignature"))
            hidden_chars = len(signature) if signature and len(signature) > 64 else 0
            parts.append(
                Thinking(
                    as_str(raw_part.get("thinking")),
                    signature,
                    hidden_chars,
                    raw_part.get("redacted") is True,
                )
            )
        elif part_type == "toolCall":
            arguments, raw = parse_arguments(raw_part.get("arguments"))
            parts.append(
                ToolCall(as_str(raw_part.get("id")), as_str(raw_part.get("name")), arguments, raw)
            )
        elif part_type == "image":
            parts.append(
                Attachment(
                    as_str(raw_part.get("mimeType")) or "image/png", as_str(raw_part.get("data"))
                )
            )
        else:
            parts.append(Text(json_to_text(raw_part)))  # an unknown part was sent to the model, too
    return tuple(parts)


_STOP_REASONS_TO_PI = {
    "tool": "toolUse",
    "stop": "stop",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}


def encode_line(value: Any) -> bytes:
    """Return a value as a line of JSON; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii") + b"\n"


def encode_entry(
    fields: dict[str, Any], entry_id: str, parent: str | None, timestamp: str
) -> bytes:
    """Return the line of an entry.

    Args:
        fields: its `type` and all fields besides id, parent and time.
        entry_id: its id.
        parent: id of the entry before it; None: the first one.
        timestamp: its time in ISO 8601.
    """
    entry_type, other_fields = fields["type"], {k: v for k, v in fields.items() if k != "type"}
    return encode_line(
        {
            "type": entry_type,
            "id": entry_id,
            "parentId": parent,
            "timestamp": timestamp,
            **other_fields,
        }
    )


def encode_header(session: Session) -> dict[str, Any]:
    """Return the first line of a file."""
    first_time = next((e.time for e in session.log if e.time is not None), None)
    timestamp = format_timestamp(session.started if session.started is not None else first_time)
    header = {
        "type": "session",
        "version": 3,
        "id": session.id,
        "timestamp": timestamp,
        "cwd": session.cwd or "",
    }
    return {**header, "parentSession": session.parent} if session.parent else header


def encode_message(message: Message) -> dict[str, Any] | None:
    """Return a message in Pi's form; None for one that Pi lacks (system, hidden, lost)."""
    milliseconds = int((message.time or 0) * 1000)
    if message.role == "assistant":
        # The time of a Pi message is that of its start.
        return _encode_reply(message, milliseconds - int((message.latency or 0) * 1000))
    if not message.visible or message.role == "system" or message.kind == MISSING_START_KIND:
        return None
    if message.role == "tool":
        return {
            "role": "toolResult",
            "toolCallId": message.call_id or "",
            "toolName": message.tool or "",
            "content": [_encode_part(p) for p in message.parts],
            "isError": message.is_error,
            "timestamp": milliseconds,
        }
    return {
        "role": "user",
        "content": [_encode_part(p) for p in message.parts],
        "timestamp": milliseconds,
    }


def _encode_reply(message: Message, milliseconds: int) -> dict[str, Any]:
    usage = message.usage or Usage()
    cache_write = (usage.cache_write_tokens or 0) + (usage.cache_write_1h_tokens or 0)
    uncached, cache_read = usage.input_tokens or 0, usage.cache_read_tokens or 0
    output = usage.output_tokens or 0
    stop_reason = _STOP_REASONS_TO_PI.get(
        message.stop or "", "toolUse" if message.tool_calls else "stop"
    )
    encoded = {
        "role": "assistant",
        "content": [_encode_part(p) for p in message.parts],
        "api": "",
        "provider": str(message.details.get("provider") or ""),
        "model": message.model or "",
        "usage": {
            "input": uncached,
            "output": output,
            "cacheRead": cache_read,
            "cacheWrite": cache_write,
            "totalTokens": uncached + output + cache_read + cache_write,
            "cost": {
                "input": 0,
                "output": 0,
                "cacheRead": 0,
                "cacheWrite": 0,
                "total": usage.cost_usd or 0,
            },
        },
        "stopReason": "error"
        if message.is_error and stop_reason not in ("error", "aborted")
        else stop_reason,
        "timestamp": milliseconds,
    }
    return {**encoded, "errorMessage": message.error} if message.error else encoded


def _encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thinking):
        redacted = {"redacted": True} if part.redacted else {}
        return {
            "type": "thinking",
            "thinking": part.text,
            "thinkingSignature": part.signature or "",
            **redacted,
        }
    if isinstance(part, ToolCall):
        return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.arguments}
    if isinstance(part, Attachment) and part.kind == "image" and part.data:
        return {"type": "image", "data": part.data, "mimeType": part.media_type}
    return {"type": "text", "text": ""}


def encode_compaction(edit: Edit, first_retained: str) -> dict[str, Any] | None:
    """Return a compaction in Pi's form; None if no summary replaced messages.

    Args:
        edit: the recorded edit.
        first_retained: id of the first entry that the summary does not replace.
    """
    if edit.kind != "summarised" or not edit.inserted:
        return None
    return {
        "type": "compaction",
        "summary": edit.inserted[0].text,
        "firstKeptEntryId": first_retained,
        "tokensBefore": edit.tokens_before or 0,
    }


# Ids of written entries follow from the index in the log: entry i has 2i + 1 and the mark before it
# 2i + 2, so that appending a message never needs the ids of earlier ones.


class WrittenEntryIdsAndParents:
    """Ids (8 hex digits) and parents of the entries written for a session's log."""

    def __init__(self, session: Session) -> None:
        self.log = session.log
        self._parents = session.parents

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each message by id; built only if there is an edit."""
        return {e.id: i for i, e in enumerate(self.log) if isinstance(e, Message)}

    @staticmethod
    def id(i: int) -> str:
        """Return the id of an entry of the log."""
        return f"{2 * i + 1:08x}"

    @staticmethod
    def mark(i: int) -> str:
        """Return the id of the `custom` entry that goes before an entry of the log."""
        return f"{2 * i + 2:08x}"

    def before(self, i: int) -> int:
        """Return the index of an entry's parent; -1 for the first entry."""
        parent = self._parents[i] if i < len(self._parents) else i - 1
        return parent if -1 <= parent < i else i - 1  # a parent cannot come later

    def first_kept(self, i: int, edit: Edit) -> str:
        """Return the id of the first message after the targets of an edit, or the edit's own id.

        Args:
            i: index of the edit among the entries.
            edit: a compaction.
        """
        last_target = max(
            (self.index[target] for target in edit.targets if self.index.get(target, i) < i),
            default=-1,
        )
        return next(
            (
                self.id(index)
                for index in range(last_target + 1, i)
                if isinstance(self.log[index], Message)
            ),
            self.id(i),
        )
