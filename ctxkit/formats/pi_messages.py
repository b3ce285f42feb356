"""Messages of Pi format both ways: parsed to ours, encoded as entries."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.fields import (
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    format_timestamp,
    parse_arguments,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.session.messages import (
    MISSING_START_KIND,
    USER_VISIBLE_KEY,
    Edit,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from ctxkit.session.session import Session


_STOPS_FROM_PI = {"toolUse": "tool"}
_FAILED = ("error", "aborted")
"""Replies that end so are not sent back, save words in versions 1 and 2 (by recorded prompts)."""
_TEXT_PARTS = (Text, Thinking)


def parse_reply(
    record: dict[str, Any], m: dict[str, Any], own: str, *, is_early: bool
) -> tuple[Message, tuple[Part, ...]]:
    """Return a reply, and its whole parts where it failed with calls that were not run.

    Args:
        record: the entry.
        m: its message.
        own: the id it gets.
        is_early: versions 1 and 2 sent what a failed reply had said.
    """
    stop = m.get("stopReason")
    ended, began = parse_timestamp(record.get("timestamp")), parse_timestamp(m.get("timestamp"))
    details: dict[str, Any] = {"provider": m["provider"]} if type(m.get("provider")) is str else {}
    whole = parts = parse_pi_parts(m.get("content"))
    failed = stop in _FAILED
    if failed:
        parts = _drop_unrun_calls(whole, details)
    latency = (
        None
        if ended is None or began is None or not 0 <= ended - began < 86400
        else round(ended - began, 3)
    )
    reply = Message(
        role="assistant",
        id=own,
        parts=parts,
        time=began if ended is None else ended,
        visible=is_agent_visible(m)
        and (not failed or (is_early and any(p.text for p in parts if isinstance(p, _TEXT_PARTS)))),
        is_error=failed,
        error=str_or_none(m.get("errorMessage")),
        usage=parse_pi_usage(m.get("usage")),
        model=str_or_none(m.get("model")),
        stop=_STOPS_FROM_PI.get(stop, stop) if type(stop) is str else None,
        latency=latency,
        details=details,
    )
    reply = apply_marks(reply, m)
    return reply, () if parts is whole else whole


def _drop_unrun_calls(parts: tuple[Part, ...], details: dict[str, Any]) -> tuple[Part, ...]:
    """Return a failed reply's parts without its calls, which were not run: `details` tell them."""
    calls = [p for p in parts if type(p) is ToolCall]
    if not calls:
        return parts
    details["calls_not_run"] = [
        {"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls
    ]
    return tuple(p for p in parts if type(p) is not ToolCall)


def parse_result(record: dict[str, Any], m: dict[str, Any], own: str, *, visible: bool) -> Message:
    """Return the result of a call."""
    result = Message(
        role="tool",
        id=own,
        parts=parse_pi_parts(m.get("content")),
        time=parse_timestamp(record.get("timestamp")) or parse_timestamp(m.get("timestamp")),
        tool=str_or_none(m.get("toolName")),
        call_id=str_or_none(m.get("toolCallId")),
        is_error=m.get("isError") is True,
        visible=visible,
    )
    return apply_marks(result, m)


def parse_bash_message(record: dict[str, Any], m: dict[str, Any], own: str) -> Message:
    """Return a command that the user ran, with its output."""
    command, code = as_str(m.get("command")), m.get("exitCode")
    failed = m.get("cancelled") is True or (type(code) is int and code != 0)
    return Message(
        role="user",
        id=own,
        kind="bash",
        parts=(Text(f"Ran `{command}`\n```\n{as_str(m.get('output'))}\n```"),),
        time=parse_timestamp(record.get("timestamp")) or parse_timestamp(m.get("timestamp")),
        visible=m.get("excludeFromContext") is not True,
        is_error=failed,
        details={"command": command, "exit_code": code if type(code) is int else None},
    )


def is_agent_visible(m: dict[str, Any]) -> bool:
    """Say whether a message is sent to the model: ai marks those that are not."""
    metadata = m.get("metadata")
    return type(metadata) is not dict or metadata.get("agentVisible") is not False


def apply_marks(message: Message, m: dict[str, Any]) -> Message:
    """Return a message with the marks that ai has on it: its kind, and whether the user sees it."""
    metadata = m.get("metadata")
    if type(metadata) is not dict:
        return message
    kind = str_or_none(metadata.get("kind"))
    if kind and kind != "tool_result":  # which every result is
        message = replace(message, kind=kind)
    if metadata.get("userVisible") is False:
        message = replace(message, details={**message.details, USER_VISIBLE_KEY: False})
    return message


def parse_pi_usage(value: Any) -> Usage | None:
    """Return what a call was billed for; None for all zeros: it failed before it was counted."""
    if type(value) is not dict:
        return None
    fresh, output = count_or_none(value.get("input")), count_or_none(value.get("output"))
    read, write = count_or_none(value.get("cacheRead")), count_or_none(value.get("cacheWrite"))
    if not (fresh or read or write or output):
        return None
    cost = value.get("cost")
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=count_or_none(value.get("reasoning")),
        cost_usd=float_or_none(cost.get("total")) if type(cost) is dict else None,
    )


