"""Snapshot logs to columns: many lines at once, one at a time only around what is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.snapshots.bulk import parse_bulk
from ctxkit.snapshots.snapshot_columns import Block, Words, join, new_words, recode, rows
from ctxkit.snapshots.snapshot_lines import parse_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.snapshots.faults import Report

_PIECE = 1 << 16
"""Bytes that are read line by line around a damaged line."""


class LogPart(NamedTuple):
    """Whole lines of one log."""

    log: int
    """Number of the log among those that are read."""
    file: str
    first: int
    """Number of the first line, counted from 1."""
    data: bytes
    """Lines, each with its newline."""
    lines: int
    """How many."""


def parse(
    parts: Sequence[LogPart], words: Words, report: Report
) -> tuple[Block, list[tuple[int, int]]]:
    """Return the rows of all parts, and for each part the number of its log and of its rows.

    Small parts are read together: a thousand files cost what one costs. What is wrong goes to the
    report; new texts get their codes in order of appearance, so that a log read in steps gives what
    it gives at once.
    """
    local = new_words()
    whole = None
    if len(parts) > 1:
        whole = parse_bulk(b"".join(p.data for p in parts), sum(p.lines for p in parts), local)
    if whole is not None:
        runs = [(p.log, p.lines) for p in parts]
    else:
        blocks = [_one(p, local, report) for p in parts]
        runs = [(p.log, rows(b)) for p, b in zip(parts, blocks, strict=True)]
        whole = join(blocks)
    return recode(whole, {name: list(known) for name, known in local.items()}, words), runs


def _one(part: LogPart, words: Words, report: Report) -> Block:
    block = parse_bulk(part.data, part.lines, words)
    if block is not None:
        return block
    blocks = []
    for piece in _pieces(part):
        sound = parse_bulk(piece.data, piece.lines, words) if piece.lines < part.lines else None
        blocks.append(
            parse_lines(piece.data, part.file, piece.first, words, report)
            if sound is None
            else sound
        )
    return join([b for b in blocks if rows(b)])


def _pieces(part: LogPart) -> Iterator[LogPart]:
    data, first, start = part.data, part.first, 0
    while start < len(data):
        stop = data.find(b"\n", min(start + _PIECE, len(data) - 1)) + 1 or len(data)
        piece = data[start:stop]
        yield LogPart(part.log, part.file, first, piece, piece.count(b"\n"))
        start, first = stop, first + piece.count(b"\n")
