"""Lines of snapshot logs to columns: many at once by Arrow, singly around damage.

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
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ctxkit.formats.snapshots.schema import (
    ARRAY_DTYPES,
    COMPACTION_FIELD,
    COUNT_FIELDS,
    MISSING_TIME,
    REQUIRED_FIELDS,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
    ColumnBlock,
    TextCodes,
    concat_blocks,
    encode_texts,
    new_text_codes,
    recode_block,
    row_count,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.formats.snapshots.schema import FaultCollector


_PIECE_BYTES = 1 << 16
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


def parse_log_parts(
    parts: Sequence[LogPart], words: TextCodes, report: FaultCollector
) -> tuple[ColumnBlock, list[tuple[int, int]]]:
    """Return the rows of all parts, and for each part the number of its log and of its rows.

    Small parts are read together: a thousand files cost what one costs. What is wrong goes to the
    report; new texts get their codes in order of appearance, so that a log read in steps gives what
    it gives at once.
    """
    local = new_text_codes()
    whole = None
    if len(parts) > 1:
        whole = parse_with_arrow(
            b"".join(p.data for p in parts), sum(p.lines for p in parts), local
        )
    if whole is not None:
        runs = [(p.log, p.lines) for p in parts]
    else:
        blocks = [_parse_part(p, local, report) for p in parts]
        runs = [(p.log, row_count(b)) for p, b in zip(parts, blocks, strict=True)]
        whole = concat_blocks(blocks)
    return recode_block(whole, {name: list(known) for name, known in local.items()}, words), runs


def _parse_part(part: LogPart, words: TextCodes, report: FaultCollector) -> ColumnBlock:
    block = parse_with_arrow(part.data, part.lines, words)
    if block is not None:
        return block
    blocks = []
    for piece in _pieces(part):
        sound = (
            parse_with_arrow(piece.data, piece.lines, words) if piece.lines < part.lines else None
        )
        blocks.append(
            parse_lines(piece.data, part.file, piece.first, words, report)
            if sound is None
            else sound
        )
    return concat_blocks([b for b in blocks if row_count(b)])


def _pieces(part: LogPart) -> Iterator[LogPart]:
    data, first, start = part.data, part.first, 0
    while start < len(data):
        stop = data.find(b"\n", min(start + _PIECE_BYTES, len(data) - 1)) + 1 or len(data)
        piece = data[start:stop]
        yield LogPart(part.log, part.file, first, piece, piece.count(b"\n"))
        start, first = stop, first + piece.count(b"\n")


# kinds of lines (turns and markers, with and without thresholds) before the JSON parser takes over
_DEPTH = 4
_SAMPLE = 9
_BLOCK = 1 << 20
_LONGEST = 1 << 24  # bytes of a cell: those of the longest line
_CELL = re.compile(rb'(\{?[ ]*"(\w+)":[ ]*)([^ ].*)', re.DOTALL)


class _UnexpectedForm(Exception):
    """These lines are not of the form that was assumed."""


class _Column(NamedTuple):
    """Cells of one key."""

    name: str
    cells: pa.Array
    key: bytes
    """What every cell begins with."""
    last: bool
    """True where every cell ends with the brace of its object."""


def parse_with_arrow(data: bytes, lines: int, words: TextCodes) -> ColumnBlock | None:
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
    except (
        _UnexpectedForm,
        pa.ArrowInvalid,
        msgspec.DecodeError,
        ValueError,
        OverflowError,
        RecursionError,
    ):
        return None
    return block if row_count(block) == lines else None


# -- lines of one form, as cells ------------------------------------------------------------------


def _cells(data: bytes, words: TextCodes, depth: int) -> ColumnBlock:
    if depth == _DEPTH:
        return _objects(data, words)
    sample = data[: 1 << 14].split(b"\n", _SAMPLE)[:_SAMPLE]
    width = Counter(line.count(b",") + 1 for line in sample if line).most_common(1)
    if not width:
        raise _UnexpectedForm
    others: list[tuple[int, bytes]] = []
    try:
        table = _split(data, width[0][0], others)
        block = _columns(table, words)
    except (_UnexpectedForm, pa.ArrowInvalid, ValueError):
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


def _columns(table: pa.Table, words: TextCodes) -> ColumnBlock:
    n, last = table.num_rows, table.num_columns - 1
    block: ColumnBlock = {}
    for i, column in enumerate(table.columns):
        cells = column.combine_chunks()
        found = _CELL.fullmatch(cells[0].as_py())
        if found is None or (found[1][:1] == b"{") != (i == 0):
            raise _UnexpectedForm
        name = found[2].decode()
        if name not in SNAPSHOT_FIELDS or name in block:
            raise _UnexpectedForm
        read = _COLUMN_READERS[
            name if name in ("ts", COMPACTION_FIELD) else "text" if name in TEXT_FIELDS else "count"
        ]
        read(block, _Column(name, cells, found[1], i == last), words)
    if not all(name in block for name in REQUIRED_FIELDS):
        raise _UnexpectedForm
    return {name: _missing(name, n) if name not in block else block[name] for name in ARRAY_DTYPES}


def _missing(name: str, n: int) -> np.ndarray[Any, Any]:
    fill: int = (
        -1 if name in TEXT_FIELDS else MISSING_TIME if name == "ts" else name.endswith(".missing")
    )
    return np.full(n, fill, ARRAY_DTYPES[name])


def _values(column: _Column) -> pa.Array:
    """The cells without key, the last without its brace; each must begin with the key."""
    if not pc.all(pc.starts_with(column.cells, column.key)).as_py():
        raise _UnexpectedForm
    values = pc.binary_slice(column.cells, len(column.key), _LONGEST)
    if not column.last:
        return values
    if not pc.all(pc.ends_with(values, b"}")).as_py():
        raise _UnexpectedForm
    lengths = pc.subtract(pc.binary_length(values), 1)
    longest = pc.max(lengths).as_py()
    cut = pc.ascii_rtrim(values.view(pa.string()), "}")
    if pc.any(pc.not_equal(pc.binary_length(cut), lengths)).as_py() or longest is None:
        raise _UnexpectedForm  # more than one brace
    return cut.view(pa.binary())


def _read_count(block: ColumnBlock, column: _Column, words: TextCodes) -> None:  # noqa: ARG001
    text = _values(column).view(pa.string())
    try:
        numbers = text.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = pc.if_else(pc.equal(text, "null"), pa.scalar(None, pa.string()), text).cast(
            pa.int64()
        )
    if pc.any(pc.and_(pc.starts_with(text, "0"), pc.greater(pc.binary_length(text), 1))).as_py():
        raise _UnexpectedForm  # 0x1F and 007: numbers for Arrow, not for JSON
    _store_counts(block, column.name, numbers)


def _read_text(block: ColumnBlock, column: _Column, words: TextCodes) -> None:
    if column.last:
        raise _UnexpectedForm
    known = column.cells.dictionary_encode()
    texts: list[str | None] = []
    for cell in known.dictionary.to_pylist():
        text = json.loads(cell.removeprefix(column.key)) if cell.startswith(column.key) else 0
        if not (text is None or isinstance(text, str)) or (
            text is not None and not _is_valid_text(text)
        ):
            raise _UnexpectedForm
        texts.append(text)
    table = np.array(encode_texts(words[column.name], texts), np.int32)
    block[column.name] = table[known.indices.to_numpy(zero_copy_only=False)]


def _read_flag(block: ColumnBlock, column: _Column, words: TextCodes) -> None:  # noqa: ARG001
    known = _values(column).dictionary_encode()
    meaning = {b"true": True, b"false": False, b"null": False}
    values = [meaning.get(v) for v in known.dictionary.to_pylist()]
    if None in values:
        raise _UnexpectedForm
    block[column.name] = np.array(values, np.bool_)[known.indices.to_numpy(zero_copy_only=False)]


def _read_time(block: ColumnBlock, column: _Column, words: TextCodes) -> None:  # noqa: ARG001
    """Times of one length, in UTC, with a fraction: those of one writer are."""
    cells, key = column.cells, column.key
    first = cells[0].as_py()
    shape = re.fullmatch(
        rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9})((?:\\u002B|\+)00:00|Z)"', first[len(key) :]
    )
    if shape is None or column.last:
        raise _UnexpectedForm
    grid = _grid(cells, len(first))
    tail = np.frombuffer(shape[2] + b'"', np.uint8)
    if (
        not (grid[:, -len(tail) :] == tail).all()
        or not (grid[:, : len(key) + 1] == grid[0, : len(key) + 1]).all()
    ):
        raise _UnexpectedForm
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
        raise _UnexpectedForm
    return np.frombuffer(cells.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(
        len(cells), width
    )


_COLUMN_READERS: dict[str, Callable[[ColumnBlock, _Column, TextCodes], None]] = {
    "ts": _read_time,
    "text": _read_text,
    "count": _read_count,
    COMPACTION_FIELD: _read_flag,
}


def _merge(block: ColumnBlock, rest: ColumnBlock, at: np.ndarray[Any, Any]) -> ColumnBlock:
    """Put rows of `rest` to their places `at` in the whole."""
    n = row_count(block) + row_count(rest)
    if len(at) != row_count(rest) or (len(at) and at[-1] >= n):
        raise _UnexpectedForm
    here = np.ones(n, np.bool_)
    here[at] = False
    order = np.empty(n, np.int64)
    order[here], order[at] = np.arange(row_count(block)), np.arange(row_count(block), n)
    return {name: values[order] for name, values in concat_blocks([block, rest]).items()}


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


def _objects(data: bytes, words: TextCodes) -> ColumnBlock:
    lines = _DECODER.decode_lines(data)
    if not all(TIME_START.match(line.ts) for line in lines):
        raise _UnexpectedForm
    stamps = pa.array([line.ts for line in lines], pa.string()).cast(pa.timestamp("ns", "UTC"))
    block: ColumnBlock = {"ts": stamps.view(pa.int64()).to_numpy(zero_copy_only=False)}
    for name in TEXT_FIELDS:
        block[name] = np.array(encode_texts(words[name], map(attrgetter(name), lines)), np.int32)
    for name in COUNT_FIELDS:
        _store_counts(
            block, name, pa.array(map(attrgetter(name), lines), pa.int64(), size=len(lines))
        )
    block[COMPACTION_FIELD] = np.array([bool(line.compaction_occurred) for line in lines], np.bool_)
    return {name: block[name] for name in ARRAY_DTYPES}


def _store_counts(block: ColumnBlock, name: str, numbers: pa.Array) -> None:
    block[f"{name}.missing"] = numbers.is_null().to_numpy(zero_copy_only=False)
    block[name] = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy(
        zero_copy_only=False
    )


def _is_valid_text(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


LINE_START = b'{"ts":'
"""How a line of fuseraft's begins; behind a torn line, the second one begins here."""
MAX_COUNT = 2**63 - 1
TIME_START = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
"""How a time begins."""
_MIN_REQUIRED_FIELDS = 3  # always-fields below which an object is some other record

