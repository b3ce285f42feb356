"""What a changed message holds: other text, no calls, no reasoning, other arguments; always a new
value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Image, Message, Part, Sized, Text, Thinking, ToolCall

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

HINTS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Arguments that a stub names, the first of them that the call has."""


def with_text(message: Message, text: str) -> Message:
    """Return the message with one text in place of its text and images; calls and
    reasoning stay.
    """
    thinking = [p for p in message.parts if isinstance(p, Thinking)]
    calls = [p for p in message.parts if isinstance(p, ToolCall)]
    return _replace(message, parts=(*thinking, *((Text(text),) if text else ()), *calls))


def without_reasoning(message: Message) -> Message:
    """Return the message without its thinking."""
    return _with_parts(message, lambda p: not isinstance(p, Thinking))


def text_only(message: Message) -> Message:
    """Return the message with nothing but its text."""
    return _with_parts(message, lambda p: isinstance(p, Text))


def without_calls(message: Message, ids: Container[str | None]) -> Message:
    """Return the message without the calls of these ids."""
    return _with_parts(message, lambda p: not (isinstance(p, ToolCall) and p.id in ids))


def with_arguments(
    message: Message, change: Callable[[ToolCall], dict[str, Any] | None]
) -> Message:
    """Return the message with other arguments where `change` gives some for a call."""

    def part(p: Part) -> Part:
        new = change(p) if isinstance(p, ToolCall) else None
        return p if new is None else _replace(p, arguments=new, raw=None)

    return _replace(message, parts=tuple(part(p) for p in message.parts))


def _with_parts(message: Message, keep: Callable[[Part], bool]) -> Message:
    parts = tuple(p for p in message.parts if keep(p))
    return message if len(parts) == len(message.parts) else _replace(message, parts=parts)


def texts(message: Message) -> str:
    """Return the plain text parts, joined by newlines."""
    return "\n".join([p.text for p in message.parts if isinstance(p, Text)])


def lines_in(text: str) -> int:
    """Return how many lines a text has, as `str.splitlines` parts it."""
    for sign in _OTHER_ENDS:
        if sign in text:
            return len(text.splitlines())
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def texts_and(message: Message, image: str) -> str:
    """Return the plain text parts in order, with a marker in the place of each image."""
    kept = (
        p.text if isinstance(p, Text) else image
        for p in message.parts
        if isinstance(p, (Text, Image))
    )
    return "\n".join(kept)


def has_images(message: Message) -> bool:
    """Say whether the message holds an image or another attachment."""
    return any(
        isinstance(p, Image) or (isinstance(p, Sized) and p.kind == "image") for p in message.parts
    )


def only_text(message: Message) -> bool:
    """Say whether the message is text and nothing else, so that cutting its text loses nothing
    unseen.
    """
    return all(isinstance(p, Text) for p in message.parts)


def is_empty(message: Message) -> bool:
    """Say whether a message says nothing: no parts, or only empty ones; a result says something,
    however short.
    """
    if message.role == "tool":
        return False
    return all(
        getattr(p, "text", True) == "" and not getattr(p, "hidden", 0) for p in message.parts
    )


def target(call: ToolCall) -> str:
    """Return what a call works on: its path, command, query ...; an empty string where no argument
    says so.
    """
    return _argument(call, TARGET_KEYS)


def path(call: ToolCall) -> str:
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


def written(value: object) -> str:
    """Return an argument's value as text: JSON where it is none."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def one_line(text: str, limit: int) -> str:
    """Return the text on one line, at most `limit` characters (2 or more), the last of them `…`
    where it was cut.
    """
    flat = " ".join(text.split(None, limit)[:limit])  # no more of a long text is read than is shown
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def hint(call: ToolCall | None) -> str:
    """Return what a call worked on as `key=value`, the value of at most 60 characters."""
    if call is None or not call.arguments:
        return ""
    key = next((k for k in HINTS if k in call.arguments), next(iter(call.arguments)))
    return f"{key}={one_line(written(call.arguments[key]), 60)}"
