"""Reader of Kimi Code wire logs, and of the wire and context files of older Kimi CLI versions.

The records are defined in `wire/types.py` and `soul/context.py` of kimi-cli. An older wire has
neither the summary of a compaction nor what it kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    parse_chat_message,
    parse_parts_and_results,
    parse_stop_reason,
)
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, Text, ToolCall, ToolSchema, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session.session import Session


NAME = "kimi-cli"
ALIASES = ("kimi",)
CAN = (
    "text, thinking, system prompt, calls and results, usage per call (cache reads and writes),"
    " times, latency; compactions"
)
CANNOT = (
    "tool schemas (only names), cost, the parent of a subagent's log; messages that a "
    "compaction in an older wire retained"
)
TRAITS = (
    (
        "all",
        ("unanswered requests are no calls; the compaction's call is priced by the price table"),
    ),
)


# Three layouts:
#   wire         a step (one API call) is a sequence of events: begin, parts, calls, results, end.
#                The reply is added when the step ends, or before its first result, and completed
#                later. A compaction keeps the system prompt and the last N user messages
#   older wire   like it, but arguments of calls come in pieces, and events of subagents are wrapped
#   context      the stored messages of an older version, without usage
_MAX_CONTEXT_FILES = 100


def sniff(source: Source) -> bool:
    """Return True for a wire log, an older wire log, or a stored context."""
    first_record = source.head[0] if source.head else {}
    if first_record.get("type") == "metadata" and "protocol_version" in first_record:
        return True
    return _is_legacy_wire_line(first_record) or any(
        _is_stored_context_line(r) for r in source.head[:4]
    )


def read(source: Source) -> list[Session]:
    """Read the session of the file; subagents in an older wire are its children."""
    if any(map(_is_legacy_wire_line, source.head)):
        legacy = _LegacyWireReader()
        legacy.builder.faults += source.faults
        read_each_line(source.records, legacy.read_record, legacy.builder.faults)
        return [_legacy_session(legacy, _session_name(source))]
    if any(_is_stored_context_line(r) for r in source.head[:4]):
        builder, tool_by_call = SessionBuilder(), dict[str, str]()
        builder.faults += source.faults
        read_each_line(
            source.records,
            lambda record: _add_context_line(record, builder, tool_by_call),
            builder.faults,
        )
        return [builder.session(id=_session_name(source), format=NAME, product="kimi-cli")]
    reader = _WireReader()
    reader.builder.faults += source.faults
    read_each_line(source.records, reader.read_record, reader.builder.faults)
    reader.end_step({}, None)
    return [_wire_session(reader, _session_name(source))]


def sniff_folder(path: Path) -> bool:
    """Return True if a folder is a session of older Kimi CLI, with a wire and a context file."""
    try:
        has_both = (path / "wire.jsonl").is_file() and (path / "context.jsonl").is_file()
        return has_both and sniff(Source(path / "wire.jsonl"))
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Read the wire file of a folder, which has the usage; context files count as skipped."""
    wire_file = path / "wire.jsonl"
    (session,) = read(Source(wire_file))
    context_files = {f.name: 1 for f in sorted(path.glob("context*.jsonl"))[:_MAX_CONTEXT_FILES]}
    return [replace(session, skipped={**session.skipped, **context_files}, path_=str(wire_file))]


def _session_name(source: Source) -> str:
    """Return the file's name, or the folder's if all sessions have the same file name."""
    path = source.path
    return (
        path.parent.name
        if source.on_disk and path.stem in ("wire", "context") and path.parent.name
        else path.stem
    )


def _wire_session(reader: _WireReader, name: str) -> Session:
    return reader.builder.session(
        id=as_str(reader.config.get("sessionId")) or name,
        format=NAME,
        product="kimi-cli",
        version=str_or_none(reader.config.get("protocol_version")),
        agent=reader.agent,
        cwd=str_or_none(reader.config.get("cwd")),
        model=str_or_none(reader.config.get("modelAlias")),
        started=parse_timestamp(reader.config.get("created_at")),
        tools=tuple(
            ToolSchema(name=tool_name)
            for tool_name in as_list(reader.config.get("tools"))
            if str_or_none(tool_name)
        ),
    )


