"""ShareGPT: conversations of `from` and `value`, as sets of training talks hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_messages import count_skipped, parse_tool_schemas
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    parse_arguments,
    parse_embedded_json,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part, Role
    from ctxkit.session.session import Session

NAME = "sharegpt"
CAN = (
    "text, system prompt, calls and results (as `<tool_call>` or function_call), tools; several"
    " talks a file"
)
CANNOT = "usage, times, model, money, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "bot", "chatgpt", "model", "function_call"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "function", "observation", "function_response"), "tool"),
}
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_RESULT, _RESULT_END = "<tool_response>", "</tool_response>"


def sniff(source: Source) -> bool:
    """Say whether there are conversations whose messages say `from` and `value`."""
    found = source.document if type(source.document) is list else source.head
    return bool(found) and all(_is_talk(r) for r in found[:4])


def _is_talk(raw: Any) -> bool:
    talk = as_list(as_dict(raw).get("conversations"))
    return bool(talk) and all({"from", "value"} <= as_dict(m).keys() for m in talk[:4])


def read(source: Source) -> list[Session]:
    """Return one session a conversation."""
    found = source.document if type(source.document) is list else [r for _, r in source.records]
    talks = [as_dict(r) for r in found if _is_talk(r)]
    out = [
        _session(r, f"{source.path.stem}/{n}" if len(talks) > 1 else source.path.stem)
        for n, r in enumerate(talks)
    ]
    if out and len(talks) < len(found):
        out[0].skipped["no conversation"] = len(found) - len(talks)
    return out


def _session(about: dict[str, Any], name: str) -> Session:
    log = SessionBuilder()
    said = str_or_none(about.get("system"))
    if said:
        log.say("system", (Text(said),))
    waiting: list[ToolCall] = []
    for raw in map(as_dict, as_list(about.get("conversations"))):
        role = _ROLES.get(as_str(raw.get("from")).lower())
        if role is None:
            count_skipped(log.skipped, "message: " + (as_str(raw.get("from")) or "no role"))
            continue
        told = to_text(raw.get("value"))
        if role == "tool":
            for result in _results(told):
                call = waiting.pop(0) if waiting else None
                parts: tuple[Part, ...] = (Text(result),)
                log.say(
                    "tool",
                    parts,
                    call_id=call.id if call else None,
                    tool=call.name if call else None,
                )
            continue
        parts = (Text(told),)
        if role == "assistant":
            alone = _calls(told, log) if raw.get("from") == "function_call" else ()
            parts = tuple(alone) or _said(told, log)
        waiting = [p for p in parts if isinstance(p, ToolCall)] or waiting
        log.say(role, parts)
    own = about.get("id")
    return log.session(
        id=own if type(own) is str and own else name,
        format=NAME,
        tools=parse_tool_schemas(parse_embedded_json(about.get("tools"))),
    )


def _results(told: str) -> list[str]:
    """What a tool's message holds: one result, or several between marks."""
    before, *pieces = told.split(_RESULT)
    whole = [piece.partition(_RESULT_END) for piece in pieces]
    if len(pieces) > 1 and not before.strip() and all(end for _, end, _ in whole):
        return [(said + after).strip() for said, _, after in whole]
    return [told.replace(_RESULT, "").replace(_RESULT_END, "").strip()]


def _said(told: str, log: SessionBuilder) -> tuple[Part, ...]:
    """A reply, with the calls that stand in it as JSON between marks."""
    before, *pieces = told.split(_OPEN)
    parts: list[Part] = [Text(before.strip())]
    for piece in pieces:
        inner, closed, after = piece.partition(_CLOSE)
        made = _calls(inner.strip(), log, len(parts)) if closed else []
        parts += [*made, Text(after.strip())] if made else [Text(_OPEN + piece)]
    if not any(isinstance(p, ToolCall) for p in parts):
        return (Text(told),)
    return tuple(p for p in parts if not isinstance(p, Text) or p.text)


def _calls(told: str, log: SessionBuilder, n: int = 0) -> list[ToolCall]:
    """The calls that a text holds as JSON, one or a list; none where it is anything else."""
    found = parse_embedded_json(told)
    raws = [as_dict(r) for r in (found if type(found) is list else [found])]
    if any(not str_or_none(r.get("name")) for r in raws):
        return []
    own = f"call-{len(log.entries)}"
    return [
        ToolCall(
            f"{own}-{i}",
            as_str(r.get("name")),
            *parse_arguments(r.get("arguments", r.get("parameters"))),
        )
        for i, r in enumerate(raws, n)
    ]
