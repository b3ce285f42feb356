"""Many lines of a snapshot log at once, by Arrow: whole, or not at all.

Lines of one writer have the same keys in the same order, so that they can be read as a table of
comma-separated cells that each begin with their key: about twice as fast as a JSON parser. Every
cell is checked to be of that form; lines of another form (compaction markers among turns) are read
the same way among themselves, and what is left over by a typed JSON decoder. Whatever either
refuses is for `lines`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ctxkit.snapshots.snapshot_columns import (
    ALWAYS,
    ARRAYS,
    COUNTS,
    FLAG,
    NAMES,
    NAT,
    TEXTS,
    Block,
    Words,
    codes,
    join,
    rows,
)
from ctxkit.snapshots.snapshot_lines import ISO

if TYPE_CHECKING:
    from collections.abc import Callable

# kinds of lines (turns and markers, with and without thresholds) before the JSON parser takes over
_DEPTH = 4
_SAMPLE = 9
_BLOCK = 1 << 20
_LONGEST = 1 << 24  # bytes of a cell: those of the longest line
_CELL = re.compile(rb'(\{?[ ]*"(\w+)":[ ]*)([^ ].*)', re.DOTALL)


class _Odd(Exception):
    """These lines are not of the form that was assumed."""


class _Column(NamedTuple):
    """Cells of one key."""

    name: str
    cells: pa.Array
    key: bytes
    """What every cell begins with."""
    last: bool
    """True where every cell ends with the brace of its object."""


def parse_bulk(data: bytes, lines: int, words: Words) -> Block | None:
    """Return one row for each line, in order; None where any line needs a closer look.

    Args:
        data: whole lines, each with its newline.
        lines: how many.
        words: tables of texts; grow.
    """
    try:
        if not data.isascii():
            # Arrow decodes lines of another form by itself, and only prints that it could not
            data.decode()
        block = _cells(data, words, 0)
    except (_Odd, pa.ArrowInvalid, msgspec.DecodeError, ValueError, OverflowError, RecursionError):
        return None
    return block if rows(block) == lines else None


# -- lines of one form, as cells ------------------------------------------------------------------


def _cells(data: bytes, words: Words, depth: int) -> Block:
    if depth == _DEPTH:
        return _objects(data, words)
    sample = data[: 1 << 14].split(b"\n", _SAMPLE)[:_SAMPLE]
    width = Counter(line.count(b",") + 1 for line in sample if line).most_common(1)
    if not width:
        raise _Odd
    others: list[tuple[int, bytes]] = []
    try:
        table = _split(data, width[0][0], others)
        block = _columns(table, words)
    except (_Odd, pa.ArrowInvalid, ValueError):
        return _objects(data, words)
    if not others:
        return block
    rest = _cells(b"".join(line for _, line in others), words, depth + 1)
    return _merge(block, rest, np.array([number - 1 for number, _ in others]))


def _split(data: bytes, width: int, others: list[tuple[int, bytes]]) -> pa.Table:
    def odd(row: Any) -> str:
        others.append((row.number, row.text.encode() + b"\n"))
        return "skip"

    names = [str(i) for i in range(width)]
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK),
        pyarrow.csv.ParseOptions(quote_char=False, escape_char=False, invalid_row_handler=odd),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            check_utf8=False,
            strings_can_be_null=False,
        ),
    )


def _columns(table: pa.Table, words: Words) -> Block:
    n, last = table.num_rows, table.num_columns - 1
    block: Block = {}
    for i, column in enumerate(table.columns):
        cells = column.combine_chunks()
        found = _CELL.fullmatch(cells[0].as_py())
        if found is None or (found[1][:1] == b"{") != (i == 0):
            raise _Odd
        name = found[2].decode()
        if name not in NAMES or name in block:
            raise _Odd
        read = _READ[name if name in ("ts", FLAG) else "text" if name in TEXTS else "count"]
        read(block, _Column(name, cells, found[1], i == last), words)
    if not all(name in block for name in ALWAYS):
        raise _Odd
    return {name: _missing(name, n) if name not in block else block[name] for name in ARRAYS}


def _missing(name: str, n: int) -> np.ndarray[Any, Any]:
    fill: int = -1 if name in TEXTS else NAT if name == "ts" else name.endswith(".missing")
    return np.full(n, fill, ARRAYS[name])


def _values(column: _Column) -> pa.Array:
    """The cells without key, the last without its brace; each must begin with the key."""
    if not pc.all(pc.starts_with(column.cells, column.key)).as_py():
        raise _Odd
    values = pc.binary_slice(column.cells, len(column.key), _LONGEST)
    if not column.last:
        return values
    if not pc.all(pc.ends_with(values, b"}")).as_py():
        raise _Odd
    lengths = pc.subtract(pc.binary_length(values), 1)
    longest = pc.max(lengths).as_py()
    cut = pc.ascii_rtrim(values.view(pa.string()), "}")
    if pc.any(pc.not_equal(pc.binary_length(cut), lengths)).as_py() or longest is None:
        raise _Odd  # more than one brace
    return cut.view(pa.binary())


def _read_count(block: Block, column: _Column, words: Words) -> None:  # noqa: ARG001
    text = _values(column).view(pa.string())
    try:
        numbers = text.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = pc.if_else(pc.equal(text, "null"), pa.scalar(None, pa.string()), text).cast(
            pa.int64()
        )
    if pc.any(pc.and_(pc.starts_with(text, "0"), pc.greater(pc.binary_length(text), 1))).as_py():
        raise _Odd  # 0x1F and 007: numbers for Arrow, not for JSON
    _store(block, column.name, numbers)


def _read_text(block: Block, column: _Column, words: Words) -> None:
    if column.last:
        raise _Odd
    known = column.cells.dictionary_encode()
    texts: list[str | None] = []
    for cell in known.dictionary.to_pylist():
        text = json.loads(cell.removeprefix(column.key)) if cell.startswith(column.key) else 0
        if not (text is None or isinstance(text, str)) or (text is not None and not _sound(text)):
            raise _Odd
        texts.append(text)
    table = np.array(codes(words[column.name], texts), np.int32)
    block[column.name] = table[known.indices.to_numpy(zero_copy_only=False)]


def _read_flag(block: Block, column: _Column, words: Words) -> None:  # noqa: ARG001
    known = _values(column).dictionary_encode()
    meaning = {b"true": True, b"false": False, b"null": False}
    values = [meaning.get(v) for v in known.dictionary.to_pylist()]
    if None in values:
        raise _Odd
    block[column.name] = np.array(values, np.bool_)[known.indices.to_numpy(zero_copy_only=False)]


def _read_time(block: Block, column: _Column, words: Words) -> None:  # noqa: ARG001
    """Times of one length, in UTC, with a fraction: those of one writer are."""
    cells, key = column.cells, column.key
    first = cells[0].as_py()
    shape = re.fullmatch(
        rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9})((?:\\u002B|\+)00:00|Z)"', first[len(key) :]
    )
    if shape is None or column.last:
        raise _Odd
    grid = _grid(cells, len(first))
    tail = np.frombuffer(shape[2] + b'"', np.uint8)
    if (
        not (grid[:, -len(tail) :] == tail).all()
        or not (grid[:, : len(key) + 1] == grid[0, : len(key) + 1]).all()
    ):
        raise _Odd
    start = len(key) + 1
    stamps = (
        pc.binary_slice(cells, start, start + len(shape[1]))
        .view(pa.string())
        .cast(pa.timestamp("ns"))
    )
    block[column.name] = stamps.view(pa.int64()).to_numpy(zero_copy_only=False)


def _grid(cells: pa.Array, width: int) -> np.ndarray[Any, Any]:
    """Cells of one width as a matrix of bytes."""
    offsets = np.frombuffer(cells.buffers()[1], np.int32)[
        cells.offset : cells.offset + len(cells) + 1
    ]
    if not (np.diff(offsets) == width).all():
        raise _Odd
    return np.frombuffer(cells.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(
        len(cells), width
    )


_READ: dict[str, Callable[[Block, _Column, Words], None]] = {
    "ts": _read_time,
    "text": _read_text,
    "count": _read_count,
    FLAG: _read_flag,
}


def _merge(block: Block, rest: Block, at: np.ndarray[Any, Any]) -> Block:
    """Put rows of `rest` to their places `at` in the whole."""
    n = rows(block) + rows(rest)
    if len(at) != rows(rest) or (len(at) and at[-1] >= n):
        raise _Odd
    here = np.ones(n, np.bool_)
    here[at] = False
    order = np.empty(n, np.int64)
    order[here], order[at] = np.arange(rows(block)), np.arange(rows(block), n)
    return {name: values[order] for name, values in join([block, rest]).items()}


# -- any objects, as JSON -------------------------------------------------------------------------
# Not by Arrow's JSON parser: a line of `null`, or one nested deeply, ends the process (pyarrow 26).


class _RawLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    ts: str
    agent: str
    turn: int
    turn_input_tokens: int
    turn_output_tokens: int
    cumulative_input_tokens: int
    session: str | None = None
    warn_at: int | None = None
    cutover_at: int | None = None
    compaction_occurred: bool | None = None


_DECODER = msgspec.json.Decoder(_RawLine)


def _objects(data: bytes, words: Words) -> Block:
    lines = _DECODER.decode_lines(data)
    if not all(ISO.match(line.ts) for line in lines):
        raise _Odd
    stamps = pa.array([line.ts for line in lines], pa.string()).cast(pa.timestamp("ns", "UTC"))
    block: Block = {"ts": stamps.view(pa.int64()).to_numpy(zero_copy_only=False)}
    for name in TEXTS:
        block[name] = np.array(codes(words[name], map(attrgetter(name), lines)), np.int32)
    for name in COUNTS:
        _store(block, name, pa.array(map(attrgetter(name), lines), pa.int64(), size=len(lines)))
    block[FLAG] = np.array([bool(line.compaction_occurred) for line in lines], np.bool_)
    return {name: block[name] for name in ARRAYS}


def _store(block: Block, name: str, numbers: pa.Array) -> None:
    block[f"{name}.missing"] = numbers.is_null().to_numpy(zero_copy_only=False)
    block[name] = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy(
        zero_copy_only=False
    )


def _sound(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)
