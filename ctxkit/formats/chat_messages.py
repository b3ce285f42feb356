"""Messages, parts, usage, stop reasons and tool schemas of any chat API in our types.

Trajectories and traces carry messages in the dialect of the library that made them, often several
in one file, so one tolerant ear serves all readers that meet them. What is not understood is
counted by name, never guessed.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_arguments,
    str_or_none,
    to_text,
)
from ctxkit.session.messages import (
    Image,
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
"""Roles as the libraries call them (lower case), and ours."""
_LANGCHAIN = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}


def parse_chat_message(
    raw: Any, log: SessionBuilder, skipped: dict[str, int], **more: Any
) -> list[Message]:
    """Return one raw message as ours, ids taken from the log (it is not added there): tool results
    apart, and first.

    `more` are fields that the messages get besides (`time`, `agent`; `usage`, `model` and the like
    only for a reply).
    """
    if type(raw) is not dict:
        count_skipped(skipped, "message: not an object")
        return []
    content = raw.get("content")
    plain = (type(content) is str or content is None) and raw.get("function_call") is None
    if plain and raw.keys() <= _PLAIN_FIELDS:  # most messages: no detour
        made = _parse_plain(raw, content, log, more)
        if made is not None:
            return [made]
    raw = _unwrap_langchain(raw)
    item = _parse_response_item(raw, log, more)
    return [item] if item is not None else _parse_spoken(raw, log, skipped, more)


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
"""Fields of Chat Completions' plain messages, and some that their keepers put beside them."""


def _parse_plain(
    raw: dict[str, Any], content: str | None, log: SessionBuilder, more: dict[str, Any]
) -> Message | None:
    said, called, tool = raw.get("role"), None, None
    parts: tuple[Part, ...] = (Text(content),) if content else ()
    if said == "assistant":
        calls = raw.get("tool_calls")
        if type(calls) is list:
            parts = (*parts, *[_parse_plain_call(c) for c in calls if type(c) is dict])
    elif said == "tool":
        called, tool = str_or_none(raw.get("tool_call_id")), str_or_none(raw.get("name"))
    elif said not in ("user", "system"):
        return None
    made = Message(role=said, id=log.new_id(raw.get("id")), parts=parts, call_id=called, tool=tool)
    if more and said != "assistant":
        more = {k: v for k, v in more.items() if k in _FIELDS_OF_ALL}
    return replace(made, **more) if more else made


def _parse_plain_call(raw: dict[str, Any]) -> ToolCall:
    inner = raw.get("function")
    if (
        type(inner) is dict
        and type(name := inner.get("name")) is str
        and type(raw.get("id")) is str
    ):
        args, written = parse_arguments(inner.get("arguments"))
        return ToolCall(raw["id"], name, args, written)
    return parse_tool_call(raw)


_FIELDS_OF_ALL = {"time", "agent", "turn", "kind", "visible", "details"}
"""Fields that any message of a record may bear; the rest describe the call alone."""


def fill_tool_names(made: list[Message], asked: dict[str, str]) -> list[Message]:
    """Return messages with each result's tool named; `asked` remembers tools by the call's id."""
    for i, m in enumerate(made):
        if m.role == "assistant":
            for p in m.parts:
                if type(p) is ToolCall:
                    asked[p.id] = p.name
        elif m.role == "tool" and m.tool is None:
            made[i] = replace(m, tool=asked.get(m.call_id or ""))
    return made


def _parse_spoken(
    raw: dict[str, Any], log: SessionBuilder, skipped: dict[str, int], more: dict[str, Any]
) -> list[Message]:
    said = as_str(raw.get("role")) or as_str(raw.get("type"))
    role = CHAT_ROLES.get(said.lower())
    if role is None:
        if not said or "content" not in raw:
            count_skipped(skipped, "message: " + (said or "no role"))
            return []
        role = "user"
    all_ = {k: v for k, v in more.items() if k in _FIELDS_OF_ALL}
    parts, results = parse_parts(
        raw.get("parts") if raw.get("content") is None else raw.get("content"), skipped
    )
    out: list[Message] = []
    if role == "tool" and not results:
        return [_make_tool_result(raw, parts, log, all_)]
    if role == "assistant":  # tools that the provider ran answer within the reply
        all_["kind"] = "server"
    for result in results:
        inner, _ = parse_parts(_result_content(result), skipped)
        if not inner and result.get("content"):
            inner = [SizeOnly(as_str(result.get("type")), chars=len(to_text(result["content"])))]
        out.append(_make_tool_result(result, inner, log, all_))
    refusal = str_or_none(raw.get("refusal"))
    if refusal and not parts:
        parts = [Text(refusal)]
    before = parse_thoughts(raw)
    calls = parse_tool_calls(raw.get("tool_calls") or raw.get("toolCalls")) + parse_function_call(
        raw
    )
    calls += parse_tool_calls(
        raw.get("invalid_tool_calls")
    )  # LangChain's: arguments that are no JSON
    known = {p.id for p in parts if isinstance(p, ToolCall)} if calls else set[str]()
    parts = [*before, *parts, *(c for c in calls if c.id not in known)]
    if parts or not results:
        if role != "assistant":
            more = all_
        if said.lower() not in CHAT_ROLES or said == "developer":
            more = {"kind": said[:40], **more}
        own = log.new_id(raw.get("id"))
        said_ = Message(role="user" if role == "tool" else role, id=own, parts=tuple(parts), **more)
        out.insert(0 if role == "assistant" else len(out), said_)
    return out


