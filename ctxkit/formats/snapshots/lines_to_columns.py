"""Parsing of snapshot lines into columns: in bulk by Arrow, line by line around damage."""
# Three parsers, from fast to tolerant. Each refuses what it cannot read exactly, and the next one
# is used for that data:
#   1. cells    lines of one writer have the same keys in the same order, so that they are a table
#               of comma-separated cells that begin with their key. Arrow's CSV reader splits them,
#               about twice as fast as a JSON parser. Every cell is checked to have the expected
#               form. Lines with another number of cells (markers among turns) are parsed in the
#               same way among themselves, up to _MAX_FORMS forms.
#   2. objects  a typed JSON decoder, for any key order
#   3. lines    `parse_lines_one_by_one` reads each line alone, repairs what it can and reports the
#   rest
# Around a damaged line only a piece of _PIECE_BYTES is read line by line. Texts become integer
# codes in order of appearance, so that reading in steps gives the same codes as reading at once.

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

from ctxkit.formats.snapshots.column_blocks_and_faults import (
    ARRAY_DTYPES,
    COMPACTION_FIELD,
    COUNT_FIELDS,
    MISSING_TIME,
    REQUIRED_FIELDS,
    SESSION_NAMES,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
    ColumnBlock,
    TextCodes,
    concat_blocks,
    count_rows,
    encode_texts,
    new_text_codes,
    recode_block,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.formats.snapshots.column_blocks_and_faults import FaultCollector


_PIECE_BYTES = 1 << 16
"""Size of the piece around a damaged line that is read line by line."""


class LogPart(NamedTuple):
    """Whole lines of one log."""

    log: int
    """Index of the log among those that are read."""
    file: str
    first: int
    """Number of the first line, from 1."""
    data: bytes
    """The lines, each with its newline."""
    lines: int
    """Number of lines."""


def parse_log_parts(
    parts: Sequence[LogPart], codes: TextCodes, report: FaultCollector
) -> tuple[ColumnBlock, list[tuple[int, int]]]:
    """Parse parts of logs, small ones together, so that a thousand files cost as much as one.

    Args:
        parts: the parts.
        codes: codes by text; new texts are added.
        report: receives the faults.

    Returns:
        The rows of all parts, and for each part (index of its log, number of its rows).
    """
    local_codes = new_text_codes()
    combined = None
    if len(parts) > 1:
        combined = parse_with_arrow(
            b"".join(part.data for part in parts), sum(part.lines for part in parts), local_codes
        )
    if combined is not None:
        runs = [(part.log, part.lines) for part in parts]
    else:
        blocks = [_parse_part(part, local_codes, report) for part in parts]
        runs = [(part.log, count_rows(block)) for part, block in zip(parts, blocks, strict=True)]
        combined = concat_blocks(blocks)
    return recode_block(
        combined, {name: list(code_by_text) for name, code_by_text in local_codes.items()}, codes
    ), runs


def _parse_part(part: LogPart, codes: TextCodes, report: FaultCollector) -> ColumnBlock:
    block = parse_with_arrow(part.data, part.lines, codes)
    if block is not None:
        return block
    blocks = []
    for piece in _split_part(part):
        fast_block = (
            parse_with_arrow(piece.data, piece.lines, codes) if piece.lines < part.lines else None
        )
        blocks.append(
            parse_lines_one_by_one(piece.data, part.file, piece.first, codes, report)
            if fast_block is None
            else fast_block
        )
    return concat_blocks([part_block for part_block in blocks if count_rows(part_block)])


def _split_part(part: LogPart) -> Iterator[LogPart]:
    data, first_line, start = part.data, part.first, 0
    while start < len(data):
        stop = data.find(b"\n", min(start + _PIECE_BYTES, len(data) - 1)) + 1 or len(data)
        piece = data[start:stop]
        yield LogPart(part.log, part.file, first_line, piece, piece.count(b"\n"))
        start, first_line = stop, first_line + piece.count(b"\n")


_MAX_FORMS = 4
"""Forms of lines (turns and markers, with and without thresholds) that are read as cells."""
_SAMPLE_LINES = 9
_ARROW_BLOCK_BYTES = 1 << 20
_MAX_CELL_BYTES = 1 << 24
"""Largest size of a cell, that of the longest line."""
_CELL_PATTERN = re.compile(rb'(\{?[ ]*"(\w+)":[ ]*)([^ ].*)', re.DOTALL)


class _UnexpectedForm(Exception):
    """The lines do not have the form that the parser assumes."""


class _Column(NamedTuple):
    """The cells of one key."""

    name: str
    cells: pa.Array
    key: bytes
    """The bytes that every cell must begin with."""
    last: bool
    """True if every cell must end with the brace of its object."""


def parse_with_arrow(data: bytes, n_lines: int, codes: TextCodes) -> ColumnBlock | None:
    """Parse lines in bulk, by the first two parsers.

    Args:
        data: whole lines, each with its newline.
        n_lines: number of lines.
        codes: codes by text; new texts are added.

    Returns:
        One row per line, in order; None if any line must be read alone.
    """
    try:
        if not data.isascii():
            # Arrow only prints a message for invalid UTF-8 in skipped lines; this raises.
            data.decode()
        block = _parse_cells(data, codes, 0)
    except (
        _UnexpectedForm,
        pa.ArrowInvalid,
        msgspec.DecodeError,
        ValueError,
        OverflowError,
        RecursionError,
    ):
        return None
    return block if count_rows(block) == n_lines else None


# -- lines of one form, as cells ------------------------------------------------------------------


def _parse_cells(data: bytes, codes: TextCodes, depth: int) -> ColumnBlock:
    if depth == _MAX_FORMS:
        return _parse_objects(data, codes)
    sample = data[: 1 << 14].split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
    most_common_width = Counter(line.count(b",") + 1 for line in sample if line).most_common(1)
    if not most_common_width:
        raise _UnexpectedForm
    other_lines: list[tuple[int, bytes]] = []
    try:
        table = _split_cells(data, most_common_width[0][0], other_lines)
        block = _parse_columns(table, codes)
    except (_UnexpectedForm, pa.ArrowInvalid, ValueError):
        return _parse_objects(data, codes)
    if not other_lines:
        return block
    other_rows = _parse_cells(b"".join(line for _, line in other_lines), codes, depth + 1)
    return _merge_rows(block, other_rows, np.array([number - 1 for number, _ in other_lines]))


def _split_cells(data: bytes, n_cells: int, other_lines: list[tuple[int, bytes]]) -> pa.Table:
    def note_other_line(row: Any) -> str:
        other_lines.append((row.number, row.text.encode() + b"\n"))
        return "skip"

    names = [str(i) for i in range(n_cells)]
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=_ARROW_BLOCK_BYTES
        ),
        pyarrow.csv.ParseOptions(
            quote_char=False, escape_char=False, invalid_row_handler=note_other_line
        ),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            check_utf8=False,
            strings_can_be_null=False,
        ),
    )


