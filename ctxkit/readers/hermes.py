"""Hermes agent: a session as one object, with its system prompt, tools and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import items, mapping, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.usages import to_schemas, to_stop

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "hermes"
CAN = "text, thinking, system prompt, tools, calls and results, stop reasons"
CANNOT = "usage, times of messages, money, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "reasoning", "reasoning_content")


def sniff(source: Source) -> bool:
    """Say whether this is a session with its own id, start and messages."""
    document = mapping(source.document)
    return (
        "session_id" in document
        and "session_start" in document
        and type(document.get("messages")) is list
    )


def read(source: Source) -> list[Session]:
    """Return the one session of a file."""
    about = mapping(source.document)
    log, asked = ReaderLog(), dict[str, str]()
    log.faults += source.faults
    said = word(about.get("system_prompt"))
    talk = items(about.get("messages"))
    if said and mapping(next(iter(talk), None)).get("role") != "system":
        talk = [{"role": "system", "content": said}, *talk]
    for n, raw in enumerate(talk):
        told = mapping(raw)
        with noting(log.faults, 0, f"message {n}: "):
            plain = {k: told[k] for k in _FIELDS if told.get(k) is not None}
            more = (
                {"stop": to_stop(told.get("finish_reason"))}
                if told.get("role") == "assistant"
                else {}
            )
            plain |= {"name": told["tool_name"]} if told.get("tool_name") else {}
            for m in named(to_messages(plain, log, log.skipped, **more), asked):
                log.add(m)
    return [
        log.session(
            id=text(about.get("session_id")) or source.path.stem,
            format=NAME,
            product=NAME,
            cwd=word(mapping(about.get("model_config")).get("cwd")),
            started=time(about.get("session_start")),
            model=word(about.get("model")),
            tools=to_schemas(about.get("tools")),
        )
    ]
