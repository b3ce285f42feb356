"""Reader of Crush's database of sessions, with subagents below their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped, parse_stop_reason
from ctxkit.formats.read_only_sqlite import Database, decode_json_cell, open_database
from ctxkit.formats.session_builder import SessionBuilder, nest_subagents
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Attachment, Edit, Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "crush"
CAN = (
    "text, thinking, calls and results, times, summaries, subagents; total tokens and cost of a "
    "session"
)
CANNOT = "usage per call, system prompt, tool schemas"
TABLES = ("sessions", "messages")
# A summary is a reply with a flag; older databases only name the latest one in the session's row.
# It replaces all messages before it, since the next request begins with it. Usage is stored per
# session.
_SESSION_COLUMNS = (
    "id",
    "parent_session_id",
    "title",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "summary_message_id",
    "created_at",
)
_MESSAGE_COLUMNS = (
    "id",
    "role",
    "parts",
    "model",
    "created_at",
    "finished_at",
    "is_summary_message",
)


def sniff(source: Source) -> bool:
    """Return True for Crush's database."""
    if not source.is_database:
        return False
    with open_database(source) as database:
        return {"session_id", "parts", "role"} <= database.column_names("messages")


def read(source: Source) -> list[Session]:
    """Read all sessions of a database; those of subagents are children."""
    with open_database(source) as database:
        rows = database.iter_rows("sessions", _SESSION_COLUMNS, "created_at, id")
        session_by_id = {
            str(row["id"]): _read_session(database, row) for row in rows if row.get("id")
        }
    return nest_subagents(session_by_id)


def _read_session(database: Database, session_row: dict[str, Any]) -> Session:
    reader = _MessageReader(str_or_none(session_row.get("summary_message_id")))
    for row in database.iter_rows(
        "messages", _MESSAGE_COLUMNS, "created_at", session_id=session_row["id"]
    ):
        with catch_damage(reader.builder.faults, 0, f"message {str(row.get('id'))[:80]}: "):
            reader.read_row(row)
    input_tokens, output_tokens = (
        count_or_none(session_row.get("prompt_tokens")),
        count_or_none(session_row.get("completion_tokens")),
    )
    totals = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "cost_usd": float_or_none(session_row.get("cost")),
    }
    return reader.builder.session(
        id=str(session_row["id"]),
        format=NAME,
        product=NAME,
        parent=str_or_none(session_row.get("parent_session_id")),
        title=str_or_none(session_row.get("title")),
        started=parse_timestamp(session_row.get("created_at")),
        model=next((e.model for e in reader.builder.entries if e.model), None),
        details={"totals": {name: total for name, total in totals.items() if total}}
        if any(totals.values())
        else {},
    )


class _MessageReader:
    """Reader of one session, row by row."""

    def __init__(self, summary: str | None) -> None:
        self.builder = SessionBuilder()
        self._latest_summary = summary
        """Id of the latest summary, the only mark in databases from before July 2025."""

    def read_row(self, row: dict[str, Any]) -> None:
        """Read one message, whose parts are typed JSON."""
        role, time = (
            row.get("role"),
            parse_timestamp(row.get("finished_at")) or parse_timestamp(row.get("created_at")),
        )
        parts: list[Part] = []
        stop: str | None = None
        for raw in map(as_dict, as_list(decode_json_cell(row.get("parts")))):
            data = as_dict(raw.get("data"))
            if raw.get("type") == "finish":
                stop = parse_stop_reason(data.get("reason"))
            elif raw.get("type") == "tool_result":
                self._read_result(data, time)
            else:
                parts += self._parse_part(as_str(raw.get("type")), data)
        if role not in ("user", "assistant", "system"):
            if role != "tool":
                count_skipped(self.builder.skipped, "message: " + (as_str(role) or "no role"))
            return
        message_id, model = self.builder.new_id(row.get("id")), str_or_none(row.get("model"))
        if role != "assistant":
            message_role: Any = role
            self.builder.add(
                Message(role=message_role, id=message_id, parts=tuple(parts), time=time)
            )
            return
        reply = Message(
            role="assistant",
            id=message_id,
            parts=tuple(parts),
            time=time,
            model=model,
            stop=stop,
            is_error=stop == "error",
        )
        if row.get("is_summary_message") not in (None, 0) or message_id == self._latest_summary:
            self._add_compaction(reply)
            return
        self.builder.add(reply)

    def _add_compaction(self, reply: Message) -> None:
        """Add a compaction; its summary replaces all messages before it."""
        texts = tuple(p for p in reply.parts if isinstance(p, Text))
        summary = Message(role="summary", id=self.builder.new_id(), parts=texts, time=reply.time)
        edit = Edit(
            kind="summarised",
            id=reply.id,
            inserted=(summary,),
            method="summary",
            time=reply.time,
            model=reply.model,
        )
        self.builder.compact(edit, ())

    def _parse_part(self, part_type: str, data: dict[str, Any]) -> list[Part]:
        if part_type == "text":
            return [Text(as_str(data.get("text")))]
        if part_type == "reasoning":
            thinking = as_str(data.get("thinking"))
            return (
                [Thinking(thinking, signature=str_or_none(data.get("signature")))]
                if thinking
                else []
            )
        if part_type == "tool_call":
            arguments = parse_arguments(data.get("input"))
            return [ToolCall(as_str(data.get("id")), as_str(data.get("name")), *arguments)]
        if part_type == "image_url":
            return [Attachment(url=str_or_none(data.get("url")))]
        if part_type == "binary":
            mime = str_or_none(data.get("MIMEType")) or "application/octet-stream"
            image_kind = "image" if mime.startswith("image/") else "document"
            return [replace(Attachment(mime, as_str(data.get("Data"))), kind=image_kind)]
        if part_type == "shell_command":
            return [Text(f"$ {as_str(data.get('command'))}\n{as_str(data.get('output'))}")]
        count_skipped(self.builder.skipped, "part: " + (part_type or "no type"))
        return []

    def _read_result(self, data: dict[str, Any], time: float | None) -> None:
        text, mime = as_str(data.get("content")), as_str(data.get("mime_type"))
        parts: list[Part] = [Text(text)] if text else []
        if mime.startswith("image/"):
            parts.append(Attachment(mime, as_str(data.get("data"))))
        self.builder.add_message(
            "tool",
            parts,
            time=time,
            tool=str_or_none(data.get("name")),
            call_id=str_or_none(data.get("tool_call_id")),
            is_error=data.get("is_error") is True,
        )
