"""Reader of Goose's database, its exported sessions, and its older logs of one message per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped
from ctxkit.formats.read_only_sqlite import Database, decode_json_cell, open_database
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Attachment, Edit, Fault, Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "goose"
CAN = (
    "text, thinking, calls and results, times, compactions; total tokens of a session; several "
    "sessions per database"
)
CANNOT = "usage per call, system prompt, tool schemas, cost"
TRAITS = (("all", "a compaction is derived from the visibility of messages to agent and user"),)
TABLES = ("sessions", "messages")
# Compactions are not recorded as such. Each message has two flags, whether the agent and whether
# the user sees it: a compaction hides the old messages from the agent and adds messages that only
# the agent sees. The first of those becomes a summary whose targets are the messages hidden so far.
_SESSION_COLUMNS = (
    "id",
    "name",
    "description",
    "working_dir",
    "created_at",
    "session_type",
    "provider_name",
    "model_config_json",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "accumulated_total_tokens",
    "accumulated_input_tokens",
    "accumulated_output_tokens",
)
_MESSAGE_COLUMNS = (
    "id",
    "message_id",
    "role",
    "content_json",
    "created_timestamp",
    "metadata_json",
)


def sniff(source: Source) -> bool:
    """Return True for Goose's database, an export with its conversation, or an older log."""
    if source.is_database:
        with open_database(source) as database:
            return {"session_id", "content_json"} <= database.column_names("messages")
    first_record = as_dict(next(iter(source.head), None))
    if type(first_record.get("conversation")) is list and "working_dir" in first_record:
        return True
    return (
        len(source.head) > 1
        and {"working_dir", "message_count"} <= first_record.keys()
        and "content" in source.head[1]
    )


def read(source: Source) -> list[Session]:
    """Read all sessions of a database, or the one of a file."""
    if source.is_database:
        with open_database(source) as database:
            return [
                _build_session(row, _read_messages(database, row))
                for row in database.iter_rows("sessions", _SESSION_COLUMNS, "created_at, id")
            ]
    records = [r for _, r in source.records]
    metadata = as_dict(next(iter(records), None))
    conversation = metadata.get("conversation")
    return [
        _build_session(
            {"id": source.path.stem, **metadata},
            as_list(conversation) if conversation is not None else records[1:],
            source.faults,
        )
    ]


def _read_messages(database: Database, row: dict[str, Any]) -> list[dict[str, Any]]:
    rows = database.iter_rows(
        "messages", _MESSAGE_COLUMNS, "created_timestamp, id", session_id=row.get("id")
    )
    return [
        {
            "id": r.get("message_id"),
            "role": r.get("role"),
            "content": decode_json_cell(r.get("content_json")),
            "created": r.get("created_timestamp"),
            "metadata": decode_json_cell(r.get("metadata_json")),
        }
        for r in rows
    ]


def _build_session(
    metadata: dict[str, Any], messages: list[Any], faults: Iterable[Fault] = ()
) -> Session:
    reader = _ConversationReader(messages)
    reader.builder.faults += faults
    for number, raw_message in enumerate(messages):
        with catch_damage(reader.builder.faults, 0, f"message {number}: "):
            reader.read_message(number, as_dict(raw_message))
    model = as_dict(
        decode_json_cell(metadata.get("model_config_json")) or metadata.get("model_config")
    )
    counts = {
        name: count_or_none(metadata.get(name))
        for name in _SESSION_COLUMNS
        if name.endswith("_tokens")
    }
    totals = {name: count for name, count in counts.items() if count is not None}
    return reader.builder.session(
        id=as_str(metadata.get("id")) or "goose",
        format=NAME,
        product=NAME,
        agent="subagent" if metadata.get("session_type") == "sub_agent" else "main",
        title=str_or_none(metadata.get("name")) or str_or_none(metadata.get("description")),
        cwd=str_or_none(metadata.get("working_dir")),
        started=parse_timestamp(metadata.get("created_at"))
        or next((e.time for e in reader.builder.entries if e.time), None),
        model=str_or_none(model.get("model_name")),
        details={"totals": totals} if totals else {},
    )


