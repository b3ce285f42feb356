"""LangChain and LangGraph dumps: messages of `messages_to_dict` or `dumps`, bare or in the state of
a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_messages import (
    fill_tool_names,
    parse_chat_message,
    parse_stop_reason,
    parse_usage,
)
from ctxkit.formats.fields import as_dict, as_str, catch_damage, str_or_none
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "langchain"
ALIASES = ("langgraph",)
CAN = (
    "text, thinking, system prompt, calls and results, usage per call (cache reads and writes),"
    " model"
)
CANNOT = "times, money, tool schemas; removed messages of earlier checkpoints"
BLIND = ("compactions",)
_TYPES = {
    "human",
    "ai",
    "system",
    "tool",
    "remove",
    "function",
    "AIMessageChunk",
    "HumanMessageChunk",
}
_DEPTH = 6


def sniff(source: Source) -> bool:
    """Say whether there are LangChain messages: a list, a state that holds one, or one a line."""
    if source.document is not None:
        return bool(_find_messages(source.document, 0))
    return bool(source.head) and all(_is_message(r) for r in source.head[:4])


def _is_message(raw: Any) -> bool:
    if type(raw) is not dict:
        return False
    if raw.get("lc") == 1 and type(raw.get("id")) is list and type(raw.get("kwargs")) is dict:
        return as_str(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk").endswith("Message")
    if as_str(raw.get("type")) not in _TYPES:
        return False
    return type(raw.get("data")) is dict or (
        "content" in raw and ("response_metadata" in raw or "role" not in raw)
    )


def _find_messages(value: Any, depth: int) -> list[Any]:
    """Return a document's first list of messages: itself, or within a state or checkpoint."""
    if type(value) is list:
        return value if value and _is_message(value[0]) else []
    if type(value) is not dict or depth > _DEPTH:
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
    """Return the one session of the file."""
    log, asked = SessionBuilder(), dict[str, str]()
    raws = list(enumerate(_find_messages(source.document, 0)))
    if source.document is None:
        raws = source.records
        log.faults += source.faults
    for n, raw in raws:
        with catch_damage(log.faults, n if source.document is None else 0, f"message {n}: "):
            _write(raw, log, asked)
    state = as_dict(source.document)
    thread = as_dict(as_dict(state.get("config")).get("configurable")).get("thread_id")
    return [
        log.session(
            id=as_str(thread) or source.path.stem,
            format=NAME,
            product="langchain",
            model=next((e.model for e in log.entries if isinstance(e, Message) and e.model), None),
        )
    ]


def _write(raw: Any, log: SessionBuilder, asked: dict[str, str]) -> None:
    fields = (
        as_dict(as_dict(raw).get("kwargs")) or as_dict(as_dict(raw).get("data")) or as_dict(raw)
    )
    named_ = as_dict(raw).get("id")
    if as_dict(raw).get("type") == "remove" or (
        type(named_) is list and named_[-1:] == ["RemoveMessage"]
    ):
        gone = (as_str(fields.get("id")),) if log.may_edit() else ()
        reason = "" if gone else TOO_MANY_COMPACTIONS
        log.add(
            Edit(
                kind="dropped", id=log.new_id(), targets=gone, method="RemoveMessage", reason=reason
            )
        )
        return
    about = as_dict(fields.get("response_metadata"))
    usage = parse_usage(fields.get("usage_metadata")) or parse_usage(
        about.get("token_usage") or about.get("tokenUsage")
    )
    made = parse_chat_message(
        raw,
        log,
        log.skipped,
        usage=usage,
        model=str_or_none(about.get("model_name")) or str_or_none(about.get("model")),
        stop=parse_stop_reason(about.get("finish_reason") or about.get("stop_reason")),
    )
    for m in fill_tool_names(made, asked):
        log.add(m)