def _unwrap_langchain(raw: dict[str, Any]) -> dict[str, Any]:
    """Take off LangChain's wrappings: `dumps` (lc, id, kwargs), `messages_to_dict` (type, data)."""
    if "kwargs" in raw and type(raw.get("id")) is list:
        name = as_str(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk")
        return {"role": _LANGCHAIN.get(name, name), **as_dict(raw["kwargs"])}
    if type(raw.get("data")) is dict and "role" not in raw:
        return {**raw["data"], "role": raw.get("type")}
    return raw


def _parse_response_item(
    raw: dict[str, Any], log: SessionBuilder, more: dict[str, Any]
) -> Message | None:
    """An item of the Responses API that is no message: a call, its output, reasoning."""
    kind = raw.get("type")
    if type(kind) is not str or "role" in raw:
        return None
    if kind in ("function_call", "custom_tool_call"):
        args, written = parse_arguments(raw.get("arguments", raw.get("input")))
        call = ToolCall(as_str(raw.get("call_id")), as_str(raw.get("name")), args, written)
        return Message(role="assistant", id=log.new_id(raw.get("id")), parts=(call,), **more)
    if kind in ("function_call_output", "custom_tool_call_output"):
        all_ = {k: v for k, v in more.items() if k in _FIELDS_OF_ALL}
        given = raw.get("output")
        parts = (
            parse_parts(given, {})[0]
            if type(given) is list and all(map(is_known_part, given))
            else []
        )
        return _make_tool_result(raw, parts or [Text(to_text(given))], log, all_)
    if kind == "reasoning" and "content" not in raw:
        return Message(
            role="assistant", id=log.new_id(raw.get("id")), parts=(parse_reasoning(raw),), **more
        )
    return None


def _make_tool_result(
    raw: dict[str, Any], parts: list[Part], log: SessionBuilder, all_: dict[str, Any]
) -> Message:
    response = as_dict(as_dict(raw.get("functionResponse")).get("response"))
    inner = as_dict(raw.get("functionResponse")) or raw
    wrong = (
        raw.get("is_error") is True or raw.get("isError") is True or raw.get("status") == "error"
    )
    return Message(
        role="tool",
        id=log.new_id(raw.get("id") if raw.get("role") else None),
        parts=tuple(parts),
        call_id=next((w for k in _CALL_IDS if (w := str_or_none(inner.get(k)))), None),
        tool=str_or_none(inner.get("name")),
        is_error=wrong or "error" in response,
        **all_,
    )


_CALL_IDS = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "id")


def _result_content(result: dict[str, Any]) -> Any:
    if "functionResponse" in result:
        response = as_dict(result["functionResponse"]).get("response")
        fields = as_dict(response)
        return to_text(fields.get("output", fields.get("error", response)))
    for key in ("content", "response", "result"):
        if key in result:
            return result[key] if type(result[key]) in (str, list) else to_text(result[key])
    return ""


_RESULT_TYPES = {"tool_result", "tool_call_response", "functionResponse"}


def count_skipped(skipped: dict[str, int], name: str) -> None:
    """Count a record passed over, by name (at most 200, so that no file can fill the memory)."""
    name = name[:80] if name in skipped or len(skipped) < 200 else "others"
    skipped[name] = skipped.get(name, 0) + 1


def parse_parts(content: Any, skipped: dict[str, int]) -> tuple[list[Part], list[dict[str, Any]]]:
    """Return content (text, part, list of parts) as parts, and the tool results among them, raw."""
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
        kind = as_str(raw.get("type")) or next((k for k in _UNTYPED_KEYS if k in raw), "")
        make = _PART_PARSERS.get(kind)
        if make is not None:
            parts.append(make(raw))
        elif kind in _RESULT_TYPES or kind.endswith("_tool_result"):
            results.append(raw)
        else:
            count_skipped(skipped, "part: " + (kind or "no type"))
    return parts, results


