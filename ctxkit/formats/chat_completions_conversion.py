"""Conversion of messages and usage to and from Chat Completions requests and replies."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.session.messages import (
    Attachment,
    Message,
    Part,
    SizeOnly,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_MAX_TOKENS = 10**9
"""Upper bound of a call's tokens, above any context window."""
MISSING_RESULT = "(no result of this call was kept)"


def to_chat_messages(
    messages: Iterable[Message], *, signed_by: str | None = None, in_results: bool = True
) -> list[dict[str, Any]]:
    """Return messages as Chat Completions dictionaries in an order that every provider accepts.

    A summary is sent as a user message, or under the role in its details. Each tool call is
    followed by its result; a call without one (the kernel was killed, the log is another program's)
    gets a result that says so. Results without a call and replies without content are left out.

    Args:
        messages: the visible messages.
        signed_by: the model whose signed thinking must be sent back to it (Anthropic's); None:
            thinking is left out.
        in_results: True if tool results may contain images (Anthropic). OpenAI refuses that; the
            images then go into a user message after the results of the reply.

    Returns:
        Dictionaries with `role` and `content`, replies also with `tool_calls`, results with
        `tool_call_id`.

    Example:
        >>> from ctxkit.session import Message, Text
        >>> to_chat_messages([Message(role="user", parts=(Text("Hello"),))])
        [{'role': 'user', 'content': 'Hello'}]
    """
    paired = _pair_results(list(messages))
    return [
        _to_chat_message(m, signed_by=signed_by)
        for m in (paired if in_results else _images_after_results(paired))
    ]


def _images_after_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages with the images of results moved after the last result of each reply."""
    images_of_results: list[Part] = []
    for message in messages:
        if message.role != "tool" and images_of_results:
            yield Message(role="user", parts=tuple(images_of_results))
            images_of_results = []
        images = (
            [p for p in message.parts if isinstance(p, Attachment)]
            if message.role == "tool"
            else []
        )
        if images:
            images_of_results += [Text(f"[the picture of {message.tool or 'the tool'}]"), *images]
            others = tuple(p for p in message.parts if not isinstance(p, Attachment))
            yield replace(message, parts=others)
        else:
            yield message
    if images_of_results:
        yield Message(role="user", parts=tuple(images_of_results))


def _pair_results(messages: list[Message]) -> Iterator[Message]:
    results: dict[str | None, deque[Message]] = {}
    for message in messages:
        if message.role == "tool":
            results.setdefault(message.call_id, deque()).append(message)
    for message in messages:
        if message.role == "tool" or (
            message.role == "assistant" and not message.tool_calls and _is_blank(message)
        ):
            continue
        yield message
        for call in message.tool_calls:
            results_of_call = results.get(call.id)
            yield (
                results_of_call.popleft()
                if results_of_call
                else Message(
                    role="tool", tool=call.name, call_id=call.id, parts=(Text(MISSING_RESULT),)
                )
            )


def _to_chat_message(message: Message, *, signed_by: str | None = None) -> dict[str, Any]:
    """Return a message as a Chat Completions dictionary; unsigned thinking is left out."""
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message.call_id or "",
            "content": _encode_content(message),
        }
    encoded: dict[str, Any] = {"role": message.sent_as, "content": _encode_content(message)}
    if message.tool_calls:
        encoded["tool_calls"] = [_encode_call(c) for c in message.tool_calls]
        encoded["content"] = encoded["content"] or None
    if signed_by is not None and message.model == signed_by:
        blocks = [
            _encode_thinking(p) for p in message.parts if isinstance(p, Thinking) and p.signature
        ]
        return {**encoded, "thinking_blocks": blocks} if blocks else encoded
    return encoded


def has_calls_without_signed_thinking(chat: list[dict[str, Any]]) -> bool:
    """Return True if the last reply has calls but no signed thinking, which Anthropic refuses."""
    last = next((m for m in reversed(chat) if m["role"] == "assistant"), None)
    return last is not None and bool(last.get("tool_calls")) and "thinking_blocks" not in last


def _encode_thinking(part: Thinking) -> dict[str, Any]:
    """Return thinking as a block of LiteLLM's `thinking_blocks`."""
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _is_blank(message: Message) -> bool:
    return all(
        isinstance(p, Thinking) or (isinstance(p, Text) and not p.text.strip())
        for p in message.parts
    )


def _encode_content(message: Message) -> str | list[dict[str, Any]]:
    parts = [p for p in message.parts if isinstance(p, (Text, Attachment, SizeOnly))]
    if all(isinstance(p, Text) for p in parts):
        return "\n".join(p.text for p in parts if isinstance(p, Text))
    return [_encode_part(p) for p in parts]