def _legacy_session(
    reader: _LegacyWireReader, name: str, parent: str | None = None, call_id: str = ""
) -> Session:
    reader.finish_reply()
    return reader.builder.session(
        id=name,
        format=NAME,
        product="kimi-cli",
        agent=reader.name,
        started=next((e.time for e in reader.builder.entries if e.time), None),
        context_window=reader.context_window,
        parent=parent,
        children=tuple(
            _legacy_session(c, f"{name}/{i}", name, child_call)
            for i, (child_call, c) in enumerate(reader.children.items())
        ),
        details={"call_id": call_id} if call_id else {},
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
"""Records whose content is in other records, or is read before they are counted."""


class _WireReader:
    """Reader of one wire log, record by record."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self.config: dict[str, Any] = {}
        self.agent = "main"
        self._step_id: str | None = None
        """Id of the open step."""
        self._reply_index: int | None = None
        """Index of the open step's reply, once it was added."""
        self._parts: list[Part] = []
        self._model: str | None = None
        self._system_message: Message | None = None
        self._tool_by_call: dict[str, str] = {}
        self._user_ids: set[str] = set()
        self._compaction_usage: Usage | None = None
        self._compaction_trigger: str | None = None

    def read_record(self, record: dict[str, Any]) -> None:
        """Read one record."""
        record_type, time = as_str(record.get("type")), parse_timestamp(record.get("time"))
        if record_type == "context.append_loop_event":
            self._read_event(as_dict(record.get("event")), time)
        elif record_type == "context.append_message":
            self._read_message(as_dict(record.get("message")), time)
        elif record_type == "context.apply_compaction":
            self._read_compaction(record, time)
        elif record_type in ("config.update", "metadata"):
            self.config.update(record)
            self._read_system_prompt(as_str(record.get("systemPrompt")), time)
        elif record_type == "tools.set_active_tools":
            self.config["tools"] = record.get("names")
        elif record_type == "llm.request":
            self._model = str_or_none(record.get("model")) or self._model
        else:
            if record_type == "usage.record":
                self.agent = as_str(record.get("agentId")) or self.agent
                if record.get("usageScope") == "session":
                    self._compaction_usage = _parse_usage(record.get("usage"))
            elif record_type == "full_compaction.begin":
                self._compaction_trigger, self._compaction_usage = (
                    str_or_none(record.get("source")),
                    None,
                )
            if record_type not in _IGNORED_RECORDS:
                count_skipped(self.builder.skipped, record_type or "record without a type")

    def _read_event(self, event: dict[str, Any], time: float | None) -> None:
        event_type = event.get("type")
        if event_type == "step.begin":
            self.end_step({}, None)
            self._step_id = as_str(event.get("uuid"))
        elif event_type == "content.part":
            parts, _ = parse_parts_and_results(
                [_normalize_part(event.get("part"))], self.builder.skipped
            )
            self._parts += parts
        elif event_type == "tool.call":
            arguments, raw_arguments = parse_arguments(event.get("args"))
            call = ToolCall(
                as_str(event.get("toolCallId")), as_str(event.get("name")), arguments, raw_arguments
            )
            self._tool_by_call[call.id] = call.name
            self._parts.append(call)
            if self._reply_index is None:  # the reply must come before its results
                self._write_reply(time, {})
        elif event_type == "tool.result":
            self._read_result(event, time)
        elif event_type == "step.end":
            self.end_step(event, time)
        else:
            count_skipped(self.builder.skipped, "event: " + (as_str(event_type) or "no type"))

    def end_step(self, event: dict[str, Any], time: float | None) -> None:
        """End the open step; one without a reply is counted."""
        if self._parts or event:
            self._write_reply(time, event)
        elif self._step_id is not None:
            count_skipped(self.builder.skipped, "step without a reply")
        self._step_id, self._reply_index, self._parts = None, None, []

    def _write_reply(self, time: float | None, event: dict[str, Any]) -> None:
        previous = None if self._reply_index is None else self.builder.entries[self._reply_index]
        latencies = [
            n
            for k in ("llmFirstTokenLatencyMs", "llmStreamDurationMs")
            if (n := count_or_none(event.get(k))) is not None
        ]
        reply = Message(
            role="assistant",
            id=previous.id if previous else self.builder.new_id(self._step_id),
            parts=tuple(self._parts),
            time=previous.time if previous and time is None else time,
            usage=_parse_usage(event.get("usage")),
            model=self._model,
            stop=parse_stop_reason(event.get("finishReason")),
            latency=sum(latencies) / 1000 if latencies else None,
        )
        if self._reply_index is None:
            self._reply_index = self.builder.add(reply)
        else:
            self.builder.replace(self._reply_index, reply)

    def _read_result(self, event: dict[str, Any], time: float | None) -> None:
        result, call_id = as_dict(event.get("result")), as_str(event.get("toolCallId"))
        fields = {
            "tool": self._tool_by_call.get(call_id),
            "call_id": call_id or None,
            "is_error": result.get("isError") is True,
        }
        self.builder.add(
            _make_tool_result(
                result.get("output"),
                self.builder.skipped,
                id=self.builder.new_id(),
                time=time,
                **fields,
            )
        )

    def _read_message(self, raw: dict[str, Any], time: float | None) -> None:
        origin = as_str(as_dict(raw.get("origin")).get("kind"))
        fields = {"kind": "injected"} if origin not in ("", "user") else {}
        for message in parse_chat_message(
            raw, self.builder, self.builder.skipped, time=time, **fields
        ):
            self.builder.add(message)
            if message.role == "user" and not message.kind:
                self._user_ids.add(message.id)

    def _read_system_prompt(self, text: str, time: float | None) -> None:
        if not text or (self._system_message is not None and self._system_message.text == text):
            return
        prompt = Message(role="system", id=self.builder.new_id(), parts=(Text(text),), time=time)
        if self._system_message is None:
            self.builder.add(prompt)
        else:
            self.builder.add(
                Edit(
                    kind="replaced",
                    id=self.builder.new_id(),
                    targets=(self._system_message.id,),
                    inserted=(prompt,),
                    time=time,
                )
            )
        self._system_message = prompt

    def _read_compaction(self, record: dict[str, Any], time: float | None) -> None:
        """Read a compaction, which keeps the system prompt and the last user messages."""
        self.end_step({}, None)
        summary_text = as_str(record.get("contextSummary")) or as_str(record.get("summary"))
        user_ids = (
            [i for i in self.builder.visible_ids if i in self._user_ids]
            if self.builder.may_edit()
            else []
        )
        n_retained_users = count_or_none(record.get("keptUserMessageCount")) or 0
        retained_ids = set(user_ids[len(user_ids) - n_retained_users :] if n_retained_users else ())
        if self._system_message is not None:
            retained_ids.add(self._system_message.id)
        summary = Message(
            role="summary", id=self.builder.new_id(), parts=(Text(summary_text),), time=time
        )
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(),
            inserted=(summary,),
            trigger=self._compaction_trigger,
            method="full_compaction",
            time=time,
            tokens_before=count_or_none(record.get("tokensBefore")),
            tokens_after=count_or_none(record.get("tokensAfter")),
            usage=self._compaction_usage,
            model=self._model if self._compaction_usage else None,
        )
        self.builder.compact(edit, retained_ids)
        self._compaction_usage = self._compaction_trigger = None


