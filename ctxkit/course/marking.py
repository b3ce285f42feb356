"""How answers are marked: numbers, words, lists, spans, guesses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import NO_MATHJAX, escape_html
from ctxkit._internal.tables import TEXT_COLOR_CSS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_CODE = re.compile(r"`([^`]+)`")
_SCALES = (
    (100.0, "You are off by a factor of 100: share or per cent?"),
    (1_000.0, "You are off by a factor of 1,000."),
    (1e6, "You are off by a factor of a million: prices are dollars a million tokens."),
)
_MOST = 1_000
"""Answers of one list that are looked at."""


@dataclass(frozen=True, repr=False)
class AnswerMark:
    """What was said of an answer."""

    key: str
    right: bool | None
    """None: nothing was answered yet, or it was a guess."""
    said: str

    def __str__(self) -> str:
        word = {True: "right. ", False: "not yet. ", None: ""}[self.right]
        return f"{self.key}: {word}{self.said}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, _, rest = str(self).partition(": ")
        ink = {True: "#009e73", False: "#d55e00", None: "#3a93cc"}[self.right]
        told = _CODE.sub(r"<code>\1</code>", escape_html(rest, 2000))
        return (
            f'<div class="{NO_MATHJAX}" style="{TEXT_COLOR_CSS};border-left:4px solid {ink};'
            "padding:2px 10px;margin:4px 0;"
            f'max-width:52em"><strong>{escape_html(head)}</strong>: {told}</div>'
        )


def as_float(given: Any) -> float | None:
    """Return a number of any kind, also one that a table gave; None: it is no finite number."""
    if hasattr(given, "dtype"):
        with suppress(ValueError):  # an array of several
            given = given.item()
    if not isinstance(given, bool) and isinstance(given, (Real, Decimal)):
        with suppress(ValueError, OverflowError):
            return value if isfinite(value := float(given)) else None
    return None


def as_pair(given: Any) -> tuple[float, float] | None:
    """Return the two numbers of a tuple, a list or an array; None: they are no two."""
    match [as_float(each) for each in islice(given, 3)] if isinstance(given, Iterable) else []:
        case [float(first), float(last)]:
            return first, last
    return None


def mark_number(
    given: Any, right: float, *, within: float = 0.005, slips: Mapping[str, float] | None = None
) -> str:
    """Say what is wrong with a number; empty where it is right.

    Args:
        given: the answer.
        right: what it should be.
        within: share of it that an answer may be off.
        slips: what one gets by a known mistake, by the sentence that says so.
    """
    value = as_float(given)
    if value is None:
        return "Give a number, without quotes or a unit."
    if _near(value, right, within):
        return ""
    for said, slip in (slips or {}).items():
        if _near(value, slip, within):
            return said
    if value and right and (value < 0) != (right < 0):
        return "The sign is wrong."
    for factor, said in _SCALES:
        if _near(value, right * factor, within) or _near(value, right / factor, within):
            return said
    far = abs(value - right) > 0.2 * abs(right)
    return f"{'Far too' if far else 'A little too'} {'high' if value > right else 'low'}."


def _near(value: float, right: float, within: float) -> bool:
    return abs(value - right) <= within * abs(right) + 1e-12


def mark_choice(given: Any, right: str, among: Collection[str], why: Mapping[str, str]) -> str:
    """Say what is wrong with one word of several; `why` has a sentence for each wrong one."""
    word = _normalise_word(given)
    if word == right:
        return ""
    if word not in among:
        return f"Answer with one of {', '.join(map(repr, among))}."
    return why.get(word, "No.")


def mark_list(given: Any, right: Collection[Any]) -> str:
    """Say how many of several answers are wrong and how many are missing."""
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        return "Give a list."
    said, wanted = set(map(_normalise_word, islice(given, _MOST))), set(map(_normalise_word, right))
    wrong, missing = len(said - wanted), len(wanted - said)
    parts = [f"{wrong} of yours {_plural(wrong, 'does', 'do')} not belong there"] if wrong else []
    parts += [f"{missing} {_plural(missing, 'is', 'are')} missing"] if missing else []
    return f"{' and '.join(parts).capitalize()}." if parts else ""


def _plural(n: int, one: str, more: str) -> str:
    return one if n == 1 else more


def _normalise_word(word: Any) -> str:
    """Return a word as it is compared; of what is no word a name that is never right."""
    return word.strip().rstrip(".").lower() if isinstance(word, str) else f"object {id(word)}"


def mark_span(given: Any, right: tuple[int, int]) -> str:
    """Say which end of a span (first, last) is wrong."""
    pair = as_pair(given)
    if pair is None:
        return "Give two numbers: (first, last)."
    ends = (("first", pair[0], right[0]), ("last", pair[1], right[1]))
    off = [
        f"the {name} is too {'late' if value > wanted else 'early'}"
        for name, value, wanted in ends
        if value != wanted
    ]
    return f"{' and '.join(off).capitalize()}." if off else ""


def score_guess(given: Any, right: float, unit: str = "") -> str:
    """Score a guess of a number: what it is, and how far the guess was off."""
    value = as_float(given)
    if value is None:
        return (
            f"It is {_format_number(right, unit)}. Next time guess first: a number, before "
            "you run it."
        )
    off = abs(value - right)
    near = off <= 0.1 * abs(right)
    away = _format_number(off, "points" if unit == "%" else unit)
    return (
        f"You said {_format_number(value, unit)}, it is {_format_number(right, unit)}: "
        f"{'well guessed.' if near else f'off by {away}.'}"
    )


def _format_number(value: float, unit: str) -> str:
    if unit == "$":
        return f"${value:,.2f}"
    short = f"{value:.2g}" if 0 < abs(value) < 10 else f"{value:,.0f}"
    return f"{short}{' ' if unit and unit != '%' else ''}{unit}"