def _encode_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Attachment) and part.data and part.kind == "image":
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{part.media_type};base64,{part.data}"},
        }
    return {"type": "text", "text": describe_unrecorded_content(part)}


def describe_unrecorded_content(part: Part) -> str:
    """Return the text sent in place of content that the log does not have."""
    name = part.kind if isinstance(part, (Attachment, SizeOnly)) else "content"
    return f"[{name} not kept in the log]"


def _encode_call(call: ToolCall) -> dict[str, Any]:
    """Encode a call; arguments that are no object become `{}`, which every provider accepts.

    The result that follows says what was wrong with them. A call without a name gets one.
    """
    arguments = "{}" if call.raw is not None else json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name or "unnamed", "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _with_block_contents(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages with block lists as content, the form that a cache mark requires.

    All messages are converted, not only marked ones, because a message that is a string in one call
    and a block in the next would change the cached prefix.
    """
    return [_to_block_content(m) for m in messages]


def _to_block_content(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": [{"type": "text", "text": content}]}
    return message


def add_cache_marks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add Anthropic's cache marks to the system prompt and the last two messages.

    Of the four marks that are allowed, the last two let the next call read what this one wrote
    (Anthropic's prompt-caching guide). The rest of a message does not depend on its mark.
    """
    marked_indices = {i for i, m in enumerate(messages) if m["role"] == "system"}
    marked_indices = {max(marked_indices)} if marked_indices else set()
    marked_indices |= {i for i, m in enumerate(messages) if m["role"] != "system"} & set(
        range(len(messages))[-2:]
    )
    return [
        _add_cache_mark(m) if i in marked_indices else m
        for i, m in enumerate(_with_block_contents(messages))
    ]


def _add_cache_mark(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list) or not content:
        return message
    return {
        **message,
        "content": [*content[:-1], {**content[-1], "cache_control": {"type": "ephemeral"}}],
    }


def from_chat_message(
    reply: Mapping[str, Any], *, stop: str | None, usage: Usage | None, model: str
) -> Message:
    """Parse a reply of a Chat Completions API.

    Args:
        reply: the `message` of a choice.
        stop: why the reply ended; None: unknown.
        usage: tokens of the call; None: not reported.
        model: name of the model.
    """
    parts: list[Part] = []
    if blocks := reply.get("thinking_blocks"):
        parts.extend(map(_parse_thinking, blocks))
    elif reasoning := reply.get("reasoning_content"):
        parts.append(Thinking(str(reasoning)))
    if text := reply.get("content"):
        parts.append(Text(str(text)))
    for i, call in enumerate(reply.get("tool_calls") or ()):
        parts.append(_tool_call(call, i))
    has_calls = any(isinstance(p, ToolCall) for p in parts)
    stop_reason = (
        stop
        if stop == "length"
        else "tool"
        if has_calls
        else {"tool_calls": "tool"}.get(stop or "", stop)
    )
    return Message(role="assistant", parts=tuple(parts), stop=stop_reason, usage=usage, model=model)


def _parse_thinking(block: Mapping[str, Any]) -> Thinking:
    if block.get("type") == "redacted_thinking":
        data = str(block.get("data") or "")
        return Thinking("", data, len(data), redacted=True)
    signature = block.get("signature") or None
    return Thinking(str(block.get("thinking") or ""), signature, len(signature or ""))


def _tool_call(call: Mapping[str, Any], index: int) -> ToolCall:
    function = call.get("function") or {}
    raw = function.get("arguments") or "{}"
    name, ident = str(function.get("name") or ""), str(call.get("id") or f"call_{index}")
    try:
        arguments = (
            msgspec.json.decode(raw, type=dict[str, Any]) if isinstance(raw, str) else dict(raw)
        )
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ToolCall(id=ident, name=name, raw=str(raw))
    return ToolCall(id=ident, name=name, arguments=arguments)


def parse_chat_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    """Return a Chat Completions usage as disjoint classes; `prompt_tokens` there includes what was
    cached.

    The result is None if a count is impossible: below zero or above a thousand million.
    """
    if not usage or usage.get("prompt_tokens") is None:
        return None
    counts = (usage["prompt_tokens"], usage.get("completion_tokens") or 0)
    if not all(0 <= n <= _MAX_TOKENS for n in counts):
        return None
    details = usage.get("prompt_tokens_details") or {}
    read = usage.get("cache_read_input_tokens")
    read = read if read is not None else details.get("cached_tokens")
    write = usage.get("cache_creation_input_tokens")
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    return Usage(
        input_tokens=max(int(usage["prompt_tokens"]) - (read or 0) - (write or 0), 0),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=usage.get("completion_tokens"),
        reasoning_tokens=reasoning,
    )
