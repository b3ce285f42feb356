"""Reader of Anthropic Messages requests and responses; parsing of content blocks and usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.formats.anthropic_compaction_and_clearing import AnthropicConversation
from ctxkit.formats.conversations_from_requests import (
    get_content_block_types,
    is_chat_list,
    is_chat_message,
)
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.raw_api_body_folder import has_raw_bodies, read_raw_body_sessions
from ctxkit.formats.registry import get_reader
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Attachment, Part, SizeOnly, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from ctxkit.session.session import Session


NAME = "anthropic"
ALIASES = ("anthropic-messages", "messages")
CAN = (
    "text, thinking, system prompt, tools, calls and results; usage if responses are included "
    "(cache by lifetime)"
)
CANNOT = "times, cost, compactions by the client (those by the API have their own usage)"
BLIND = ("compactions",)

_ANTHROPIC_BLOCKS = {
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "compaction",
}


# A file has a list of messages, one message per line, or records of requests and responses (batches
# wrap them in `params` and `result`). A list of messages alone resembles Chat Completions; it is
# Anthropic's if it has tool or thinking blocks and none of OpenAI's roles. Each request repeats the
# conversation; `ChatConversation` finds what is new and what was dropped.
def sniff(source: Source) -> bool:
    """Return True for Anthropic's content blocks, a request with `system`, or a response."""
    document = source.document
    if type(document) is list:
        return (is_chat_list(document) and _has_anthropic_messages(document)) or _is_record(
            document[0] if document else None
        )
    if not source.head:
        return False
    first_record = source.head[0]
    return _is_record(first_record) or (
        is_chat_message(first_record) and _has_anthropic_messages(source.head[:64])
    )


