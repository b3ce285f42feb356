"""Chat Completions `messages`: the conversation that stands, as another program would send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Image, Message, Text
from ctxkit.models.chat import to_tools
from ctxkit.texts.contents import texts
from ctxkit.writers.losses import losses, visible

if TYPE_CHECKING:
    from collections import Counter

    from ctxkit.session import Session


def convert(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file (all that stands, also what a compaction took), and what it cannot hold."""
    lost = losses(
        session,
        {"tool schemas", "system prompts", "images", "tool arguments that are no JSON object"},
    )
    messages = visible(session.messages)
    lost["images in tool results or replies"] += sum(
        isinstance(p, Image) for m in messages if m.role in ("tool", "assistant") for p in m.parts
    )
    document: dict[str, Any] = {"messages": [to_message(m) for m in messages]}
    if session.model:
        document["model"] = session.model
    if session.tools:
        document["tools"] = to_tools(session.tools)
    return [msgspec.json.format(msgspec.json.encode(document), indent=1), b"\n"], lost


def to_message(m: Message) -> dict[str, Any]:
    """Return one message as Chat Completions has it."""
    out: dict[str, Any] = {"role": m.sent_as}
    said = texts(m)
    pictures = [p for p in m.parts if isinstance(p, Image) and p.kind == "image"]
    if m.role in ("user", "summary") and pictures:
        out["content"] = [_content(p) for p in m.parts if isinstance(p, (Text, Image))]
    else:
        out["content"] = said or (None if m.tool_calls else "")
    if m.role == "tool":
        out["tool_call_id"] = m.call_id or ""
        if m.tool:
            out["name"] = m.tool
    if m.tool_calls:
        out["tool_calls"] = [
            {
                "id": c.id,
                "type": "function",
                "function": {
                    "name": c.name,
                    "arguments": c.raw
                    if c.raw is not None
                    else msgspec.json.encode(c.arguments).decode(),
                },
            }
            for c in m.tool_calls
        ]
    return out


def _content(p: Text | Image) -> dict[str, Any]:
    if isinstance(p, Text):
        return {"type": "text", "text": p.text}
    return {
        "type": "image_url",
        "image_url": {"url": p.url or f"data:{p.media_type};base64,{p.data}"},
    }
