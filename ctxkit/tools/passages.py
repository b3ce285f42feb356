"""Pieces of text files: a range of lines, how often a text occurs. Only a newline ends a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 10_000_000
"""Bytes of a file that are given at once."""
_PIECE = 1 << 20
_MANY = 1000


def read(file: BinaryIO, path: str, start: int, end: int | None, limit: int = LIMIT) -> str:
    """Return lines of a file, from `start` to `end`, counted from 1, at most `limit` bytes of them.

    Where they are more, the first line of what is returned says so, and how to read on.

    Raises:
        BadArguments: the file ends before `start`.
    """
    taken, size, last = [], 0, 0
    for last, piece in _numbered(file):
        if last < start:
            continue
        if end is not None and last > end:
            break
        taken.append(piece[: limit - size])
        size += len(taken[-1])
        if len(taken[-1]) < len(piece):
            return _cut(start, last, limit) + b"".join(taken).decode("utf-8", "replace")
    if start > max(last, 1):
        raise BadArguments(f"{path[:200]!r} has {last:,} lines; line {start} does not exist.")
    return b"".join(taken).decode("utf-8", "replace")


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a file with the number of the line that each is of."""
    number = 1
    while piece := file.readline(_PIECE):
        yield number, piece
        number += piece.endswith(b"\n")


def _cut(start: int, last: int, limit: int) -> str:
    said = f"[cut after {limit:,} bytes, in line {last:,}; "
    if last > max(start, 1):
        return f"{said}read on with start={last}]\n"
    return f"{said}which is longer than can be read]\n"


def count(text: str, piece: str) -> str:
    """Return how often a text holds a piece, overlapping places included, in words."""
    at, found, overlapping = text.find(piece) if piece else -1, 0, False
    while at >= 0 and found < _MANY:
        found += 1
        after = text.find(piece, at + 1)
        overlapping |= 0 <= after < at + len(piece)
        at = after
    if found == 1:
        return "once"
    many = "more than " if at >= 0 else ""
    return f"{many}{found} times" + (", in places that overlap" if overlapping else "")