Row = dict[str, Any]


def parse_lines(
    data: bytes, file: str, first: int, words: TextCodes, report: FaultCollector
) -> ColumnBlock:
    """Return the rows of all lines that hold one; everything wrong with any line goes to the
    report.

    Args:
        data: whole lines.
        file: name of the log, for the report.
        first: number of the first line, counted from 1.
        words: tables of texts; grow.
        report: grows.
    """
    found: list[Row] = []
    for number, line in enumerate(data.split(b"\n"), first):
        if line and not line.isspace():
            found.extend(_parse_line(line, file, number, report))
    return _rows_to_block(found, words)


def decode_line(line: bytes) -> Row | str:
    """Return the object of a line, or the reason why there is none.

    Python's own decoder is used because it reads what others refuse: NaN, integers of any size,
    lone surrogates.
    """
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "not UTF-8"
    except RecursionError:
        return "nested too deeply"
    except json.JSONDecodeError as e:
        return f"not JSON: {e.msg} at character {e.colno}"
    except ValueError:
        return "a number of too many digits"
    if not isinstance(record, dict):
        return f"expected a JSON object, found {type(record).__name__}"
    if sum(name in record for name in REQUIRED_FIELDS) < _MIN_REQUIRED_FIELDS:
        return (
            "a JSON object, but no snapshot: fields such as agent, turn, turn_input_tokens are not"
            " there"
        )
    return record