def _parse_columns(table: pa.Table, codes: TextCodes) -> ColumnBlock:
    n_rows, last_index = table.num_rows, table.num_columns - 1
    block: ColumnBlock = {}
    for i, column in enumerate(table.columns):
        cells = column.combine_chunks()
        key_match = _CELL_PATTERN.fullmatch(cells[0].as_py())
        if key_match is None or (key_match[1][:1] == b"{") != (i == 0):
            raise _UnexpectedForm
        name = key_match[2].decode()
        if name not in SNAPSHOT_FIELDS or name in block:
            raise _UnexpectedForm
        read_column = _COLUMN_READERS[
            name if name in ("ts", COMPACTION_FIELD) else "text" if name in TEXT_FIELDS else "count"
        ]
        read_column(block, _Column(name, cells, key_match[1], i == last_index), codes)
    if not all(name in block for name in REQUIRED_FIELDS):
        raise _UnexpectedForm
    return {
        name: _missing_column(name, n_rows) if name not in block else block[name]
        for name in ARRAY_DTYPES
    }


def _missing_column(name: str, n_rows: int) -> np.ndarray[Any, Any]:
    fill: int = (
        -1 if name in TEXT_FIELDS else MISSING_TIME if name == "ts" else name.endswith(".missing")
    )
    return np.full(n_rows, fill, ARRAY_DTYPES[name])


