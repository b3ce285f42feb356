"""Anthropic Messages requests and responses, and their content blocks and usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.formats.chat_requests import (
    ChatConversation,
    content_block_types,
    is_chat_list,
    is_chat_message,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    parse_arguments,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.session.messages import Image, Part, SizeOnly, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections import Counter

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


NAME = "anthropic"
ALIASES = ("anthropic-messages", "messages")
CAN = (
    "text, thinking, system prompt, tools, calls and results; usage where responses are there"
    " (cache by life)"
)
CANNOT = "times, money, compactions"
BLIND = ("compactions",)

_ANTHROPIC_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}


def sniff(source: Source) -> bool:
    """Say whether there are Anthropic's blocks, a request with its `system`, or its response."""
    document = source.document
    if type(document) is list:
        return (is_chat_list(document) and _is_ours(document)) or _is_record(
            document[0] if document else None
        )
    if not source.head:
        return False
    first = source.head[0]
    return _is_record(first) or (is_chat_message(first) and _is_ours(source.head))


def _is_ours(messages: Any) -> bool:
    roles = {as_str(as_dict(m).get("role")) for m in as_list(messages)[:64]}
    return bool(content_block_types(messages) & _ANTHROPIC_BLOCKS) and not roles & {
        "tool",
        "system",
        "developer",
        "function",
    }


def _is_record(record: Any) -> bool:
    fields = as_dict(record)
    request, response = _split_record(fields)
    if (
        response.get("type") == "message"
        and response.get("role") == "assistant"
        and "stop_reason" in response
    ):
        return True
    messages = request.get("messages")
    claude = type(request.get("model")) is str and "claude" in request["model"]
    return is_chat_list(messages) and (
        _is_ours(messages) or ("system" in request and (claude or "max_tokens" in request))
    )


def _split_record(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return request and response: beside each other, in one object, or wrapped as in batches."""
    asked = as_dict(record.get("request")) or as_dict(record.get("params")) or record
    return (
        asked,
        as_dict(record.get("response"))
        or as_dict(as_dict(record.get("result")).get("message"))
        or record,
    )


def read(source: Source) -> list[Session]:
    """Read a file's one conversation; a request that lacks what the last one held is an edit."""
    talk, document = ChatConversation(NAME), source.document
    if type(document) is list:
        records: list[tuple[int, Any]] = [(0, {"messages": document})]
        if document and not is_chat_message(document[0]):
            records = [(0, r) for r in document]
    else:
        talk.faults += source.faults
        records = source.records
        if records and is_chat_message(records[0][1]) and records[0][1].get("type") != "message":
            records = [(records[0][0], {"messages": [r for _, r in records]})]
    own: str | None = None
    for line, record in records:
        with catch_damage(talk.faults, line):
            own = own or str_or_none(as_dict(record).get("session_id"))
            _read_call(talk, as_dict(record))
    if not talk.log.entries:
        raise ReadError(
            "expected messages with a role and content, or a response; found none.", source.path
        )
    return [talk.session(own or source.path.stem)]


def _read_call(talk: ChatConversation, record: dict[str, Any]) -> None:
    request, response = _split_record(record)
    talk.settings(request)
    system = request.get("system")
    raws = [r for r in as_list(request.get("messages")) if type(r) is dict]
    if system and type(system) in (str, list):
        raws = [{"role": "system", "content": system}, *raws]
    if raws:
        talk.request(raws)
    if response.get("role") != "assistant" or "content" not in response:
        if not raws:
            talk.skipped["line without messages"] += 1
        return
    began, ended = parse_timestamp(record.get("startTime")), parse_timestamp(record.get("endTime"))
    talk.reply(
        {"role": "assistant", "content": response["content"], "id": response.get("id")},
        usage=parse_anthropic_usage(response.get("usage")),
        model=str_or_none(response.get("model")) or talk.model,
        stop=ContentBlocks.stop(response.get("stop_reason")),
        time=parse_timestamp(record.get("timestamp") or response.get("created_at")) or ended,
        latency=None if began is None or ended is None or ended < began else ended - began,
    )


_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool",
    "max_tokens": "length",
}
_CALL_BLOCKS = {"tool_use", "server_tool_use", "mcp_tool_use"}


class ContentBlocks:
    """Makes parts of blocks; remembers names of calls, and counts blocks that it does not know."""

    def __init__(self, skipped: Counter[str]) -> None:
        self.skipped = skipped
        self.called: dict[str, str] = {}
        """Id of a tool call to the name of its tool."""

    def parts(self, content: Any) -> tuple[list[Part], list[dict[str, Any]]]:
        """Return a content's parts, and apart from them its blocks that are results of tools."""
        if type(content) is str:
            return ([Text(content)] if content else []), []
        parts: list[Part] = []
        results: list[dict[str, Any]] = []
        for block in [content] if type(content) is dict else as_list(content):
            if type(block) is not dict:
                raise ValueError("expected the blocks of a message to be objects")
            kind = block.get("type")
            if kind == "text":
                parts.append(Text(as_str(block.get("text"))))
            elif kind in _CALL_BLOCKS:
                parts.append(self._call(block))
            elif type(kind) is str and kind.endswith("tool_result"):
                results.append(block)
            else:
                parts.append(self._other(kind, block))
        return parts, results

    def _call(self, block: dict[str, Any]) -> ToolCall:
        own, name = as_str(block.get("id")), as_str(block.get("name"))
        self.called[own] = name
        return ToolCall(own, name, *parse_arguments(block.get("input")))

    def _other(self, kind: Any, block: dict[str, Any]) -> Part:
        if kind == "thinking":
            signature = str_or_none(block.get("signature"))
            return Thinking(as_str(block.get("thinking")), signature, len(signature or ""))
        if kind == "redacted_thinking":
            return Thinking("", None, len(as_str(block.get("data"))))
        if kind in ("image", "document"):
            return _attachment(kind, as_dict(block.get("source")))
        name = kind if type(kind) is str else "no type"
        self.skipped[f"block {name}"] += 1
        return SizeOnly(name, chars=len(to_text(block)))

    @staticmethod
    def stop(reason: Any) -> str | None:
        """Return why a reply ended, in our words where there is one."""
        return _STOP_REASONS.get(reason, reason) if type(reason) is str else None


def _attachment(kind: str, source: dict[str, Any]) -> Part:
    if source.get("type") == "text":
        return Text(as_str(source.get("data")))
    media = as_str(source.get("media_type")) or (
        "image/png" if kind == "image" else "application/pdf"
    )
    shape = "image" if kind == "image" else "document"
    return Image(media, as_str(source.get("data")), str_or_none(source.get("url")), shape)  # type: ignore[arg-type]


def parse_anthropic_usage(value: Any) -> Usage | None:
    """Return Anthropic's usage in disjoint classes; None for all zeros: it was never billed."""
    if type(value) is not dict:
        return None
    fresh, output = (
        count_or_none(value.get("input_tokens")),
        count_or_none(value.get("output_tokens")),
    )
    read = count_or_none(value.get("cache_read_input_tokens"))
    write = count_or_none(value.get("cache_creation_input_tokens"))
    split = value.get("cache_creation")
    hour = None
    if type(split) is dict:
        hour = count_or_none(split.get("ephemeral_1h_input_tokens"))
        five = count_or_none(split.get("ephemeral_5m_input_tokens"))
        if write is None:
            write = None if hour is None and five is None else (hour or 0) + (five or 0)
        if hour and write is not None:
            hour = min(hour, write)
            write -= hour
    if not (fresh or read or write or hour or output):
        return None
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=hour,
        output_tokens=output,
    )
