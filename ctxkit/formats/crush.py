"""Crush: its database of sessions, subagents' sessions below their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import count_skipped, parse_stop_reason
from ctxkit.formats.fields import (
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
from ctxkit.formats.session_builder import SessionBuilder, nest_subagents
from ctxkit.formats.sqlite import Database, decode_json_cell, open_database
from ctxkit.session.messages import Edit, Image, Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "crush"
CAN = (
    "text, thinking, calls and results, times, summaries, subagents; a session's totals of tokens"
    " and money"
)
CANNOT = "usage per call, system prompt, tool schemas"
TABLES = ("sessions", "messages")
_SESSION = ("id", "parent_session_id", "title", "prompt_tokens", "completion_tokens", "cost",
            "summary_message_id", "created_at")  # fmt: skip
_ROW = ("id", "role", "parts", "model", "created_at", "finished_at", "is_summary_message")


def sniff(source: Source) -> bool:
    """Say whether this is Crush's database."""
    if not source.is_database:
        return False
    with open_database(source) as database:
        return {"session_id", "parts", "role"} <= database.columns("messages")


def read(source: Source) -> list[Session]:
    """Return all sessions of a database; those of subagents are children."""
    with open_database(source) as database:
        rows = database.rows("sessions", _SESSION, "created_at, id")
        found = {str(r["id"]): _session(database, r) for r in rows if r.get("id")}
    return nest_subagents(found)


def _session(database: Database, about: dict[str, Any]) -> Session:
    teller = _Teller(str_or_none(about.get("summary_message_id")))
    for row in database.rows("messages", _ROW, "created_at", session_id=about["id"]):
        with catch_damage(teller.log.faults, 0, f"message {str(row.get('id'))[:80]}: "):
            teller.take(row)
    given, output = (
        count_or_none(about.get("prompt_tokens")),
        count_or_none(about.get("completion_tokens")),
    )
    totals = {
        "prompt_tokens": given,
        "completion_tokens": output,
        "cost_usd": float_or_none(about.get("cost")),
    }
    return teller.log.session(
        id=str(about["id"]),
        format=NAME,
        product=NAME,
        parent=str_or_none(about.get("parent_session_id")),
        title=str_or_none(about.get("title")),
        started=parse_timestamp(about.get("created_at")),
        model=next((e.model for e in teller.log.entries if e.model), None),
        details={"totals": {k: v for k, v in totals.items() if v}} if any(totals.values()) else {},
    )


class _Teller:
    """A session while its messages go by."""

    def __init__(self, summary: str | None) -> None:
        self.log = SessionBuilder()
        self._latest = summary
        """Id of the latest summary, all that a database of before July 2025 says of them."""

    def take(self, row: dict[str, Any]) -> None:
        """Take one message: its parts are typed JSON."""
        role, when = (
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
                self._result(data, when)
            else:
                parts += self._part(as_str(raw.get("type")), data)
        if role not in ("user", "assistant", "system"):
            if role != "tool":
                count_skipped(self.log.skipped, "message: " + (as_str(role) or "no role"))
            return
        own, model = self.log.new_id(row.get("id")), str_or_none(row.get("model"))
        if role != "assistant":
            kind: Any = role
            self.log.add(Message(role=kind, id=own, parts=tuple(parts), time=when))
            return
        reply = Message(
            role="assistant",
            id=own,
            parts=tuple(parts),
            time=when,
            model=model,
            stop=stop,
            is_error=stop == "error",
        )
        if row.get("is_summary_message") not in (None, 0) or own == self._latest:
            self._summary(reply)
            return
        self.log.add(reply)

    def _summary(self, reply: Message) -> None:
        """A summary: the next requests begin with it, told as the user's."""
        told = tuple(p for p in reply.parts if isinstance(p, Text))
        summary = Message(role="summary", id=self.log.new_id(), parts=told, time=reply.time)
        edit = Edit(
            kind="summarised",
            id=reply.id,
            inserted=(summary,),
            method="summary",
            time=reply.time,
            model=reply.model,
        )
        self.log.compact(edit, ())

    def _part(self, kind: str, data: dict[str, Any]) -> list[Part]:
        if kind == "text":
            return [Text(as_str(data.get("text")))]
        if kind == "reasoning":
            said = as_str(data.get("thinking"))
            return [Thinking(said, signature=str_or_none(data.get("signature")))] if said else []
        if kind == "tool_call":
            given = parse_arguments(data.get("input"))
            return [ToolCall(as_str(data.get("id")), as_str(data.get("name")), *given)]
        if kind == "image_url":
            return [Image(url=str_or_none(data.get("url")))]
        if kind == "binary":
            mime = str_or_none(data.get("MIMEType")) or "application/octet-stream"
            seen = "image" if mime.startswith("image/") else "document"
            return [replace(Image(mime, as_str(data.get("Data"))), kind=seen)]
        if kind == "shell_command":
            return [Text(f"$ {as_str(data.get('command'))}\n{as_str(data.get('output'))}")]
        count_skipped(self.log.skipped, "part: " + (kind or "no type"))
        return []

    def _result(self, data: dict[str, Any], when: float | None) -> None:
        said, mime = as_str(data.get("content")), as_str(data.get("mime_type"))
        parts: list[Part] = [Text(said)] if said else []
        if mime.startswith("image/"):
            parts.append(Image(mime, as_str(data.get("data"))))
        self.log.say(
            "tool",
            parts,
            time=when,
            tool=str_or_none(data.get("name")),
            call_id=str_or_none(data.get("tool_call_id")),
            is_error=data.get("is_error") is True,
        )
