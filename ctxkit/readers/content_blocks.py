"""Anthropic's content blocks, stop reasons and usage, as in Claude Code and the Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Image, Part, Sized, Text, Thinking, ToolCall, Usage
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, text, word

if TYPE_CHECKING:
    from collections import Counter

_STOPS = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool", "max_tokens": "length"}
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}


class Blocks:
    """Makes parts of blocks; remembers names of calls, and counts blocks that it does not know."""

    def __init__(self, skipped: Counter[str]) -> None:
        self.skipped = skipped
        self.called: dict[str, str] = {}
        """Id of a tool call to the name of its tool."""

    def parts(self, content: Any) -> tuple[list[Part], list[dict[str, Any]]]:
        """Return a content's parts, and apart from them its blocks that are results of tools."""
        if type(content) is str:
            return ([Text(content)] if content else []), []
        parts: list[Part] = []
        results: list[dict[str, Any]] = []
        for block in [content] if type(content) is dict else items(content):
            if type(block) is not dict:
                raise ValueError("expected the blocks of a message to be objects")
            kind = block.get("type")
            if kind == "text":
                parts.append(Text(text(block.get("text"))))
            elif kind in _CALLS:
                parts.append(self._call(block))
            elif type(kind) is str and kind.endswith("tool_result"):
                results.append(block)
            else:
                parts.append(self._other(kind, block))
        return parts, results

    def _call(self, block: dict[str, Any]) -> ToolCall:
        own, name = text(block.get("id")), text(block.get("name"))
        self.called[own] = name
        return ToolCall(own, name, *arguments(block.get("input")))

    def _other(self, kind: Any, block: dict[str, Any]) -> Part:
        if kind == "thinking":
            signature = word(block.get("signature"))
            return Thinking(text(block.get("thinking")), signature, len(signature or ""))
        if kind == "redacted_thinking":
            return Thinking("", None, len(text(block.get("data"))))
        if kind in ("image", "document"):
            return _attachment(kind, mapping(block.get("source")))
        name = kind if type(kind) is str else "no type"
        self.skipped[f"block {name}"] += 1
        return Sized(name, chars=len(as_text(block)))

    @staticmethod
    def stop(reason: Any) -> str | None:
        """Return why a reply ended, in our words where there is one."""
        return _STOPS.get(reason, reason) if type(reason) is str else None


def _attachment(kind: str, source: dict[str, Any]) -> Part:
    if source.get("type") == "text":
        return Text(text(source.get("data")))
    media = text(source.get("media_type")) or (
        "image/png" if kind == "image" else "application/pdf"
    )
    shape = "image" if kind == "image" else "document"
    return Image(media, text(source.get("data")), word(source.get("url")), shape)  # type: ignore[arg-type]


def to_usage(value: Any) -> Usage | None:
    """Return Anthropic's usage in disjoint classes; None for all zeros: it was never billed."""
    if type(value) is not dict:
        return None
    fresh, output = number(value.get("input_tokens")), number(value.get("output_tokens"))
    read = number(value.get("cache_read_input_tokens"))
    write = number(value.get("cache_creation_input_tokens"))
    split = value.get("cache_creation")
    hour = None
    if type(split) is dict:
        hour = number(split.get("ephemeral_1h_input_tokens"))
        five = number(split.get("ephemeral_5m_input_tokens"))
        if write is None:
            write = None if hour is None and five is None else (hour or 0) + (five or 0)
        if hour and write is not None:
            hour = min(hour, write)
            write -= hour
    if not (fresh or read or write or hour or output):
        return None
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=hour,
        output_tokens=output,
    )
