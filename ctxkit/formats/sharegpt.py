"""Reader of ShareGPT conversations (`from` and `value`), as in training data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped, parse_tool_schemas
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    json_to_text,
    parse_arguments,
    parse_embedded_json,
    str_or_none,
)
from ctxkit.session.messages import Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part, Role
    from ctxkit.session.session import Session

NAME = "sharegpt"
CAN = (
    "text, system prompt, calls and results (as `<tool_call>` or function_call), tools; several "
    "conversations per file"
)
CANNOT = "usage, times, model, cost, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "bot", "chatgpt", "model", "function_call"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "function", "observation", "function_response"), "tool"),
}
_CALL_START, _CALL_END = "<tool_call>", "</tool_call>"
_RESULT_START, _RESULT_END = "<tool_response>", "</tool_response>"


# Calls are in the text of a reply as JSON between `<tool_call>` marks, results between
# `<tool_response>` marks. Neither has an id: results are paired with the calls of the last reply in
# order. Text that looks like a call but is no valid JSON stays text.
def sniff(source: Source) -> bool:
    """Return True for conversations whose messages have `from` and `value`."""
    records = source.document if type(source.document) is list else source.head
    return bool(records) and all(_is_conversation(r) for r in records[:4])


def _is_conversation(raw: Any) -> bool:
    conversation = as_list(as_dict(raw).get("conversations"))
    return bool(conversation) and all(
        {"from", "value"} <= as_dict(m).keys() for m in conversation[:4]
    )


def read(source: Source) -> list[Session]:
    """Read one session per conversation; records that are none are counted in the first."""
    records = source.document if type(source.document) is list else [r for _, r in source.records]
    conversations = [as_dict(r) for r in records if _is_conversation(r)]
    sessions = [
        _read_conversation(
            r, f"{source.path.stem}/{n}" if len(conversations) > 1 else source.path.stem
        )
        for n, r in enumerate(conversations)
    ]
    if sessions and len(conversations) < len(records):
        sessions[0].skipped["no conversation"] = len(records) - len(conversations)
    return sessions


def _read_conversation(conversation: dict[str, Any], name: str) -> Session:
    builder = SessionBuilder()
    system_prompt = str_or_none(conversation.get("system"))
    if system_prompt:
        builder.add_message("system", (Text(system_prompt),))
    pending_calls: list[ToolCall] = []
    for message in map(as_dict, as_list(conversation.get("conversations"))):
        role = _ROLES.get(as_str(message.get("from")).lower())
        if role is None:
            count_skipped(builder.skipped, "message: " + (as_str(message.get("from")) or "no role"))
            continue
        value = json_to_text(message.get("value"))
        if role == "tool":
            for result in _split_results(value):
                call = pending_calls.pop(0) if pending_calls else None
                parts: tuple[Part, ...] = (Text(result),)
                builder.add_message(
                    "tool",
                    parts,
                    call_id=call.id if call else None,
                    tool=call.name if call else None,
                )
            continue
        parts = (Text(value),)
        if role == "assistant":
            only_calls = (
                _parse_calls(value, builder) if message.get("from") == "function_call" else ()
            )
            parts = tuple(only_calls) or _parse_reply(value, builder)
        pending_calls = [p for p in parts if isinstance(p, ToolCall)] or pending_calls
        builder.add_message(role, parts)
    session_id = conversation.get("id")
    return builder.session(
        id=session_id if type(session_id) is str and session_id else name,
        format=NAME,
        tools=parse_tool_schemas(parse_embedded_json(conversation.get("tools"))),
    )


def _split_results(text: str) -> list[str]:
    """Split a tool's message into its results: one, or several between marks."""
    head, *pieces = text.split(_RESULT_START)
    split = [piece.partition(_RESULT_END) for piece in pieces]
    if len(pieces) > 1 and not head.strip() and all(end for _, end, _ in split):
        return [(inner + after).strip() for inner, _, after in split]
    return [text.replace(_RESULT_START, "").replace(_RESULT_END, "").strip()]


def _parse_reply(text: str, builder: SessionBuilder) -> tuple[Part, ...]:
    """Return the parts of a reply, with the calls between marks."""
    head, *pieces = text.split(_CALL_START)
    parts: list[Part] = [Text(head.strip())]
    for piece in pieces:
        inner, closed, after = piece.partition(_CALL_END)
        calls = _parse_calls(inner.strip(), builder, len(parts)) if closed else []
        parts += [*calls, Text(after.strip())] if calls else [Text(_CALL_START + piece)]
    if not any(isinstance(p, ToolCall) for p in parts):
        return (Text(text),)
    return tuple(p for p in parts if not isinstance(p, Text) or p.text)


def _parse_calls(text: str, builder: SessionBuilder, first_number: int = 0) -> list[ToolCall]:
    """Parse a text that is one call or a list of calls in JSON; empty if it is neither."""
    decoded = parse_embedded_json(text)
    raw_calls = [as_dict(r) for r in (decoded if type(decoded) is list else [decoded])]
    if any(not str_or_none(r.get("name")) for r in raw_calls):
        return []
    id_prefix = f"call-{len(builder.entries)}"
    return [
        ToolCall(
            f"{id_prefix}-{i}",
            as_str(r.get("name")),
            *parse_arguments(r.get("arguments", r.get("parameters"))),
        )
        for i, r in enumerate(raw_calls, first_number)
    ]