def parse_pi_parts(content: Any) -> tuple[Part, ...]:
    """Return Pi's content, a text or a list of parts, as our parts."""
    if type(content) is str:
        return (Text(content),) if content else ()
    out: list[Part] = []
    for p in as_list(content):
        if type(p) is not dict:
            raise ValueError("expected the parts of a message to be objects")
        kind = p.get("type")
        if kind == "text":
            out.append(Text(as_str(p.get("text"))))
        elif kind == "thinking":
            signature = str_or_none(p.get("thinkingSignature"))
            hidden = len(signature) if signature and len(signature) > 64 else 0
            out.append(
                Thinking(as_str(p.get("thinking")), signature, hidden, p.get("redacted") is True)
            )
        elif kind == "toolCall":
            given, raw = parse_arguments(p.get("arguments"))
            out.append(ToolCall(as_str(p.get("id")), as_str(p.get("name")), given, raw))
        elif kind == "image":
            out.append(Image(as_str(p.get("mimeType")) or "image/png", as_str(p.get("data"))))
        else:
            out.append(Text(to_text(p)))  # an unknown part went to the model too
    return tuple(out)


_STOPS_TO_PI = {
    "tool": "toolUse",
    "stop": "stop",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}


def encode_line(value: Any) -> bytes:
    """Return a line of JSON; half a surrogate pair, which UTF-8 cannot hold, is escaped."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii") + b"\n"


def encode_entry(told: dict[str, Any], own: str, parent: str | None, when: str) -> bytes:
    """Return an entry's line: its type, its place in the tree, its time, and what else it tells."""
    kind, rest = told["type"], {k: v for k, v in told.items() if k != "type"}
    return encode_line({"type": kind, "id": own, "parentId": parent, "timestamp": when, **rest})


def encode_header(session: Session) -> dict[str, Any]:
    """Return the first line of a file."""
    first = next((e.time for e in session.log if e.time is not None), None)
    when = format_timestamp(session.started if session.started is not None else first)
    head = {
        "type": "session",
        "version": 3,
        "id": session.id,
        "timestamp": when,
        "cwd": session.cwd or "",
    }
    return {**head, "parentSession": session.parent} if session.parent else head


def encode_message(m: Message) -> dict[str, Any] | None:
    """Return the message as Pi holds it; None for what Pi lacks (a system prompt, a hidden one)."""
    stamp = int((m.time or 0) * 1000)
    if m.role == "assistant":
        return _encode_reply(
            m, stamp - int((m.latency or 0) * 1000)
        )  # Pi's messages bear the time of their beginning
    if not m.visible or m.role == "system" or m.kind == MISSING_START_KIND:
        return None
    if m.role == "tool":
        return {
            "role": "toolResult",
            "toolCallId": m.call_id or "",
            "toolName": m.tool or "",
            "content": [_encode_part(p) for p in m.parts],
            "isError": m.is_error,
            "timestamp": stamp,
        }
    return {"role": "user", "content": [_encode_part(p) for p in m.parts], "timestamp": stamp}


def _encode_reply(m: Message, stamp: int) -> dict[str, Any]:
    usage = m.usage or Usage()
    write = (usage.cache_write_tokens or 0) + (usage.cache_write_1h_tokens or 0)
    fresh, read = usage.input_tokens or 0, usage.cache_read_tokens or 0
    output = usage.output_tokens or 0
    stop = _STOPS_TO_PI.get(m.stop or "", "toolUse" if m.tool_calls else "stop")
    out = {
        "role": "assistant",
        "content": [_encode_part(p) for p in m.parts],
        "api": "",
        "provider": str(m.details.get("provider") or ""),
        "model": m.model or "",
        "usage": {
            "input": fresh,
            "output": output,
            "cacheRead": read,
            "cacheWrite": write,
            "totalTokens": fresh + output + read + write,
            "cost": {
                "input": 0,
                "output": 0,
                "cacheRead": 0,
                "cacheWrite": 0,
                "total": usage.cost_usd or 0,
            },
        },
        "stopReason": "error" if m.is_error and stop not in ("error", "aborted") else stop,
        "timestamp": stamp,
    }
    return {**out, "errorMessage": m.error} if m.error else out


def _encode_part(p: Part) -> dict[str, Any]:
    if isinstance(p, Text):
        return {"type": "text", "text": p.text}
    if isinstance(p, Thinking):
        sealed = {"redacted": True} if p.redacted else {}
        return {
            "type": "thinking",
            "thinking": p.text,
            "thinkingSignature": p.signature or "",
            **sealed,
        }
    if isinstance(p, ToolCall):
        return {"type": "toolCall", "id": p.id, "name": p.name, "arguments": p.arguments}
    if isinstance(p, Image) and p.kind == "image" and p.data:
        return {"type": "image", "data": p.data, "mimeType": p.media_type}
    return {"type": "text", "text": ""}


def encode_compaction(edit: Edit, first_kept: str) -> dict[str, Any] | None:
    """Return a compaction as Pi holds it; None unless a summary took older messages' place."""
    if edit.kind != "summarised" or not edit.inserted:
        return None
    return {
        "type": "compaction",
        "summary": edit.inserted[0].text,
        "firstKeptEntryId": first_kept,
        "tokensBefore": edit.tokens_before or 0,
    }


class EntryTree:
    """Ids of the entries (8 hex digits, as Pi's), and which of them an edit keeps first."""

    def __init__(self, session: Session) -> None:
        self.log = session.log
        self._parents = session.parents

    @cached_property
    def index(self) -> dict[str, int]:
        """Places of messages by id, made when an edit asks: an appended message needs none."""
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
        """Return the place of the entry that one follows; -1: it is the first."""
        p = self._parents[i] if i < len(self._parents) else i - 1
        return p if -1 <= p < i else i - 1  # what comes before it cannot come after it

    def first_kept(self, i: int, edit: Edit) -> str:
        """Return the id of the first message after all an edit takes; its own if none stays."""
        last = max((self.index[t] for t in edit.targets if self.index.get(t, i) < i), default=-1)
        return next(
            (self.id(k) for k in range(last + 1, i) if isinstance(self.log[k], Message)), self.id(i)
        )
