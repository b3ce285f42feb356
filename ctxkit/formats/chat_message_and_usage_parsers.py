"""Tolerant parsing of messages, parts, usage, stop reasons and tool schemas of any chat API.

Trajectories and traces have messages in the dialects of many libraries, often several in one file.
All readers that meet them use these functions. Unknown messages and parts are counted by name.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    json_to_text,
    parse_arguments,
    str_or_none,
)
from ctxkit.session.messages import (
    Attachment,
    Message,
    Part,
    Role,
    SizeOnly,
    Text,
    Thinking,
    ToolCall,
    ToolSchema,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.formats.session_builder import SessionBuilder


# A message passes up to three parsers, the cheap one first:
#   plain          Chat Completions with string content, which most messages are
#   response item  calls, outputs and reasoning of the Responses API, which are no messages
#   general        everything else: the role by CHAT_ROLES, parts by _PART_PARSERS
# A result of a tool becomes a message of its own. One raw message can thus yield several: results
# of the user's tools come before its text, those of server tools after the reply.
CHAT_ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "toolresult": "tool",
    "humanmessagechunk": "user",
    "aimessagechunk": "assistant",
    "systemmessagechunk": "system",
    "toolmessagechunk": "tool",
}
"""Roles of a session by the roles of the libraries (in lower case)."""
_LANGCHAIN_ROLES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}


def parse_chat_message(
    raw: Any, builder: SessionBuilder, skipped: dict[str, int], **fields: Any
) -> list[Message]:
    """Parse one raw message; its tool results become messages of their own.

    Args:
        raw: the message in any dialect.
        builder: the builder that the ids are reserved in; nothing is added to it.
        skipped: receives counts of what is not understood, by name.
        fields: further fields of the messages (`time`, `agent`; `usage`, `model` and the like are
            set on replies only).
    """
    if type(raw) is not dict:
        count_skipped(skipped, "message: not an object")
        return []
    content = raw.get("content")
    is_plain = (type(content) is str or content is None) and raw.get("function_call") is None
    if is_plain and raw.keys() <= _PLAIN_FIELDS:  # the fast path, for most messages
        message = _parse_plain(raw, content, builder, fields)
        if message is not None:
            return [message]
    raw = _unwrap_langchain(raw)
    item = _parse_response_item(raw, builder, fields)
    return [item] if item is not None else _parse_general(raw, builder, skipped, fields)


_PLAIN_FIELDS = {
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "id",
    "extra",
    "provider_specific_fields",
    "function_call",
}
"""Fields of plain Chat Completions messages, and some that tools store beside them."""


def _parse_plain(
    raw: dict[str, Any], content: str | None, builder: SessionBuilder, fields: dict[str, Any]
) -> Message | None:
    role, call_id, tool = raw.get("role"), None, None
    parts: tuple[Part, ...] = (Text(content),) if content else ()
    if role == "assistant":
        calls = raw.get("tool_calls")
        if type(calls) is list:
            parts = (*parts, *[_parse_plain_call(c) for c in calls if type(c) is dict])
    elif role == "tool":
        call_id, tool = str_or_none(raw.get("tool_call_id")), str_or_none(raw.get("name"))
    elif role not in ("user", "system"):
        return None
    message = Message(
        role=role, id=builder.new_id(raw.get("id")), parts=parts, call_id=call_id, tool=tool
    )
    if fields and role != "assistant":
        fields = {k: v for k, v in fields.items() if k in _COMMON_FIELDS}
    return replace(message, **fields) if fields else message


def _parse_plain_call(raw: dict[str, Any]) -> ToolCall:
    function = raw.get("function")
    if (
        type(function) is dict
        and type(name := function.get("name")) is str
        and type(raw.get("id")) is str
    ):
        arguments, raw_arguments = parse_arguments(function.get("arguments"))
        return ToolCall(raw["id"], name, arguments, raw_arguments)
    return _parse_tool_call(raw)


_COMMON_FIELDS = {"time", "agent", "turn", "kind", "visible", "details"}
"""Fields that every message of a record gets; the others describe the call."""


def fill_tool_names(messages: list[Message], tool_by_call: dict[str, str]) -> list[Message]:
    """Set the tool of each result from its call.

    Args:
        messages: the messages, changed in place.
        tool_by_call: names of tools by call id; the calls among the messages are added.
    """
    for i, message in enumerate(messages):
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    tool_by_call[part.id] = part.name
        elif message.role == "tool" and message.tool is None:
            messages[i] = replace(message, tool=tool_by_call.get(message.call_id or ""))
    return messages


# One raw message can become several: each tool result inside it is a message of its own. Results of
# a user message come before the rest of it, as they answer the call before; results of a reply
# belong to the provider's own tools and come behind it. A role that is not known is read as the
# user's, with the role as kind.
def _parse_general(
    raw: dict[str, Any], builder: SessionBuilder, skipped: dict[str, int], fields: dict[str, Any]
) -> list[Message]:
    raw_role = as_str(raw.get("role")) or as_str(raw.get("type"))
    role = CHAT_ROLES.get(raw_role.lower())
    if role is None:
        if not raw_role or "content" not in raw:
            count_skipped(skipped, "message: " + (raw_role or "no role"))
            return []
        role = "user"
    common_fields = {k: v for k, v in fields.items() if k in _COMMON_FIELDS}
    parts, results = parse_parts_and_results(
        raw.get("parts") if raw.get("content") is None else raw.get("content"), skipped
    )
    messages: list[Message] = []
    if role == "tool" and not results:
        return [_make_tool_result(raw, parts, builder, common_fields)]
    if role == "assistant":  # results of server tools are inside the reply
        common_fields["kind"] = "server"
    for result in results:
        result_parts, _ = parse_parts_and_results(_result_content(result), skipped)
        if not result_parts and result.get("content"):
            result_parts = [
                SizeOnly(as_str(result.get("type")), chars=len(json_to_text(result["content"])))
            ]
        messages.append(_make_tool_result(result, result_parts, builder, common_fields))
    refusal = str_or_none(raw.get("refusal"))
    if refusal and not parts:
        parts = [Text(refusal)]
    thoughts = _parse_thinking_fields(raw)
    calls = parse_tool_calls(raw.get("tool_calls") or raw.get("toolCalls")) + _parse_function_call(
        raw
    )
    calls += parse_tool_calls(
        raw.get("invalid_tool_calls")
    )  # LangChain's: arguments that are no JSON
    parsed_ids = {p.id for p in parts if isinstance(p, ToolCall)} if calls else set[str]()
    parts = [*thoughts, *parts, *(c for c in calls if c.id not in parsed_ids)]
    if parts or not results:
        if role != "assistant":
            fields = common_fields
        if raw_role.lower() not in CHAT_ROLES or raw_role == "developer":
            fields = {"kind": raw_role[:40], **fields}
        message_id = builder.new_id(raw.get("id"))
        message = Message(
            role="user" if role == "tool" else role, id=message_id, parts=tuple(parts), **fields
        )
        messages.insert(0 if role == "assistant" else len(messages), message)
    return messages


def _unwrap_langchain(raw: dict[str, Any]) -> dict[str, Any]:
    """Unwrap LangChain's serializations: `dumps` (lc, id, kwargs) and `messages_to_dict`."""
    if "kwargs" in raw and type(raw.get("id")) is list:
        name = as_str(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk")
        return {"role": _LANGCHAIN_ROLES.get(name, name), **as_dict(raw["kwargs"])}
    if type(raw.get("data")) is dict and "role" not in raw:
        return {**raw["data"], "role": raw.get("type")}
    return raw


def _parse_response_item(
    raw: dict[str, Any], builder: SessionBuilder, fields: dict[str, Any]
) -> Message | None:
    """Parse an item of the Responses API that is no message: a call, an output, reasoning."""
    item_type = raw.get("type")
    if type(item_type) is not str or "role" in raw:
        return None
    if item_type in ("function_call", "custom_tool_call"):
        arguments, raw_arguments = parse_arguments(raw.get("arguments", raw.get("input")))
        call = ToolCall(
            as_str(raw.get("call_id")), as_str(raw.get("name")), arguments, raw_arguments
        )
        return Message(role="assistant", id=builder.new_id(raw.get("id")), parts=(call,), **fields)
    if item_type in ("function_call_output", "custom_tool_call_output"):
        common_fields = {k: v for k, v in fields.items() if k in _COMMON_FIELDS}
        output = raw.get("output")
        parts = (
            parse_parts_and_results(output, {})[0]
            if type(output) is list and all(map(is_supported_part, output))
            else []
        )
        return _make_tool_result(raw, parts or [Text(json_to_text(output))], builder, common_fields)
    if item_type == "reasoning" and "content" not in raw:
        return Message(
            role="assistant",
            id=builder.new_id(raw.get("id")),
            parts=(_parse_reasoning(raw),),
            **fields,
        )
    return None


def _make_tool_result(
    raw: dict[str, Any], parts: list[Part], builder: SessionBuilder, common_fields: dict[str, Any]
) -> Message:
    response = as_dict(as_dict(raw.get("functionResponse")).get("response"))
    fields = as_dict(raw.get("functionResponse")) or raw
    is_error = (
        raw.get("is_error") is True or raw.get("isError") is True or raw.get("status") == "error"
    )
    return Message(
        role="tool",
        id=builder.new_id(raw.get("id") if raw.get("role") else None),
        parts=tuple(parts),
        call_id=next((w for k in _CALL_ID_KEYS if (w := str_or_none(fields.get(k)))), None),
        tool=str_or_none(fields.get("name")),
        is_error=is_error or "error" in response,
        **common_fields,
    )


_CALL_ID_KEYS = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "id")


