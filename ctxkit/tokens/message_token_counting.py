"""Token counts, estimates and characters of messages, of their parts and of JSON values."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from ctxkit.session.messages import Attachment, SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.session.messages import Message, Part


IMAGE_TOKENS = 1200
"""Tokens of an image in counters of text: 4,800 characters, four per token, as in Pi's
`estimateTokens`.
"""

_json_encoder = msgspec.json.Encoder()
_sorted_json_encoder = msgspec.json.Encoder(order="sorted")


def encode_arguments(call: ToolCall, *, ordered: bool = False) -> str:
    """Return the arguments of a tool call as compact JSON, or their raw text if they are no JSON.

    Args:
        call: the tool call.
        ordered: whether keys are sorted.
    """
    return call.raw if call.raw is not None else to_compact_json(call.arguments, ordered=ordered)


def to_compact_json(value: object, *, ordered: bool = False) -> str:
    """Encode a value as compact JSON without escaping non-ASCII characters.

    Values that JSON does not have are written as their `str()`.

    Args:
        value: any value.
        ordered: sort the keys of objects.
    """
    return to_compact_json_bytes(value, ordered=ordered).decode("utf-8", "surrogatepass")


def to_compact_json_bytes(value: object, *, ordered: bool = False) -> bytes:
    """Encode a value as `to_compact_json` does, in UTF-8; a lone surrogate has three bytes.

    Args:
        value: any value.
        ordered: sort the keys of objects.
    """
    try:
        return (_sorted_json_encoder if ordered else _json_encoder).encode(value)
    # lone surrogates, values without a JSON form, huge integers
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered, default=str
        )
        return text.encode("utf-8", "surrogatepass")


def count_message_tokens(counter: Callable[[str], int], message: Message) -> int:
    """Return the sum of the tokens of a message's parts.

    Text and thinking count by their text; a tool call by its name and its compact JSON arguments;
    an image, sound or document as `IMAGE_TOKENS`; content of which only the size is recorded by its
    tokens, else one token per four characters. Hidden thinking without a text counts one token per
    four characters of its blob. Role names and delimiters are not counted.

    Args:
        counter: returns the tokens of a text.
        message: the message to count.

    Example:
        >>> from ctxkit import tokens
        >>> from ctxkit.session import Message, Text
        >>> message = Message(role="user", parts=(Text("Hello, world"),))
        >>> tokens.count_message_tokens(tokens.get_counter("o200k_base"), message)
        3
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:  # most messages
        return counter(parts[0].text)
    return sum([count_part_tokens(counter, part) for part in parts])


def count_part_tokens(counter: Callable[[str], int], part: Part) -> int:
    """Return the tokens of one part; see `count_message_tokens`.

    Args:
        counter: returns the tokens of a text.
        part: the part to count.
    """
    if isinstance(part, Text):
        return counter(part.text)
    if isinstance(part, Thinking):
        return counter(part.text) if part.text else ceil(part.hidden / 4)
    if isinstance(part, ToolCall):
        return counter(part.name) + counter(encode_arguments(part))
    if isinstance(part, Attachment):
        return IMAGE_TOKENS
    return count_size_only_tokens(part)


def count_size_only_tokens(part: SizeOnly) -> int:
    """Return the recorded tokens of content that is not in the log, else a quarter of its
    characters.
    """
    return part.tokens if part.tokens is not None else ceil((part.chars or 0) / 4)


def count_part_chars(part: Part) -> int:
    """Return the characters of a part: of a text, of a call's name and compact JSON arguments, or
    as recorded; 0 for an image.
    """
    kind = type(part)
    if kind is Text or kind is Thinking:
        return len(part.text)  # type: ignore[union-attr]
    if isinstance(part, ToolCall):
        return count_call_chars(part)
    if isinstance(part, SizeOnly):
        return part.chars or 0
    return 0


def count_call_chars(call: ToolCall) -> int:
    """Return the characters of a tool call: its name, and its arguments as JSON or raw text."""
    arguments = len(call.raw) if call.raw is not None else count_json_chars(call.arguments)
    return len(call.name) + arguments


def count_json_chars(value: object) -> int:
    """Return the characters of a value as compact JSON."""
    raw = to_compact_json_bytes(value)
    return len(raw if raw.isascii() else raw.decode("utf-8", "surrogatepass"))


def estimate_part_tokens(part: Part) -> int:
    """Estimate the tokens of a part: recorded, `IMAGE_TOKENS`, or a quarter of its characters."""
    if isinstance(part, SizeOnly) and part.tokens is not None:
        return part.tokens
    if isinstance(part, Attachment):
        return IMAGE_TOKENS
    return -(-count_part_chars(part) // 4)


def count_chars_and_estimate_tokens(message: Message) -> tuple[int, int]:
    """Return the characters of a message and its estimated tokens, a quarter of them rounded up.

    The estimate equals ``tokens.get_counter("chars/4").message``. Frames need both numbers for each
    message of many files, so this function makes one pass over the parts.

    Args:
        message: any message; images count `IMAGE_TOKENS` and no characters.

    Returns:
        (characters, tokens).
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        chars = len(parts[0].text)
        return chars, -(-chars // 4)
    chars, fixed_tokens, fixed_chars = 0, 0, 0
    # `fixed`: tokens of parts that do not follow from their characters
    for part in parts:
        kind = type(part)
        if kind is Text or kind is Thinking:
            chars += len(part.text)  # type: ignore[union-attr]
        elif kind is ToolCall:
            chars += count_call_chars(part)  # type: ignore[arg-type]
        else:
            part_chars = count_part_chars(part)
            chars += part_chars
            if isinstance(part, Attachment) or (
                isinstance(part, SizeOnly) and part.tokens is not None
            ):
                fixed_tokens += estimate_part_tokens(part)
                fixed_chars += part_chars
    return chars, fixed_tokens - (-(chars - fixed_chars) // 4)


def estimate_message_tokens(message: Message) -> int:
    """Estimate the tokens of a message; see `count_chars_and_estimate_tokens`."""
    return count_chars_and_estimate_tokens(message)[1]
