"""Kinds of values of settings and config files, and the check of a value against them."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable  # noqa: TC003  read by dataclasses
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import inf, isfinite
from numbers import Real
from typing import Any

from ctxkit.errors import BadArguments, short_repr

MAX_NUMBER = 10**12
"""No number in a config file is larger; the bound refuses NaN and numbers of a thousand digits."""


@dataclass(frozen=True)
class ValueKind:
    """A kind of value: its description for people, and the conversion to it."""

    words: str
    """What a value must be, as it ends the sentence "... must be"."""
    convert: Callable[[Any], Any]
    """Converts a value; returns None for a value of another kind."""
    write: Callable[[Any], Any] = lambda value: value
    """Returns the setting as written to a config file; None: it is left out."""

    def check(self, value: Any, need: str) -> Any:
        """Return the value converted to this kind.

        Args:
            value: the value to check.
            need: the error sentence, with `{words}` in place of the description.

        Raises:
            BadArguments: the value is of another kind.
        """
        return _convert(value, (self,), need)


def _convert(value: Any, kinds: tuple[ValueKind, ...], need: str) -> Any:
    for kind in kinds:
        converted = kind.convert(value)
        if converted is not None:
            return converted
    words = " or ".join(kind.words for kind in kinds)
    raise BadArguments(f"{need.format(words=words)}, not {short_repr(value)}.")


def is_number(value: Any) -> bool:
    """Return whether a value is a number of any type; a boolean is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def _whole(low: float = -inf, high: float = inf) -> Callable[[Any], int | None]:
    def convert(value: Any) -> int | None:
        is_whole = is_number(value) and value == value // 1  # infinity and NaN are not whole
        return int(value) if is_whole and low <= value <= high else None

    return convert


def _real(fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    return lambda value: value if is_number(value) and fits(value) else None


def _instance_of(*types: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, types) else None


def _name_tuple(value: Any) -> tuple[str, ...] | None:
    names = (value,) if isinstance(value, str) else value
    is_several = isinstance(names, (tuple, list, set))
    return tuple(names) if is_several and all(isinstance(n, str) for n in names) else None


def _name_list(value: Any) -> tuple[str, ...] | None:
    return _name_tuple(value) if isinstance(value, list) else None


def _counts(value: Any) -> dict[str, int] | None:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        return None
    counts = {name: WHOLE.convert(n) for name, n in value.items()}
    return None if None in counts.values() else counts


def _section_list(value: Any) -> list[dict[Any, Any]] | None:
    is_list = isinstance(value, list) and all(isinstance(row, dict) for row in value)
    return value if is_list else None


DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def _seconds(value: Any) -> float | None:
    """Return the seconds of a duration such as ``1h30m``; a bare number is minutes."""
    if not isinstance(value, str):
        minutes = NUMBER.convert(value)
        return None if minutes is None else 60.0 * minutes
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return 60.0 * float(text)
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum(float(n) * DURATION_UNITS[unit] for n, unit in _DURATION.findall(text))


def _shorten_number(value: float) -> float:
    return int(value) if value == int(value) else value


NATURAL = ValueKind("a whole number of 0 or more", _whole(0))
WHOLE = ValueKind(NATURAL.words, _whole(0, MAX_NUMBER))
POSITIVE = ValueKind("a whole number of 1 or more", _whole(1, MAX_NUMBER))
NUMBER = ValueKind("a number of 0 or more", _real(lambda x: 0 <= x <= MAX_NUMBER), _shorten_number)
PROPORTION = ValueKind("a number between 0 and 1", _real(lambda x: 0 <= x <= 1))
FLAG = ValueKind("true or false", _instance_of(bool))
TEXT = ValueKind("a text", _instance_of(str))
PROMPT = ValueKind("a text", _instance_of(str), lambda text: text or None)
LABEL = ValueKind("a text", lambda v: str(v) if isinstance(v, (str, int, float)) else None)
"""A text that may be written as a number: `Name: 7`."""
NAMES = ValueKind("a list of texts", _name_list, list)
ONE_OR_MORE_NAMES = ValueKind("a list of texts", _name_tuple, list)
COUNTS = ValueKind("a section of names and whole numbers", _counts, dict)
SECTION = ValueKind("a section of keys and values", _instance_of(dict))
SECTIONS = ValueKind("a list of sections with keys and values", _section_list)
DURATION = ValueKind(
    "a duration such as '5m' or '1h'",
    _seconds,
    lambda seconds: f"{Decimal(repr(_shorten_number(seconds))):f}s",
)


def make_choice_kind(*words: str) -> ValueKind:
    """Return the kind whose values are these words, in upper or lower case."""

    def convert(value: Any) -> str | None:
        word = value.strip().lower() if isinstance(value, str) else None
        return word if word in words else None

    return ValueKind("one of " + ", ".join(words), convert)


_KINDS_BY_TYPE = {
    "tuple[str, ...]": ValueKind("names", _name_tuple),
    "int": ValueKind("a whole number", _whole()),
    "Natural": NATURAL,
    "Positive": ValueKind(POSITIVE.words, _whole(1)),
    "Proportion": PROPORTION,
    "PositiveShare": ValueKind("a number above 0 and up to 1", _real(lambda x: 0 < x <= 1)),
    "AboveZero": ValueKind("a number above 0", _real(lambda x: x > 0)),
    "float": ValueKind("a number", _real(isfinite)),
    "str": ValueKind("text", _instance_of(str)),
    "bool": ValueKind("True or False", _instance_of(bool)),
}
"""The kinds of a parameter in Python, by its annotation; `policies.policy_base_and_chains` has the
aliases.
"""


def coerce_setting(value: Any, type_text: str, error_sentence: str) -> Any:
    """Return a setting's value converted to its annotated type.

    Args:
        value: the value to check.
        type_text: the type as text; for an unknown type any value is accepted.
        error_sentence: the error sentence, with `{words}` in place of the description.

    Raises:
        BadArguments: the value is of another type.
    """
    kinds = _kinds_of(type_text)
    if not kinds or (value is None and type_text.endswith(" | None")):
        return value
    return _convert(value, kinds, error_sentence)


@cache
def _kinds_of(annotation: str) -> tuple[ValueKind, ...]:
    """Return the kinds of value that an annotation names; empty if one of them is unknown."""
    kinds = []
    for name in annotation.removesuffix(" | None").split(" | "):
        if name.startswith("Literal["):
            kinds.append(_one_of(literal_eval(name.removeprefix("Literal"))))
        elif name in _KINDS_BY_TYPE:
            kinds.append(_KINDS_BY_TYPE[name])
        else:
            return ()
    return tuple(kinds)


def _one_of(words: list[str]) -> ValueKind:
    *others, last = words
    phrase = f"{', '.join(others)} or {last}" if others else last
    return ValueKind(phrase, lambda value: value if value in words else None)