def _parse_text(raw: dict[str, Any]) -> Part:
    value = next((raw[k] for k in ("text", "content", "refusal", "output") if k in raw), "")
    if raw.get("thought") is True:
        return Thinking(to_text(value), signature=str_or_none(raw.get("thoughtSignature")))
    return Text(to_text(value))


def parse_reasoning(raw: dict[str, Any]) -> Thinking:
    """Return reasoning, whose text may be missing or sealed: then its size is told."""
    said = next(
        (raw[k] for k in ("thinking", "reasoning", "text", "content", "summary") if raw.get(k)), ""
    )
    if type(said) is list:
        said = "\n".join(as_str(as_dict(s).get("text")) for s in said)
    hidden = len(as_str(raw.get("encrypted_content"))) + len(as_str(raw.get("data")))
    return Thinking(to_text(said), signature=str_or_none(raw.get("signature")), hidden=hidden)


_MIMES = ("media_type", "mimeType", "mime_type", "mime", "mediaType")


def _parse_image(raw: dict[str, Any]) -> Image:
    inner = raw.get("image_url", raw.get("source", raw.get("inlineData", raw.get("image"))))
    fields = as_dict(inner) or raw
    url = inner if type(inner) is str else as_str(fields.get("url"))
    media = next(
        (w for k in _MIMES if (w := str_or_none(fields.get(k)))),
        "image/png",
    )
    data = as_str(fields.get("data"))
    if url.startswith("data:") and "," in url[:200]:
        head, data = url.split(",", 1)
        media, url = head[5:].split(";")[0] or media, ""
    return Image(media_type=media, data=data, url=url or None)


def _parse_compaction(raw: dict[str, Any]) -> Part:
    """What a provider put in the place of older messages; where it is sealed, its size."""
    said = raw.get("content", raw.get("text"))
    hidden = len(as_str(raw.get("encrypted_content")))
    return Text(to_text(said)) if said else SizeOnly("compaction", chars=hidden or None)


def _parse_blob(raw: dict[str, Any]) -> Part:
    """OpenTelemetry's binary parts: `blob` holds the data, `uri` says where it is."""
    kinds: dict[str, Literal["image", "audio", "document"]] = {"image": "image", "audio": "audio"}
    kind = kinds.get(as_str(raw.get("modality")), "document")
    mime = str_or_none(raw.get("mime_type")) or "application/octet-stream"
    return Image(mime, as_str(raw.get("content")), str_or_none(raw.get("uri")), kind)


def _parse_document(raw: dict[str, Any]) -> Part:
    if (
        str_or_none(raw.get("path")) and type(raw.get("content")) is str
    ):  # Cline's: the file as text
        return Text(raw["content"])
    inner = as_dict(raw.get("file") or raw.get("input_audio") or raw.get("source"))
    data = as_str(inner.get("file_data")) or as_str(inner.get("data"))
    audio = "audio" in as_str(raw.get("type"))
    media = str_or_none(inner.get("media_type")) or (
        "audio/wav" if audio else "application/octet-stream"
    )
    return Image(media_type=media, data=data, kind="audio" if audio else "document")


def parse_tool_call(raw: dict[str, Any]) -> ToolCall:
    """Return a raw tool call, in whichever words its dialect puts name, id and arguments."""
    raw = as_dict(raw.get("functionCall")) or raw
    inner = as_dict(raw.get("function"))
    name = (
        inner.get("name")
        or raw.get("name")
        or raw.get("function_name")
        or raw.get("function")
        or raw.get("tool")
    )
    given = next(
        (s[k] for s in (inner, raw) for k in ("arguments", "args", "input") if k in s), None
    )
    args, written = parse_arguments(given)
    wanted = raw.get("id") or raw.get("tool_call_id") or raw.get("call_id") or raw.get("toolCallId")
    return ToolCall(as_str(wanted), as_str(name), args, written)


_UNTYPED_KEYS = ("text", "functionCall", "functionResponse", "inlineData", "image_url")
_PART_PARSERS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), _parse_text),
    **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), parse_reasoning),
    **dict.fromkeys(("image", "image_url", "input_image", "inlineData"), _parse_image),
    **dict.fromkeys(("blob", "uri"), _parse_blob),
    "compaction": _parse_compaction,
    **dict.fromkeys(("file", "input_file", "document", "input_audio", "audio"), _parse_document),
    **dict.fromkeys(
        ("tool_use", "tool_call", "toolCall", "functionCall", "function_call", "server_tool_use"),
        parse_tool_call,
    ),
}


def parse_tool_calls(raw: Any) -> list[ToolCall]:
    """Return raw tool calls as ours (Chat Completions' `function`, LangChain's `args`, ATIF's)."""
    return [parse_tool_call(c) for c in as_list(raw) if type(c) is dict]