def _result_content(result: dict[str, Any]) -> Any:
    if "functionResponse" in result:
        response = as_dict(result["functionResponse"]).get("response")
        fields = as_dict(response)
        return json_to_text(fields.get("output", fields.get("error", response)))
    for key in ("content", "response", "result"):
        if key in result:
            return result[key] if type(result[key]) in (str, list) else json_to_text(result[key])
    return ""


_RESULT_TYPES = {"tool_result", "tool_call_response", "functionResponse"}


def count_skipped(skipped: dict[str, int], name: str) -> None:
    """Count a skipped record by name; at most 200 names are counted, the rest as "others".

    Args:
        skipped: numbers of records by name; it is changed.
        name: kind of the record.
    """
    name = name[:80] if name in skipped or len(skipped) < 200 else "others"
    skipped[name] = skipped.get(name, 0) + 1


def parse_parts_and_results(
    content: Any, skipped: dict[str, int]
) -> tuple[list[Part], list[dict[str, Any]]]:
    """Parse a content: a string, a part, or a list of parts.

    Args:
        content: the raw content.
        skipped: counts what is not understood, by kind; it is changed.

    Returns:
        The parts, and the raw tool results among them.
    """
    if type(content) is str:
        return ([Text(content)] if content else []), []
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for raw in [content] if type(content) is dict else as_list(content):
        if type(raw) is str:
            parts.append(Text(raw))
            continue
        if type(raw) is not dict:
            count_skipped(skipped, "part: not an object")
            continue
        part_type = as_str(raw.get("type")) or next((k for k in _UNTYPED_KEYS if k in raw), "")
        parse_part = _PART_PARSERS.get(part_type)
        if parse_part is not None:
            parts.append(parse_part(raw))
        elif part_type in _RESULT_TYPES or part_type.endswith("_tool_result"):
            results.append(raw)
        else:
            count_skipped(skipped, "part: " + (part_type or "no type"))
    return parts, results


