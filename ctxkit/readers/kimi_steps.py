"""Older logs of Kimi CLI: the wire as its screen saw it (`wire.jsonl`), the context as it was sent
(`context.jsonl`).

Source of the shapes: `wire/types.py` and `soul/context.py` of kimi-cli. The wire tells of a
compaction only that there was one: neither its summary nor what it kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ctxkit.messages import Edit, Message, Part, Text, ToolCall, Usage
from ctxkit.readers.dialects import to_messages
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count, to_parts

_INPUTS = {"TurnBegin": "", "SteerInput": "steer"}
_PARTS = {"ContentPart": None, "TextPart": "text", "ThinkPart": "think"}
_QUIET = {"TurnEnd", "CompactionBegin", "metadata"}
_MARKS = {"_system_prompt", "_usage", "_checkpoint"}


def result(said: object, skipped: dict[str, int], **about: Any) -> Message:
    """Return a tool result: what the tool said, as text or parts, and what the log tells of it."""
    parts = to_parts(said, skipped)[0] if type(said) in (str, list) else [Text(as_text(said))]
    return Message(role="tool", parts=tuple(parts), **about)


def is_step(record: dict[str, Any]) -> bool:
    """Say whether a line is of the older wire: a time, and a message of a type and a payload."""
    return type(mapping(record.get("message")).get("payload")) is dict and "timestamp" in record


def is_mark(record: dict[str, Any]) -> bool:
    """Say whether a line is one that only a stored context has."""
    return text(record.get("role")) in _MARKS


class Steps:
    """One agent's wire while its lines go by; a subagent's events are wrapped, and make a child."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.log = ReaderLog()
        self.children: dict[str, Steps] = {}
        """By the call that started them."""
        self.window: int | None = None
        self._at: int | None = None
        """Index of the reply that is being written."""
        self._parts: list[Part] = []
        self._written: dict[str, list[str]] = {}
        """Pieces of the arguments of the reply's calls."""
        self._last = ""
        self._names: dict[str, str] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Take one line."""
        message = mapping(record.get("message"))
        self._event(
            text(message.get("type")) or text(record.get("type")),
            mapping(message.get("payload")),
            record,
        )

    def _event(self, kind: str, p: dict[str, Any], record: dict[str, Any]) -> None:
        when = time(record.get("timestamp"))
        if kind in _INPUTS:
            self.close()
            parts, _ = to_parts(p.get("user_input"), self.log.skipped)
            self.log.say("user", parts, time=when, kind=_INPUTS[kind])
        elif kind in _PARTS:
            self._say([{**p, "type": _PARTS[kind] or p.get("type")}], when)
        elif kind == "ToolCall":
            self._call(p, when)
        elif kind == "ToolCallPart":
            self._written.get(self._last, []).append(text(p.get("arguments_part")))
        elif kind == "ToolResult":
            self._result(p, when)
        elif kind == "StatusUpdate":
            self._status(p, when)
        elif kind in ("StepBegin", "StepInterrupted"):
            self.close("aborted" if kind == "StepInterrupted" else None)
        elif kind == "CompactionEnd":
            self._compact(when)
        elif kind == "SubagentEvent":
            self._child(p, record)
        elif kind not in _QUIET:
            count(self.log.skipped, kind or "record without a type")

    def _open(self, when: float | None) -> None:
        if self._at is None:
            self._at = self.log.say("assistant", time=when)

    def _say(self, raws: list[Any], when: float | None) -> None:
        self._open(when)
        self._parts += to_parts([kimi_part(r) for r in raws], self.log.skipped)[0]

    def _call(self, p: dict[str, Any], when: float | None) -> None:
        self._open(when)
        asked = mapping(p.get("function")) or p
        call = ToolCall(text(p.get("id")), text(asked.get("name")))
        self._names[call.id], self._last = call.name, call.id
        self._written[call.id] = [as_text(asked.get("arguments"))]
        self._parts.append(call)

    def _result(self, p: dict[str, Any], when: float | None) -> None:
        given = p.get("return_value", p.get("result"))
        about, call = mapping(given), word(p.get("tool_call_id")) or word(p.get("id"))
        said = about.get("output") or about.get("message") if about else given
        known = {
            "tool": self._names.get(call or ""),
            "call_id": call,
            "is_error": about.get("is_error") is True,
        }
        self.log.add(result(said, self.log.skipped, id=self.log.new_id(), time=when, **known))

    def _status(self, p: dict[str, Any], when: float | None) -> None:
        self.window = number(p.get("max_context_tokens")) or self.window
        told = mapping(p.get("token_usage"))
        if not told:
            return
        self._open(when)
        reply = None if self._at is None else self.log.entries[self._at]
        if type(reply) is Message and self._at is not None:
            usage = Usage(
                input_tokens=number(told.get("input_other")),
                cache_read_tokens=number(told.get("input_cache_read")),
                cache_write_tokens=number(told.get("input_cache_creation")),
                output_tokens=number(told.get("output")),
            )
            self.log.replace(
                self._at, msgspec.structs.replace(reply, usage=usage, context_window=self.window)
            )

    def close(self, stop: str | None = None) -> None:
        """Write the reply that was being put together."""
        reply = None if self._at is None else self.log.entries[self._at]
        if type(reply) is Message and self._at is not None:
            parts = tuple(self._whole(p) for p in self._parts)
            called = any(type(p) is ToolCall for p in parts)
            stop = stop or ("tool" if called else "stop")
            self.log.replace(
                self._at,
                msgspec.structs.replace(reply, parts=parts, stop=stop, visible=bool(parts)),
            )
        self._at, self._parts, self._written, self._last = None, [], {}, ""

    def _whole(self, part: Part) -> Part:
        if type(part) is not ToolCall:
            return part
        given, raw = arguments("".join(self._written.get(part.id, [])) or None)
        return ToolCall(part.id, part.name, given, raw)

    def _compact(self, when: float | None) -> None:
        why = "the log does not say what was kept"
        edit = Edit(
            kind="summarised", id=self.log.new_id(), method="compaction", time=when, reason=why
        )
        self.log.compact(edit, ())

    def _child(self, p: dict[str, Any], record: dict[str, Any]) -> None:
        call = (
            text(p.get("parent_tool_call_id"))
            or text(p.get("task_tool_call_id"))
            or text(p.get("agent_id"))
        )
        child = self.children.setdefault(call, Steps(text(p.get("subagent_type")) or "subagent"))
        event = mapping(p.get("event"))
        if event.get("type") != "SubagentEvent":
            child.take({"timestamp": record.get("timestamp"), "message": event})


def kimi_part(raw: Any) -> Any:
    """Return a part with its thinking under the name that others give it."""
    raw = mapping(raw)
    return (
        {**raw, "type": "thinking", "thinking": raw.get("think")}
        if raw.get("type") == "think"
        else raw
    )


def take_context(record: dict[str, Any], log: ReaderLog, asked: dict[str, str]) -> None:
    """Take a line of a stored context: a message, the system prompt, or a mark."""
    role, content = record.get("role"), record.get("content")
    if role in ("_usage", "_checkpoint"):
        count(log.skipped, str(role))
        return
    parts = [kimi_part(p) for p in items(content)] if type(content) is list else content
    said = {**record, "role": "system" if role == "_system_prompt" else role, "content": parts}
    for m in to_messages(said, log, log.skipped):
        for p in m.parts:
            if type(p) is ToolCall:
                asked[p.id] = p.name
        log.add(
            msgspec.structs.replace(m, tool=m.tool or asked.get(m.call_id or ""))
            if m.role == "tool"
            else m
        )
