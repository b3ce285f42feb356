"""Kimi Code wire logs, and the older wire and context files of Kimi CLI.

Source of the shapes: `wire/types.py` and `soul/context.py` of kimi-cli. The wire tells of a
compaction only that there was one: neither its summary nor what it kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import (
    count_skipped,
    parse_chat_message,
    parse_parts,
    parse_stop_reason,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.source import Source
from ctxkit.session.messages import Edit, Message, Part, Text, ToolCall, ToolSchema, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session.session import Session


NAME = "kimi-cli"
ALIASES = ("kimi",)
CAN = (
    "text, thinking, system prompt, calls and results, usage per call (cache reads and writes),"
    " latency; compactions"
)
CANNOT = (
    "tool schemas (names only), money, the parent of a subagent's log; what an older wire's"
    " compaction kept"
)
TRAITS = (
    (
        "all",
        "unanswered requests are no calls; the compaction's call is priced by the table of prices",
    ),
)


_MAX_CONTEXT_FILES = 100


def sniff(source: Source) -> bool:
    """Say whether this is a wire log (first line `metadata` with a protocol version), or older."""
    first = source.head[0] if source.head else {}
    if first.get("type") == "metadata" and "protocol_version" in first:
        return True
    return is_legacy_wire_line(first) or any(is_context_mark(r) for r in source.head[:4])


def read(source: Source) -> list[Session]:
    """Return the one session of the file; subagents told of in an older wire are its children."""
    if any(map(is_legacy_wire_line, source.head)):
        steps = LegacyWire()
        steps.log.faults += source.faults
        read_each_line(source.records, steps.take, steps.log.faults)
        return [_legacy_session(steps, _session_name(source))]
    if any(is_context_mark(r) for r in source.head[:4]):
        log, asked = SessionBuilder(), dict[str, str]()
        log.faults += source.faults
        read_each_line(
            source.records, lambda record: add_context_line(record, log, asked), log.faults
        )
        return [log.session(id=_session_name(source), format=NAME, product="kimi-cli")]
    wire = WireReader()
    wire.log.faults += source.faults
    read_each_line(source.records, wire.take, wire.log.faults)
    wire.end({}, None)
    return [_wire_session(wire, _session_name(source))]


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is one session of the older Kimi CLI: a talk as wire and as context."""
    try:
        both = (path / "wire.jsonl").is_file() and (path / "context.jsonl").is_file()
        return both and sniff(Source(path / "wire.jsonl"))
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Return a folder's session: its wire, which tells usage; contexts beside count as skipped."""
    wire = path / "wire.jsonl"
    (session,) = read(Source(wire))
    beside = {f.name: 1 for f in sorted(path.glob("context*.jsonl"))[:_MAX_CONTEXT_FILES]}
    return [replace(session, skipped={**session.skipped, **beside}, path_=str(wire))]


def _session_name(source: Source) -> str:
    """The file's name, or the folder's where the file bears the same name in every session."""
    path = source.path
    return (
        path.parent.name
        if source.on_disk and path.stem in ("wire", "context") and path.parent.name
        else path.stem
    )


def _wire_session(wire: WireReader, name: str) -> Session:
    return wire.log.session(
        id=as_str(wire.config.get("sessionId")) or name,
        format=NAME,
        product="kimi-cli",
        version=str_or_none(wire.config.get("protocol_version")),
        agent=wire.agent,
        cwd=str_or_none(wire.config.get("cwd")),
        model=str_or_none(wire.config.get("modelAlias")),
        started=parse_timestamp(wire.config.get("created_at")),
        tools=tuple(
            ToolSchema(name=n) for n in as_list(wire.config.get("tools")) if str_or_none(n)
        ),
    )


def _legacy_session(
    steps: LegacyWire, name: str, parent: str | None = None, call: str = ""
) -> Session:
    steps.close()
    return steps.log.session(
        id=name,
        format=NAME,
        product="kimi-cli",
        agent=steps.name,
        started=next((e.time for e in steps.log.entries if e.time), None),
        context_window=steps.window,
        parent=parent,
        children=tuple(
            _legacy_session(c, f"{name}/{i}", name, own)
            for i, (own, c) in enumerate(steps.children.items())
        ),
        details={"call_id": call} if call else {},
    )


