"""Reader of Hermes agent sessions: one object with system prompt, tools and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.formats.chat_message_and_usage_parsers import (
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_tool_schemas,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    parse_timestamp,
    str_or_none,
)

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "hermes"
CAN = "text, thinking, system prompt, tools, calls and results, stop reasons"
CANNOT = "usage, times of messages, cost, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "reasoning", "reasoning_content")


# The system prompt is a field of the session; it becomes the first message unless the messages have
# one. The other messages are Chat Completions with reasoning and the tool's name beside them.
def sniff(source: Source) -> bool:
    """Return True for an object with a session id, a start and messages."""
    document = as_dict(source.document)
    return (
        "session_id" in document
        and "session_start" in document
        and type(document.get("messages")) is list
    )


def read(source: Source) -> list[Session]:
    """Read the session of a file."""
    document = as_dict(source.document)
    builder, tool_by_call = SessionBuilder(), dict[str, str]()
    builder.faults += source.faults
    system_prompt = str_or_none(document.get("system_prompt"))
    raw_messages = as_list(document.get("messages"))
    if system_prompt and as_dict(next(iter(raw_messages), None)).get("role") != "system":
        raw_messages = [{"role": "system", "content": system_prompt}, *raw_messages]
    for number, raw_message in enumerate(raw_messages):
        fields = as_dict(raw_message)
        with catch_damage(builder.faults, 0, f"message {number}: "):
            chat_message = {k: fields[k] for k in _CHAT_FIELDS if fields.get(k) is not None}
            reply_fields = (
                {"stop": parse_stop_reason(fields.get("finish_reason"))}
                if fields.get("role") == "assistant"
                else {}
            )
            chat_message |= {"name": fields["tool_name"]} if fields.get("tool_name") else {}
            for message in fill_tool_names(
                parse_chat_message(chat_message, builder, builder.skipped, **reply_fields),
                tool_by_call,
            ):
                builder.add(message)
    return [
        builder.session(
            id=as_str(document.get("session_id")) or source.path.stem,
            format=NAME,
            product=NAME,
            cwd=str_or_none(as_dict(document.get("model_config")).get("cwd")),
            started=parse_timestamp(document.get("session_start")),
            model=str_or_none(document.get("model")),
            tools=parse_tool_schemas(document.get("tools")),
        )
    ]
