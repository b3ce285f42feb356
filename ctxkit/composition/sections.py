"""A system prompt cut into its sections: Markdown headings and blocks between XML tags."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

_FENCE = re.compile(r"^\s{0,3}(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*?)[ \t#]*$")
_OPEN = re.compile(r"^<([A-Za-z][\w.-]{0,63})(?:\s[^<>]*)?>")
_CLOSE = re.compile(r"</([A-Za-z][\w.-]{0,63})>")
_MAX = 200
"""Sections of one prompt; what follows belongs to the last one."""


class Section(NamedTuple):
    """A named stretch of a prompt."""

    name: str
    text: str


def sections(text: str) -> tuple[Section, ...]:
    """Return the sections of a prompt, in order; their texts joined are the prompt.

    A section begins at a Markdown heading of the two topmost levels that the prompt uses, or at a
    line that opens an XML block, which reaches to its closing tag whatever stands inside. What
    stands before the first is called ``preamble``; a prompt without sections is one section of that
    name.
    """
    lines = text.splitlines(keepends=True)
    starts = list(_starts(lines))[:_MAX]
    out, name, begin = [], "preamble", 0
    for start, following in [*starts, (len(lines), "")]:
        if start > begin:
            out.append(Section(name, "".join(lines[begin:start])))
        name, begin = following, start
    return tuple(out)


def _starts(lines: list[str]) -> list[tuple[int, str]]:
    found: list[tuple[int, int, str]] = []
    closings: dict[str, list[int]] = {}
    for i, line in enumerate(lines):
        for tag in _CLOSE.findall(line):
            closings.setdefault(tag, []).append(i)
    fenced, i = "", 0
    while i < len(lines):
        line = lines[i]
        fence = _FENCE.match(line)
        if fence:
            fenced = "" if fenced == fence[1] else fenced or fence[1]
        elif not fenced and (heading := _HEADING.match(line.rstrip("\r\n"))):
            found.append((i, len(heading[1]), heading[2][:80]))
        elif (
            not fenced
            and (tag := _OPEN.match(line))
            and (end := _next(closings.get(tag[1], []), i)) is not None
        ):
            found.append((i, 0, tag[1]))
            if end + 1 < len(lines):
                found.append((end + 1, 0, "text"))
            i = end
        i += 1
    levels = sorted({level for _, level, _ in found if level})[:2]
    kept = {start: name for start, level, name in found if level == 0 or level in levels}
    named = {
        start: name
        for start, level, name in found
        if level in levels or (level == 0 and name != "text")
    }
    return sorted((kept | named).items())


def _next(places: list[int], start: int) -> int | None:
    """Return the first place from one on."""
    at = bisect_left(places, start)
    return places[at] if at < len(places) else None
