"""Reader of OpenAI Chat Completions and LiteLLM logs, and writer of Chat Completions messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.chat_message_and_usage_parsers import (
    encode_tool_schemas,
    parse_stop_reason,
    parse_usage,
)
from ctxkit.formats.conversations_from_requests import (
    ChatConversation,
    is_chat_list,
    is_chat_message,
)
from ctxkit.formats.conversion_losses import count_conversion_losses, select_sent_messages
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    catch_damage,
    float_or_none,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Attachment, Fault, Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "openai"
ALIASES = ("openai-messages", "openai-chat", "chat-completions", "litellm")
CAN = (
    "text, system prompt, tools, calls and results; usage and times if completions are included "
    "(cache reads)"
)
CANNOT = "times of messages without a completion, compactions"
BLIND = ("compactions", "tool errors")


# Three shapes are read: a list of messages, one message per line, and records of requests with
# their completions (one per line or in a list; LiteLLM nests them in `request` and `response`, the
# batch API in `body`). Each request repeats the conversation so far. A request continues the
# current conversation if its first two messages that are not replies are those of the
# conversation's opening; otherwise it begins a new one. `ChatConversation` finds what is new in
# each request.
def sniff(source: Source) -> bool:
    """Return True for messages with OpenAI's roles, requests with such messages, or completions."""
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
    request, response = _split_request_response(as_dict(record))
    if is_chat_list(request.get("messages")):
        return True
    choices = as_list(response.get("choices"))
    return bool(choices) and is_chat_message(as_dict(choices[0]).get("message"))


def _split_request_response(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request and the response of a record, which may be nested or merged in one."""
    response = as_dict(record.get("response"))
    request = as_dict(record.get("request")) or as_dict(record.get("body")) or record
    return request, as_dict(response.get("body")) or response or record


def read(source: Source) -> list[Session]:
    """Read one conversation, or several if requests have different openings.

    Raises:
        ReadError: the file has no message and no request.
    """
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
            return [_read_message_lines(source, name)]
    conversations = _read_conversations(
        records, list(source.faults) if type(document) is not list else []
    )
    if not conversations:
        raise ReadError(
            "expected messages with a role, or requests with messages; found none.", source.path
        )
    return [
        conversation.session(name if len(conversations) == 1 else f"{name}/{number}")
        for number, conversation in enumerate(conversations)
    ]


def read_requests_as_one_conversation(calls: Iterable[dict[str, Any]], name: str) -> Session:
    """Read requests and completions that are known to be one conversation.

    Args:
        calls: records of requests with their completions, in order.
        name: the session's id.

    Raises:
        ReadError: none of the records is a request or completion.
    """
    conversations = _read_conversations(list(enumerate(calls)), [], is_one_conversation=True)
    if not conversations:
        raise ReadError("expected a request with messages, or a completion; found none.", name)
    return conversations[0].session(name)


def _read_message_lines(source: Source, name: str) -> Session:
    conversation = ChatConversation(NAME)
    conversation.faults += source.faults
    for line, record in source.records:
        parsed = conversation.parse_message(
            record, time=parse_timestamp(record.get("timestamp") or record.get("created_at"))
        )
        if not parsed and not is_chat_message(record):
            conversation.faults.append(Fault(line, "expected a message with a role and content"))
        conversation.add(parsed)
    return conversation.session(name)


def _read_conversations(
    records: list[tuple[int, Any]], faults: list[Fault], *, is_one_conversation: bool = False
) -> list[ChatConversation]:
    conversations: list[ChatConversation] = []
    opening_so_far: list[Any] = []
    for line, record in records:
        with catch_damage(faults, line):
            fields = as_dict(record)
            request, response = _split_request_response(fields)
            raw_messages = as_list(request.get("messages"))
            if not raw_messages and not _is_record(record):
                faults.append(
                    Fault(line, "expected a request with messages, or a completion with choices")
                )
                continue
            opening = [r for r in raw_messages[:3] if as_dict(r).get("role") != "assistant"][:2]
            n_common = min(len(opening), len(opening_so_far))
            if not conversations or (
                not is_one_conversation
                and (not raw_messages or opening[:n_common] != opening_so_far[:n_common])
            ):
                conversations.append(ChatConversation(NAME))
                opening_so_far = []
            opening_so_far = max(opening_so_far, opening, key=len)
            conversations[-1].read_settings(request)
            if raw_messages:
                conversations[-1].read_request(raw_messages)
            _read_completion(conversations[-1], fields, response)
    if conversations:
        conversations[0].faults += faults
    return conversations


def _read_completion(
    conversation: ChatConversation, record: dict[str, Any], response: dict[str, Any]
) -> None:
    """Read the completion of a record, if it has one."""
    choices = as_list(response.get("choices"))
    if not choices:
        return
    choice = as_dict(choices[0])
    began_at = parse_timestamp(record.get("startTime"))
    ended_at = parse_timestamp(record.get("endTime")) or parse_timestamp(response.get("created"))
    usage = parse_usage(
        response.get("usage"), float_or_none(record.get("response_cost", record.get("cost")))
    )
    conversation.add_reply(
        choice.get("message"),
        usage=usage,
        model=str_or_none(response.get("model")) or conversation.model,
        stop=parse_stop_reason(choice.get("finish_reason")),
        time=ended_at,
        latency=None
        if began_at is None or ended_at is None or ended_at < began_at
        else ended_at - began_at,
    )


def encode_session(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file's content (compacted messages included), and counts of what it lacks."""
    losses = count_conversion_losses(
        session,
        {"tool schemas", "system prompts", "images", "tool arguments that are no JSON object"},
    )
    messages = select_sent_messages(session.messages)
    losses["images in tool results or replies"] += sum(
        isinstance(p, Attachment)
        for m in messages
        if m.role in ("tool", "assistant")
        for p in m.parts
    )
    document: dict[str, Any] = {"messages": [encode_chat_message(m) for m in messages]}
    if session.model:
        document["model"] = session.model
    if session.tools:
        document["tools"] = encode_tool_schemas(session.tools)
    return [msgspec.json.format(msgspec.json.encode(document), indent=1), b"\n"], losses


def encode_chat_message(message: Message) -> dict[str, Any]:
    """Return a message in the form of Chat Completions."""
    encoded: dict[str, Any] = {"role": message.sent_as}
    text = get_plain_text(message)
    images = [p for p in message.parts if isinstance(p, Attachment) and p.kind == "image"]
    if message.role in ("user", "summary") and images:
        encoded["content"] = [
            _encode_content_part(p) for p in message.parts if isinstance(p, (Text, Attachment))
        ]
    else:
        encoded["content"] = text or (None if message.tool_calls else "")
    if message.role == "tool":
        encoded["tool_call_id"] = message.call_id or ""
        if message.tool:
            encoded["name"] = message.tool
    if message.tool_calls:
        encoded["tool_calls"] = [
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
            for c in message.tool_calls
        ]
    return encoded


def _encode_content_part(part: Text | Attachment) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {
        "type": "image_url",
        "image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"},
    }
