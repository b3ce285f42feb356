"""Reader of LangChain and LangGraph messages (`messages_to_dict`, `dumps`), bare or in a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import (
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_usage,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import as_dict, as_str, catch_damage, str_or_none
from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "langchain"
ALIASES = ("langgraph",)
CAN = (
    "text, thinking, system prompt, calls and results, usage per call (cache reads and writes),"
    " model"
)
CANNOT = "times, cost, tool schemas; removed messages of earlier checkpoints"
BLIND = ("compactions",)
_MESSAGE_TYPES = {
    "human",
    "ai",
    "system",
    "tool",
    "remove",
    "function",
    "AIMessageChunk",
    "HumanMessageChunk",
}
_MAX_DEPTH = 6
"""How deep a list of messages is searched for in a state or checkpoint."""


def sniff(source: Source) -> bool:
    """Return True for LangChain messages: a list, a state with a list, or one per line."""
    if source.document is not None:
        return bool(_find_messages(source.document, 0))
    return bool(source.head) and all(_is_message(r) for r in source.head[:4])


def _is_message(raw: Any) -> bool:
    if type(raw) is not dict:
        return False
    if raw.get("lc") == 1 and type(raw.get("id")) is list and type(raw.get("kwargs")) is dict:
        return as_str(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk").endswith("Message")
    if as_str(raw.get("type")) not in _MESSAGE_TYPES:
        return False
    return type(raw.get("data")) is dict or (
        "content" in raw and ("response_metadata" in raw or "role" not in raw)
    )


def _find_messages(value: Any, depth: int) -> list[Any]:
    """Return the first list of messages in a document, at most six levels deep."""
    if type(value) is list:
        return value if value and _is_message(value[0]) else []
    if type(value) is not dict or depth > _MAX_DEPTH:
        return []
    for key in (
        "messages",
        "values",
        "channel_values",
        "checkpoint",
        "state",
        "kwargs",
        "outputs",
        "output",
    ):
        if key in value and (inner := _find_messages(value[key], depth + 1)):
            return inner
    return []


def read(source: Source) -> list[Session]:
    """Read the session of the file."""
    builder, tool_by_call = SessionBuilder(), dict[str, str]()
    raw_messages = list(enumerate(_find_messages(source.document, 0)))
    if source.document is None:
        raw_messages = source.records
        builder.faults += source.faults
    for number, raw_message in raw_messages:
        with catch_damage(
            builder.faults, number if source.document is None else 0, f"message {number}: "
        ):
            _add_message(raw_message, builder, tool_by_call)
    state = as_dict(source.document)
    thread = as_dict(as_dict(state.get("config")).get("configurable")).get("thread_id")
    return [
        builder.session(
            id=as_str(thread) or source.path.stem,
            format=NAME,
            product="langchain",
            model=next(
                (e.model for e in builder.entries if isinstance(e, Message) and e.model), None
            ),
        )
    ]


def _add_message(raw_message: Any, builder: SessionBuilder, tool_by_call: dict[str, str]) -> None:
    fields = (
        as_dict(as_dict(raw_message).get("kwargs"))
        or as_dict(as_dict(raw_message).get("data"))
        or as_dict(raw_message)
    )
    raw_id = as_dict(raw_message).get("id")
    if as_dict(raw_message).get("type") == "remove" or (
        type(raw_id) is list and raw_id[-1:] == ["RemoveMessage"]
    ):
        targets = (as_str(fields.get("id")),) if builder.may_edit() else ()
        reason = "" if targets else TOO_MANY_COMPACTIONS
        builder.add(
            Edit(
                kind="dropped",
                id=builder.new_id(),
                targets=targets,
                method="RemoveMessage",
                reason=reason,
            )
        )
        return
    metadata = as_dict(fields.get("response_metadata"))
    usage = parse_usage(fields.get("usage_metadata")) or parse_usage(
        metadata.get("token_usage") or metadata.get("tokenUsage")
    )
    messages = parse_chat_message(
        raw_message,
        builder,
        builder.skipped,
        usage=usage,
        model=str_or_none(metadata.get("model_name")) or str_or_none(metadata.get("model")),
        stop=parse_stop_reason(metadata.get("finish_reason") or metadata.get("stop_reason")),
    )
    for message in fill_tool_names(messages, tool_by_call):
        builder.add(message)
