"""Parts of OpenCode's messages as values: text, thinking, files, calls; steps and their usage."""

from __future__ import annotations

from typing import Any

from ctxkit.messages import Image, Part, Text, Thinking, ToolCall, Usage
from ctxkit.readers.fields import arguments, mapping, number, real, text
from ctxkit.readers.parts import count

_QUIET = {"step-start", "step-finish", "snapshot", "agent", "retry", "subtask", "compaction"}
"""Parts that are no content: marks of a step, of the working tree, of what begins."""


def to_parts(parts: list[dict[str, Any]], skipped: dict[str, int]) -> list[Part]:
    """Return what a message says; marks are passed over, unknown parts counted."""
    out: list[Part] = []
    for p in parts:
        kind = text(p.get("type"))
        if kind == "text":
            out.append(Text(text(p.get("text"))))
        elif kind == "reasoning":
            out.append(Thinking(text(p.get("text"))))
        elif kind == "tool":
            args, written = arguments(mapping(p.get("state")).get("input"))
            out.append(ToolCall(text(p.get("callID")), text(p.get("tool")), args, written))
        elif kind == "file":
            out += to_files(p, skipped)
        elif kind not in _QUIET:
            count(skipped, "part: " + (kind or "no type"))
    return out


def to_files(raw: dict[str, Any], skipped: dict[str, int]) -> list[Part]:
    """Return a file as a part; the text of one stands beside it already."""
    mime, url = text(raw.get("mime")) or "application/octet-stream", text(raw.get("url"))
    if mime.startswith("text/") or mime == "application/x-directory":
        count(skipped, "part: file, whose text stands beside it")
        return []
    data = url.split(",", 1)[1] if url.startswith("data:") and "," in url else ""
    return [
        Image(
            mime,
            data,
            None if data else url or None,
            "image" if mime.startswith("image/") else "document",
        )
    ]


def steps_of(
    info: dict[str, Any], parts: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The calls of a message: one, but older versions wrote several steps into one message."""
    ends = [
        i
        for i, p in enumerate(parts)
        if p.get("type") == "step-finish" and mapping(p.get("tokens"))
    ]
    if len(ends) < 2:
        return [(info, parts)]
    out = []
    for begin, end in zip([0, *(e + 1 for e in ends)], [*ends, len(parts) - 1], strict=True):
        some = parts[begin : end + 1]
        last = parts[end] if end < len(parts) and parts[end].get("type") == "step-finish" else {}
        told = {
            "tokens": last.get("tokens"),
            "cost": last.get("cost"),
            "finish": last.get("reason"),
        }
        if any(p.get("type") not in _QUIET for p in some):
            out.append(({**info, **told}, some))
    return out or [(info, parts)]


def ordinal(raw: Any) -> int | None:
    """Return the number in an id of the compress plug-in (m0001), from 1."""
    digits = text(raw).lstrip("m")
    return (
        int(digits)
        if digits.isascii() and digits.isdigit() and 0 < len(digits) < 8 and int(digits) > 0
        else None
    )


def to_usage(info: dict[str, Any]) -> Usage | None:
    """Tokens of a message: the five classes stand apart; its cost is in dollars."""
    tokens = mapping(info.get("tokens"))
    cache, cost = mapping(tokens.get("cache")), real(info.get("cost"))
    if not tokens:
        return None if cost is None else Usage(cost_usd=cost)
    output, thought = number(tokens.get("output")), number(tokens.get("reasoning"))
    return Usage(
        input_tokens=number(tokens.get("input")),
        cache_read_tokens=number(cache.get("read")),
        cache_write_tokens=number(cache.get("write")),
        output_tokens=None if output is None else output + (thought or 0),
        reasoning_tokens=thought,
        cost_usd=cost,
    )
