"""Qwen Code: recorded chats, one record a line, in the parts of Gemini's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Usage
from ctxkit.readers.damaged import each_line
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import items, mapping, number, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.retold import retold

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

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
            text(r.get("type")) in _TYPES and "sessionId" in r and "parentUuid" in r and "uuid" in r
            for r in head
        )
        and any(type(mapping(r.get("message")).get("parts")) is list for r in source.head)
    )


def read(source: Source) -> list[Session]:
    """Return the one chat of a file."""
    reading = _Reading()
    reading.log.faults += source.faults
    each_line(source.records, reading.take, reading.log.faults)
    first = mapping(next((r for _, r in source.records), None))
    return [
        reading.log.session(
            id=text(first.get("sessionId")) or source.path.stem,
            format=NAME,
            product=NAME,
            version=word(first.get("version")),
            cwd=word(first.get("cwd")),
            title=reading.title,
            started=time(first.get("timestamp")),
            model=reading.model,
        )
    ]


class _Reading:
    """A chat while its records go by."""

    def __init__(self) -> None:
        self.log, self.asked = ReaderLog(), dict[str, str]()
        self.title: str | None = None
        self.model: str | None = None
        self._last: dict[str, int] = {}
        """Index of each record's last entry; a record of none stands where its parent does."""

    def take(self, record: dict[str, Any]) -> None:
        """Take one record, after the one that it names as its parent."""
        parent = self._last.get(text(record.get("parentUuid")))
        if parent is not None:
            self.log.stand(parent)
        kind = text(record.get("type"))
        if kind == "system":
            self._system(record)
        elif kind in _TYPES:
            self._message(kind, record)
        else:
            count(self.log.skipped, kind or "no type")
        self._last[text(record.get("uuid"))] = self.log.at

    def _message(self, kind: str, record: dict[str, Any]) -> None:
        raw, more = (
            mapping(record.get("message")),
            dict[str, Any](time=time(record.get("timestamp"))),
        )
        if kind == "assistant":
            self.model = word(record.get("model")) or self.model
            more |= {
                "model": word(record.get("model")),
                "usage": _usage(mapping(record.get("usageMetadata"))),
            }
        elif record.get("subtype"):
            more["kind"] = "injected"
        said = {"role": raw.get("role"), "parts": items(raw.get("parts")), "id": record.get("uuid")}
        done = mapping(record.get("toolCallResult"))
        failed = text(done.get("status")) in ("error", "failed", "cancelled")
        for m in named(to_messages(said, self.log, self.log.skipped, **more), self.asked):
            self.log.add(replace(m, is_error=m.is_error or failed) if m.role == "tool" else m)

    def _system(self, record: dict[str, Any]) -> None:
        kind, told = text(record.get("subtype")), mapping(record.get("systemPayload"))
        if kind == "custom_title":
            self.title = word(told.get("customTitle")) or self.title
        elif kind == "chat_compression":
            self._compressed(record, told)
        else:
            count(self.log.skipped, "system: " + (kind or "no subtype"))

    def _compressed(self, record: dict[str, Any], told: dict[str, Any]) -> None:
        """Put the record's history in the place of what was shown; what it repeats is kept."""
        about, when = mapping(told.get("info")), time(record.get("timestamp"))
        if about.get("compressionStatus") not in (None, 1, "completed"):
            count(self.log.skipped, "compression that failed")
            return
        raws, skipped = items(told.get("compressedHistory")), self.log.skipped
        new = [m for r in raws for m in named(to_messages(r, ReaderLog(), skipped), self.asked)]
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(record.get("uuid")),
            trigger=word(about.get("triggerReason")),
            method="chat_compression",
            time=when,
            tokens_before=number(about.get("originalTokenCount")),
            tokens_after=number(about.get("newTokenCount")),
        )
        if not new or not self.log.may_edit():
            self.log.add(edit)
            return
        kept, inserted = retold(self.log, new, when)
        self.log.compact(replace(edit, inserted=tuple(inserted)), kept)


def _usage(raw: dict[str, Any]) -> Usage | None:
    """Gemini's counts: the prompt holds the cached tokens, the candidates do not hold the thoughts.

    From endpoints that speak OpenAI's way they do (`convertOpenAIResponseToGemini` takes
    `completion_tokens` as they are); the total tells.
    """
    whole, read = number(raw.get("promptTokenCount")), number(raw.get("cachedContentTokenCount"))
    said, thought = number(raw.get("candidatesTokenCount")), number(raw.get("thoughtsTokenCount"))
    if whole is None and said is None:
        return None
    total, apart = number(raw.get("totalTokenCount")), (whole or 0) + (said or 0) + (thought or 0)
    beside = 0 if total is not None and total < apart else thought or 0
    return Usage(
        input_tokens=whole if whole is None else max(whole - (read or 0), 0),
        cache_read_tokens=read,
        output_tokens=None if said is None else said + beside,
        reasoning_tokens=thought,
    )