def _parse_text(raw: dict[str, Any]) -> Part:
    value = next((raw[k] for k in ("text", "content", "refusal", "output") if k in raw), "")
    if raw.get("thought") is True:
        return Thinking(json_to_text(value), signature=str_or_none(raw.get("thoughtSignature")))
    return Text(json_to_text(value))


def _parse_reasoning(raw: dict[str, Any]) -> Thinking:
    """Return reasoning; if it is encrypted, only its size is known."""
    text = next(
        (raw[k] for k in ("thinking", "reasoning", "text", "content", "summary") if raw.get(k)), ""
    )
    if type(text) is list:
        text = "\n".join(as_str(as_dict(s).get("text")) for s in text)
    hidden_chars = len(as_str(raw.get("encrypted_content"))) + len(as_str(raw.get("data")))
    return Thinking(
        json_to_text(text), signature=str_or_none(raw.get("signature")), hidden=hidden_chars
    )


_MEDIA_TYPE_KEYS = ("media_type", "mimeType", "mime_type", "mime", "mediaType")


def _parse_image(raw: dict[str, Any]) -> Attachment:
    image = raw.get("image_url", raw.get("source", raw.get("inlineData", raw.get("image"))))
    fields = as_dict(image) or raw
    url = image if type(image) is str else as_str(fields.get("url"))
    media_type = next(
        (w for k in _MEDIA_TYPE_KEYS if (w := str_or_none(fields.get(k)))),
        "image/png",
    )
    data = as_str(fields.get("data"))
    if url.startswith("data:") and "," in url[:200]:
        head, data = url.split(",", 1)
        media_type, url = head[5:].split(";")[0] or media_type, ""
    return Attachment(media_type=media_type, data=data, url=url or None)