class _ConversationReader:
    """Reader of one conversation, message by message."""

    def __init__(self, messages: list[Any]) -> None:
        self.builder, self.tool_by_call = SessionBuilder(), dict[str, str]()
        agent_only = [
            n for n, m in enumerate(messages) if _get_visibility(m, "userVisible") is False
        ]
        self._last_agent_only = agent_only[-1] if agent_only else -1
        """Index of the last message for the agent only; hidden ones before it were visible once."""
        self._was_agent_only = False
        self._hidden_ids: list[str] = []

    def read_message(self, number: int, raw_message: dict[str, Any]) -> None:
        """Read one message; its results become messages before it."""
        is_hidden = _get_visibility(raw_message, "agentVisible") is False
        is_agent_only = _get_visibility(raw_message, "userVisible") is False
        messages = self._parse_message(
            raw_message, is_visible=not is_hidden or number < self._last_agent_only or is_agent_only
        )
        if (
            is_agent_only
            and not self._was_agent_only
            and (self._hidden_ids or number == self._last_agent_only)
        ):
            self._add_compaction(messages)
        else:
            for m in messages:
                self.builder.add(m)
        self._was_agent_only = is_agent_only
        if is_hidden:
            self._hidden_ids += [m.id for m in messages]

    def _add_compaction(self, messages: list[Message]) -> None:
        visible_ids = set(self.builder.visible_ids) if self.builder.may_edit() else set[str]()
        parts = tuple(p for m in messages for p in m.parts)
        summary_id = messages[0].id if messages else self.builder.new_id()
        time = messages[0].time if messages else None
        summary = Message(role="summary", id=summary_id, parts=parts, time=time)
        hidden_ids = tuple(i for i in self._hidden_ids if i in visible_ids)
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(),
            targets=hidden_ids,
            inserted=(summary,),
            method="compaction",
            time=time,
        )
        self.builder.add(edit)
        self._hidden_ids = []

    def _parse_message(self, raw_message: dict[str, Any], *, is_visible: bool) -> list[Message]:
        role, time = raw_message.get("role"), parse_timestamp(raw_message.get("created"))
        parts: list[Part] = []
        messages: list[Message] = []
        for block in map(as_dict, as_list(raw_message.get("content"))):
            if block.get("type") == "toolResponse":
                messages.append(self._parse_result(block, time, is_visible=is_visible))
            else:
                parts += self._parse_part(block)
        if role not in ("user", "assistant"):
            count_skipped(self.builder.skipped, "message: " + (as_str(role) or "no role"))
            return messages
        if parts or not messages:
            message_id = self.builder.new_id(raw_message.get("id"))
            message = Message(
                role="assistant" if role == "assistant" else "user",
                id=message_id,
                parts=tuple(parts),
                time=time,
                visible=is_visible,
            )
            messages.append(message)
        return messages

    def _parse_part(self, block: dict[str, Any]) -> list[Part]:
        part_type = as_str(block.get("type"))
        if part_type == "text":
            return [Text(as_str(block.get("text")))]
        if part_type == "thinking":
            return [
                Thinking(
                    as_str(block.get("thinking")), signature=str_or_none(block.get("signature"))
                )
            ]
        if part_type == "redactedThinking":
            return [Thinking("", signature=str_or_none(block.get("data")), redacted=True)]
        if part_type == "image":
            return [
                Attachment(
                    str_or_none(block.get("mimeType")) or "image/png", as_str(block.get("data"))
                )
            ]
        if part_type in ("toolRequest", "frontendToolRequest"):
            tool_call = as_dict(block.get("toolCall"))
            value = as_dict(tool_call.get("value"))
            call = ToolCall(
                as_str(block.get("id")),
                as_str(value.get("name")),
                *parse_arguments(value.get("arguments")),
            )
            self.tool_by_call[call.id] = call.name
            return [call]
        count_skipped(self.builder.skipped, "part: " + (part_type or "no type"))
        return []

    def _parse_result(
        self, block: dict[str, Any], time: float | None, *, is_visible: bool
    ) -> Message:
        tool_result = as_dict(block.get("toolResult"))
        value = tool_result.get("value")
        content = as_list(as_dict(value).get("content")) or as_list(value)
        parts: list[Part] = []
        for part in map(as_dict, content):
            resource = as_dict(part.get("resource"))
            text = as_str(part.get("text")) or as_str(resource.get("text"))
            if part.get("type") == "image":
                parts.append(
                    Attachment(
                        str_or_none(part.get("mimeType")) or "image/png", as_str(part.get("data"))
                    )
                )
            elif text:
                parts.append(Text(text))
        error = (
            json_to_text(tool_result.get("error")) if tool_result.get("status") == "error" else ""
        )
        call_id = str_or_none(block.get("id"))
        return Message(
            role="tool",
            id=self.builder.new_id(),
            parts=tuple(parts) or ((Text(error),) if error else ()),
            time=time,
            tool=self.tool_by_call.get(call_id or ""),
            call_id=call_id,
            is_error=bool(error) or as_dict(value).get("isError") is True,
            error=error[:2000] or None,
            visible=is_visible,
        )


def _get_visibility(raw: Any, who: str) -> Any:
    return as_dict(as_dict(raw).get("metadata")).get(who)
