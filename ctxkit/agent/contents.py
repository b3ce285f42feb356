"""What a call is sent, in counts and characters: the payload of fuseraft's `inner_call_context`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Message


def contents(messages: Sequence[Message], *, seq: int, schema_chars: int, tokens: int) -> dict[str, Any]:
    """Return the composition of a prompt.

    Args:
        messages: what is sent, after trimming.
        seq: number of the call in its turn, from 1.
        schema_chars: characters of the tool schemas.
        tokens: the prompt as it is counted here (fuseraft gives characters / 4).
    """
    chars = dict.fromkeys(("text", "reasoning_text", "reasoning_protected_data", "fn_call_args", "fn_results"), 0)
    blobs = 0
    for m in messages:
        for part in m.parts:
            if isinstance(part, Text):
                chars["fn_results" if m.role == "tool" else "text"] += len(part.text)
            elif isinstance(part, Thinking):
                chars["reasoning_text"] += len(part.text)
                chars["reasoning_protected_data"] += len(part.signature or "")
                blobs += part.signature is not None
            elif isinstance(part, ToolCall):
                chars["fn_call_args"] += len(part.raw or msgspec.json.encode(part.arguments))
    total = sum(chars.values())
    return {
        "seq": seq,
        "msg_counts": {r: sum(m.role == r for m in messages) for r in ("user", "assistant", "tool", "summary")},
        "content_chars": {
            **chars,
            "content_total": total,
            "tool_schema_est": schema_chars,
            "grand_total": total + schema_chars,
        },
        "protected_data_blobs": blobs,
        "est_tokens": tokens,
    }
