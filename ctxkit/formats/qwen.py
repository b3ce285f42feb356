"""Qwen Code: recorded chats, one record a line, in the parts of Gemini's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import count_skipped, fill_tool_names, parse_chat_message
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.formats.session_builder import SessionBuilder, match_rewritten_history
from ctxkit.session.messages import Edit, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "qwen-code"
ALIASES = ("qwen",)
CAN = (
    "text, thinking, calls and results, usage per call (cache reads), times, compressions, branches"
    " left"
)
CANNOT = "system prompt, tool schemas, money"
TRAITS = (("all", "a compression without its history is an edit that names only its size"),)
_TYPES = {"user", "assistant", "tool_result", "system"}


def sniff(source: Source) -> bool:
    """Say whether the first lines are records with a session, parents, and a message of parts."""
    head = source.head[:4]
    return (
        bool(head)
        and all(
            as_str(r.get("type")) in _TYPES
            and "sessionId" in r
            and "parentUuid" in r
            and "uuid" in r
            for r in head
        )
        and any(type(as_dict(r.get("message")).get("parts")) is list for r in source.head)
    )


def read(source: Source) -> list[Session]:
    """Return the one chat of a file."""
    reading = _Reading()
    reading.log.faults += source.faults
    read_each_line(source.records, reading.take, reading.log.faults)
    first = as_dict(next((r for _, r in source.records), None))
    return [
        reading.log.session(
            id=as_str(first.get("sessionId")) or source.path.stem,
            format=NAME,
            product=NAME,
            version=str_or_none(first.get("version")),
            cwd=str_or_none(first.get("cwd")),
            title=reading.title,
            started=parse_timestamp(first.get("timestamp")),
            model=reading.model,
        )
    ]


class _Reading:
    """A chat while its records go by."""

    def __init__(self) -> None:
        self.log, self.asked = SessionBuilder(), dict[str, str]()
        self.title: str | None = None
        self.model: str | None = None
        self._last: dict[str, int] = {}
        """Index of each record's last entry; a record of none stands where its parent does."""

    def take(self, record: dict[str, Any]) -> None:
        """Take one record, after the one that it names as its parent."""
        parent = self._last.get(as_str(record.get("parentUuid")))
        if parent is not None:
            self.log.stand(parent)
        kind = as_str(record.get("type"))
        if kind == "system":
            self._system(record)
        elif kind in _TYPES:
            self._message(kind, record)
        else:
            count_skipped(self.log.skipped, kind or "no type")
        self._last[as_str(record.get("uuid"))] = self.log.at

    def _message(self, kind: str, record: dict[str, Any]) -> None:
        raw, more = (
            as_dict(record.get("message")),
            dict[str, Any](time=parse_timestamp(record.get("timestamp"))),
        )
        if kind == "assistant":
            self.model = str_or_none(record.get("model")) or self.model
            more |= {
                "model": str_or_none(record.get("model")),
                "usage": _usage(as_dict(record.get("usageMetadata"))),
            }
        elif record.get("subtype"):
            more["kind"] = "injected"
        said = {
            "role": raw.get("role"),
            "parts": as_list(raw.get("parts")),
            "id": record.get("uuid"),
        }
        done = as_dict(record.get("toolCallResult"))
        failed = as_str(done.get("status")) in ("error", "failed", "cancelled")
        for m in fill_tool_names(
            parse_chat_message(said, self.log, self.log.skipped, **more), self.asked
        ):
            self.log.add(replace(m, is_error=m.is_error or failed) if m.role == "tool" else m)

    def _system(self, record: dict[str, Any]) -> None:
        kind, told = as_str(record.get("subtype")), as_dict(record.get("systemPayload"))
        if kind == "custom_title":
            self.title = str_or_none(told.get("customTitle")) or self.title
        elif kind == "chat_compression":
            self._compressed(record, told)
        else:
            count_skipped(self.log.skipped, "system: " + (kind or "no subtype"))

    def _compressed(self, record: dict[str, Any], told: dict[str, Any]) -> None:
        """Put the record's history in the place of what was shown; what it repeats is kept."""
        about, when = as_dict(told.get("info")), parse_timestamp(record.get("timestamp"))
        if about.get("compressionStatus") not in (None, 1, "completed"):
            count_skipped(self.log.skipped, "compression that failed")
            return
        raws, skipped = as_list(told.get("compressedHistory")), self.log.skipped
        new = [
            m
            for r in raws
            for m in fill_tool_names(parse_chat_message(r, SessionBuilder(), skipped), self.asked)
        ]
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(record.get("uuid")),
            trigger=str_or_none(about.get("triggerReason")),
            method="chat_compression",
            time=when,
            tokens_before=count_or_none(about.get("originalTokenCount")),
            tokens_after=count_or_none(about.get("newTokenCount")),
        )
        if not new or not self.log.may_edit():
            self.log.add(edit)
            return
        kept, inserted = match_rewritten_history(self.log, new, when)
        self.log.compact(replace(edit, inserted=tuple(inserted)), kept)


def _usage(raw: dict[str, Any]) -> Usage | None:
    """Gemini's counts: the prompt holds the cached tokens, the candidates do not hold the thoughts.

    From endpoints that speak OpenAI's way they do (`convertOpenAIResponseToGemini` takes
    `completion_tokens` as they are); the total tells.
    """
    whole, read = (
        count_or_none(raw.get("promptTokenCount")),
        count_or_none(raw.get("cachedContentTokenCount")),
    )
    said, thought = (
        count_or_none(raw.get("candidatesTokenCount")),
        count_or_none(raw.get("thoughtsTokenCount")),
    )
    if whole is None and said is None:
        return None
    total, apart = (
        count_or_none(raw.get("totalTokenCount")),
        (whole or 0) + (said or 0) + (thought or 0),
    )
    beside = 0 if total is not None and total < apart else thought or 0
    return Usage(
        input_tokens=whole if whole is None else max(whole - (read or 0), 0),
        cache_read_tokens=read,
        output_tokens=None if said is None else said + beside,
        reasoning_tokens=thought,
    )
