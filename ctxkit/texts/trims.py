"""How one text is cut down: by lines, characters or bytes, keeping its head, both ends, or all but
the middle.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["head", "head_tail", "middle"]


def cut(text: str, keep: int, suffix: str) -> str:
    """Return the first `keep` characters and a suffix, where `{n}` is the number removed; short
    texts as they are.
    """
    if len(text) <= keep:
        return text
    return text[:keep] + suffix.replace("{n}", f"{len(text) - keep:,}")


def ends(text: str, head: int, tail: int, marker: str) -> str:
    """Return the first `head` and last `tail` characters with a marker between; texts that fit as
    they are.
    """
    if len(text) <= head + tail:
        return text
    return text[:head] + marker + (text[-tail:] if tail else "")


def lines(text: str, limit: int, mode: Mode) -> str:
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


def runes(text: str, limit: int, mode: Mode) -> str:
    """Cut to `limit` characters: the tail goes, or the middle."""
    if limit <= 0 or len(text) <= limit:
        return text
    return (
        text[: limit - limit // 2] + text[len(text) - limit // 2 :]
        if mode == "middle"
        else text[:limit]
    )


def octets(text: str, limit: int, mode: Mode) -> str:
    """Cut to `limit` bytes of UTF-8 without splitting a character: the tail goes, or the middle."""
    raw = text.encode("utf-8", "replace")
    if limit <= 0 or len(raw) <= limit:
        return text
    if mode == "middle":
        half = limit // 2
        return _whole(raw[: limit - half]) + _whole(raw[len(raw) - half :])
    return _whole(raw[:limit])


def _whole(raw: bytes) -> str:
    """Decode, leaving out what a cut broke at either end."""
    return raw.decode("utf-8", "ignore")


def output(text: str, *, max_lines: int, max_chars: int, max_bytes: int, mode: Mode) -> str:
    """Cut output by lines, then characters, then bytes, and say so in a last line, as the agent
    `ai` does.
    """
    short = octets(runes(lines(text, max_lines, mode), max_chars, mode), max_bytes, mode)
    if short == text:
        return text
    return f"{short}\n\n[tool output truncated: showing {_shown(short, text)}]"


def _shown(short: str, text: str) -> str:
    a, b = (len(t.encode("utf-8", "replace")) for t in (short, text))
    rows = f"{short.count(chr(10)) + 1}/{text.count(chr(10)) + 1} lines"
    return f"{rows}, {size(a)}/{size(b)} bytes, {len(short)}/{len(text)} chars"


def size(n: int) -> str:
    """Write a number of bytes as `12B`, `8.7KB`, `1.2MB`."""
    if n < 1024:
        return f"{n}B"
    return f"{n / 1024:.1f}KB" if n < 1024**2 else f"{n / 1024**2:.1f}MB"
