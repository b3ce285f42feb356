"""What a call is sent, in counts and characters: the payload of fuseraft's `inner_call_context`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Sized, Text, Thinking, ToolCall
from ctxkit.models.chat import absent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Message


KINDS = ("text", "reasoning_text", "reasoning_protected_data", "fn_call_args", "fn_results")
ROLES = ("user", "assistant", "tool", "summary")


class Contents:
    """Composes each call's report: a message is counted once, a prompt from where it differs."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Message, list[int]]] = {}
        self._sent: tuple[Message, ...] = ()
        self._sums, self._roles = [0] * (len(KINDS) + 1), dict.fromkeys(ROLES, 0)

    def of(
        self, messages: Sequence[Message], *, seq: int, schema_chars: int, tokens: int
    ) -> dict[str, Any]:
        """Return the composition of a prompt.

        Args:
            messages: what is sent, after trimming.
            seq: number of the call in its turn, from 1.
            schema_chars: characters of the tool schemas.
            tokens: the prompt as it is counted here (fuseraft gives characters / 4).
        """
        self._count(tuple(messages))
        *chars, blobs = self._sums
        total = sum(chars)
        return {
            "seq": seq,
            "msg_counts": dict(self._roles),
            "content_chars": {
                **dict(zip(KINDS, chars, strict=True)),
                "content_total": total,
                "tool_schema_est": schema_chars,
                "grand_total": total + schema_chars,
            },
            "protected_data_blobs": blobs,
            "est_tokens": tokens,
        }

    def _count(self, messages: tuple[Message, ...]) -> None:
        """Bring the sums to these messages; equal messages are the same object, so that comparing
        them is cheap.
        """
        known = len(self._sent)
        if messages[:known] != self._sent:
            self._sums, self._roles, known = [0] * (len(KINDS) + 1), dict.fromkeys(ROLES, 0), 0
        for message in messages[known:]:
            self._sums = [a + b for a, b in zip(self._sums, self._counted(message), strict=True)]
            if message.role in self._roles:
                self._roles[message.role] += 1
        self._sent = messages

    def _counted(self, message: Message) -> list[int]:
        known = self._known.get(message.id)
        if known is not None and known[0] is message:
            return known[1]
        counts = _counts(message)
        self._known[message.id] = (message, counts)
        return counts


def _counts(message: Message) -> list[int]:
    """Return the characters of a message by kind, and how many of its parts are sealed."""
    chars, blobs = dict.fromkeys(KINDS, 0), 0
    for part in message.parts:
        if isinstance(part, Text):
            chars["fn_results" if message.role == "tool" else "text"] += len(part.text)
        elif isinstance(part, Thinking):
            chars["reasoning_text"] += len(part.text)
            chars["reasoning_protected_data"] += len(part.signature or "")
            blobs += part.signature is not None
        elif isinstance(part, Sized):
            chars["text"] += len(absent(part))
        elif isinstance(part, ToolCall):
            chars["fn_call_args"] += len(part.raw or msgspec.json.encode(part.arguments))
    return [*chars.values(), blobs]


def payload_bytes(messages: Sequence[Message]) -> int:
    """Return the bytes of text that the messages would send, tool arguments included."""
    return sum(len(msgspec.json.encode(m.parts)) for m in messages)
