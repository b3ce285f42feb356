"""OpenAI Chat Completions, read (also LiteLLM logs) and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import encode_tool_schemas, parse_stop_reason, parse_usage
from ctxkit.formats.chat_requests import ChatConversation, is_chat_list, is_chat_message
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    catch_damage,
    float_or_none,
    parse_timestamp,
    str_or_none,
)
from ctxkit.formats.losses import count_losses, visible_messages
from ctxkit.session.messages import Fault, Image, Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


NAME = "openai"
ALIASES = ("openai-messages", "openai-chat", "chat-completions", "litellm")
CAN = (
    "text, system prompt, tools, calls and results; usage where completions are there (cache reads)"
)
CANNOT = "times of messages, compactions"
BLIND = ("compactions", "tool errors")


def sniff(source: Source) -> bool:
    """Say whether there are messages of OpenAI's roles (alone or in a request) or a completion."""
    document = source.document
    if type(document) is list:
        return is_chat_list(document) or (
            bool(document) and all(_is_record(d) for d in document[:3])
        )
    if not source.head:
        return False
    first = source.head[0]
    return is_chat_message(first) or _is_record(first)


def _is_record(record: Any) -> bool:
    request, response = _halves(as_dict(record))
    if is_chat_list(request.get("messages")):
        return True
    choices = as_list(response.get("choices"))
    return bool(choices) and is_chat_message(as_dict(choices[0]).get("message"))


def _halves(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return request and response: beside each other, in one object, or in a batch's `body`."""
    answer = as_dict(record.get("response"))
    request = as_dict(record.get("request")) or as_dict(record.get("body")) or record
    return request, as_dict(answer.get("body")) or answer or record


def read(source: Source) -> list[Session]:
    """Read a conversation, or several where lines hold ones that have nothing in common."""
    document = source.document
    name = source.path.stem
    if type(document) is list:
        records = (
            [(0, r) for r in document]
            if not is_chat_list(document)
            else [(0, {"messages": document})]
        )
    else:
        records = source.records
        if records and is_chat_message(records[0][1]):
            return [_lines(source, name)]
    talks = _talks(records, list(source.faults) if type(document) is not list else [])
    if not talks:
        raise ReadError(
            "expected messages with a role, or requests with messages; found none.", source.path
        )
    return [t.session(name if len(talks) == 1 else f"{name}/{i}") for i, t in enumerate(talks)]


def read_conversation(calls: Iterable[dict[str, Any]], name: str) -> Session:
    """Read requests and their completions that are known to be one conversation, however shortened.

    Raises:
        ReadError: none of them is one.
    """
    talks = _talks(list(enumerate(calls)), [], together=True)
    if not talks:
        raise ReadError("expected a request with messages, or a completion; found none.", name)
    return talks[0].session(name)


def _lines(source: Source, name: str) -> Session:
    talk = ChatConversation(NAME)
    talk.faults += source.faults
    for line, record in source.records:
        made = talk.make(
            record, time=parse_timestamp(record.get("timestamp") or record.get("created_at"))
        )
        if not made and not is_chat_message(record):
            talk.faults.append(Fault(line, "expected a message with a role and content"))
        talk.add(made)
    return talk.session(name)


def _talks(
    records: list[tuple[int, Any]], faults: list[Fault], *, together: bool = False
) -> list[ChatConversation]:
    talks: list[ChatConversation] = []
    first: list[Any] = []
    for line, record in records:
        with catch_damage(faults, line):
            fields = as_dict(record)
            request, response = _halves(fields)
            raws = as_list(request.get("messages"))
            if not raws and not _is_record(record):
                faults.append(
                    Fault(line, "expected a request with messages, or a completion with choices")
                )
                continue
            opening = [r for r in raws[:3] if as_dict(r).get("role") != "assistant"][:2]
            n = min(len(opening), len(first))
            if not talks or (not together and (not raws or opening[:n] != first[:n])):
                talks.append(ChatConversation(NAME))
                first = []
            first = max(first, opening, key=len)
            talks[-1].settings(request)
            if raws:
                talks[-1].request(raws)
            _reply(talks[-1], fields, response)
    if talks:
        talks[0].faults += faults
    return talks


def _reply(talk: ChatConversation, record: dict[str, Any], response: dict[str, Any]) -> None:
    """Take the completion of a request, where there is one."""
    choices = as_list(response.get("choices"))
    if not choices:
        return
    choice = as_dict(choices[0])
    began = parse_timestamp(record.get("startTime"))
    ended = parse_timestamp(record.get("endTime")) or parse_timestamp(response.get("created"))
    usage = parse_usage(
        response.get("usage"), float_or_none(record.get("response_cost", record.get("cost")))
    )
    talk.reply(
        choice.get("message"),
        usage=usage,
        model=str_or_none(response.get("model")) or talk.model,
        stop=parse_stop_reason(choice.get("finish_reason")),
        time=ended,
        latency=None if began is None or ended is None or ended < began else ended - began,
    )


def encode_session(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file (all that stands, also what a compaction took), and what it cannot hold."""
    lost = count_losses(
        session,
        {"tool schemas", "system prompts", "images", "tool arguments that are no JSON object"},
    )
    messages = visible_messages(session.messages)
    lost["images in tool results or replies"] += sum(
        isinstance(p, Image) for m in messages if m.role in ("tool", "assistant") for p in m.parts
    )
    document: dict[str, Any] = {"messages": [encode_chat_message(m) for m in messages]}
    if session.model:
        document["model"] = session.model
    if session.tools:
        document["tools"] = encode_tool_schemas(session.tools)
    return [msgspec.json.format(msgspec.json.encode(document), indent=1), b"\n"], lost


def encode_chat_message(m: Message) -> dict[str, Any]:
    """Return one message as Chat Completions has it."""
    out: dict[str, Any] = {"role": m.sent_as}
    said = get_plain_text(m)
    pictures = [p for p in m.parts if isinstance(p, Image) and p.kind == "image"]
    if m.role in ("user", "summary") and pictures:
        out["content"] = [_encode_content_part(p) for p in m.parts if isinstance(p, (Text, Image))]
    else:
        out["content"] = said or (None if m.tool_calls else "")
    if m.role == "tool":
        out["tool_call_id"] = m.call_id or ""
        if m.tool:
            out["name"] = m.tool
    if m.tool_calls:
        out["tool_calls"] = [
            {
                "id": c.id,
                "type": "function",
                "function": {
                    "name": c.name,
                    "arguments": c.raw
                    if c.raw is not None
                    else msgspec.json.encode(c.arguments).decode(),
                },
            }
            for c in m.tool_calls
        ]
    return out


def _encode_content_part(p: Text | Image) -> dict[str, Any]:
    if isinstance(p, Text):
        return {"type": "text", "text": p.text}
    return {
        "type": "image_url",
        "image_url": {"url": p.url or f"data:{p.media_type};base64,{p.data}"},
    }
