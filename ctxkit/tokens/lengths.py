"""Characters of messages and their parts, and the plain estimate of their tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.messages import Image, Sized, Text, Thinking, ToolCall
from ctxkit.tokens.counters import IMAGE_TOKENS, json_bytes

if TYPE_CHECKING:
    from ctxkit.messages import Message, Part


def part_chars(part: Part) -> int:
    """Characters of one part: text as it stands, a tool call as its name and compact JSON
    arguments; 0 for an image.
    """
    kind = type(part)
    if kind is Text or kind is Thinking:
        return len(part.text)  # type: ignore[union-attr]
    if isinstance(part, ToolCall):
        return call_chars(part)
    if isinstance(part, Sized):
        return part.chars or 0
    return 0


def call_chars(call: ToolCall) -> int:
    """Characters of a tool call: its name, and its arguments as compact JSON or as they came."""
    return len(call.name) + (len(call.raw) if call.raw is not None else json_chars(call.arguments))


def json_chars(value: object) -> int:
    """Characters of a value as compact JSON."""
    raw = json_bytes(value)
    return len(raw if raw.isascii() else raw.decode("utf-8", "surrogatepass"))


def part_tokens(part: Part) -> int:
    """The plain estimate of one part: a quarter of its characters, or the size that the log gives;
    images by weight.
    """
    if isinstance(part, Sized) and part.tokens is not None:
        return part.tokens
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return -(-part_chars(part) // 4)


def measure(message: Message) -> tuple[int, int]:
    """Return characters and plain estimate of a message: a quarter of its characters, rounded up
    once.

    The estimate equals ``tokens.named("chars/4").message``; it is kept lean, as frames ask it of
    every message of many files, and walks the parts once for both numbers.
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        chars = len(parts[0].text)
        return chars, -(-chars // 4)
    chars, known, counted = 0, 0, 0
    for part in parts:
        kind = type(part)
        if kind is Text or kind is Thinking:
            chars += len(part.text)  # type: ignore[union-attr]
        elif kind is ToolCall:
            chars += call_chars(part)  # type: ignore[arg-type]
        else:
            known += part_tokens(part) if (exact := _is_known(part)) else 0
            counted += part_chars(part) if exact else 0
            chars += part_chars(part)
    return chars, known - (-(chars - counted) // 4)


def tokens(message: Message) -> int:
    """The plain estimate of a message."""
    return measure(message)[1]


def _is_known(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Sized) and part.tokens is not None)
