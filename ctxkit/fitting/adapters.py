"""Rules for frameworks whose messages are objects and which have no converter to Chat Completions
of their own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkit.fitting.fits import Context

if TYPE_CHECKING:
    from collections.abc import Callable

Dict = dict[str, Any]


def history_processor(rules: Any, *, limit: int | None = None) -> Callable[[list[Any]], list[Any]]:
    """Return a history processor for an agent of pydantic-ai; it is for one conversation.

    Messages that are sent as they are come back as the same objects.

    Args:
        rules: rules, a preset or its name, a policy or its words.
        limit: the model's window where the rules name none.

    Example:
        ``Agent(model, capabilities=[ProcessHistory(ck.history_processor("pi"))])``; pydantic-ai 1
        takes it as ``history_processors=[...]``.
    """
    context = Context(rules, limit=limit)

    def processed(messages: list[Any]) -> list[Any]:
        made = [(said, n, part) for n, m in enumerate(messages) for part, said in _dicts(m)]
        return _objects(context.fit([said for said, _, _ in made]), messages, made)

    return processed


def _dicts(message: Any) -> list[tuple[Any, Dict]]:
    """Return a message of pydantic-ai as Chat Completions dicts, each with the part it
    was made of.
    """
    if message.kind == "response":
        calls = [
            {"id": p.tool_call_id, "type": "function",
             "function": {"name": p.tool_name, "arguments": p.args_as_json_str()}}
            for p in message.parts if p.part_kind == "tool-call"
        ]  # fmt: skip
        text = "".join(p.content for p in message.parts if p.part_kind == "text")
        said: Dict = {"role": "assistant", "content": text or None}
        return [(None, said | ({"tool_calls": calls} if calls else {}))]
    return [(part, _said(part)) for part in message.parts]


def _said(part: Any) -> Dict:
    """Return a part of a request as a dict."""
    if part.part_kind == "system-prompt":
        return {"role": "system", "content": part.content}
    if part.part_kind == "user-prompt":
        return {"role": "user", "content": _text(part.content)}
    text = part.model_response() if part.part_kind == "retry-prompt" else part.model_response_str()
    if part.part_kind == "retry-prompt" and part.tool_name is None:
        return {"role": "user", "content": text}
    return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}


def _text(content: Any) -> str:
    """Return what a person said as text; what is no text counts by its name."""
    if isinstance(content, str):
        return content
    return "\n".join(c if isinstance(c, str) else f"[{type(c).__name__}]" for c in content or ())


def _objects(
    shown: list[Dict], messages: list[Any], made: list[tuple[Dict, int, Any]]
) -> list[Any]:
    """Return what is shown as messages of pydantic-ai: parts of a request that stand together are
    one again.
    """
    from pydantic_ai.messages import ModelRequest

    results = {
        p.tool_call_id: p
        for m in messages if m.kind == "request"
        for p in m.parts if p.part_kind in ("tool-return", "retry-prompt")
    }  # fmt: skip
    out: list[Any] = []
    whole: list[int | None] = []
    """For each message of `out` the one that it comes from; None: a new one."""
    for said, (n, part) in zip(shown, _origins(shown, made), strict=True):
        if said["role"] == "assistant":
            out.append(_reply(said, messages) if n is None else messages[n])
        elif out and n is not None and whole[-1] == n:
            out[-1] = replace(out[-1], parts=[*out[-1].parts, part])
            continue
        else:
            fresh = ModelRequest(parts=[_part(said, results)])
            out.append(fresh if n is None else replace(messages[n], parts=[part]))
        whole.append(n)
    return [
        messages[n] if n is not None and len(m.parts) == len(messages[n].parts) else m
        for m, n in zip(out, whole, strict=True)
    ]


def _origins(shown: list[Dict], made: list[tuple[Dict, int, Any]]) -> list[tuple[int | None, Any]]:
    """Return for each dict that is shown the message and the part it comes from; of equal ones the
    newest first.
    """
    left: dict[str, list[tuple[int | None, Any]]] = {}
    for said, n, part in made:
        left.setdefault(json.dumps(said), []).append((n, part))
    out: list[tuple[int | None, Any]] = []
    for said in reversed(shown):
        places = left.get(json.dumps(said))
        out.append(places.pop() if places else (None, None))
    return out[::-1]


def _part(said: Dict, results: dict[str, Any]) -> Any:
    """Return a new or changed message as the part of a request."""
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    if said["role"] == "tool":
        old = results[said["tool_call_id"]]
        return ToolReturnPart(old.tool_name, said["content"], tool_call_id=old.tool_call_id)
    kind = SystemPromptPart if said["role"] == "system" else UserPromptPart
    return kind(content=said["content"] or "")


def _reply(said: Dict, messages: list[Any]) -> Any:
    """Return a new or changed reply; one that was changed keeps what it was apart from text and
    arguments.
    """
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    calls = [
        ToolCallPart(
            c["function"]["name"],
            json.loads(c["function"]["arguments"] or "{}"),
            tool_call_id=c["id"],
        )
        for c in said.get("tool_calls") or ()
    ]
    parts = [*([TextPart(said["content"])] if said.get("content") else []), *calls]
    ids = {c.tool_call_id for c in calls}
    old = next(
        (m for m in messages if m.kind == "response" and ids
         and {p.tool_call_id for p in m.parts if p.part_kind == "tool-call"} == ids), None,
    )  # fmt: skip
    return replace(old, parts=parts) if old is not None else ModelResponse(parts=parts)