def _cell_values(column: _Column) -> pa.Array:
    """Return the values of cells, without key and final brace, after checking both."""
    if not pc.all(pc.starts_with(column.cells, column.key)).as_py():
        raise _UnexpectedForm
    values = pc.binary_slice(column.cells, len(column.key), _MAX_CELL_BYTES)
    if not column.last:
        return values
    if not pc.all(pc.ends_with(values, b"}")).as_py():
        raise _UnexpectedForm
    lengths = pc.subtract(pc.binary_length(values), 1)
    longest = pc.max(lengths).as_py()
    without_brace = pc.ascii_rtrim(values.view(pa.string()), "}")
    if pc.any(pc.not_equal(pc.binary_length(without_brace), lengths)).as_py() or longest is None:
        raise _UnexpectedForm  # more than one brace
    return without_brace.view(pa.binary())


def _read_count(block: ColumnBlock, column: _Column, codes: TextCodes) -> None:  # noqa: ARG001
    texts = _cell_values(column).view(pa.string())
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts).cast(
            pa.int64()
        )
    if pc.any(pc.and_(pc.starts_with(texts, "0"), pc.greater(pc.binary_length(texts), 1))).as_py():
        raise _UnexpectedForm  # 0x1F and 007 are numbers for Arrow, but not in JSON
    _store_counts(block, column.name, numbers)


def _read_text(block: ColumnBlock, column: _Column, codes: TextCodes) -> None:
    if column.last:
        raise _UnexpectedForm
    encoded = column.cells.dictionary_encode()
    texts: list[str | None] = []
    for cell in encoded.dictionary.to_pylist():
        text = json.loads(cell.removeprefix(column.key)) if cell.startswith(column.key) else 0
        if not (text is None or isinstance(text, str)) or (
            text is not None and not _is_valid_text(text)
        ):
            raise _UnexpectedForm
        texts.append(text)
    code_by_index = np.array(encode_texts(codes[column.name], texts), np.int32)
    block[column.name] = code_by_index[encoded.indices.to_numpy(zero_copy_only=False)]


def _read_flag(block: ColumnBlock, column: _Column, codes: TextCodes) -> None:  # noqa: ARG001
    encoded = _cell_values(column).dictionary_encode()
    flag_by_text = {b"true": True, b"false": False, b"null": False}
    values = [flag_by_text.get(v) for v in encoded.dictionary.to_pylist()]
    if None in values:
        raise _UnexpectedForm
    block[column.name] = np.array(values, np.bool_)[encoded.indices.to_numpy(zero_copy_only=False)]


def _read_time(block: ColumnBlock, column: _Column, codes: TextCodes) -> None:  # noqa: ARG001
    """Read times that all have the same length, a fraction, and UTC, as one writer's have."""
    cells, key = column.cells, column.key
    first_cell = cells[0].as_py()
    time_match = re.fullmatch(
        rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9})((?:\\u002B|\+)00:00|Z)"',
        first_cell[len(key) :],
    )
    if time_match is None or column.last:
        raise _UnexpectedForm
    grid = _byte_matrix(cells, len(first_cell))
    time_end = np.frombuffer(time_match[2] + b'"', np.uint8)
    if (
        not (grid[:, -len(time_end) :] == time_end).all()
        or not (grid[:, : len(key) + 1] == grid[0, : len(key) + 1]).all()
    ):
        raise _UnexpectedForm
    time_start = len(key) + 1
    timestamps = (
        pc.binary_slice(cells, time_start, time_start + len(time_match[1]))
        .view(pa.string())
        .cast(pa.timestamp("ns"))
    )
    block[column.name] = timestamps.view(pa.int64()).to_numpy(zero_copy_only=False)


