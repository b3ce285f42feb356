"""Goose: its database of sessions, an exported session, and the older logs of one
message a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_messages import count_skipped
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    parse_arguments,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.sqlite import Database, decode_json_cell, open_database
from ctxkit.session.messages import Edit, Fault, Image, Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "goose"
CAN = (
    "text, thinking, calls and results, times, compactions; a session's totals of tokens; several"
    " sessions a database"
)
CANNOT = "usage per call, system prompt, tool schemas, money"
TRAITS = (("all", "a compaction is told by who still sees a message: the agent, the user"),)
TABLES = ("sessions", "messages")
_SESSION = (
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
_ROW = ("id", "message_id", "role", "content_json", "created_timestamp", "metadata_json")


def sniff(source: Source) -> bool:
    """Say whether this is Goose's database, an export with its conversation, or an older log."""
    if source.is_database:
        with open_database(source) as database:
            return {"session_id", "content_json"} <= database.columns("messages")
    first = as_dict(next(iter(source.head), None))
    if type(first.get("conversation")) is list and "working_dir" in first:
        return True
    return (
        len(source.head) > 1
        and {"working_dir", "message_count"} <= first.keys()
        and "content" in source.head[1]
    )


def read(source: Source) -> list[Session]:
    """Return all sessions of a database, or the one of a file."""
    if source.is_database:
        with open_database(source) as database:
            return [
                _of(row, _messages(database, row))
                for row in database.rows("sessions", _SESSION, "created_at, id")
            ]
    records = [r for _, r in source.records]
    about = as_dict(next(iter(records), None))
    told = about.get("conversation")
    return [
        _of(
            {"id": source.path.stem, **about},
            as_list(told) if told is not None else records[1:],
            source.faults,
        )
    ]


def _messages(database: Database, row: dict[str, Any]) -> list[dict[str, Any]]:
    rows = database.rows("messages", _ROW, "created_timestamp, id", session_id=row.get("id"))
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


def _of(about: dict[str, Any], talk: list[Any], faults: Iterable[Fault] = ()) -> Session:
    teller = _Teller(talk)
    teller.log.faults += faults
    for n, raw in enumerate(talk):
        with catch_damage(teller.log.faults, 0, f"message {n}: "):
            teller.take(n, as_dict(raw))
    model = as_dict(decode_json_cell(about.get("model_config_json")) or about.get("model_config"))
    counts = {k: count_or_none(about.get(k)) for k in _SESSION if k.endswith("_tokens")}
    totals = {k: v for k, v in counts.items() if v is not None}
    return teller.log.session(
        id=as_str(about.get("id")) or "goose",
        format=NAME,
        product=NAME,
        agent="subagent" if about.get("session_type") == "sub_agent" else "main",
        title=str_or_none(about.get("name")) or str_or_none(about.get("description")),
        cwd=str_or_none(about.get("working_dir")),
        started=parse_timestamp(about.get("created_at"))
        or next((e.time for e in teller.log.entries if e.time), None),
        model=str_or_none(model.get("model_name")),
        details={"totals": totals} if totals else {},
    )


class _Teller:
    """A conversation while its messages go by; each says who may still see it."""

    def __init__(self, talk: list[Any]) -> None:
        self.log, self.asked = SessionBuilder(), dict[str, str]()
        kept = [n for n, m in enumerate(talk) if _sees(m, "userVisible") is False]
        self._last = kept[-1] if kept else -1
        """Index of the last message for the agent only: it replaced what is hidden before it."""
        self._summed = False
        self._hidden: list[str] = []

    def take(self, n: int, raw: dict[str, Any]) -> None:
        """Take one message: its results first, as messages of their own."""
        hidden = _sees(raw, "agentVisible") is False
        own = _sees(raw, "userVisible") is False
        made = self._told(raw, visible=not hidden or n < self._last or own)
        if own and not self._summed and (self._hidden or n == self._last):
            self._compact(made)
        else:
            for m in made:
                self.log.add(m)
        self._summed = own
        if hidden:
            self._hidden += [m.id for m in made]

    def _compact(self, made: list[Message]) -> None:
        shown = set(self.log.shown) if self.log.may_edit() else set[str]()
        said = tuple(p for m in made for p in m.parts)
        own = made[0].id if made else self.log.new_id()
        when = made[0].time if made else None
        summary = Message(role="summary", id=own, parts=said, time=when)
        gone = tuple(i for i in self._hidden if i in shown)
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            targets=gone,
            inserted=(summary,),
            method="compaction",
            time=when,
        )
        self.log.add(edit)
        self._hidden = []

    def _told(self, raw: dict[str, Any], *, visible: bool) -> list[Message]:
        role, when = raw.get("role"), parse_timestamp(raw.get("created"))
        parts: list[Part] = []
        out: list[Message] = []
        for block in map(as_dict, as_list(raw.get("content"))):
            if block.get("type") == "toolResponse":
                out.append(self._result(block, when, visible=visible))
            else:
                parts += self._part(block)
        if role not in ("user", "assistant"):
            count_skipped(self.log.skipped, "message: " + (as_str(role) or "no role"))
            return out
        if parts or not out:
            own = self.log.new_id(raw.get("id"))
            said = Message(
                role="assistant" if role == "assistant" else "user",
                id=own,
                parts=tuple(parts),
                time=when,
                visible=visible,
            )
            out.append(said)
        return out

    def _part(self, block: dict[str, Any]) -> list[Part]:
        kind = as_str(block.get("type"))
        if kind == "text":
            return [Text(as_str(block.get("text")))]
        if kind == "thinking":
            return [
                Thinking(
                    as_str(block.get("thinking")), signature=str_or_none(block.get("signature"))
                )
            ]
        if kind == "redactedThinking":
            return [Thinking("", signature=str_or_none(block.get("data")), redacted=True)]
        if kind == "image":
            return [
                Image(str_or_none(block.get("mimeType")) or "image/png", as_str(block.get("data")))
            ]
        if kind in ("toolRequest", "frontendToolRequest"):
            told = as_dict(block.get("toolCall"))
            value = as_dict(told.get("value"))
            called = ToolCall(
                as_str(block.get("id")),
                as_str(value.get("name")),
                *parse_arguments(value.get("arguments")),
            )
            self.asked[called.id] = called.name
            return [called]
        count_skipped(self.log.skipped, "part: " + (kind or "no type"))
        return []

    def _result(self, block: dict[str, Any], when: float | None, *, visible: bool) -> Message:
        told = as_dict(block.get("toolResult"))
        value = told.get("value")
        content = as_list(as_dict(value).get("content")) or as_list(value)
        parts: list[Part] = []
        for part in map(as_dict, content):
            inner = as_dict(part.get("resource"))
            said = as_str(part.get("text")) or as_str(inner.get("text"))
            if part.get("type") == "image":
                parts.append(
                    Image(
                        str_or_none(part.get("mimeType")) or "image/png", as_str(part.get("data"))
                    )
                )
            elif said:
                parts.append(Text(said))
        error = to_text(told.get("error")) if told.get("status") == "error" else ""
        called = str_or_none(block.get("id"))
        return Message(
            role="tool",
            id=self.log.new_id(),
            parts=tuple(parts) or ((Text(error),) if error else ()),
            time=when,
            tool=self.asked.get(called or ""),
            call_id=called,
            is_error=bool(error) or as_dict(value).get("isError") is True,
            error=error[:2000] or None,
            visible=visible,
        )


def _sees(raw: Any, who: str) -> Any:
    return as_dict(as_dict(raw).get("metadata")).get(who)
