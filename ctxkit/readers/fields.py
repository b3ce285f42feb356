"""Fields of untrusted records, read tolerantly: each function takes anything and gives one type.

A reader takes each record under `damaged.noting` (or gives all to `each_line` or `each_of`),
demands what a record cannot do without, and takes the rest with the soft functions, so that a
wrong type costs a field, a broken record costs a line, and the rest is kept.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

DAMAGE = (
    TypeError,
    KeyError,
    ValueError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""What a damaged record can raise in a reader's hands; to be counted as a `Fault` with its line."""

_T = TypeVar("_T")
_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
MOST_COUNT = (1 << 53) - 1
"""No count in a log is larger: above it JSON's numbers are not exact."""
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_UTC = timezone.utc  # noqa: UP017  one look-up less in a hot path
_decode = msgspec.json.Decoder().decode


def demand(record: dict[str, Any], key: str, kind: type[_T]) -> _T:
    """Return ``record[key]`` where it has the type asked for.

    Raises:
        ValueError: it is missing or of another type; the sentence names what was expected.
    """
    value = record.get(key)
    if not isinstance(value, kind):
        raise ValueError(f"expected {key!r} to be {_NAMES.get(kind, kind.__name__)}")  # noqa: TRY004  one class
    return value


def why(error: BaseException) -> str:
    """Return the sentence for a `Fault` from what a damaged record raised."""
    said = str(error) if isinstance(error, ValueError) else ""
    return "damaged record: " + (said[:160] or type(error).__name__)


def text(value: Any) -> str:
    """Return a text, or an empty one."""
    return value if type(value) is str else ""


def word(value: Any) -> str | None:
    """Return a text that is not empty, or None."""
    return value if type(value) is str and value else None


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if type(value) is dict else {}


def items(value: Any) -> list[Any]:
    """Return a list, or an empty one."""
    return value if type(value) is list else []


def number(value: Any) -> int | None:
    """Return a count, from 0 to `MOST_COUNT`, or None; a whole float counts, a boolean does not."""
    if type(value) is int:
        return value if 0 <= value <= MOST_COUNT else None
    if type(value) is float and value.is_integer() and 0 <= value <= MOST_COUNT:
        return int(value)
    return None


def real(value: Any) -> float | None:
    """Return a finite number, zero or more (money, seconds), or None."""
    if type(value) is float or type(value) is int:
        return float(value) if 0 <= value <= MOST_COUNT else None
    return None


def time(value: Any) -> float | None:
    """Return Unix seconds of an ISO text (no zone: UTC), of seconds or milliseconds; else None."""
    if type(value) is str:
        try:
            stamp = datetime.fromisoformat(value)
            moment = (stamp if stamp.tzinfo else stamp.replace(tzinfo=_UTC)).timestamp()
            return seconds_since_1970(moment)
        except (ValueError, OverflowError):
            return None
    if (type(value) is int or type(value) is float) and 0 < value < 1e14:
        return value / 1000 if value > 1e11 else float(value)
    return None


def seconds_since_1970(value: Any) -> float | None:
    """Return Unix seconds, of the years 1 to 9999, as they are written; else None."""
    if type(value) is float or type(value) is int:
        return float(value) if _YEAR_1 <= value <= _YEAR_9999 else None
    return None


def arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return a call's arguments as (object, None), or ({}, text as written) if no JSON object."""
    if type(value) is dict:
        return value, None
    if type(value) is str:
        try:
            decoded = _decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return {}, value
        return (decoded, None) if type(decoded) is dict else ({}, value)
    return {}, None if value is None else as_text(value)


def as_text(value: Any) -> str:
    """Return any JSON value as text: a text as it is, None as nothing, the rest as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError):
        return ""