def _byte_matrix(cells: pa.Array, cell_bytes: int) -> np.ndarray[Any, Any]:
    """Return cells of equal size as a matrix of bytes."""
    offsets = np.frombuffer(cells.buffers()[1], np.int32)[
        cells.offset : cells.offset + len(cells) + 1
    ]
    if not (np.diff(offsets) == cell_bytes).all():
        raise _UnexpectedForm
    return np.frombuffer(cells.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(
        len(cells), cell_bytes
    )


_COLUMN_READERS: dict[str, Callable[[ColumnBlock, _Column, TextCodes], None]] = {
    "ts": _read_time,
    "text": _read_text,
    "count": _read_count,
    COMPACTION_FIELD: _read_flag,
}


def _merge_rows(
    block: ColumnBlock, other_rows: ColumnBlock, positions: np.ndarray[Any, Any]
) -> ColumnBlock:
    """Merge rows into a block at the given positions of the result."""
    n_rows = count_rows(block) + count_rows(other_rows)
    if len(positions) != count_rows(other_rows) or (len(positions) and positions[-1] >= n_rows):
        raise _UnexpectedForm
    is_in_block = np.ones(n_rows, np.bool_)
    is_in_block[positions] = False
    order = np.empty(n_rows, np.int64)
    order[is_in_block], order[positions] = (
        np.arange(count_rows(block)),
        np.arange(count_rows(block), n_rows),
    )
    return {name: values[order] for name, values in concat_blocks([block, other_rows]).items()}


# -- objects, by a typed JSON decoder -------------------------------------------------------------
# Arrow's own JSON parser ends the process on a line of `null` or deep nesting (pyarrow 26).


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


def _parse_objects(data: bytes, codes: TextCodes) -> ColumnBlock:
    lines = _DECODER.decode_lines(data)
    if not all(TIME_START.match(line.ts) for line in lines):
        raise _UnexpectedForm
    timestamps = pa.array([line.ts for line in lines], pa.string()).cast(pa.timestamp("ns", "UTC"))
    block: ColumnBlock = {"ts": timestamps.view(pa.int64()).to_numpy(zero_copy_only=False)}
    for name in TEXT_FIELDS:
        block[name] = np.array(encode_texts(codes[name], map(attrgetter(name), lines)), np.int32)
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
"""The first bytes of fuseraft's lines, which also mark the second record on a torn line."""
MAX_COUNT = 2**63 - 1
TIME_START = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
"""The beginning of a time."""
_MIN_REQUIRED_FIELDS = 3
"""An object with fewer of the required fields is no snapshot."""

Row = dict[str, Any]


def parse_lines_one_by_one(
    data: bytes, file: str, first_line: int, codes: TextCodes, report: FaultCollector
) -> ColumnBlock:
    """Parse each line alone; everything wrong with it becomes a fault.

    Args:
        data: whole lines.
        file: name of the log, for the faults.
        first_line: number of the first line, from 1.
        codes: codes by text; new texts are added.
        report: receives the faults.
    """
    rows: list[Row] = []
    for number, line in enumerate(data.split(b"\n"), first_line):
        if line and not line.isspace():
            rows.extend(_parse_line(line, file, number, report))
    return _rows_to_block(rows, codes)


def decode_line(line: bytes) -> Row | str:
    """Return the object of a line, or the reason why it has none.

    Python's decoder accepts what others refuse: NaN, large integers, lone surrogates.
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
    complete = [candidate for candidate in decoded if isinstance(candidate, dict)]
    report.add(
        file,
        number,
        f"{len(decoded)} records on one line, {len(complete)} of them whole",
        row_retained=bool(complete),
    )
    return [_parse_record(candidate, file, number, report) for candidate in complete]


def _parse_record(record: Row, file: str, number: int, report: FaultCollector) -> Row:
    row: Row = {}
    record = _rename_session(record, file, number, report)
    for name in SNAPSHOT_FIELDS:
        value = record.get(name)
        if value is None:
            if name in REQUIRED_FIELDS:
                report.add_once(
                    file, number, f"`{name}` is missing from here on, on this line at least"
                )
            continue
        row[name], problem = _parse_value(name, value)
        if problem:
            report.add(file, number, f"`{name}` {problem}", row_retained=True)
    for name in record.keys() - set(SNAPSHOT_FIELDS):
        report.add_once(file, number, f"`{name[:80]}` is no known field and was left out")
    return row


def _rename_session(record: Row, file: str, number: int, report: FaultCollector) -> Row:
    """Return a line with fuseraft's name for the field of its session."""
    if record.get("session") is not None:
        return record
    name = next((n for n in SESSION_NAMES if record.get(n) is not None), None)
    if name is None:
        return record
    report.add_once(file, number, f"`{name}` was read as `session`")
    return {k: v for k, v in record.items() if k != name} | {"session": record[name]}


def _parse_value(name: str, value: Any) -> tuple[Any, str]:
    """Return a value in the column's type, or None, and what was wrong with it."""
    if name == "ts":
        return _parse_time(value)
    if name in TEXT_FIELDS:
        return _parse_text(value)
    if name == COMPACTION_FIELD:
        return (
            (value, "")
            if isinstance(value, bool)
            else (None, f"is no truth value but {_show_value(value)}: left out")
        )
    return _parse_count(value)


def _parse_count(value: Any) -> tuple[int | None, str]:
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isascii():
        number = int(value) if value.removeprefix("-").isdigit() else value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    else:
        number = value
    if isinstance(number, bool) or not isinstance(number, int):
        return None, f"is no whole number but {_show_value(value)}: left out"
    if abs(number) > MAX_COUNT:
        return None, "is beyond 64 bits: left out"
    return number, "" if number is value else f"is {_show_value(value)}: read as {number}"


def _parse_text(value: Any) -> tuple[str | None, str]:
    if isinstance(value, str):
        valid = value.encode("utf-8", "replace").decode("utf-8")
        return valid, "" if valid == value else "holds half a surrogate pair: replaced"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value), f"is the number {_show_value(value)}: read as text"
    return None, f"is no text but {_show_value(value)}: left out"