def _has_anthropic_messages(messages: Any) -> bool:
    roles = {as_str(as_dict(m).get("role")) for m in as_list(messages)[:64]}
    return bool(get_content_block_types(messages) & _ANTHROPIC_BLOCKS) and not roles & {
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
    is_claude = type(request.get("model")) is str and "claude" in request["model"]
    return is_chat_list(messages) and (
        _has_anthropic_messages(messages)
        or ("system" in request and (is_claude or "max_tokens" in request))
    )


def _split_record(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request and the response of a record, which may be nested or merged in one."""
    request = as_dict(record.get("request")) or as_dict(record.get("params")) or record
    return (
        request,
        as_dict(record.get("response"))
        or as_dict(as_dict(record.get("result")).get("message"))
        or record,
    )


def read(source: Source) -> list[Session]:
    """Read the conversation of a file; messages missing from a later request become an edit.

    Raises:
        ReadError: the file has no message and no response.
    """
    conversation = _open_conversation()
    document = source.document
    if type(document) is list:
        records: list[tuple[int, Any]] = [(0, {"messages": document})]
        if document and not is_chat_message(document[0]):
            records = [(0, r) for r in document]
    else:
        conversation.faults += source.faults
        records = source.records
        if records and is_chat_message(records[0][1]) and records[0][1].get("type") != "message":
            records = [(records[0][0], {"messages": [r for _, r in records]})]
    session_id: str | None = None
    for line, record in records:
        with catch_damage(conversation.faults, line):
            session_id = session_id or str_or_none(as_dict(record).get("session_id"))
            _read_call(conversation, as_dict(record))
    if not conversation.log.entries:
        raise ReadError(
            "expected messages with a role and content, or a response; found none.", source.path
        )
    conversation.close()
    return [conversation.session(session_id or source.path.stem)]


def sniff_folder(folder: Path) -> bool:
    """Return True for a folder of raw request and response bodies."""
    return has_raw_bodies(folder)


def read_folder(folder: Path) -> list[Session]:
    """Read a folder of raw request and response bodies, a session for each session id."""
    return read_raw_body_sessions(folder, _read_call, _open_conversation, _read_transcript)


def _read_transcript(path: Path) -> list[Session]:
    """Read a transcript of Claude Code in the folder of the bodies."""
    reader, source = get_reader("claude-code"), Source(path)
    if not reader.sniff(source):
        raise ReadError("no transcript, and no body of a request or response.", path)
    return reader.read(source)


def _open_conversation() -> AnthropicConversation:
    return AnthropicConversation(NAME, parse_anthropic_usage)


def _read_call(conversation: AnthropicConversation, record: dict[str, Any]) -> None:
    request, response = _split_record(record)
    conversation.read_settings(request)
    system = request.get("system")
    raw_messages = [r for r in as_list(request.get("messages")) if type(r) is dict]
    if system and type(system) in (str, list):
        raw_messages = [{"role": "system", "content": system}, *raw_messages]
    is_on_demand = type(request.get("compaction")) is dict
    if raw_messages and not is_on_demand:  # on demand: of older turns alone, for their summary
        conversation.read_request(raw_messages)
    if response.get("role") != "assistant" or "content" not in response:
        if not raw_messages:
            conversation.skipped["line without messages"] += 1
        return
    began_at, ended_at = (
        parse_timestamp(record.get("startTime")),
        parse_timestamp(record.get("endTime")),
    )
    time = parse_timestamp(record.get("timestamp") or response.get("created_at")) or ended_at
    conversation.clear_results(request, response)
    content = response["content"]
    if type(content) is list:
        content = conversation.read_compaction_reply(response, time)
        if response["content"] and not content:
            return
    conversation.add_reply(
        {"role": "assistant", "content": content, "id": response.get("id")},
        usage=parse_anthropic_usage(response.get("usage")),
        model=str_or_none(response.get("model")) or conversation.model,
        stop=ContentBlockParser.map_stop_reason(response.get("stop_reason")),
        time=time,
        latency=None
        if began_at is None or ended_at is None or ended_at < began_at
        else ended_at - began_at,
    )


_STOP_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool",
    "max_tokens": "length",
}
_CALL_BLOCKS = {"tool_use", "server_tool_use", "mcp_tool_use"}


class ContentBlockParser:
    """Parser of content blocks that remembers the tools of calls and counts unknown blocks."""

    def __init__(self, skipped: Counter[str]) -> None:
        self.skipped = skipped
        self.tool_by_call: dict[str, str] = {}
        """The name of a call's tool by the call's id."""

    def parse_content(self, content: Any) -> tuple[list[Part], list[dict[str, Any]]]:
        """Return the parts of a content, and separately its blocks with tool results.

        Raises:
            ValueError: a block is no object.
        """
        if type(content) is str:
            return ([Text(content)] if content else []), []
        parts: list[Part] = []
        results: list[dict[str, Any]] = []
        for block in [content] if type(content) is dict else as_list(content):
            if type(block) is not dict:
                raise ValueError("expected the blocks of a message to be objects")
            block_type = block.get("type")
            if block_type == "text":
                text = block.get("text")
                parts.append(Text(text if type(text) is str else ""))
            elif block_type == "tool_result":  # the most frequent one
                results.append(block)
            elif block_type in _CALL_BLOCKS:
                parts.append(self._parse_call(block))
            elif type(block_type) is str and block_type.endswith("tool_result"):
                results.append(block)
            else:
                parts.append(self._parse_other_block(block_type, block))
        return parts, results

    def _parse_call(self, block: dict[str, Any]) -> ToolCall:
        call_id, name = as_str(block.get("id")), as_str(block.get("name"))
        self.tool_by_call[call_id] = name
        return ToolCall(call_id, name, *parse_arguments(block.get("input")))

    def _parse_other_block(self, block_type: Any, block: dict[str, Any]) -> Part:
        if block_type == "thinking":
            signature = str_or_none(block.get("signature"))
            return Thinking(as_str(block.get("thinking")), signature, len(signature or ""))
        if block_type == "redacted_thinking":
            return Thinking("", None, len(as_str(block.get("data"))))
        if block_type in ("image", "document"):
            return _parse_attachment(block_type, as_dict(block.get("source")))
        name = block_type if type(block_type) is str else "no type"
        self.skipped[f"block {name}"] += 1
        return SizeOnly(name, chars=len(json_to_text(block)))

    @staticmethod
    def map_stop_reason(reason: Any) -> str | None:
        """Return the session's word for a stop reason; an unknown one is returned unchanged."""
        return _STOP_REASONS.get(reason, reason) if type(reason) is str else None


def _parse_attachment(block_type: str, source: dict[str, Any]) -> Part:
    if source.get("type") == "text":
        return Text(as_str(source.get("data")))
    media_type = as_str(source.get("media_type")) or (
        "image/png" if block_type == "image" else "application/pdf"
    )
    return Attachment(
        media_type,
        as_str(source.get("data")),
        str_or_none(source.get("url")),
        "image" if block_type == "image" else "document",
    )


def parse_anthropic_usage(value: Any) -> Usage | None:
    """Return Anthropic's usage in disjoint classes; None for all zeros (never billed)."""
    if type(value) is not dict:
        return None
    uncached, output = (
        count_or_none(value.get("input_tokens")),
        count_or_none(value.get("output_tokens")),
    )
    cache_read = count_or_none(value.get("cache_read_input_tokens"))
    cache_write = count_or_none(value.get("cache_creation_input_tokens"))
    by_lifetime = value.get("cache_creation")
    one_hour = None
    if type(by_lifetime) is dict:
        one_hour = count_or_none(by_lifetime.get("ephemeral_1h_input_tokens"))
        five_minutes = count_or_none(by_lifetime.get("ephemeral_5m_input_tokens"))
        if cache_write is None:
            cache_write = (
                None
                if one_hour is None and five_minutes is None
                else (one_hour or 0) + (five_minutes or 0)
            )
        if one_hour and cache_write is not None:
            one_hour = min(one_hour, cache_write)
            cache_write -= one_hour
    if not (uncached or cache_read or cache_write or one_hour or output):
        return None
    return Usage(
        input_tokens=uncached,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_1h_tokens=one_hour,
        output_tokens=output,
    )
