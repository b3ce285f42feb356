"""ShareGPT: conversations of `from` and `value`, as sets of training talks hold them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ctxkit.messages import Message, Text, ToolCall
from ctxkit.readers.fields import arguments, as_text, items, mapping, text, word
from ctxkit.readers.logs import Log
from ctxkit.readers.parts import count
from ctxkit.readers.usages import to_schemas
from ctxkit.session import Session

if TYPE_CHECKING:
    from ctxkit.messages import Part, Role
    from ctxkit.readers.source import Source

NAME = "sharegpt"
CAN = "text, system prompt, calls and results (as `<tool_call>` or function_call), tools; several talks a file"
CANNOT = "usage, times, model, money, compactions, failed tools"
BLIND = ("compactions", "tool errors")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "bot", "chatgpt", "model", "function_call"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "function", "observation", "function_response"), "tool"),
}
_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"</?tool_response>\s*")
_MOST = 1 << 20


def sniff(source: Source) -> bool:
    """Say whether there are conversations whose messages say `from` and `value`."""
    found = source.document if type(source.document) is list else source.head
    return bool(found) and all(_is_talk(r) for r in found[:4])


def _is_talk(raw: Any) -> bool:
    talk = items(mapping(raw).get("conversations"))
    return bool(talk) and all({"from", "value"} <= mapping(m).keys() for m in talk[:4])


def read(source: Source) -> list[Session]:
    """Return one session a conversation."""
    found = source.document if type(source.document) is list else [r for _, r in source.records]
    talks = [mapping(r) for r in found if _is_talk(r)]
    out = [
        _session(r, f"{source.path.stem}/{n}" if len(talks) > 1 else source.path.stem)
        for n, r in enumerate(talks)
    ]
    if out and len(talks) < len(found):
        out[0].skipped["no conversation"] = len(found) - len(talks)
    return out


def _session(about: dict[str, Any], name: str) -> Session:
    log, skipped = Log(), dict[str, int]()
    said = word(about.get("system"))
    if said:
        log.add(Message(role="system", id=log.new_id(), parts=(Text(said),)))
    waiting: list[ToolCall] = []
    for raw in map(mapping, items(about.get("conversations"))):
        role = _ROLES.get(text(raw.get("from")).lower())
        if role is None:
            count(skipped, "message: " + (text(raw.get("from")) or "no role"))
            continue
        told = as_text(raw.get("value"))
        if role == "tool":
            call = waiting.pop(0) if waiting else None
            parts: tuple[Part, ...] = (Text(_RESULT.sub("", told).strip()),)
            log.add(
                Message(
                    role="tool",
                    id=log.new_id(),
                    parts=parts,
                    call_id=call.id if call else None,
                    tool=call.name if call else None,
                )
            )
            continue
        parts = _said(told, log) if role == "assistant" else (Text(told),)
        waiting = [p for p in parts if isinstance(p, ToolCall)] or waiting
        log.add(Message(role=role, id=log.new_id(), parts=parts))
    tools = (
        arguments(about.get("tools"))[0]
        if isinstance(about.get("tools"), dict)
        else about.get("tools")
    )
    own = about.get("id")
    return Session(
        id=own if type(own) is str and own else name,
        format=NAME,
        log=tuple(log.entries),
        tools=to_schemas(tools),
        skipped=skipped,
    )


def _said(told: str, log: Log) -> tuple[Part, ...]:
    """A reply, with the calls that stand in it as JSON between marks."""
    parts: list[Part] = []
    plain = told[:_MOST]
    calls = list(_CALL.finditer(plain))
    before = told[: calls[0].start()] if calls else told
    if before.strip() or not calls:
        parts.append(Text(before.strip() if calls else before))
    for n, found in enumerate(calls):
        raw, _ = arguments(found[1])
        given = arguments(raw.get("arguments", raw.get("parameters")))
        parts.append(ToolCall(f"call-{len(log.entries)}-{n}", text(raw.get("name")), *given))
    return tuple(parts)
