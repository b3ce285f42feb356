"""Reader of Qwen Code chats: one record per line, with parts of Gemini's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
)
from ctxkit.formats.session_builder import SessionBuilder, match_history_with_visible_messages
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Edit, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "qwen-code"
ALIASES = ("qwen",)
CAN = (
    "text, thinking, calls and results, usage per call (cache reads), times, compressions, "
    "abandoned branches"
)
CANNOT = "system prompt, tool schemas, cost"
TRAITS = (("all", "a compression without its history is an edit that names only its size"),)
_RECORD_TYPES = {"user", "assistant", "tool_result", "system"}


# Records have a uuid and the uuid of their parent; a parent that is not the last record begins a
# branch. A compression has the whole new history: what it repeats of the visible messages stays,
# the rest is inserted.
def sniff(source: Source) -> bool:
    """Return True if the first lines are records with a session, parents, and parts."""
    head = source.head[:4]
    return (
        bool(head)
        and all(
            as_str(r.get("type")) in _RECORD_TYPES
            and "sessionId" in r
            and "parentUuid" in r
            and "uuid" in r
            for r in head
        )
        and any(type(as_dict(r.get("message")).get("parts")) is list for r in source.head)
    )


def read(source: Source) -> list[Session]:
    """Read the chat of a file."""
    reader = _ChatReader()
    reader.builder.faults += source.faults
    read_each_line(source.records, reader.read_record, reader.builder.faults)
    first_record = as_dict(next((r for _, r in source.records), None))
    return [
        reader.builder.session(
            id=as_str(first_record.get("sessionId")) or source.path.stem,
            format=NAME,
            product=NAME,
            version=str_or_none(first_record.get("version")),
            cwd=str_or_none(first_record.get("cwd")),
            title=reader.title,
            started=parse_timestamp(first_record.get("timestamp")),
            model=reader.model,
        )
    ]


class _ChatReader:
    """Reader of one chat, record by record."""

    def __init__(self) -> None:
        self.builder, self.tool_by_call = SessionBuilder(), dict[str, str]()
        self.title: str | None = None
        self.model: str | None = None
        self._index_by_uuid: dict[str, int] = {}
        """Index of the entry at or before a record, by the record's uuid."""

    def read_record(self, record: dict[str, Any]) -> None:
        """Read one record, after moving to its parent."""
        parent = self._index_by_uuid.get(as_str(record.get("parentUuid")))
        if parent is not None:
            self.builder.move_to(parent)
        record_type = as_str(record.get("type"))
        if record_type == "system":
            self._read_system_record(record)
        elif record_type in _RECORD_TYPES:
            self._read_message(record_type, record)
        else:
            count_skipped(self.builder.skipped, record_type or "no type")
        self._index_by_uuid[as_str(record.get("uuid"))] = self.builder.at

    def _read_message(self, record_type: str, record: dict[str, Any]) -> None:
        raw, fields = (
            as_dict(record.get("message")),
            dict[str, Any](time=parse_timestamp(record.get("timestamp"))),
        )
        if record_type == "assistant":
            self.model = str_or_none(record.get("model")) or self.model
            fields |= {
                "model": str_or_none(record.get("model")),
                "usage": _parse_usage(as_dict(record.get("usageMetadata"))),
            }
        elif record.get("subtype"):
            fields["kind"] = "injected"
        chat_message = {
            "role": raw.get("role"),
            "parts": as_list(raw.get("parts")),
            "id": record.get("uuid"),
        }
        tool_result = as_dict(record.get("toolCallResult"))
        is_failed = as_str(tool_result.get("status")) in ("error", "failed", "cancelled")
        for message in fill_tool_names(
            parse_chat_message(chat_message, self.builder, self.builder.skipped, **fields),
            self.tool_by_call,
        ):
            self.builder.add(
                replace(message, is_error=message.is_error or is_failed)
                if message.role == "tool"
                else message
            )

    def _read_system_record(self, record: dict[str, Any]) -> None:
        subtype, payload = as_str(record.get("subtype")), as_dict(record.get("systemPayload"))
        if subtype == "custom_title":
            self.title = str_or_none(payload.get("customTitle")) or self.title
        elif subtype == "chat_compression":
            self._read_compression(record, payload)
        else:
            count_skipped(self.builder.skipped, "system: " + (subtype or "no subtype"))

    def _read_compression(self, record: dict[str, Any], payload: dict[str, Any]) -> None:
        """Read a compression, whose history may repeat visible messages."""
        info, time = as_dict(payload.get("info")), parse_timestamp(record.get("timestamp"))
        if info.get("compressionStatus") not in (None, 1, "completed"):
            count_skipped(self.builder.skipped, "compression that failed")
            return
        raw_history, skipped = as_list(payload.get("compressedHistory")), self.builder.skipped
        history = [
            m
            for r in raw_history
            for m in fill_tool_names(
                parse_chat_message(r, SessionBuilder(), skipped), self.tool_by_call
            )
        ]
        edit = Edit(
            kind="summarised",
            id=self.builder.new_id(record.get("uuid")),
            trigger=str_or_none(info.get("triggerReason")),
            method="chat_compression",
            time=time,
            tokens_before=count_or_none(info.get("originalTokenCount")),
            tokens_after=count_or_none(info.get("newTokenCount")),
        )
        if not history or not self.builder.may_edit():
            self.builder.add(edit)
            return
        retained_ids, inserted = match_history_with_visible_messages(self.builder, history, time)
        self.builder.compact(replace(edit, inserted=tuple(inserted)), retained_ids)


def _parse_usage(raw: dict[str, Any]) -> Usage | None:
    """Return a call's usage; the prompt includes cached tokens.

    Candidates do not include thoughts, except from OpenAI-compatible endpoints
    (`convertOpenAIResponseToGemini` copies `completion_tokens`); the total shows which.
    """
    input_tokens, cache_read = (
        count_or_none(raw.get("promptTokenCount")),
        count_or_none(raw.get("cachedContentTokenCount")),
    )
    candidates, thoughts = (
        count_or_none(raw.get("candidatesTokenCount")),
        count_or_none(raw.get("thoughtsTokenCount")),
    )
    if input_tokens is None and candidates is None:
        return None
    total, sum_of_parts = (
        count_or_none(raw.get("totalTokenCount")),
        (input_tokens or 0) + (candidates or 0) + (thoughts or 0),
    )
    thoughts_beside = 0 if total is not None and total < sum_of_parts else thoughts or 0
    return Usage(
        input_tokens=input_tokens
        if input_tokens is None
        else max(input_tokens - (cache_read or 0), 0),
        cache_read_tokens=cache_read,
        output_tokens=None if candidates is None else candidates + thoughts_beside,
        reasoning_tokens=thoughts,
    )
