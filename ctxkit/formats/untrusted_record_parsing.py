"""Tolerant access to the fields of untrusted records; damaged records become faults.

A reader handles each record inside `catch_damage` (or passes all of them to `read_each_line` or
`read_each_object`). Required fields are read with `require_field`, all others with the `as_*` and
`*_or_none` functions. A wrong type thus costs one field, a broken record one line, and everything
else is read.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


DAMAGE_ERRORS = (
    TypeError,
    KeyError,
    ValueError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""Errors that a damaged record can raise in a reader; each is counted as a `Fault` of its line."""

_T = TypeVar("_T")
_TYPE_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
MOST_COUNT = (1 << 53) - 1
"""The largest count that is read: above it the numbers of JSON are not exact."""
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_UTC = timezone.utc  # noqa: UP017  one look-up less in a hot path
_decode = msgspec.json.Decoder().decode


def require_field(record: dict[str, Any], key: str, kind: type[_T]) -> _T:
    """Return ``record[key]`` if it has the required type.

    Args:
        record: a raw object.
        key: key of the field.
        kind: required type.

    Raises:
        ValueError: it is missing or of another type; the message names the expected type.
    """
    value = record.get(key)
    if not isinstance(value, kind):
        raise ValueError(f"expected {key!r} to be {_TYPE_NAMES.get(kind, kind.__name__)}")  # noqa: TRY004  one class
    return value


def describe_damage(error: BaseException) -> str:
    """Return the text of a `Fault` for an error that a damaged record raised."""
    message = str(error) if isinstance(error, ValueError) else ""
    return "damaged record: " + (message[:160] or type(error).__name__)


def as_str(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if type(value) is str else ""


def str_or_none(value: Any) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return value if type(value) is str and value else None


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty dict."""
    return value if type(value) is dict else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty list."""
    return value if type(value) is list else []


def count_or_none(value: Any) -> int | None:
    """Return a count from 0 to `MOST_COUNT`, else None; whole floats count, booleans do not."""
    if type(value) is int:
        return value if 0 <= value <= MOST_COUNT else None
    if type(value) is float and value.is_integer() and 0 <= value <= MOST_COUNT:
        return int(value)
    return None


def float_or_none(value: Any) -> float | None:
    """Return a number from 0 to `MOST_COUNT` (money, seconds) as a float, else None."""
    if type(value) is float or type(value) is int:
        return float(value) if 0 <= value <= MOST_COUNT else None
    return None


def parse_timestamp(value: Any) -> float | None:
    """Return Unix seconds from an ISO 8601 string or a number, else None.

    A string without a zone is taken as UTC; a number above 1e11 as milliseconds.
    """
    if type(value) is str:
        try:
            parsed = datetime.fromisoformat(value)
            seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=_UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
        return seconds if _YEAR_1 <= seconds <= _YEAR_9999 else None
    if (type(value) is int or type(value) is float) and 0 < value < 1e14:
        return value / 1000 if value > 1e11 else float(value)
    return None


def parse_unix_seconds(value: Any) -> float | None:
    """Return a number of Unix seconds within the years 1 to 9999 as a float, else None."""
    if type(value) is float or type(value) is int:
        return float(value) if _YEAR_1 <= value <= _YEAR_9999 else None
    return None


def parse_arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a tool call as (object, None).

    Arguments that are no JSON object are returned as ({}, text as written).
    """
    if type(value) is dict:
        return value, None
    if type(value) is str:
        try:
            decoded = _decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return {}, value
        return (decoded, None) if type(decoded) is dict else ({}, value)
    return {}, None if value is None else json_to_text(value)


def json_to_text(value: Any) -> str:
    """Return any JSON value as text: a string unchanged, None as "", other values as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError):
        return ""


@contextmanager
def catch_damage(faults: list[Fault], line: int, prefix: str = "") -> Iterator[None]:
    """Run the block for one record; if the record is damaged, append a fault with its line.

    Args:
        faults: receives the fault.
        line: the record's line, from 1; 0 if it has none.
        prefix: text that goes before the description of the damage.
    """
    try:
        yield
    except DAMAGE_ERRORS as e:
        faults.append(Fault(line, prefix + describe_damage(e)))


def read_each_line(
    records: Iterable[tuple[int, Any]],
    read_record: Callable[[Any], object],
    faults: list[Fault],
) -> None:
    """Call a function with each record of a file; a damaged record becomes a fault with its line.

    Args:
        records: line numbers and raw records.
        read_record: reads one record.
        faults: gets a fault for each record whose reading raised one of `DAMAGE_ERRORS`.
    """
    for line, record in records:
        try:
            read_record(record)
        except DAMAGE_ERRORS as e:
            faults.append(Fault(line, describe_damage(e)))


def read_each_object(
    items: Iterable[Any],
    noun: str,
    read_item: Callable[[dict[str, Any]], object],
    faults: list[Fault],
) -> None:
    """Call `read_item` with each object of a list; a damaged one becomes a fault with its index.

    Args:
        items: the list; an item that is no object is replaced by an empty one.
        noun: the noun for an item in the fault's text.
        read_item: reads one object.
        faults: receives the faults.
    """
    for index, item in enumerate(items):
        try:
            read_item(as_dict(item))
        except DAMAGE_ERRORS as e:
            faults.append(Fault(0, f"{noun} {index}: {describe_damage(e)}"))


_EXIT_CODE_SEARCH_CHARS = 400
_EXIT_CODE_PATTERN = re.compile(
    r"\A\s*<returncode>\s*(-?\d+)|^Exit code: (-?\d+)\s*$|^Process exited with code (-?\d+)\s*$"
    r"|\A(?:exec_command )?failed in sandbox .*?exit code: (-?\d+)",
    re.MULTILINE,
)
"""What mini-SWE-agent and Codex (shell, unified shell, sandbox) write before an output."""


def parse_exit_code(output: str) -> int | None:
    """Return the exit code written at the head of a command's output, or None."""
    match = _EXIT_CODE_PATTERN.search(output[:_EXIT_CODE_SEARCH_CHARS])
    return (
        None if match is None else int(next(group for group in match.groups() if group is not None))
    )


def is_failed_exit(code: object) -> bool:
    """Return True for a non-zero exit code."""
    return type(code) is int and code != 0


def format_timestamp(time: float | None) -> str:
    """Return Unix seconds as an ISO 8601 string with milliseconds and `Z`; None becomes 1970."""
    try:
        stamp = datetime.fromtimestamp(time or 0, timezone.utc)  # noqa: UP017
    except (ValueError, OverflowError, OSError):
        stamp = datetime.fromtimestamp(0, timezone.utc)  # noqa: UP017
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_embedded_json(value: Any) -> Any:
    """Decode a string that holds JSON, encoded once or twice; return other values unchanged."""
    for _ in range(2):
        if type(value) is not str or value[:1] not in ("{", "[", '"'):
            break
        try:
            value = _decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            break
    return value