def _parse_compaction(raw: dict[str, Any]) -> Part:
    """Parse a provider's replacement of older messages; if it is encrypted, only its size."""
    text = raw.get("content", raw.get("text"))
    hidden_chars = len(as_str(raw.get("encrypted_content")))
    return Text(json_to_text(text)) if text else SizeOnly("compaction", chars=hidden_chars or None)


def _parse_blob(raw: dict[str, Any]) -> Part:
    """Parse OpenTelemetry's binary parts: `blob` with data, `uri` with an address."""
    kinds: dict[str, Literal["image", "audio", "document"]] = {"image": "image", "audio": "audio"}
    kind = kinds.get(as_str(raw.get("modality")), "document")
    mime = str_or_none(raw.get("mime_type")) or "application/octet-stream"
    return Attachment(mime, as_str(raw.get("content")), str_or_none(raw.get("uri")), kind)


def _parse_document(raw: dict[str, Any]) -> Part:
    if str_or_none(raw.get("path")) and type(raw.get("content")) is str:  # Cline's text file
        return Text(raw["content"])
    document = as_dict(raw.get("file") or raw.get("input_audio") or raw.get("source"))
    data = as_str(document.get("file_data")) or as_str(document.get("data"))
    is_audio = "audio" in as_str(raw.get("type"))
    media_type = str_or_none(document.get("media_type")) or (
        "audio/wav" if is_audio else "application/octet-stream"
    )
    return Attachment(media_type=media_type, data=data, kind="audio" if is_audio else "document")


def _parse_tool_call(raw: dict[str, Any]) -> ToolCall:
    """Parse a tool call of any dialect."""
    raw = as_dict(raw.get("functionCall")) or raw
    function = as_dict(raw.get("function"))
    name = (
        function.get("name")
        or raw.get("name")
        or raw.get("function_name")
        or raw.get("function")
        or raw.get("tool")
    )
    arguments = next(
        (s[k] for s in (function, raw) for k in ("arguments", "args", "input") if k in s), None
    )
    parsed, raw_arguments = parse_arguments(arguments)
    call_id = (
        raw.get("id") or raw.get("tool_call_id") or raw.get("call_id") or raw.get("toolCallId")
    )
    return ToolCall(as_str(call_id), as_str(name), parsed, raw_arguments)


_UNTYPED_KEYS = ("text", "functionCall", "functionResponse", "inlineData", "image_url")
_PART_PARSERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), _parse_text),
    **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), _parse_reasoning),
    **dict.fromkeys(("image", "image_url", "input_image", "inlineData"), _parse_image),
    **dict.fromkeys(("blob", "uri"), _parse_blob),
    "compaction": _parse_compaction,
    **dict.fromkeys(("file", "input_file", "document", "input_audio", "audio"), _parse_document),
    **dict.fromkeys(
        ("tool_use", "tool_call", "toolCall", "functionCall", "function_call", "server_tool_use"),
        _parse_tool_call,
    ),
}


def parse_tool_calls(raw: Any) -> list[ToolCall]:
    """Parse a list of tool calls (of Chat Completions, LangChain, ATIF and others)."""
    return [_parse_tool_call(c) for c in as_list(raw) if type(c) is dict]


def _parse_function_call(raw: dict[str, Any]) -> list[ToolCall]:
    """Parse the `function_call` of Chat Completions before it had tools."""
    call = as_dict(raw.get("function_call"))
    return [_parse_tool_call(call)] if call else []


def _parse_thinking_fields(raw: dict[str, Any]) -> list[Part]:
    """Parse the thinking beside a message's content."""
    blocks: list[Part] = [
        _parse_reasoning(b) for b in as_list(raw.get("thinking_blocks")) if type(b) is dict
    ]
    text = str_or_none(raw.get("reasoning_content")) or str_or_none(raw.get("reasoning"))
    return blocks or ([Thinking(text)] if text else [])


def is_supported_part(raw: Any) -> bool:
    """Return True if a value is a part that can be parsed."""
    return type(raw) is dict and raw.get("type") in _PART_PARSERS


def subtract_cached(input_tokens: int | None, *cached: int | None) -> int | None:
    """Subtract cached tokens from an input; if they are more, the input did not include them.

    Args:
        input_tokens: all tokens of a prompt; None: unknown, and so is the result.
        cached: tokens read from the cache and written to it; None counts as 0.
    """
    cached_tokens = sum(n or 0 for n in cached)
    return (
        input_tokens
        if input_tokens is None or cached_tokens > input_tokens
        else input_tokens - cached_tokens
    )


