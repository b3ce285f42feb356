"""A message of any chat API becomes ours: Chat Completions, Responses, Anthropic, Gemini, LangChain, OpenTelemetry.

Trajectories and traces carry messages in the dialect of the library that made them, often several in one file, so one
tolerant ear serves all readers that meet them. What is not understood is counted by name, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Image, Message, Part, Role, Sized, Text, Thinking, ToolCall
from ctxkit.readers.fields import arguments, as_text, items, mapping, text, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.readers.logs import Log

ROLES: dict[str, Role] = {
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
_LANGCHAIN = {"HumanMessage": "human", "AIMessage": "ai", "SystemMessage": "system", "ToolMessage": "tool"}
_RESULTS = {"tool_result", "tool_call_response", "functionResponse"}


def count(skipped: dict[str, int], name: str) -> None:
    """Count one record passed over, by name (at most 200 names, so that no file can fill the memory with them)."""
    name = name[:80] if name in skipped or len(skipped) < 200 else "others"
    skipped[name] = skipped.get(name, 0) + 1


def to_messages(raw: Any, log: Log, skipped: dict[str, int], **more: Any) -> list[Message]:
    """Return one raw message as ours, ids taken from the log (it is not added there): tool results apart, and first.

    `more` are fields that the messages get besides (`time`, `agent`; `usage`, `model` and the like only for a reply).
    """
    if type(raw) is not dict:
        count(skipped, "message: not an object")
        return []
    content = raw.get("content")
    plain = type(content) is str or content is None
    if plain and raw.keys() <= _PLAIN and raw.get("function_call") is None:  # most messages: no detour
        made = _plainly(raw, content, log, more)
        if made is not None:
            return [made]
    raw = _unwrapped(raw)
    item = _item(raw, log, more)
    return [item] if item is not None else _spoken(raw, log, skipped, more)


_PLAIN = {
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


def _plainly(raw: dict[str, Any], content: str | None, log: Log, more: dict[str, Any]) -> Message | None:
    said = raw.get("role")
    parts: tuple[Part, ...] = (Text(content),) if content else ()
    if said == "assistant":
        calls = raw.get("tool_calls")
        if type(calls) is list:
            parts = (*parts, *[_plain_call(c) for c in calls if type(c) is dict])
        return Message(role="assistant", id=log.new_id(raw.get("id")), parts=parts, **more)
    if more:
        more = {k: v for k, v in more.items() if k in _ALL}
    if said == "tool":
        called, tool, id_ = word(raw.get("tool_call_id")), word(raw.get("name")), log.new_id(raw.get("id"))
        return Message(role="tool", id=id_, parts=parts, call_id=called, tool=tool, **more)
    if said in ("user", "system"):
        return Message(role=said, id=log.new_id(raw.get("id")), parts=parts, **more)
    return None


def _plain_call(raw: dict[str, Any]) -> ToolCall:
    inner = raw.get("function")
    if type(inner) is dict and type(name := inner.get("name")) is str and type(raw.get("id")) is str:
        args, written = arguments(inner.get("arguments"))
        return ToolCall(raw["id"], name, args, written)
    return _call(raw)


_ALL = {"time", "agent", "turn", "kind", "visible", "details"}
"""Fields that any message of a record may bear; the rest describe the call alone."""


def named(made: list[Message], asked: dict[str, str]) -> list[Message]:
    """Return messages with the tool named in each result that names only its call; `asked` remembers the calls."""
    for i, m in enumerate(made):
        if m.role == "assistant":
            for p in m.parts:
                if type(p) is ToolCall:
                    asked[p.id] = p.name
        elif m.role == "tool" and m.tool is None:
            made[i] = replace(m, tool=asked.get(m.call_id or ""))
    return made


def _spoken(raw: dict[str, Any], log: Log, skipped: dict[str, int], more: dict[str, Any]) -> list[Message]:
    said = text(raw.get("role")) or text(raw.get("type"))
    role = ROLES.get(said.lower())
    if role is None:
        if not said or "content" not in raw:
            count(skipped, "message: " + (said or "no role"))
            return []
        role = "user"
    all_ = {k: v for k, v in more.items() if k in _ALL}
    parts, results = to_parts(raw.get("parts") if raw.get("content") is None else raw.get("content"), skipped)
    out: list[Message] = []
    if role == "tool" and not results:
        return [_result(raw, parts, log, all_)]
    if role == "assistant":  # tools that the provider ran answer within the reply
        all_["kind"] = "server"
    for result in results:
        inner, _ = to_parts(_answer(result), skipped)
        if not inner and result.get("content"):
            inner = [Sized(text(result.get("type")), chars=len(as_text(result["content"])))]
        out.append(_result(result, inner, log, all_))
    refusal = word(raw.get("refusal"))
    if refusal and not parts:
        parts = [Text(refusal)]
    before = _thoughts(raw)
    calls = to_calls(raw.get("tool_calls") or raw.get("toolCalls")) + _function_call(raw)
    calls += to_calls(raw.get("invalid_tool_calls"))  # LangChain's: arguments that are no JSON
    known = {p.id for p in parts if isinstance(p, ToolCall)} if calls else set[str]()
    parts = [*before, *parts, *(c for c in calls if c.id not in known)]
    if parts or not results:
        if role != "assistant":
            more = all_
        if said.lower() not in ROLES or said == "developer":
            more = {"kind": said[:40], **more}
        own = log.new_id(raw.get("id"))
        said_ = Message(role="user" if role == "tool" else role, id=own, parts=tuple(parts), **more)
        out.insert(0 if role == "assistant" else len(out), said_)
    return out


def _unwrapped(raw: dict[str, Any]) -> dict[str, Any]:
    """LangChain's two wrappings taken off: `dumps` (lc, id, kwargs) and `messages_to_dict` (type, data)."""
    if "kwargs" in raw and type(raw.get("id")) is list:
        name = text(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk")
        return {"role": _LANGCHAIN.get(name, name), **mapping(raw["kwargs"])}
    if type(raw.get("data")) is dict and "role" not in raw:
        return {**raw["data"], "role": raw.get("type")}
    return raw


def _item(raw: dict[str, Any], log: Log, more: dict[str, Any]) -> Message | None:
    """An item of the Responses API that is no message: a call, its output, reasoning."""
    kind = raw.get("type")
    if type(kind) is not str or "role" in raw:
        return None
    if kind in ("function_call", "custom_tool_call"):
        args, written = arguments(raw.get("arguments", raw.get("input")))
        call = ToolCall(text(raw.get("call_id")), text(raw.get("name")), args, written)
        return Message(role="assistant", id=log.new_id(raw.get("id")), parts=(call,), **more)
    if kind in ("function_call_output", "custom_tool_call_output"):
        all_ = {k: v for k, v in more.items() if k in _ALL}
        given = raw.get("output")
        parts = to_parts(given, {})[0] if type(given) is list and all(map(_is_content, given)) else []
        return _result(raw, parts or [Text(as_text(given))], log, all_)
    if kind == "reasoning" and "content" not in raw:
        return Message(role="assistant", id=log.new_id(raw.get("id")), parts=(_reasoning(raw),), **more)
    return None


def _is_content(raw: Any) -> bool:
    return type(raw) is dict and raw.get("type") in _PARTS


def _result(raw: dict[str, Any], parts: list[Part], log: Log, all_: dict[str, Any]) -> Message:
    response = mapping(mapping(raw.get("functionResponse")).get("response"))
    inner = mapping(raw.get("functionResponse")) or raw
    wrong = raw.get("is_error") is True or raw.get("isError") is True or raw.get("status") == "error"
    return Message(
        role="tool",
        id=log.new_id(raw.get("id") if raw.get("role") else None),
        parts=tuple(parts),
        call_id=next((w for k in _CALL_IDS if (w := word(inner.get(k)))), None),
        tool=word(inner.get("name")),
        is_error=wrong or "error" in response,
        **all_,
    )


_CALL_IDS = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "id")