def _parse_usage(raw: Any) -> Usage | None:
    raw = as_dict(raw)
    if not raw:
        return None
    return Usage(
        input_tokens=count_or_none(raw.get("inputOther")),
        cache_read_tokens=count_or_none(raw.get("inputCacheRead")),
        cache_write_tokens=count_or_none(raw.get("inputCacheCreation")),
        output_tokens=count_or_none(raw.get("output")),
    )


_INPUT_KINDS = {"TurnBegin": "", "SteerInput": "steer"}
_PART_TYPES = {"ContentPart": None, "TextPart": "text", "ThinkPart": "think"}
_IGNORED_STEPS = {"TurnEnd", "CompactionBegin", "metadata"}
_CONTEXT_MARKS = {"_system_prompt", "_usage", "_checkpoint"}


def _make_tool_result(output: object, skipped: dict[str, int], **fields: Any) -> Message:
    """Return a tool result from its output (text or parts) and its other fields."""
    parts = (
        parse_parts_and_results(output, skipped)[0]
        if type(output) in (str, list)
        else [Text(json_to_text(output))]
    )
    return Message(role="tool", parts=tuple(parts), **fields)


def _is_legacy_wire_line(record: dict[str, Any]) -> bool:
    """Return True for a line of the older wire: a timestamp, and a message with a payload."""
    return type(as_dict(record.get("message")).get("payload")) is dict and "timestamp" in record


