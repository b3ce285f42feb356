"""Hermes agent: a session as one object, with its system prompt, tools and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.formats.chat_messages import (
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    parse_timestamp,
    str_or_none,
)
from ctxkit.formats.session_builder import SessionBuilder

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "hermes"
CAN = "text, thinking, system prompt, tools, calls and results, stop reasons"
CANNOT = "usage, times of messages, money, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "reasoning", "reasoning_content")


def sniff(source: Source) -> bool:
    """Say whether this is a session with its own id, start and messages."""
    document = as_dict(source.document)
    return (
        "session_id" in document
        and "session_start" in document
        and type(document.get("messages")) is list
    )


def read(source: Source) -> list[Session]:
    """Return the one session of a file."""
    about = as_dict(source.document)
    log, asked = SessionBuilder(), dict[str, str]()
    log.faults += source.faults
    said = str_or_none(about.get("system_prompt"))
    talk = as_list(about.get("messages"))
    if said and as_dict(next(iter(talk), None)).get("role") != "system":
        talk = [{"role": "system", "content": said}, *talk]
    for n, raw in enumerate(talk):
        told = as_dict(raw)
        with catch_damage(log.faults, 0, f"message {n}: "):
            plain = {k: told[k] for k in _FIELDS if told.get(k) is not None}
            more = (
                {"stop": parse_stop_reason(told.get("finish_reason"))}
                if told.get("role") == "assistant"
                else {}
            )
            plain |= {"name": told["tool_name"]} if told.get("tool_name") else {}
            for m in fill_tool_names(parse_chat_message(plain, log, log.skipped, **more), asked):
                log.add(m)
    return [
        log.session(
            id=as_str(about.get("session_id")) or source.path.stem,
            format=NAME,
            product=NAME,
            cwd=str_or_none(as_dict(about.get("model_config")).get("cwd")),
            started=parse_timestamp(about.get("session_start")),
            model=str_or_none(about.get("model")),
            tools=parse_tool_schemas(about.get("tools")),
        )
    ]