_IGNORED_RECORDS = {
    "turn.prompt",
    "turn.steer",
    "turn.cancel",
    "usage.record",
    "full_compaction.begin",
    "full_compaction.complete",
    "metadata",
}
"""Records that repeat what another says, or that were taken on the way."""


class WireReader:
    """A wire log's state between records: the step being written, request, configuration."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self.config: dict[str, Any] = {}
        self.agent = "main"
        self._open: str | None = None
        """Id of the step that has begun."""
        self._at: int | None = None
        """Index of its message in the log, once there is one."""
        self._parts: list[Part] = []
        self._model: str | None = None
        self._system: Message | None = None
        self._names: dict[str, str] = {}
        self._users: set[str] = set()
        self._side: Usage | None = None
        self._source: str | None = None

    def take(self, record: dict[str, Any]) -> None:
        """Take one record."""
        kind, when = as_str(record.get("type")), parse_timestamp(record.get("time"))
        if kind == "context.append_loop_event":
            self._event(as_dict(record.get("event")), when)
        elif kind == "context.append_message":
            self._message(as_dict(record.get("message")), when)
        elif kind == "context.apply_compaction":
            self._compact(record, when)
        elif kind in ("config.update", "metadata"):
            self.config.update(record)
            self._prompt(as_str(record.get("systemPrompt")), when)
        elif kind == "tools.set_active_tools":
            self.config["tools"] = record.get("names")
        elif kind == "llm.request":
            self._model = str_or_none(record.get("model")) or self._model
        else:
            if kind == "usage.record":
                self.agent = as_str(record.get("agentId")) or self.agent
                if record.get("usageScope") == "session":
                    self._side = _usage(record.get("usage"))
            elif kind == "full_compaction.begin":
                self._source, self._side = str_or_none(record.get("source")), None
            if kind not in _IGNORED_RECORDS:
                count_skipped(self.log.skipped, kind or "record without a type")

    def _event(self, event: dict[str, Any], when: float | None) -> None:
        kind = event.get("type")
        if kind == "step.begin":
            self.end({}, None)
            self._open = as_str(event.get("uuid"))
        elif kind == "content.part":
            parts, _ = parse_parts([normalize_part(event.get("part"))], self.log.skipped)
            self._parts += parts
        elif kind == "tool.call":
            args, written = parse_arguments(event.get("args"))
            call = ToolCall(
                as_str(event.get("toolCallId")), as_str(event.get("name")), args, written
            )
            self._names[call.id] = call.name
            self._parts.append(call)
            if self._at is None:  # its place is before its results
                self._write(when, {})
        elif kind == "tool.result":
            self._result(event, when)
        elif kind == "step.end":
            self.end(event, when)
        else:
            count_skipped(self.log.skipped, "event: " + (as_str(kind) or "no type"))

    def end(self, event: dict[str, Any], when: float | None) -> None:
        """Close the step that is being written; one that never got a reply is counted."""
        if self._parts or event:
            self._write(when, event)
        elif self._open is not None:
            count_skipped(self.log.skipped, "step without a reply")
        self._open, self._at, self._parts = None, None, []

    def _write(self, when: float | None, event: dict[str, Any]) -> None:
        known = None if self._at is None else self.log.entries[self._at]
        took = [
            n
            for k in ("llmFirstTokenLatencyMs", "llmStreamDurationMs")
            if (n := count_or_none(event.get(k))) is not None
        ]
        reply = Message(
            role="assistant",
            id=known.id if known else self.log.new_id(self._open),
            parts=tuple(self._parts),
            time=known.time if known and when is None else when,
            usage=_usage(event.get("usage")),
            model=self._model,
            stop=parse_stop_reason(event.get("finishReason")),
            latency=sum(took) / 1000 if took else None,
        )
        if self._at is None:
            self._at = self.log.add(reply)
        else:
            self.log.replace(self._at, reply)

    def _result(self, event: dict[str, Any], when: float | None) -> None:
        told, asked = as_dict(event.get("result")), as_str(event.get("toolCallId"))
        about = {
            "tool": self._names.get(asked),
            "call_id": asked or None,
            "is_error": told.get("isError") is True,
        }
        self.log.add(
            make_tool_result(
                told.get("output"), self.log.skipped, id=self.log.new_id(), time=when, **about
            )
        )

    def _message(self, raw: dict[str, Any], when: float | None) -> None:
        origin = as_str(as_dict(raw.get("origin")).get("kind"))
        more = {"kind": "injected"} if origin not in ("", "user") else {}
        for m in parse_chat_message(raw, self.log, self.log.skipped, time=when, **more):
            self.log.add(m)
            if m.role == "user" and not m.kind:
                self._users.add(m.id)

    def _prompt(self, said: str, when: float | None) -> None:
        if not said or (self._system is not None and self._system.text == said):
            return
        new = Message(role="system", id=self.log.new_id(), parts=(Text(said),), time=when)
        if self._system is None:
            self.log.add(new)
        else:
            self.log.add(
                Edit(
                    kind="replaced",
                    id=self.log.new_id(),
                    targets=(self._system.id,),
                    inserted=(new,),
                    time=when,
                )
            )
        self._system = new

    def _compact(self, record: dict[str, Any], when: float | None) -> None:
        """The context becomes the summary and the last user messages; the system prompt stays."""
        self.end({}, None)
        said = as_str(record.get("contextSummary")) or as_str(record.get("summary"))
        users = [i for i in self.log.shown if i in self._users] if self.log.may_edit() else []
        kept = count_or_none(record.get("keptUserMessageCount")) or 0
        stays = set(users[len(users) - kept :] if kept else ())
        if self._system is not None:
            stays.add(self._system.id)
        summary = Message(role="summary", id=self.log.new_id(), parts=(Text(said),), time=when)
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            inserted=(summary,),
            trigger=self._source,
            method="full_compaction",
            time=when,
            tokens_before=count_or_none(record.get("tokensBefore")),
            tokens_after=count_or_none(record.get("tokensAfter")),
            usage=self._side,
            model=self._model if self._side else None,
        )
        self.log.compact(edit, stays)
        self._side = self._source = None


def _usage(raw: Any) -> Usage | None:
    raw = as_dict(raw)
    if not raw:
        return None
    return Usage(
        input_tokens=count_or_none(raw.get("inputOther")),
        cache_read_tokens=count_or_none(raw.get("inputCacheRead")),
        cache_write_tokens=count_or_none(raw.get("inputCacheCreation")),
        output_tokens=count_or_none(raw.get("output")),
    )


_INPUTS = {"TurnBegin": "", "SteerInput": "steer"}
_PARTS = {"ContentPart": None, "TextPart": "text", "ThinkPart": "think"}
_IGNORED_STEPS = {"TurnEnd", "CompactionBegin", "metadata"}
_CONTEXT_MARKS = {"_system_prompt", "_usage", "_checkpoint"}


def make_tool_result(said: object, skipped: dict[str, int], **about: Any) -> Message:
    """Return a tool result: what the tool said, as text or parts, and what the log tells of it."""
    parts = parse_parts(said, skipped)[0] if type(said) in (str, list) else [Text(to_text(said))]
    return Message(role="tool", parts=tuple(parts), **about)


def is_legacy_wire_line(record: dict[str, Any]) -> bool:
    """Say whether a line is of the older wire: a time, and a message of a type and a payload."""
    return type(as_dict(record.get("message")).get("payload")) is dict and "timestamp" in record


def is_context_mark(record: dict[str, Any]) -> bool:
    """Say whether a line is one that only a stored context has."""
    return as_str(record.get("role")) in _CONTEXT_MARKS


class LegacyWire:
    """One agent's wire while its lines go by; a subagent's events are wrapped, and make a child."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.log = SessionBuilder()
        self.children: dict[str, LegacyWire] = {}
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
        message = as_dict(record.get("message"))
        self._event(
            as_str(message.get("type")) or as_str(record.get("type")),
            as_dict(message.get("payload")),
            record,
        )

    def _event(self, kind: str, p: dict[str, Any], record: dict[str, Any]) -> None:
        when = parse_timestamp(record.get("timestamp"))
        if kind in _INPUTS:
            self.close()
            parts, _ = parse_parts(p.get("user_input"), self.log.skipped)
            self.log.say("user", parts, time=when, kind=_INPUTS[kind])
        elif kind in _PARTS:
            self._say([{**p, "type": _PARTS[kind] or p.get("type")}], when)
        elif kind == "ToolCall":
            self._call(p, when)
        elif kind == "ToolCallPart":
            self._written.get(self._last, []).append(as_str(p.get("arguments_part")))
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
        elif kind not in _IGNORED_STEPS:
            count_skipped(self.log.skipped, kind or "record without a type")

    def _open(self, when: float | None) -> None:
        if self._at is None:
            self._at = self.log.say("assistant", time=when)

    def _say(self, raws: list[Any], when: float | None) -> None:
        self._open(when)
        self._parts += parse_parts([normalize_part(r) for r in raws], self.log.skipped)[0]

    def _call(self, p: dict[str, Any], when: float | None) -> None:
        self._open(when)
        asked = as_dict(p.get("function")) or p
        call = ToolCall(as_str(p.get("id")), as_str(asked.get("name")))
        self._names[call.id], self._last = call.name, call.id
        self._written[call.id] = [to_text(asked.get("arguments"))]
        self._parts.append(call)

    def _result(self, p: dict[str, Any], when: float | None) -> None:
        given = p.get("return_value", p.get("result"))
        about, call = as_dict(given), str_or_none(p.get("tool_call_id")) or str_or_none(p.get("id"))
        said = about.get("output") or about.get("message") if about else given
        known = {
            "tool": self._names.get(call or ""),
            "call_id": call,
            "is_error": about.get("is_error") is True,
        }
        self.log.add(
            make_tool_result(said, self.log.skipped, id=self.log.new_id(), time=when, **known)
        )

    def _status(self, p: dict[str, Any], when: float | None) -> None:
        self.window = count_or_none(p.get("max_context_tokens")) or self.window
        told = as_dict(p.get("token_usage"))
        if not told:
            return
        self._open(when)
        reply = None if self._at is None else self.log.entries[self._at]
        if type(reply) is Message and self._at is not None:
            usage = Usage(
                input_tokens=count_or_none(told.get("input_other")),
                cache_read_tokens=count_or_none(told.get("input_cache_read")),
                cache_write_tokens=count_or_none(told.get("input_cache_creation")),
                output_tokens=count_or_none(told.get("output")),
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
        given, raw = parse_arguments("".join(self._written.get(part.id, [])) or None)
        return ToolCall(part.id, part.name, given, raw)

    def _compact(self, when: float | None) -> None:
        why = "the log does not say what was kept"
        edit = Edit(
            kind="summarised", id=self.log.new_id(), method="compaction", time=when, reason=why
        )
        self.log.compact(edit, ())

    def _child(self, p: dict[str, Any], record: dict[str, Any]) -> None:
        call = (
            as_str(p.get("parent_tool_call_id"))
            or as_str(p.get("task_tool_call_id"))
            or as_str(p.get("agent_id"))
        )
        child = self.children.setdefault(
            call, LegacyWire(as_str(p.get("subagent_type")) or "subagent")
        )
        event = as_dict(p.get("event"))
        if event.get("type") != "SubagentEvent":
            child.take({"timestamp": record.get("timestamp"), "message": event})


def normalize_part(raw: Any) -> Any:
    """Return a part with its thinking under the name that others give it."""
    raw = as_dict(raw)
    return (
        {**raw, "type": "thinking", "thinking": raw.get("think")}
        if raw.get("type") == "think"
        else raw
    )


def add_context_line(record: dict[str, Any], log: SessionBuilder, asked: dict[str, str]) -> None:
    """Take a line of a stored context: a message, the system prompt, or a mark."""
    role, content = record.get("role"), record.get("content")
    if role in ("_usage", "_checkpoint"):
        count_skipped(log.skipped, str(role))
        return
    parts = [normalize_part(p) for p in as_list(content)] if type(content) is list else content
    said = {**record, "role": "system" if role == "_system_prompt" else role, "content": parts}
    for m in parse_chat_message(said, log, log.skipped):
        for p in m.parts:
            if type(p) is ToolCall:
                asked[p.id] = p.name
        log.add(
            msgspec.structs.replace(m, tool=m.tool or asked.get(m.call_id or ""))
            if m.role == "tool"
            else m
        )