def _is_stored_context_line(record: dict[str, Any]) -> bool:
    """Return True for a line that only a stored context has."""
    return as_str(record.get("role")) in _CONTEXT_MARKS


class _LegacyWireReader:
    """Reader of one agent's older wire; wrapped events of a subagent go to a child reader."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.builder = SessionBuilder()
        self.children: dict[str, _LegacyWireReader] = {}
        """Readers of subagents by the id of the call that started them."""
        self.context_window: int | None = None
        self._reply_index: int | None = None
        """Index of the open reply."""
        self._parts: list[Part] = []
        self._argument_pieces: dict[str, list[str]] = {}
        """Pieces of the arguments of the open reply's calls, by call id."""
        self._last_call = ""
        self._tool_by_call: dict[str, str] = {}

    def read_record(self, record: dict[str, Any]) -> None:
        """Take one line."""
        message = as_dict(record.get("message"))
        self._read_event(
            as_str(message.get("type")) or as_str(record.get("type")),
            as_dict(message.get("payload")),
            record,
        )

    def _read_event(self, event_type: str, payload: dict[str, Any], record: dict[str, Any]) -> None:
        time = parse_timestamp(record.get("timestamp"))
        if event_type in _INPUT_KINDS:
            self.finish_reply()
            parts, _ = parse_parts_and_results(payload.get("user_input"), self.builder.skipped)
            self.builder.add_message("user", parts, time=time, kind=_INPUT_KINDS[event_type])
        elif event_type in _PART_TYPES:
            self._add_parts(
                [{**payload, "type": _PART_TYPES[event_type] or payload.get("type")}], time
            )
        elif event_type == "ToolCall":
            self._read_call(payload, time)
        elif event_type == "ToolCallPart":
            self._argument_pieces.get(self._last_call, []).append(
                as_str(payload.get("arguments_part"))
            )
        elif event_type == "ToolResult":
            self._read_result(payload, time)
        elif event_type == "StatusUpdate":
            self._read_status(payload, time)
        elif event_type in ("StepBegin", "StepInterrupted"):
            self.finish_reply("aborted" if event_type == "StepInterrupted" else None)
        elif event_type == "CompactionEnd":
            self._add_compaction(time)
        elif event_type == "SubagentEvent":
            self._read_subagent_event(payload, record)
        elif event_type not in _IGNORED_STEPS:
            count_skipped(self.builder.skipped, event_type or "record without a type")

    def _begin_reply(self, time: float | None) -> None:
        if self._reply_index is None:
            self._reply_index = self.builder.add_message("assistant", time=time)

    def _add_parts(self, raw_parts: list[Any], time: float | None) -> None:
        self._begin_reply(time)
        self._parts += parse_parts_and_results(
            [_normalize_part(r) for r in raw_parts], self.builder.skipped
        )[0]

    def _read_call(self, payload: dict[str, Any], time: float | None) -> None:
        self._begin_reply(time)
        function = as_dict(payload.get("function")) or payload
        call = ToolCall(as_str(payload.get("id")), as_str(function.get("name")))
        self._tool_by_call[call.id], self._last_call = call.name, call.id
        self._argument_pieces[call.id] = [json_to_text(function.get("arguments"))]
        self._parts.append(call)

    def _read_result(self, payload: dict[str, Any], time: float | None) -> None:
        output = payload.get("return_value", payload.get("result"))
        fields, call_id = (
            as_dict(output),
            str_or_none(payload.get("tool_call_id")) or str_or_none(payload.get("id")),
        )
        content = fields.get("output") or fields.get("message") if fields else output
        result_fields = {
            "tool": self._tool_by_call.get(call_id or ""),
            "call_id": call_id,
            "is_error": fields.get("is_error") is True,
        }
        self.builder.add(
            _make_tool_result(
                content, self.builder.skipped, id=self.builder.new_id(), time=time, **result_fields
            )
        )

    def _read_status(self, payload: dict[str, Any], time: float | None) -> None:
        self.context_window = (
            count_or_none(payload.get("max_context_tokens")) or self.context_window
        )
        token_usage = as_dict(payload.get("token_usage"))
        if not token_usage:
            return
        self._begin_reply(time)
        reply = None if self._reply_index is None else self.builder.entries[self._reply_index]
        if type(reply) is Message and self._reply_index is not None:
            usage = Usage(
                input_tokens=count_or_none(token_usage.get("input_other")),
                cache_read_tokens=count_or_none(token_usage.get("input_cache_read")),
                cache_write_tokens=count_or_none(token_usage.get("input_cache_creation")),
                output_tokens=count_or_none(token_usage.get("output")),
            )
            self.builder.replace(
                self._reply_index,
                msgspec.structs.replace(reply, usage=usage, context_window=self.context_window),
            )

    def finish_reply(self, stop_reason: str | None = None) -> None:
        """Complete the open reply."""
        reply = None if self._reply_index is None else self.builder.entries[self._reply_index]
        if type(reply) is Message and self._reply_index is not None:
            parts = tuple(self._join_arguments(p) for p in self._parts)
            has_calls = any(type(p) is ToolCall for p in parts)
            stop_reason = stop_reason or ("tool" if has_calls else "stop")
            self.builder.replace(
                self._reply_index,
                msgspec.structs.replace(reply, parts=parts, stop=stop_reason, visible=bool(parts)),
            )
        self._reply_index, self._parts, self._argument_pieces, self._last_call = None, [], {}, ""

    def _join_arguments(self, part: Part) -> Part:
        if type(part) is not ToolCall:
            return part
        arguments, raw = parse_arguments("".join(self._argument_pieces.get(part.id, [])) or None)
        return ToolCall(part.id, part.name, arguments, raw)

    def _add_compaction(self, time: float | None) -> None:
        reason = "the log does not say what was kept"
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(),
            method="compaction",
            time=time,
            reason=reason,
        )
        self.builder.compact(edit, ())

    def _read_subagent_event(self, payload: dict[str, Any], record: dict[str, Any]) -> None:
        call_id = (
            as_str(payload.get("parent_tool_call_id"))
            or as_str(payload.get("task_tool_call_id"))
            or as_str(payload.get("agent_id"))
        )
        child = self.children.setdefault(
            call_id, _LegacyWireReader(as_str(payload.get("subagent_type")) or "subagent")
        )
        event = as_dict(payload.get("event"))
        if event.get("type") != "SubagentEvent":
            child.read_record({"timestamp": record.get("timestamp"), "message": event})


def _normalize_part(raw: Any) -> Any:
    """Return a part with `think` renamed to the usual `thinking`."""
    raw = as_dict(raw)
    return (
        {**raw, "type": "thinking", "thinking": raw.get("think")}
        if raw.get("type") == "think"
        else raw
    )


def _add_context_line(
    record: dict[str, Any], builder: SessionBuilder, tool_by_call: dict[str, str]
) -> None:
    """Read a line of a stored context: a message, the system prompt, or a mark."""
    role, content = record.get("role"), record.get("content")
    if role in ("_usage", "_checkpoint"):
        count_skipped(builder.skipped, str(role))
        return
    parts = (
        [_normalize_part(part) for part in as_list(content)] if type(content) is list else content
    )
    chat_message = {
        **record,
        "role": "system" if role == "_system_prompt" else role,
        "content": parts,
    }
    for message in parse_chat_message(chat_message, builder, builder.skipped):
        for part in message.parts:
            if type(part) is ToolCall:
                tool_by_call[part.id] = part.name
        builder.add(
            msgspec.structs.replace(
                message, tool=message.tool or tool_by_call.get(message.call_id or "")
            )
            if message.role == "tool"
            else message
        )
