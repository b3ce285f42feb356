"""Reading, replacing and truncating the content of messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit.session.messages import Attachment, Message, Part, SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Container


_replace = msgspec.structs.replace

TARGET_KEYS = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "command",
    "cmd",
    "query",
    "pattern",
    "url",
    "name",
)
"""Argument names that can hold the target of a tool call, in order of preference."""

_OTHER_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Line ends of `str.splitlines` other than the newline."""

HINT_KEYS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Argument names for the hint in a stub, in order of preference."""


def replace_text(message: Message, text: str) -> Message:
    """Return the message with one text in place of texts and images; calls and reasoning stay.

    Args:
        message: the message to change.
        text: its new text; empty: none.
    """
    thinking = [p for p in message.parts if isinstance(p, Thinking)]
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    return _replace(message, parts=(*thinking, *((Text(text),) if text else ()), *calls))


def without_reasoning(message: Message) -> Message:
    """Return the message without its reasoning."""
    return _with_parts(message, lambda p: not isinstance(p, Thinking))


def strip_to_text(message: Message) -> Message:
    """Return the message with only its text."""
    return _with_parts(message, lambda p: isinstance(p, Text))


def without_calls(message: Message, ids: Container[str | None]) -> Message:
    """Return the message without the tool calls of these ids.

    Args:
        message: any message.
        ids: ids of the calls to remove.
    """
    return _with_parts(message, lambda p: not (isinstance(p, ToolCall) and p.id in ids))


def replace_arguments(
    message: Message, change: Callable[[ToolCall], dict[str, Any] | None]
) -> Message:
    """Return the message with new arguments for each call where `change` returns some.

    Args:
        message: a reply; other messages have no calls.
        change: returns the new arguments of a call, or None to keep them.

    Returns:
        A copy of the message; its other parts are the same objects.
    """

    def change_part(part: Part) -> Part:
        new = change(part) if isinstance(part, ToolCall) else None
        return part if new is None else _replace(part, arguments=new, raw=None)

    return _replace(message, parts=tuple(map(change_part, message.parts)))


def _with_parts(message: Message, is_included: Callable[[Part], bool]) -> Message:
    parts = tuple(p for p in message.parts if is_included(p))
    return message if len(parts) == len(message.parts) else _replace(message, parts=parts)


def count_lines(text: str) -> int:
    """Return the number of lines of a text, as `str.splitlines` splits it."""
    for sign in _OTHER_ENDS:
        if sign in text:
            return len(text.splitlines())
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def replace_images_by_marker(message: Message, image: str) -> str:
    """Return the text parts in order, with a marker in place of each image.

    Args:
        message: the message to read.
        image: the marker.
    """
    texts = (
        p.text if isinstance(p, Text) else image
        for p in message.parts
        if isinstance(p, (Text, Attachment))
    )
    return "\n".join(texts)


def has_images(message: Message) -> bool:
    """Return True where the message holds an image, or the size of one."""
    return any(
        isinstance(p, Attachment) or (isinstance(p, SizeOnly) and p.kind == "image")
        for p in message.parts
    )


def is_text_only(message: Message) -> bool:
    """Return True where the message holds only text, so that cutting it loses nothing else."""
    return all(isinstance(p, Text) for p in message.parts)


def is_empty_message(message: Message) -> bool:
    """Return True for a message without parts, or with empty ones only; never for a result."""
    if message.role == "tool":
        return False
    return all(
        getattr(p, "text", True) == "" and not getattr(p, "hidden", 0) for p in message.parts
    )


def get_call_target(call: ToolCall) -> str:
    """Return the target of a call: its path, command, query, ...; empty where it has none."""
    return _argument(call, TARGET_KEYS)


def get_path_argument(call: ToolCall) -> str:
    """Return the path argument of a call, or an empty string."""
    return _argument(call, TARGET_KEYS[:5])


def _argument(call: ToolCall, keys: tuple[str, ...]) -> str:
    """Return the first of these arguments that is not empty, by exact name, else in any case."""
    target = _first_text(call.arguments, keys)
    return target or _first_text({str(k).lower(): v for k, v in call.arguments.items()}, keys)


def _first_text(arguments: dict[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        argument = arguments.get(key)
        if isinstance(argument, str) and argument:
            return argument
    return ""


def get_argument_text(value: object) -> str:
    """Return an argument's value as text; other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def format_one_line(text: str, limit: int) -> str:
    """Return the text on one line; a longer one ends in `…`.

    Args:
        text: the text; white space becomes single blanks.
        limit: maximum characters, 2 or more.
    """
    # read no more of a long text than needed; a short one has no more words than that
    words = text.split() if len(text) <= limit else text.split(None, limit)[:limit]
    flat = " ".join(words)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def format_call_hint(call: ToolCall | None) -> str:
    """Return the hint of a call, `key=value`, with at most 60 characters of the value."""
    if call is None or not call.arguments:
        return ""
    key = next((k for k in HINT_KEYS if k in call.arguments), next(iter(call.arguments)))
    return f"{key}={format_one_line(get_argument_text(call.arguments[key]), 60)}"


