"""Anthropic's Messages: a list of messages, a request, a response, or lines of requests and
responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.readers.content_blocks import Blocks, to_usage
from ctxkit.readers.damaged import noting
from ctxkit.readers.fields import items, mapping, text, time, word
from ctxkit.readers.talks import Talk, block_types, is_message, is_talk

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "anthropic"
ALIASES = ("anthropic-messages", "messages")
CAN = (
    "text, thinking, system prompt, tools, calls and results; usage where responses are there"
    " (cache by life)"
)
CANNOT = "times, money, compactions"
BLIND = ("compactions",)

_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}


def sniff(source: Source) -> bool:
    """Say whether there are Anthropic's blocks, a request with its `system`, or its response."""
    document = source.document
    if type(document) is list:
        return (is_talk(document) and _is_ours(document)) or _is_record(
            document[0] if document else None
        )
    if not source.head:
        return False
    first = source.head[0]
    return _is_record(first) or (is_message(first) and _is_ours(source.head))


def _is_ours(messages: Any) -> bool:
    roles = {text(mapping(m).get("role")) for m in items(messages)[:64]}
    return bool(block_types(messages) & _BLOCKS) and not roles & {
        "tool",
        "system",
        "developer",
        "function",
    }


def _is_record(record: Any) -> bool:
    fields = mapping(record)
    request, response = _halves(fields)
    if (
        response.get("type") == "message"
        and response.get("role") == "assistant"
        and "stop_reason" in response
    ):
        return True
    messages = request.get("messages")
    claude = type(request.get("model")) is str and "claude" in request["model"]
    return is_talk(messages) and (
        _is_ours(messages) or ("system" in request and (claude or "max_tokens" in request))
    )


def _halves(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return request and response: beside each other, in one object, or wrapped as in batches."""
    asked = mapping(record.get("request")) or mapping(record.get("params")) or record
    return (
        asked,
        mapping(record.get("response"))
        or mapping(mapping(record.get("result")).get("message"))
        or record,
    )


def read(source: Source) -> list[Session]:
    """Read a file's one conversation; a request that lacks what the last one held is an edit."""
    talk, document = Talk(NAME), source.document
    if type(document) is list:
        records: list[tuple[int, Any]] = [(0, {"messages": document})]
        if document and not is_message(document[0]):
            records = [(0, r) for r in document]
    else:
        talk.faults += source.faults
        records = source.records
        if records and is_message(records[0][1]) and records[0][1].get("type") != "message":
            records = [(records[0][0], {"messages": [r for _, r in records]})]
    own: str | None = None
    for line, record in records:
        with noting(talk.faults, line):
            own = own or word(mapping(record).get("session_id"))
            _call(talk, mapping(record))
    if not talk.log.entries:
        raise ReadError(
            "expected messages with a role and content, or a response; found none.", source.path
        )
    return [talk.session(own or source.path.stem)]


def _call(talk: Talk, record: dict[str, Any]) -> None:
    request, response = _halves(record)
    talk.settings(request)
    system = request.get("system")
    raws = [r for r in items(request.get("messages")) if type(r) is dict]
    if system and type(system) in (str, list):
        raws = [{"role": "system", "content": system}, *raws]
    if raws:
        talk.request(raws)
    if response.get("role") != "assistant" or "content" not in response:
        if not raws:
            talk.skipped["line without messages"] += 1
        return
    began, ended = time(record.get("startTime")), time(record.get("endTime"))
    talk.reply(
        {"role": "assistant", "content": response["content"], "id": response.get("id")},
        usage=to_usage(response.get("usage")),
        model=word(response.get("model")) or talk.model,
        stop=Blocks.stop(response.get("stop_reason")),
        time=time(record.get("timestamp") or response.get("created_at")) or ended,
        latency=None if began is None or ended is None or ended < began else ended - began,
    )
