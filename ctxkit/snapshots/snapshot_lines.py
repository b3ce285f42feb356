"""One line of a snapshot log at a time: slow, forgiving, and exact about what is wrong with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

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
)

if TYPE_CHECKING:
    from ctxkit.snapshots.faults import Report

START = b'{"ts":'
"""How a line of fuseraft's begins; behind a torn line, the second one begins here."""
LARGEST = 2**63 - 1
ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
"""How a time begins."""
_FEW = 3  # always-fields below which an object is some other record

Row = dict[str, Any]


def parse_lines(data: bytes, file: str, first: int, words: Words, report: Report) -> Block:
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
            found.extend(_rows(line, file, number, report))
    return _block(found, words)


def decode(line: bytes) -> Row | str:
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
    if sum(name in record for name in ALWAYS) < _FEW:
        return (
            "a JSON object, but no snapshot: fields such as agent, turn, turn_input_tokens are not"
            " there"
        )
    return record


def _rows(line: bytes, file: str, number: int, report: Report) -> list[Row]:
    record = decode(line)
    if isinstance(record, dict):
        return [_row(record, file, number, report)]
    pieces = line.split(START)
    if len(pieces) == 1 or (line.count(START) == 1 and line.startswith(START)):
        report.add(file, number, record)
        return []
    decoded = [decode(START + piece) for piece in pieces[1:]]
    whole = [d for d in decoded if isinstance(d, dict)]
    report.add(
        file,
        number,
        f"{len(decoded)} records on one line, {len(whole)} of them whole",
        kept=bool(whole),
    )
    return [_row(d, file, number, report) for d in whole]


def _row(record: Row, file: str, number: int, report: Report) -> Row:
    row: Row = {}
    for name in NAMES:
        value = record.get(name)
        if value is None:
            if name in ALWAYS:
                report.once(
                    file, number, f"`{name}` is missing from here on, on this line at least"
                )
            continue
        row[name], wrong = _value(name, value)
        if wrong:
            report.add(file, number, f"`{name}` {wrong}", kept=True)
    for name in record.keys() - set(NAMES):
        report.once(file, number, f"`{name[:80]}` is no known field and was left out")
    return row


def _value(name: str, value: Any) -> tuple[Any, str]:
    """The value as the column wants it, or None, and what was wrong with it."""
    if name == "ts":
        return _time(value)
    if name in TEXTS:
        return _text(value)
    if name == FLAG:
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
    if abs(number) > LARGEST:
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
    if isinstance(value, str) and ISO.match(value):
        try:
            stamp = pd.Timestamp(value)
            utc = stamp if stamp.tzinfo is None else stamp.tz_convert("UTC")
            return int(utc.as_unit("ns").value), ""
        except (ValueError, OverflowError):  # OutOfBoundsDatetime is a ValueError
            pass
    return None, f"is no time between 1678 and 2262 but {_show(value)}: left out"


def _show(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, (str, float, bool)) else str(value)[:60]


def _block(found: list[Row], words: Words) -> Block:
    block: Block = {
        "ts": np.array([NAT if (t := r.get("ts")) is None else t for r in found], np.int64)
    }
    for name in TEXTS:
        block[name] = np.array(codes(words[name], (r.get(name) for r in found)), np.int32)
    for name in COUNTS:
        values = [r.get(name) for r in found]
        block[f"{name}.missing"] = np.array([v is None for v in values], np.bool_)
        block[name] = np.array([v or 0 for v in values], np.int64)
    block[FLAG] = np.array([bool(r.get(FLAG)) for r in found], np.bool_)
    return {name: block[name] for name in ARRAYS}