def _parse_time(value: Any) -> tuple[int | None, str]:
    if isinstance(value, str) and TIME_START.match(value):
        try:
            timestamp = pd.Timestamp(value)
            utc = timestamp if timestamp.tzinfo is None else timestamp.tz_convert("UTC")
            return int(utc.as_unit("ns").value), ""
        except (ValueError, OverflowError):  # OutOfBoundsDatetime is a ValueError
            pass
    return None, f"is no time between 1678 and 2262 but {_show_value(value)}: left out"


def _show_value(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, (str, float, bool)) else str(value)[:60]


def _rows_to_block(rows: list[Row], codes: TextCodes) -> ColumnBlock:
    block: ColumnBlock = {
        "ts": np.array(
            [MISSING_TIME if (time := each.get("ts")) is None else time for each in rows], np.int64
        )
    }
    for name in TEXT_FIELDS:
        block[name] = np.array(
            encode_texts(codes[name], (each.get(name) for each in rows)), np.int32
        )
    for name in COUNT_FIELDS:
        values = [each.get(name) for each in rows]
        block[f"{name}.missing"] = np.array([value is None for value in values], np.bool_)
        block[name] = np.array([value or 0 for value in values], np.int64)
    block[COMPACTION_FIELD] = np.array(
        [bool(each.get(COMPACTION_FIELD)) for each in rows], np.bool_
    )
    return {name: block[name] for name in ARRAY_DTYPES}