def _parse_line(line: bytes, file: str, number: int, report: FaultCollector) -> list[Row]:
    record = decode_line(line)
    if isinstance(record, dict):
        return [_parse_record(record, file, number, report)]
    pieces = line.split(LINE_START)
    if len(pieces) == 1 or (line.count(LINE_START) == 1 and line.startswith(LINE_START)):
        report.add(file, number, record)
        return []
    decoded = [decode_line(LINE_START + piece) for piece in pieces[1:]]
    whole = [d for d in decoded if isinstance(d, dict)]
    report.add(
        file,
        number,
        f"{len(decoded)} records on one line, {len(whole)} of them whole",
        kept=bool(whole),
    )
    return [_parse_record(d, file, number, report) for d in whole]


def _parse_record(record: Row, file: str, number: int, report: FaultCollector) -> Row:
    row: Row = {}
    for name in SNAPSHOT_FIELDS:
        value = record.get(name)
        if value is None:
            if name in REQUIRED_FIELDS:
                report.once(
                    file, number, f"`{name}` is missing from here on, on this line at least"
                )
            continue
        row[name], wrong = _value(name, value)
        if wrong:
            report.add(file, number, f"`{name}` {wrong}", kept=True)
    for name in record.keys() - set(SNAPSHOT_FIELDS):
        report.once(file, number, f"`{name[:80]}` is no known field and was left out")
    return row


