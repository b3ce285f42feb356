"""A message of any chat API becomes ours: Chat Completions, Responses, Anthropic, Gemini,
LangChain, OpenTelemetry.

Trajectories and traces carry messages in the dialect of the library that made them, often several
in one file, so one tolerant ear serves all readers that meet them. What is not understood is
counted by name, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Message, Part, Role, Sized, Text, ToolCall
from ctxkit.readers.fields import arguments, as_text, mapping, text, word
from ctxkit.readers.parts import (
    count,
    function_call,
    is_content,
    to_call,
    to_calls,
    to_parts,
    to_reasoning,
    to_thoughts,
)

if TYPE_CHECKING:
    from ctxkit.readers.logs import ReaderLog

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
_LANGCHAIN = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}


def to_messages(raw: Any, log: ReaderLog, skipped: dict[str, int], **more: Any) -> list[Message]:
    """Return one raw message as ours, ids taken from the log (it is not added there): tool results
    apart, and first.

    `more` are fields that the messages get besides (`time`, `agent`; `usage`, `model` and the like
    only for a reply).
    """
    if type(raw) is not dict:
        count(skipped, "message: not an object")
        return []
    content = raw.get("content")
    plain = (type(content) is str or content is None) and raw.get("function_call") is None
    if plain and raw.keys() <= _PLAIN:  # most messages: no detour
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


def _plainly(
    raw: dict[str, Any], content: str | None, log: ReaderLog, more: dict[str, Any]
) -> Message | None:
    said, called, tool = raw.get("role"), None, None
    parts: tuple[Part, ...] = (Text(content),) if content else ()
    if said == "assistant":
        calls = raw.get("tool_calls")
        if type(calls) is list:
            parts = (*parts, *[_plain_call(c) for c in calls if type(c) is dict])
    elif said == "tool":
        called, tool = word(raw.get("tool_call_id")), word(raw.get("name"))
    elif said not in ("user", "system"):
        return None
    made = Message(role=said, id=log.new_id(raw.get("id")), parts=parts, call_id=called, tool=tool)
    if more and said != "assistant":
        more = {k: v for k, v in more.items() if k in _ALL}
    return replace(made, **more) if more else made


def _plain_call(raw: dict[str, Any]) -> ToolCall:
    inner = raw.get("function")
    if (
        type(inner) is dict
        and type(name := inner.get("name")) is str
        and type(raw.get("id")) is str
    ):
        args, written = arguments(inner.get("arguments"))
        return ToolCall(raw["id"], name, args, written)
    return to_call(raw)


_ALL = {"time", "agent", "turn", "kind", "visible", "details"}
"""Fields that any message of a record may bear; the rest describe the call alone."""


def named(made: list[Message], asked: dict[str, str]) -> list[Message]:
    """Return messages with each result's tool named; `asked` remembers tools by the call's id."""
    for i, m in enumerate(made):
        if m.role == "assistant":
            for p in m.parts:
                if type(p) is ToolCall:
                    asked[p.id] = p.name
        elif m.role == "tool" and m.tool is None:
            made[i] = replace(m, tool=asked.get(m.call_id or ""))
    return made


def _spoken(
    raw: dict[str, Any], log: ReaderLog, skipped: dict[str, int], more: dict[str, Any]
) -> list[Message]:
    said = text(raw.get("role")) or text(raw.get("type"))
    role = ROLES.get(said.lower())
    if role is None:
        if not said or "content" not in raw:
            count(skipped, "message: " + (said or "no role"))
            return []
        role = "user"
    all_ = {k: v for k, v in more.items() if k in _ALL}
    parts, results = to_parts(
        raw.get("parts") if raw.get("content") is None else raw.get("content"), skipped
    )
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
    before = to_thoughts(raw)
    calls = to_calls(raw.get("tool_calls") or raw.get("toolCalls")) + function_call(raw)
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
    """Take off LangChain's wrappings: `dumps` (lc, id, kwargs), `messages_to_dict` (type, data)."""
    if "kwargs" in raw and type(raw.get("id")) is list:
        name = text(raw["id"][-1] if raw["id"] else "").removesuffix("Chunk")
        return {"role": _LANGCHAIN.get(name, name), **mapping(raw["kwargs"])}
    if type(raw.get("data")) is dict and "role" not in raw:
        return {**raw["data"], "role": raw.get("type")}
    return raw


def _item(raw: dict[str, Any], log: ReaderLog, more: dict[str, Any]) -> Message | None:
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
        parts = (
            to_parts(given, {})[0] if type(given) is list and all(map(is_content, given)) else []
        )
        return _result(raw, parts or [Text(as_text(given))], log, all_)
    if kind == "reasoning" and "content" not in raw:
        return Message(
            role="assistant", id=log.new_id(raw.get("id")), parts=(to_reasoning(raw),), **more
        )
    return None


def _result(
    raw: dict[str, Any], parts: list[Part], log: ReaderLog, all_: dict[str, Any]
) -> Message:
    response = mapping(mapping(raw.get("functionResponse")).get("response"))
    inner = mapping(raw.get("functionResponse")) or raw
    wrong = (
        raw.get("is_error") is True or raw.get("isError") is True or raw.get("status") == "error"
    )
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