TruncateMode = Literal["head", "head_tail", "middle"]


def truncate_end(text: str, limit: int, suffix: str) -> str:
    """Return the first `limit` characters and a suffix (`{n}`: characters removed), if longer.

    Args:
        text: any text.
        limit: characters that stay, without the suffix.
        suffix: put behind what stays.

    Returns:
        The text itself where it is not longer.
    """
    if len(text) <= limit:
        return text
    return text[:limit] + suffix.replace("{n}", f"{len(text) - limit:,}")


def truncate_middle(text: str, head: int, tail: int, marker: str) -> str:
    """Return a text without its middle, if it is longer than head and tail.

    Args:
        text: the text.
        head: characters kept at the start.
        tail: characters kept at the end.
        marker: text in place of the middle; it is not counted.
    """
    if len(text) <= head + tail:
        return text
    return text[:head] + marker + (text[-tail:] if tail else "")


def truncate_lines(text: str, limit: int, mode: TruncateMode) -> str:
    """Cut to `limit` lines; both ends stay where the limit is at least 4 (the agent `ai`).

    Args:
        text: any text.
        limit: number of lines to keep; 0: all.
        mode: `head` keeps the beginning only.
    """
    rows = text.split("\n")
    if limit <= 0 or len(rows) <= limit:
        return text
    if mode == "head" or limit < 4:
        return "\n".join(rows[:limit])
    head = limit // 2
    marker = f"... [truncated {len(rows) - limit} lines] ..."
    return "\n".join([*rows[:head], marker, *rows[-(limit - head) :]])


def truncate_chars(text: str, limit: int, mode: TruncateMode) -> str:
    """Truncate a text to a number of characters.

    Args:
        text: the text.
        limit: maximum characters; 0 or less: no limit.
        mode: "middle" removes the middle, any other mode the tail.
    """
    if limit <= 0 or len(text) <= limit:
        return text
    return (
        text[: limit - limit // 2] + text[len(text) - limit // 2 :]
        if mode == "middle"
        else text[:limit]
    )


def truncate_bytes(text: str, limit: int, mode: TruncateMode) -> str:
    """Truncate a text to a number of UTF-8 bytes without splitting a character.

    Args:
        text: the text.
        limit: maximum bytes; 0 or less: no limit.
        mode: "middle" removes the middle, any other mode the tail.
    """
    raw = text.encode("utf-8", "replace")
    if limit <= 0 or len(raw) <= limit:
        return text
    if mode == "middle":
        half = limit // 2
        return _decode_partial(raw[: limit - half]) + _decode_partial(raw[len(raw) - half :])
    return _decode_partial(raw[:limit])


def _decode_partial(raw: bytes) -> str:
    """Decode without the characters that a cut broke at either end."""
    return raw.decode("utf-8", "ignore")


def truncate_output(
    text: str, *, max_lines: int, max_chars: int, max_bytes: int, mode: TruncateMode
) -> str:
    """Truncate tool output by lines, then characters, then bytes, with a note (the agent `ai`).

    Args:
        text: the output.
        max_lines: maximum lines.
        max_chars: maximum characters.
        max_bytes: maximum UTF-8 bytes.
        mode: "middle" removes the middle, any other mode the tail.
    """
    short = truncate_bytes(
        truncate_chars(truncate_lines(text, max_lines, mode), max_chars, mode), max_bytes, mode
    )
    if short == text:
        return text
    return f"{short}\n\n[tool output truncated: showing {_format_counts(short, text)}]"


def _format_counts(short: str, text: str) -> str:
    a, b = (len(t.encode("utf-8", "replace")) for t in (short, text))
    rows = f"{short.count(chr(10)) + 1}/{text.count(chr(10)) + 1} lines"
    return f"{rows}, {format_bytes(a)}/{format_bytes(b)} bytes, {len(short)}/{len(text)} chars"


def format_bytes(n: int) -> str:
    """Write a number of bytes as `12B`, `8.7KB`, `1.2MB`."""
    if n < 1024:
        return f"{n}B"
    return f"{n / 1024:.1f}KB" if n < 1024**2 else f"{n / 1024**2:.1f}MB"