def _answer(result: dict[str, Any]) -> Any:
    if "functionResponse" in result:
        response = mapping(result["functionResponse"]).get("response")
        fields = mapping(response)
        return as_text(fields.get("output", fields.get("error", response)))
    for key in ("content", "response", "result"):
        if key in result:
            return result[key] if type(result[key]) in (str, list) else as_text(result[key])
    return ""


# -- parts -------------------------------------------------------------------------------------------------------------


def to_parts(content: Any, skipped: dict[str, int]) -> tuple[list[Part], list[dict[str, Any]]]:
    """Return content (a text, a part or a list of parts) as our parts, and the tool results found among them, raw."""
    if type(content) is str:
        return ([Text(content)] if content else []), []
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for raw in [content] if type(content) is dict else items(content):
        if type(raw) is str:
            parts.append(Text(raw))
            continue
        if type(raw) is not dict:
            count(skipped, "part: not an object")
            continue
        kind = text(raw.get("type")) or next((k for k in _KEYED if k in raw), "")
        make = _PARTS.get(kind)
        if make is not None:
            parts.append(make(raw))
        elif kind in _RESULTS or kind.endswith("_tool_result"):
            results.append(raw)
        else:
            count(skipped, "part: " + (kind or "no type"))
    return parts, results


def _text(raw: dict[str, Any]) -> Part:
    value = next((raw[k] for k in ("text", "content", "refusal", "output") if k in raw), "")
    if raw.get("thought") is True:
        return Thinking(as_text(value), signature=word(raw.get("thoughtSignature")))
    return Text(as_text(value))


