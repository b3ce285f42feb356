"""Fields of untrusted records read tolerantly; damaged records become faults.

A reader takes each record under `damaged.noting` (or gives all to `each_line` or `each_of`),
demands what a record cannot do without, and takes the rest with the soft functions, so that a
wrong type costs a field, a broken record costs a line, and the rest is kept.
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
"""What a damaged record can raise in a reader's hands; to be counted as a `Fault` with its line."""

_T = TypeVar("_T")
_NAMES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
MOST_COUNT = (1 << 53) - 1
"""No count in a log is larger: above it JSON's numbers are not exact."""
_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799
_UTC = timezone.utc  # noqa: UP017  one look-up less in a hot path
_decode = msgspec.json.Decoder().decode


def require_field(record: dict[str, Any], key: str, kind: type[_T]) -> _T:
    """Return ``record[key]`` where it has the type asked for.

    Raises:
        ValueError: it is missing or of another type; the sentence names what was expected.
    """
    value = record.get(key)
    if not isinstance(value, kind):
        raise ValueError(f"expected {key!r} to be {_NAMES.get(kind, kind.__name__)}")  # noqa: TRY004  one class
    return value


def describe_damage(error: BaseException) -> str:
    """Return the sentence for a `Fault` from what a damaged record raised."""
    said = str(error) if isinstance(error, ValueError) else ""
    return "damaged record: " + (said[:160] or type(error).__name__)


def as_str(value: Any) -> str:
    """Return a text, or an empty one."""
    return value if type(value) is str else ""


def str_or_none(value: Any) -> str | None:
    """Return a text that is not empty, or None."""
    return value if type(value) is str and value else None


def as_dict(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if type(value) is dict else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, or an empty one."""
    return value if type(value) is list else []


def count_or_none(value: Any) -> int | None:
    """Return a count, from 0 to `MOST_COUNT`, or None; a whole float counts, a boolean does not."""
    if type(value) is int:
        return value if 0 <= value <= MOST_COUNT else None
    if type(value) is float and value.is_integer() and 0 <= value <= MOST_COUNT:
        return int(value)
    return None


def float_or_none(value: Any) -> float | None:
    """Return a finite number, zero or more (money, seconds), or None."""
    if type(value) is float or type(value) is int:
        return float(value) if 0 <= value <= MOST_COUNT else None
    return None


def parse_timestamp(value: Any) -> float | None:
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


def parse_arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return a call's arguments as (object, None), or ({}, text as written) if no JSON object."""
    if type(value) is dict:
        return value, None
    if type(value) is str:
        try:
            decoded = _decode(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return {}, value
        return (decoded, None) if type(decoded) is dict else ({}, value)
    return {}, None if value is None else to_text(value)


def to_text(value: Any) -> str:
    """Return any JSON value as text: a text as it is, None as nothing, the rest as JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError):
        return ""


@contextmanager
def catch_damage(faults: list[Fault], line: int, what: str = "") -> Iterator[None]:
    """Take one record; where it is damaged, its line is noted, with what it is."""
    try:
        yield
    except DAMAGE_ERRORS as e:
        faults.append(Fault(line, what + describe_damage(e)))


def read_each_line(
    records: Iterable[tuple[int, Any]], take: Callable[[Any], object], faults: list[Fault]
) -> None:
    """Give each record to a reader; of a damaged one the line is noted."""
    for line, record in records:
        try:
            take(record)
        except DAMAGE_ERRORS as e:
            faults.append(Fault(line, describe_damage(e)))


def read_each_object(
    raws: Iterable[Any],
    what: str,
    take: Callable[[dict[str, Any]], object],
    faults: list[Fault],
) -> None:
    """Give each of a list's objects to a reader; of a damaged one its place is noted.

    Args:
        raws: the list; what is no object is taken for an empty one.
        what: what they are, in a word.
        take: reads one.
        faults: gets the damaged ones.
    """
    for n, raw in enumerate(raws):
        try:
            take(as_dict(raw))
        except DAMAGE_ERRORS as e:
            faults.append(Fault(0, f"{what} {n}: {describe_damage(e)}"))


_SEARCHED_CHARS = 400
_EXIT_CODE = re.compile(
    r"\A\s*<returncode>\s*(-?\d+)|^Exit code: (-?\d+)\s*$|^Process exited with code (-?\d+)\s*$"
    r"|\A(?:exec_command )?failed in sandbox .*?exit code: (-?\d+)",
    re.MULTILINE,
)
"""How mini-SWE-agent and Codex (its shell, its unified shell, its sandbox) head an output."""


def parse_exit_code(output: str) -> int | None:
    """Return the exit code that heads the output of a command; None where none does."""
    found = _EXIT_CODE.search(output[:_SEARCHED_CHARS])
    return None if found is None else int(next(g for g in found.groups() if g is not None))


def is_failed_exit(code: object) -> bool:
    """Say whether an exit code is one of a failure."""
    return type(code) is int and code != 0


def format_timestamp(time: float | None) -> str:
    """Return seconds since 1970 as Pi writes them; nothing known is the beginning of 1970."""
    try:
        stamp = datetime.fromtimestamp(time or 0, timezone.utc)  # noqa: UP017
    except (ValueError, OverflowError, OSError):
        stamp = datetime.fromtimestamp(0, timezone.utc)  # noqa: UP017
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_embedded_json(value: Any) -> Any:
    """Return JSON out of a text (packed twice, as some exporters do); anything else as it is."""
    for _ in range(2):
        if type(value) is not str or value[:1] not in ("{", "[", '"'):
            break
        try:
            value = _decode_json(value)
        except (msgspec.DecodeError, ValueError, RecursionError):
            break
    return value


_decode_json = msgspec.json.Decoder().decode
