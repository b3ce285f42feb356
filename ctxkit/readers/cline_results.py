"""Calls written as XML in replies, and results in the next message, told as calls and results."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Message, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.messages import Part
    from ctxkit.readers.logs import ReaderLog

_RESULT = re.compile(r"\[(\w{2,60})(?: for [^\n]{0,4000})?\] Result:\s*")
_OPENED, _CLOSED = re.compile(r"<(\w{1,60})>"), re.compile(r"</(\w{1,60})>")
_ENVIRONMENT = "<environment_details>"
_MOST = 1 << 20
"""Characters of a reply that are searched for a call."""


def unwrapped(made: list[Message], log: ReaderLog, n: int) -> list[Message]:
    """Return messages with the result of an XML call as a result; the call is written into the
    reply before.

    Args:
        made: what one message of the API holds.
        log: what came before.
        n: index of the message, for the id of the call.
    """
    if len(made) != 1 or made[0].role != "user":
        return made
    (m,) = made
    found = _RESULT.match(m.parts[0].text) if m.parts and isinstance(m.parts[0], Text) else None
    if found is None or not _called(log, found[1], f"xml-{n}"):
        return made
    rest = m.parts[0].text[found.end() :] if isinstance(m.parts[0], Text) else ""
    parts: list[Part] = [*([Text(rest)] if rest else []), *m.parts[1:]]
    end = next(
        (i for i, p in enumerate(parts) if isinstance(p, Text) and p.text.startswith(_ENVIRONMENT)),
        len(parts),
    )
    said = tuple(parts[:end])
    wrong = (
        said[:1]
        and isinstance(said[0], Text)
        and said[0].text.startswith("The tool execution failed")
    )
    result = replace(
        m, role="tool", parts=said, tool=found[1], call_id=f"xml-{n}", is_error=bool(wrong)
    )
    if end == len(parts):
        return [result]
    return [result, replace(m, id=log.new_id(), parts=tuple(parts[end:]), kind="wrapper")]


def _called(log: ReaderLog, tool: str, own: str) -> bool:
    """Write the call into the reply that stands last, where it holds one; say whether it does."""
    at = log.at
    while at >= 0 and isinstance(log.entries[at], Edit):
        at -= 1
    reply = log.entries[at] if at >= 0 else None
    if not isinstance(reply, Message) or reply.role != "assistant":
        return False
    for i in range(len(reply.parts) - 1, -1, -1):
        part = reply.parts[i]
        if not isinstance(part, Text):
            continue
        said = part.text[-_MOST:]
        begin, end = said.find(f"<{tool}>"), said.rfind(f"</{tool}>")
        if begin < 0 or end < begin:
            continue
        inner = said[begin + len(tool) + 2 : end]
        call = ToolCall(own, tool, _arguments(inner))
        before = part.text[: len(part.text) - len(said) + begin].rstrip()
        parts = (*reply.parts[:i], *([Text(before)] if before else []), call, *reply.parts[i + 1 :])
        log.replace(at, replace(reply, parts=parts))
        return True
    return False


def _arguments(inner: str) -> dict[str, Any]:
    """Return what stands between marks, each up to the first that closes it; in linear time."""
    closed: dict[str, list[int]] = {}
    for found in _CLOSED.finditer(inner):
        closed.setdefault(found[1], []).append(found.start())
    out, at = dict[str, Any](), 0
    for found in _OPENED.finditer(inner):
        ends = closed.get(found[1], [])
        n = bisect_left(ends, found.end())
        if found.start() >= at and n < len(ends):
            out[found[1]] = inner[found.end() : ends[n]].strip("\n")
            at = ends[n]
    return out