def make_usage_from_total(
    input_tokens: int | None,
    cache_read: int | None,
    cache_write: int | None,
    output_tokens: int | None,
    **fields: Any,
) -> Usage:
    """Return a usage in disjoint classes from an input that includes the cached tokens.

    Args:
        input_tokens: all tokens of the prompt; None: unknown.
        cache_read: those read from the cache; None: unknown.
        cache_write: those written to the cache; None: unknown.
        output_tokens: tokens of the reply; None: unknown.
        fields: other fields of the usage, such as `cost_usd`.
    """
    return Usage(
        input_tokens=subtract_cached(input_tokens, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output_tokens,
        **fields,
    )


def parse_usage(raw: Any, cost_usd: float | None = None) -> Usage | None:
    """Parse a usage object of an OpenAI-like API into disjoint classes; None if it is empty.

    `prompt_tokens` (Chat Completions, LiteLLM) and `input_tokens` (Responses, LangChain) include
    cached tokens; `input_tokens` beside `cache_read_input_tokens` (Anthropic) does not.

    Args:
        raw: the usage object; one that is no object is empty.
        cost_usd: US dollars of the call, where the log has them elsewhere.
    """
    raw = as_dict(raw)
    if not raw:
        return None if cost_usd is None else Usage(cost_usd=cost_usd)
    input_tokens = _first_count(raw, "prompt_tokens", "promptTokens", "input_tokens")
    input_details = as_dict(
        raw.get("prompt_tokens_details")
        or raw.get("input_tokens_details")
        or raw.get("input_token_details")
    )
    cache_read = _first_count(input_details, "cached_tokens", "cache_read")
    cache_write = _first_count(
        input_details, "cache_creation_tokens", "cache_write_tokens", "cache_creation"
    )
    if cache_read is None:
        cache_read = _first_count(
            raw,
            "cache_read_input_tokens",
            "prompt_cache_hit_tokens",
            "cache_read_tokens",
            "cached_tokens",
        )
    if cache_write is None:
        cache_write = _first_count(raw, "cache_creation_input_tokens", "cache_write_tokens")
    is_disjoint = (
        "prompt_tokens" not in raw and "cache_read_input_tokens" in raw and not input_details
    )
    output_details = as_dict(
        raw.get("completion_tokens_details")
        or raw.get("output_tokens_details")
        or raw.get("output_token_details")
    )
    return Usage(
        input_tokens=input_tokens
        if is_disjoint
        else subtract_cached(input_tokens, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=_first_count(raw, "completion_tokens", "completionTokens", "output_tokens"),
        reasoning_tokens=_first_count(output_details, "reasoning_tokens", "reasoning"),
        cost_usd=cost_usd,
    )


_STOP_REASONS = {
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool"),
    "end_turn": "stop",
    "max_tokens": "length",
}


def parse_stop_reason(raw: Any) -> str | None:
    """Return the session's word for a stop reason; an unknown one is returned unchanged."""
    reason = as_str(raw)
    return _STOP_REASONS.get(reason, reason[:40]) or None


def _first_count(raw: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = raw.get(key)
        if value is not None and (n := count_or_none(value)) is not None:
            return n
    return None


def parse_tool_schemas(raw: Any) -> tuple[ToolSchema, ...]:
    """Parse tool definitions (OpenAI, Anthropic or flat), with the sizes of their JSON."""
    schemas = []
    for tool in as_list(raw):
        definition = as_dict(as_dict(tool).get("function")) or as_dict(tool)
        name = str_or_none(definition.get("name")) or str_or_none(definition.get("title"))
        if name:
            schema = as_dict(
                definition.get("parameters")
                or definition.get("input_schema")
                or definition.get("inputSchema")
            )
            description = as_str(definition.get("description"))
            schemas.append(
                ToolSchema(
                    name=name,
                    description=description,
                    parameters=schema,
                    chars=len(json_to_text(tool)),
                )
            )
    return tuple(schemas)


def encode_tool_schemas(schemas: Iterable[ToolSchema]) -> list[dict[str, Any]]:
    """Return tool schemas for Chat Completions, as copies because LiteLLM changes them."""
    functions = (
        {"name": s.name, "description": s.description, "parameters": deepcopy(s.parameters)}
        for s in schemas
    )
    return [{"type": "function", "function": function} for function in functions]
