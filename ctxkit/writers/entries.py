"""Entries of Pi's session format, version 3, made of our messages and edits."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import LOST, Edit, Image, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.messages import Part
    from ctxkit.session import Session

_STOPS = {
    "tool": "toolUse",
    "stop": "stop",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}


def iso(time: float | None) -> str:
    """Return seconds since 1970 as Pi writes them; nothing known is the beginning of 1970."""
    try:
        stamp = datetime.fromtimestamp(time or 0, timezone.utc)  # noqa: UP017
    except (ValueError, OverflowError, OSError):
        stamp = datetime.fromtimestamp(0, timezone.utc)  # noqa: UP017
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_line(value: Any) -> bytes:
    """Return a line of JSON; half a surrogate pair, which UTF-8 cannot hold, is escaped."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii") + b"\n"


def to_entry(told: dict[str, Any], own: str, parent: str | None, when: str) -> bytes:
    """Return an entry's line: its type, its place in the tree, its time, and what else it tells."""
    kind, rest = told["type"], {k: v for k, v in told.items() if k != "type"}
    return to_line({"type": kind, "id": own, "parentId": parent, "timestamp": when, **rest})


def header(session: Session) -> dict[str, Any]:
    """Return the first line of a file."""
    first = next((e.time for e in session.log if e.time is not None), None)
    when = iso(session.started if session.started is not None else first)
    head = {
        "type": "session",
        "version": 3,
        "id": session.id,
        "timestamp": when,
        "cwd": session.cwd or "",
    }
    return {**head, "parentSession": session.parent} if session.parent else head


def message(m: Message) -> dict[str, Any] | None:
    """Return the message as Pi holds it; None for what Pi lacks (a system prompt, a hidden one)."""
    stamp = int((m.time or 0) * 1000)
    if m.role == "assistant":
        return _reply(
            m, stamp - int((m.latency or 0) * 1000)
        )  # Pi's messages bear the time of their beginning
    if not m.visible or m.role == "system" or m.kind == LOST:
        return None
    if m.role == "tool":
        return {
            "role": "toolResult",
            "toolCallId": m.call_id or "",
            "toolName": m.tool or "",
            "content": [_part(p) for p in m.parts],
            "isError": m.is_error,
            "timestamp": stamp,
        }
    return {"role": "user", "content": [_part(p) for p in m.parts], "timestamp": stamp}


def _reply(m: Message, stamp: int) -> dict[str, Any]:
    usage = m.usage or Usage()
    write = (usage.cache_write_tokens or 0) + (usage.cache_write_1h_tokens or 0)
    fresh, read = usage.input_tokens or 0, usage.cache_read_tokens or 0
    output = usage.output_tokens or 0
    stop = _STOPS.get(m.stop or "", "toolUse" if m.tool_calls else "stop")
    out = {
        "role": "assistant",
        "content": [_part(p) for p in m.parts],
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


def _part(p: Part) -> dict[str, Any]:
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


def compaction(edit: Edit, first_kept: str) -> dict[str, Any] | None:
    """Return a compaction as Pi holds it; None unless a summary took older messages' place."""
    if edit.kind != "summarised" or not edit.inserted:
        return None
    return {
        "type": "compaction",
        "summary": edit.inserted[0].text,
        "firstKeptEntryId": first_kept,
        "tokensBefore": edit.tokens_before or 0,
    }


class Tree:
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