def _value(name: str, value: Any) -> tuple[Any, str]:
    """The value as the column wants it, or None, and what was wrong with it."""
    if name == "ts":
        return _time(value)
    if name in TEXT_FIELDS:
        return _text(value)
    if name == COMPACTION_FIELD:
        return (
            (value, "")
            if isinstance(value, bool)
            else (None, f"is no truth value but {_show(value)}: left out")
        )
    return _count(value)


def _count(value: Any) -> tuple[int | None, str]:
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isascii():
        number = int(value) if value.removeprefix("-").isdigit() else value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        number = value
    if isinstance(number, bool) or not isinstance(number, int):
        return None, f"is no whole number but {_show(value)}: left out"
    if abs(number) > MAX_COUNT:
        return None, "is beyond 64 bits: left out"
    return number, "" if number is value else f"is {_show(value)}: read as {number}"


def _text(value: Any) -> tuple[str | None, str]:
    if isinstance(value, str):
        sound = value.encode("utf-8", "replace").decode("utf-8")
        return sound, "" if sound == value else "holds half a surrogate pair: replaced"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), f"is the number {_show(value)}: read as text"
    return None, f"is no text but {_show(value)}: left out"


def _time(value: Any) -> tuple[int | None, str]:
    if isinstance(value, str) and TIME_START.match(value):
        try:
            stamp = pd.Timestamp(value)
            utc = stamp if stamp.tzinfo is None else stamp.tz_convert("UTC")
            return int(utc.as_unit("ns").value), ""
        except (ValueError, OverflowError):  # OutOfBoundsDatetime is a ValueError
            pass
    return None, f"is no time between 1678 and 2262 but {_show(value)}: left out"


def _show(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, (str, float, bool)) else str(value)[:60]


def _rows_to_block(found: list[Row], words: TextCodes) -> ColumnBlock:
    block: ColumnBlock = {
        "ts": np.array([MISSING_TIME if (t := r.get("ts")) is None else t for r in found], np.int64)
    }
    for name in TEXT_FIELDS:
        block[name] = np.array(encode_texts(words[name], (r.get(name) for r in found)), np.int32)
    for name in COUNT_FIELDS:
        values = [r.get(name) for r in found]
        block[f"{name}.missing"] = np.array([v is None for v in values], np.bool_)
        block[name] = np.array([v or 0 for v in values], np.int64)
    block[COMPACTION_FIELD] = np.array([bool(r.get(COMPACTION_FIELD)) for r in found], np.bool_)
    return {name: block[name] for name in ARRAY_DTYPES}
