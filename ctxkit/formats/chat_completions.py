"""Convert messages, tool schemas and usage to and from Chat Completions."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.session.messages import Image, Message, Part, SizeOnly, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_MOST = 10**9
"""Tokens of a call, more than any window holds."""
MISSING_RESULT = "(no result of this call was kept)"


def to_chat_messages(
    messages: Iterable[Message], *, signed_by: str | None = None, in_results: bool = True
) -> list[dict[str, Any]]:
    """Return messages as Chat Completions dictionaries that no provider refuses for their order.

    A summary goes as a user message, as Pi sends it, or under the role that it names itself. Each
    tool call is followed by its result, wherever that stood; one that has none (a kernel that was
    killed, a log of another program) gets a result that says so; a result without its call, and a
    reply without content, are left out.

    Args:
        messages: what is shown.
        signed_by: a model that must be given its own signed thinking again (Anthropic's); None:
            thinking stays out.
        in_results: whether a tool's result may hold pictures (Anthropic's may). OpenAI refuses them
            there, so that they go in a message of the user behind the results of that reply.
    """
    paired = _pair_results(list(messages))
    return [
        to_chat_message(m, signed_by=signed_by)
        for m in (paired if in_results else _images_after_results(paired))
    ]


def _images_after_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages with the pictures of results behind the last result of each reply."""
    waiting: list[Part] = []
    for m in messages:
        if m.role != "tool" and waiting:
            yield Message(role="user", parts=tuple(waiting))
            waiting = []
        images = [p for p in m.parts if isinstance(p, Image)] if m.role == "tool" else []
        if images:
            waiting += [Text(f"[the picture of {m.tool or 'the tool'}]"), *images]
            m = replace(m, parts=tuple(p for p in m.parts if not isinstance(p, Image)))  # noqa: PLW2901
        yield m
    if waiting:
        yield Message(role="user", parts=tuple(waiting))


def _pair_results(messages: list[Message]) -> Iterator[Message]:
    results: dict[str | None, deque[Message]] = {}
    for m in messages:
        if m.role == "tool":
            results.setdefault(m.call_id, deque()).append(m)
    for m in messages:
        if m.role == "tool" or (m.role == "assistant" and not m.tool_calls and _blank(m)):
            continue
        yield m
        for call in m.tool_calls:
            found = results.get(call.id)
            yield (
                found.popleft()
                if found
                else Message(
                    role="tool", tool=call.name, call_id=call.id, parts=(Text(MISSING_RESULT),)
                )
            )


def to_chat_message(message: Message, *, signed_by: str | None = None) -> dict[str, Any]:
    """Return a message as a Chat Completions dictionary; of thinking only what is signed."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id or "", "content": _content(message)}
    out: dict[str, Any] = {"role": message.sent_as, "content": _content(message)}
    if message.tool_calls:
        out["tool_calls"] = [_call(c) for c in message.tool_calls]
        out["content"] = out["content"] or None
    if signed_by is not None and message.model == signed_by:
        blocks = [
            _thinking_block(p) for p in message.parts if isinstance(p, Thinking) and p.signature
        ]
        return {**out, "thinking_blocks": blocks} if blocks else out
    return out


def has_unsigned_thinking(chat: list[dict[str, Any]]) -> bool:
    """Say whether the last reply called tools without signed thinking: Anthropic refuses it."""
    last = next((m for m in reversed(chat) if m["role"] == "assistant"), None)
    return last is not None and bool(last.get("tool_calls")) and "thinking_blocks" not in last


def _thinking_block(part: Thinking) -> dict[str, Any]:
    """Return thinking as LiteLLM's `thinking_blocks` hold it."""
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _blank(message: Message) -> bool:
    return all(
        isinstance(p, Thinking) or (isinstance(p, Text) and not p.text.strip())
        for p in message.parts
    )


def _content(message: Message) -> str | list[dict[str, Any]]:
    parts = [p for p in message.parts if isinstance(p, (Text, Image, SizeOnly))]
    if all(isinstance(p, Text) for p in parts):
        return "\n".join(p.text for p in parts if isinstance(p, Text))
    return [_part(p) for p in parts]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image) and part.data and part.kind == "image":
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{part.media_type};base64,{part.data}"},
        }
    return {"type": "text", "text": describe_missing_content(part)}


def describe_missing_content(part: Part) -> str:
    """Return the words that are sent in the place of what no log kept."""
    what = part.kind if isinstance(part, (Image, SizeOnly)) else "content"
    return f"[{what} not kept in the log]"


def _call(call: ToolCall) -> dict[str, Any]:
    """Return a call; arguments that were no object go as `{}`, which every provider takes.

    The result that follows says what was wrong with them. A call without a name is sent with one.
    """
    arguments = "{}" if call.raw is not None else json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": call.name or "unnamed", "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def to_content_blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages whose content is lists of blocks: the form that a cache mark needs.

    A tool result that is a string in one call and a block in the next, for its mark, would be other
    bytes each time, and the prefix another.
    """
    return [_in_blocks(m) for m in messages]


def _in_blocks(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": [{"type": "text", "text": content}]}
    return message


def with_cache_marks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return chat messages in blocks, with Anthropic's cache marks on the system prompt and the
    last two messages.

    Four marks are allowed; the last two let the next call read what this one wrote (Anthropic's
    prompt-caching guide). Nothing else of a message depends on whether it is marked.
    """
    marked = {i for i, m in enumerate(messages) if m["role"] == "system"}
    marked = {max(marked)} if marked else set()
    marked |= {i for i, m in enumerate(messages) if m["role"] != "system"} & set(
        range(len(messages))[-2:]
    )
    return [_marked(m) if i in marked else m for i, m in enumerate(to_content_blocks(messages))]


def _marked(message: dict[str, Any]) -> dict[str, Any]:
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
    """Return a provider's reply (the `message` of a choice) as a message."""
    parts: list[Part] = []
    if blocks := reply.get("thinking_blocks"):
        parts.extend(map(_thinking, blocks))
    elif thought := reply.get("reasoning_content"):
        parts.append(Thinking(str(thought)))
    if text := reply.get("content"):
        parts.append(Text(str(text)))
    for i, call in enumerate(reply.get("tool_calls") or ()):
        parts.append(_tool_call(call, i))
    asks = any(isinstance(p, ToolCall) for p in parts)
    ended = (
        stop
        if stop == "length"
        else "tool"
        if asks
        else {"tool_calls": "tool"}.get(stop or "", stop)
    )
    return Message(role="assistant", parts=tuple(parts), stop=ended, usage=usage, model=model)


def _thinking(block: Mapping[str, Any]) -> Thinking:
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

    Counts that cannot be, below zero or above a thousand million, tell nothing.
    """
    if not usage or usage.get("prompt_tokens") is None:
        return None
    counts = (usage["prompt_tokens"], usage.get("completion_tokens") or 0)
    if not all(0 <= n <= _MOST for n in counts):
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
