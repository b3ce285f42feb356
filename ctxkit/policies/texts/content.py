"""Read, replace and truncate the content of messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit.session.messages import Image, Message, Part, SizeOnly, Text, Thinking, ToolCall

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
"""Argument names that say what a tool works on, tried in this order."""

_OTHER_ENDS = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""What ends a line beside a newline."""

HINT_KEYS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Arguments that a stub names, the first of them that the call has."""


def replace_text(message: Message, text: str) -> Message:
    """Return the message with one text in place of its text and images; calls and
    reasoning stay.
    """
    thinking = [p for p in message.parts if isinstance(p, Thinking)]
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    return _replace(message, parts=(*thinking, *((Text(text),) if text else ()), *calls))


def without_reasoning(message: Message) -> Message:
    """Return the message without its thinking."""
    return _with_parts(message, lambda p: not isinstance(p, Thinking))


def strip_to_text(message: Message) -> Message:
    """Return the message with nothing but its text."""
    return _with_parts(message, lambda p: isinstance(p, Text))


def without_calls(message: Message, ids: Container[str | None]) -> Message:
    """Return the message without the calls of these ids."""
    return _with_parts(message, lambda p: not (isinstance(p, ToolCall) and p.id in ids))


def replace_arguments(
    message: Message, change: Callable[[ToolCall], dict[str, Any] | None]
) -> Message:
    """Return the message with other arguments where `change` gives some for a call."""

    def part(p: Part) -> Part:
        new = change(p) if isinstance(p, ToolCall) else None
        return p if new is None else _replace(p, arguments=new, raw=None)

    return _replace(message, parts=tuple(part(p) for p in message.parts))


def _with_parts(message: Message, is_included: Callable[[Part], bool]) -> Message:
    parts = tuple(p for p in message.parts if is_included(p))
    return message if len(parts) == len(message.parts) else _replace(message, parts=parts)


def count_lines(text: str) -> int:
    """Return how many lines a text has, as `str.splitlines` parts it."""
    for sign in _OTHER_ENDS:
        if sign in text:
            return len(text.splitlines())
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def text_with_image_marker(message: Message, image: str) -> str:
    """Return the plain text parts in order, with a marker in the place of each image."""
    texts = (
        p.text if isinstance(p, Text) else image
        for p in message.parts
        if isinstance(p, (Text, Image))
    )
    return "\n".join(texts)


def has_images(message: Message) -> bool:
    """Say whether the message holds an image or another attachment."""
    return any(
        isinstance(p, Image) or (isinstance(p, SizeOnly) and p.kind == "image")
        for p in message.parts
    )


def is_text_only(message: Message) -> bool:
    """Say whether the message is text and nothing else, so that cutting its text loses nothing
    unseen.
    """
    return all(isinstance(p, Text) for p in message.parts)


def is_empty_message(message: Message) -> bool:
    """Say whether a message says nothing: no parts, or only empty ones; a result says something,
    however short.
    """
    if message.role == "tool":
        return False
    return all(
        getattr(p, "text", True) == "" and not getattr(p, "hidden", 0) for p in message.parts
    )


def call_target(call: ToolCall) -> str:
    """Return what a call works on: its path, command, query ...; an empty string where no argument
    says so.
    """
    return _argument(call, TARGET_KEYS)


def call_path(call: ToolCall) -> str:
    """Return the path a call names, or an empty string."""
    return _argument(call, TARGET_KEYS[:5])


def _argument(call: ToolCall, keys: tuple[str, ...]) -> str:
    """Return the first of these arguments that says something; names count without case where none
    is as written.
    """
    for arguments in (call.arguments, {str(k).lower(): v for k, v in call.arguments.items()}):
        for key in keys:
            value = arguments.get(key)
            if isinstance(value, str) and value:
                return value
    return ""


def argument_text(value: object) -> str:
    """Return an argument's value as text: JSON where it is none."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def one_line(text: str, limit: int) -> str:
    """Return the text on one line, at most `limit` characters (2 or more), the last of them `…`
    where it was cut.
    """
    flat = " ".join(text.split(None, limit)[:limit])  # no more of a long text is read than is shown
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def call_hint(call: ToolCall | None) -> str:
    """Return what a call worked on as `key=value`, the value of at most 60 characters."""
    if call is None or not call.arguments:
        return ""
    key = next((k for k in HINT_KEYS if k in call.arguments), next(iter(call.arguments)))
    return f"{key}={one_line(argument_text(call.arguments[key]), 60)}"


TruncateMode = Literal["head", "head_tail", "middle"]


def truncate_end(text: str, limit: int, suffix: str) -> str:
    """Return the first `limit` characters and a suffix, where `{n}` is the number removed; short
    texts as they are.
    """
    if len(text) <= limit:
        return text
    return text[:limit] + suffix.replace("{n}", f"{len(text) - limit:,}")


def truncate_middle(text: str, head: int, tail: int, marker: str) -> str:
    """Return the first `head` and last `tail` characters with a marker between; texts that fit as
    they are.
    """
    if len(text) <= head + tail:
        return text
    return text[:head] + marker + (text[-tail:] if tail else "")


def truncate_lines(text: str, limit: int, mode: TruncateMode) -> str:
    """Cut to `limit` lines; both ends are kept only where the limit is at least 4 (as the agent
    `ai` does).
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
    """Cut to `limit` characters: the tail goes, or the middle."""
    if limit <= 0 or len(text) <= limit:
        return text
    return (
        text[: limit - limit // 2] + text[len(text) - limit // 2 :]
        if mode == "middle"
        else text[:limit]
    )


def truncate_bytes(text: str, limit: int, mode: TruncateMode) -> str:
    """Cut to `limit` bytes of UTF-8 without splitting a character: the tail goes, or the middle."""
    raw = text.encode("utf-8", "replace")
    if limit <= 0 or len(raw) <= limit:
        return text
    if mode == "middle":
        half = limit // 2
        return _decode_partial(raw[: limit - half]) + _decode_partial(raw[len(raw) - half :])
    return _decode_partial(raw[:limit])


def _decode_partial(raw: bytes) -> str:
    """Decode, leaving out what a cut broke at either end."""
    return raw.decode("utf-8", "ignore")


def truncate_output(
    text: str, *, max_lines: int, max_chars: int, max_bytes: int, mode: TruncateMode
) -> str:
    """Cut output by lines, then characters, then bytes, and say so in a last line, as the agent
    `ai` does.
    """
    short = truncate_bytes(
        truncate_chars(truncate_lines(text, max_lines, mode), max_chars, mode), max_bytes, mode
    )
    if short == text:
        return text
    return f"{short}\n\n[tool output truncated: showing {_shown_counts(short, text)}]"


def _shown_counts(short: str, text: str) -> str:
    a, b = (len(t.encode("utf-8", "replace")) for t in (short, text))
    rows = f"{short.count(chr(10)) + 1}/{text.count(chr(10)) + 1} lines"
    return f"{rows}, {format_bytes(a)}/{format_bytes(b)} bytes, {len(short)}/{len(text)} chars"


def format_bytes(n: int) -> str:
    """Write a number of bytes as `12B`, `8.7KB`, `1.2MB`."""
    if n < 1024:
        return f"{n}B"
    return f"{n / 1024:.1f}KB" if n < 1024**2 else f"{n / 1024**2:.1f}MB"
