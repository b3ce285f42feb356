"""The last resort when a prompt does not fit: three stages that cut tool traffic for one call only (fuseraft's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ctxkit.messages import Message, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

STAGES = (4000, 500, 0)
"""Characters that each tool result keeps; at the last stage all tool messages and calls go (fuseraft's)."""
SUFFIX = "\n[...context-trimmed — {n:,} chars removed to fit model limit...]"


def trimmed(messages: Sequence[Message], stage: int) -> tuple[Message, ...]:
    """Return the messages of a call with their tool traffic cut to a stage, counted from 0; nothing of it is kept."""
    keep = STAGES[stage]
    if keep:
        return tuple(_cut(m, keep) if m.role == "tool" else m for m in messages)
    return tuple(m for m in map(_without_calls, messages) if m is not None)


def _cut(message: Message, keep: int) -> Message:
    text = message.text
    if len(text) <= keep:
        return message
    return replace(message, parts=(Text(text[:keep] + SUFFIX.format(n=len(text) - keep)),))


def _without_calls(message: Message) -> Message | None:
    if message.role == "tool":
        return None
    if not message.tool_calls:
        return message
    parts = tuple(p for p in message.parts if not isinstance(p, ToolCall))
    return replace(message, parts=parts) if any(isinstance(p, Text) and p.text for p in parts) else None


def payload_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of text that the messages would send, tool arguments included."""
    return sum(len(msgspec.json.encode(m.parts)) for m in messages)
