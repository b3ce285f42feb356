"""The kinds of value that config files hold: what is taken, and how it is written back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 10**12
"""No setting is larger; also what keeps out NaN, infinity and numbers of a thousand digits."""
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


@dataclass(frozen=True)
class ValueKind:
    """One kind of value."""

    words: str
    """What a value must be, as it ends the sentence "... must be"."""
    read: Callable[[Any], Any]
    """The file's value to the preset's; raises ValueError for one of another kind."""
    write: Callable[[Any], Any]
    """The preset's value to the file's; None: it is left out."""


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if _number(value) != int(value) or value < least:
            raise ValueError(value)
        return int(value)

    return read


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MOST:
        raise ValueError(value)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004  one error for all kinds
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004  one error for all kinds
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ValueError(value)
    return tuple(value)


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise ValueError(value)
    return {k: _whole(0)(v) for k, v in value.items()}


def _seconds(value: Any) -> float:
    """Return the seconds of a duration such as ``1h30m``; a bare number is minutes."""
    if not isinstance(value, str):
        return 60.0 * _number(value)
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return 60.0 * float(text)
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h|d))+", text):
        raise ValueError(value)
    return sum(
        float(n) * UNITS[unit] for n, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    )


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


WHOLE = ValueKind("a whole number of 0 or more", _whole(0), int)
POSITIVE = ValueKind("a whole number above 0", _whole(1), int)
NUMBER = ValueKind("a number of 0 or more", _number, _plain)
FLAG = ValueKind("true or false", _flag, bool)
TEXT = ValueKind("a text", _text, str)
PROMPT = ValueKind("a text", _text, lambda s: s or None)
NAMES = ValueKind("a list of texts", _names, list)
COUNTS = ValueKind("a section of names and whole numbers", _counts, dict)
DURATION = ValueKind(
    "a duration such as '5m' or '1h'", _seconds, lambda s: f"{Decimal(repr(_plain(s))):f}s"
)


def choice(*words: str) -> ValueKind:
    """Return the kind that takes one of these words, in any case."""

    def read(value: Any) -> str:
        low = _text(value).strip().lower()
        if low not in words:
            raise ValueError(value)
        return low

    return ValueKind("one of " + ", ".join(words), read, str)