def parse_function_call(raw: dict[str, Any]) -> list[ToolCall]:
    """Return the one call of a message of Chat Completions from before there were tools."""
    called = as_dict(raw.get("function_call"))  # Chat Completions before tools
    return [parse_tool_call(called)] if called else []


def parse_thoughts(raw: dict[str, Any]) -> list[Part]:
    """Return the thinking that stands beside a message's content."""
    blocks: list[Part] = [
        parse_reasoning(b) for b in as_list(raw.get("thinking_blocks")) if type(b) is dict
    ]
    said = str_or_none(raw.get("reasoning_content")) or str_or_none(raw.get("reasoning"))
    return blocks or ([Thinking(said)] if said else [])


def is_known_part(raw: Any) -> bool:
    """Say whether a value is a part that is known here."""
    return type(raw) is dict and raw.get("type") in _PART_PARSERS


def subtract_cached(whole: int | None, *cached: int | None) -> int | None:
    """Return an input without the cached tokens in it; where they are more, it never held them."""
    held = sum(n or 0 for n in cached)
    return whole if whole is None or held > whole else whole - held


def usage_from_total(
    whole: int | None, read: int | None, write: int | None, output: int | None, **more: Any
) -> Usage:
    """Return a usage whose input held the cached tokens; `more` are its other fields."""
    return Usage(
        input_tokens=subtract_cached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        **more,
    )


def parse_usage(raw: Any, cost_usd: float | None = None) -> Usage | None:
    """Return a usage object of an OpenAI-like API in disjoint classes; None where it says nothing.

    `prompt_tokens` (Chat Completions, LiteLLM) and `input_tokens` (Responses, LangChain) hold the
    cached tokens too; `input_tokens` beside `cache_read_input_tokens` (Anthropic) does not.
    """
    raw = as_dict(raw)
    if not raw:
        return None if cost_usd is None else Usage(cost_usd=cost_usd)
    whole = _first_count(raw, "prompt_tokens", "promptTokens", "input_tokens")
    detail = as_dict(
        raw.get("prompt_tokens_details")
        or raw.get("input_tokens_details")
        or raw.get("input_token_details")
    )
    read = _first_count(detail, "cached_tokens", "cache_read")
    write = _first_count(detail, "cache_creation_tokens", "cache_write_tokens", "cache_creation")
    if read is None:
        read = _first_count(
            raw,
            "cache_read_input_tokens",
            "prompt_cache_hit_tokens",
            "cache_read_tokens",
            "cached_tokens",
        )
    if write is None:
        write = _first_count(raw, "cache_creation_input_tokens", "cache_write_tokens")
    apart = "prompt_tokens" not in raw and "cache_read_input_tokens" in raw and not detail
    spoken = as_dict(
        raw.get("completion_tokens_details")
        or raw.get("output_tokens_details")
        or raw.get("output_token_details")
    )
    return Usage(
        input_tokens=whole if apart else subtract_cached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=_first_count(raw, "completion_tokens", "completionTokens", "output_tokens"),
        reasoning_tokens=_first_count(spoken, "reasoning_tokens", "reasoning"),
        cost_usd=cost_usd,
    )


_STOP_REASONS = {
    **dict.fromkeys(("tool_calls", "tool_call", "function_call", "tool_use"), "tool"),
    "end_turn": "stop",
    "max_tokens": "length",
}


def parse_stop_reason(raw: Any) -> str | None:
    """Return why a reply ended, in our words where there is one."""
    said = as_str(raw)
    return _STOP_REASONS.get(said, said[:40]) or None


def _first_count(raw: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = raw.get(key)
        if value is not None and (n := count_or_none(value)) is not None:
            return n
    return None


def parse_tool_schemas(raw: Any) -> tuple[ToolSchema, ...]:
    """Return tool definitions (OpenAI, Anthropic or flat) with the size of their JSON."""
    out = []
    for tool in as_list(raw):
        inner = as_dict(as_dict(tool).get("function")) or as_dict(tool)
        name = str_or_none(inner.get("name")) or str_or_none(inner.get("title"))
        if name:
            schema = as_dict(
                inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
            )
            said = as_str(inner.get("description"))
            out.append(
                ToolSchema(name=name, description=said, parameters=schema, chars=len(to_text(tool)))
            )
    return tuple(out)


def encode_tool_schemas(schemas: Iterable[ToolSchema]) -> list[dict[str, Any]]:
    """Return tool schemas as Chat Completions takes them, apart: LiteLLM writes into them."""
    functions = (
        {"name": s.name, "description": s.description, "parameters": deepcopy(s.parameters)}
        for s in schemas
    )
    return [{"type": "function", "function": function} for function in functions]
