"""LangChain and LangGraph dumps: messages of `messages_to_dict` or `dumps`, bare or in the state of
a checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Edit, Message
from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import mapping, text, word
from ctxkit.readers.logs import TOO_MANY, ReaderLog
from ctxkit.readers.usages import to_stop, to_usage

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

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
        return bool(_found(source.document, 0))
    return bool(source.head) and all(_is_message(r) for r in source.head[:4])


def _is_message(raw: Any) -> bool:
    if type(raw) is not dict:
        return False
    if raw.get("lc") == 1 and type(raw.get("id")) is list and type(raw.get("kwargs")) is dict:
        return text(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk").endswith("Message")
    if text(raw.get("type")) not in _TYPES:
        return False
    return type(raw.get("data")) is dict or (
        "content" in raw and ("response_metadata" in raw or "role" not in raw)
    )


def _found(value: Any, depth: int) -> list[Any]:
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
        if key in value and (inner := _found(value[key], depth + 1)):
            return inner
    return []


def read(source: Source) -> list[Session]:
    """Return the one session of the file."""
    log, asked = ReaderLog(), dict[str, str]()
    raws = list(enumerate(_found(source.document, 0)))
    if source.document is None:
        raws = source.records
        log.faults += source.faults
    for n, raw in raws:
        with noting(log.faults, n if source.document is None else 0, f"message {n}: "):
            _write(raw, log, asked)
    state = mapping(source.document)
    thread = mapping(mapping(state.get("config")).get("configurable")).get("thread_id")
    return [
        log.session(
            id=text(thread) or source.path.stem,
            format=NAME,
            product="langchain",
            model=next((e.model for e in log.entries if isinstance(e, Message) and e.model), None),
        )
    ]


def _write(raw: Any, log: ReaderLog, asked: dict[str, str]) -> None:
    fields = (
        mapping(mapping(raw).get("kwargs")) or mapping(mapping(raw).get("data")) or mapping(raw)
    )
    named_ = mapping(raw).get("id")
    if mapping(raw).get("type") == "remove" or (
        type(named_) is list and named_[-1:] == ["RemoveMessage"]
    ):
        gone = (text(fields.get("id")),) if log.may_edit() else ()
        reason = "" if gone else TOO_MANY
        log.add(
            Edit(
                kind="dropped", id=log.new_id(), targets=gone, method="RemoveMessage", reason=reason
            )
        )
        return
    about = mapping(fields.get("response_metadata"))
    usage = to_usage(fields.get("usage_metadata")) or to_usage(
        about.get("token_usage") or about.get("tokenUsage")
    )
    made = to_messages(
        raw,
        log,
        log.skipped,
        usage=usage,
        model=word(about.get("model_name")) or word(about.get("model")),
        stop=to_stop(about.get("finish_reason") or about.get("stop_reason")),
    )
    for m in named(made, asked):
        log.add(m)