def _reasoning(raw: dict[str, Any]) -> Thinking:
    said = next((raw[k] for k in ("thinking", "reasoning", "text", "content", "summary") if raw.get(k)), "")
    if type(said) is list:
        said = "\n".join(text(mapping(s).get("text")) for s in said)
    hidden = len(text(raw.get("encrypted_content"))) + len(text(raw.get("data")))
    return Thinking(as_text(said), signature=word(raw.get("signature")), hidden=hidden)


def _image(raw: dict[str, Any]) -> Image:
    inner = raw.get("image_url", raw.get("source", raw.get("inlineData", raw.get("image"))))
    fields = mapping(inner) or raw
    url = inner if type(inner) is str else text(fields.get("url"))
    media = next(
        (w for k in ("media_type", "mimeType", "mime_type", "mime") if (w := word(fields.get(k)))), "image/png"
    )
    data = text(fields.get("data"))
    if url.startswith("data:") and "," in url[:200]:
        head, data = url.split(",", 1)
        media, url = head[5:].split(";")[0] or media, ""
    return Image(media_type=media, data=data, url=url or None)


def _document(raw: dict[str, Any]) -> Image:
    inner = mapping(raw.get("file") or raw.get("input_audio") or raw.get("source"))
    data = text(inner.get("file_data")) or text(inner.get("data"))
    audio = "audio" in text(raw.get("type"))
    media = word(inner.get("media_type")) or ("audio/wav" if audio else "application/octet-stream")
    return Image(media_type=media, data=data, kind="audio" if audio else "document")


def _call(raw: dict[str, Any]) -> ToolCall:
    raw = mapping(raw.get("functionCall")) or raw
    inner = mapping(raw.get("function"))
    name = inner.get("name") or raw.get("name") or raw.get("function_name") or raw.get("function") or raw.get("tool")
    given = next((s[k] for s in (inner, raw) for k in ("arguments", "args", "input") if k in s), None)
    args, written = arguments(given)
    wanted = raw.get("id") or raw.get("tool_call_id") or raw.get("call_id") or raw.get("toolCallId")
    return ToolCall(text(wanted), text(name), args, written)


_KEYED = ("text", "functionCall", "functionResponse", "inlineData", "image_url")
_PARTS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), _text),
    **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), _reasoning),
    **dict.fromkeys(("image", "image_url", "input_image", "inlineData"), _image),
    **dict.fromkeys(("file", "input_file", "document", "input_audio", "audio"), _document),
    **dict.fromkeys(("tool_use", "tool_call", "toolCall", "functionCall", "function_call", "server_tool_use"), _call),
}


def to_calls(raw: Any) -> list[ToolCall]:
    """Return a list of raw tool calls as ours (Chat Completions' `function`, LangChain's `args`, ATIF's names)."""
    return [_call(c) for c in items(raw) if type(c) is dict]


def _function_call(raw: dict[str, Any]) -> list[ToolCall]:
    called = mapping(raw.get("function_call"))  # Chat Completions before tools
    return [_call(called)] if called else []


def _thoughts(raw: dict[str, Any]) -> list[Part]:
    blocks: list[Part] = [_reasoning(b) for b in items(raw.get("thinking_blocks")) if type(b) is dict]
    said = word(raw.get("reasoning_content")) or word(raw.get("reasoning"))
    return blocks or ([Thinking(said)] if said else [])
