"""Marks for answers: numbers, words, lists, spans, guesses."""

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
_MAX_ANSWERS = 1_000
"""Answers of one list that are looked at."""


@dataclass(frozen=True, repr=False)
class AnswerMark:
    """The mark of an answer: right or wrong, with a sentence."""

    key: str
    right: bool | None
    """None: nothing was answered yet, or it was a guess."""
    said: str
    tries: int = 0
    """Different answers so far, with this one."""

    def __str__(self) -> str:
        word = {True: "right. ", False: "not yet. ", None: ""}[self.right]
        # the first try needs no number
        tries = f" (Try {self.tries}.)" if self.right is False and self.tries > 1 else ""
        return f"{self.key}: {word}{self.said}{tries}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, _, rest = str(self).partition(": ")
        ink = {True: "#009e73", False: "#d55e00", None: "#3a93cc"}[self.right]
        html = _CODE.sub(r"<code>\1</code>", escape_html(rest, 2000))
        return (
            f'<div class="{NO_MATHJAX}" style="{TEXT_COLOR_CSS};border-left:4px solid {ink};'
            "padding:2px 10px;margin:4px 0;"
            f'max-width:52em"><strong>{escape_html(head)}</strong>: {html}</div>'
        )


def as_float(answer: Any) -> float | None:
    """Return a number of any kind, also one that a table gave; None: it is no finite number.

    Args:
        answer: an int, float, Decimal, Fraction, or a NumPy scalar.

    Returns:
        The number; None for text, a bool, an array of several, or what is not finite.

    Example:
        >>> as_float(3), as_float("3"), as_float(float("nan"))
        (3.0, None, None)
    """
    if hasattr(answer, "dtype"):
        with suppress(ValueError):  # an array of several
            answer = answer.item()
    if not isinstance(answer, bool) and isinstance(answer, (Real, Decimal)):
        with suppress(ValueError, OverflowError):
            return value if isfinite(value := float(answer)) else None
    return None


def as_pair(answer: Any) -> tuple[float, float] | None:
    """Return the two numbers of a tuple, a list or an array; None: they are no two."""
    # three are read of an answer of any length: enough to see that it has more than two
    match [as_float(each) for each in islice(answer, 3)] if isinstance(answer, Iterable) else []:
        case [float(first), float(last)]:
            return first, last
    return None


def mark_number(
    answer: Any, right: float, *, within: float = 0.005, slips: Mapping[str, float] | None = None
) -> str:
    """Say what is wrong with a number; empty where it is right.

    Args:
        answer: what was answered.
        right: what it should be.
        within: share of it that an answer may be off.
        slips: what one gets by a known mistake, by the sentence that says so.

    Returns:
        A sentence that names no direction and no distance, so that nobody finds the number by
        trying; empty for a right answer.

    Example:
        >>> mark_number(0.25, 25.0)
        'You are off by a factor of 100: share or per cent?'
        >>> mark_number(25.1, 25.0)
        ''
    """
    value = as_float(answer)
    if value is None:
        return "Give a number, without quotes or a unit."
    if _is_near(value, right, within):
        return ""
    # known mistakes come before general hints, as they say more
    for sentence, slip in (slips or {}).items():
        if _is_near(value, slip, within):
            return sentence
    if value and right and (value < 0) != (right < 0):
        return "The sign is wrong."
    for factor, sentence in _SCALES:
        if _is_near(value, right * factor, within) or _is_near(value, right / factor, within):
            return sentence
    # no direction and no distance: with them halving an interval would find any number
    return "It is another number."


def _is_near(value: float, right: float, within: float) -> bool:
    # the constant lets an answer of 0 be right, of which a share is nothing
    return abs(value - right) <= within * abs(right) + 1e-12


def mark_choice(answer: Any, right: str, among: Collection[str], why: Mapping[str, str]) -> str:
    """Say what is wrong with one word of several; `why` has a sentence for each wrong one.

    Args:
        answer: a word; case and blanks at its ends do not matter.
        right: the right word, in lower case.
        among: all words that may be chosen.
        why: a sentence by wrong word; `No.` for a word without one.

    Returns:
        A sentence; empty for the right word.

    Example:
        >>> mark_choice("Pi", "none", ("pi", "none"), {"pi": "It cuts twice."})
        'It cuts twice.'
    """
    word = _normalise_word(answer)
    if word == right:
        return ""
    if word not in among:
        return f"Answer with one of {', '.join(map(repr, among))}."
    return why.get(word, "No.")


def mark_list(answer: Any, right: Collection[Any]) -> str:
    """Say how many of several answers are wrong and how many are missing.

    Args:
        answer: a list, a set or an array; at most 1,000 of its items are looked at.
        right: the items that belong there, in any order.

    Returns:
        A sentence with two counts; empty where the sets are equal.

    Example:
        >>> mark_list(["a", "b"], ["a", "c"])
        '1 of yours does not belong there and 1 is missing.'
    """
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        return "Give a list."
    answered = set(map(_normalise_word, islice(answer, _MAX_ANSWERS)))
    expected = set(map(_normalise_word, right))
    wrong, missing = len(answered - expected), len(expected - answered)
    parts = [f"{wrong} of yours {_plural(wrong, 'does', 'do')} not belong there"] if wrong else []
    parts += [f"{missing} {_plural(missing, 'is', 'are')} missing"] if missing else []
    return f"{' and '.join(parts).capitalize()}." if parts else ""


def _plural(n: int, one: str, more: str) -> str:
    return one if n == 1 else more


def _normalise_word(word: Any) -> str:
    """Return a word as it is compared; of what is no word a name that is never right."""
    return word.strip().rstrip(".").lower() if isinstance(word, str) else f"object {id(word)}"


def mark_span(answer: Any, right: tuple[int, int]) -> str:
    """Say which end of a span (first, last) is wrong, and not in which direction."""
    pair = as_pair(answer)
    if pair is None:
        return "Give two numbers: (first, last)."
    ends = (("first", pair[0], right[0]), ("last", pair[1], right[1]))
    wrong = [f"the {name}" for name, value, expected in ends if value != expected]
    return f"It is not right yet: {' and '.join(wrong)}." if wrong else ""


def score_guess(answer: Any, right: float, unit: str = "") -> str:
    """Score a guess of a number: what it is, and how far the guess was off.

    Args:
        answer: what was guessed; nothing that is no number is scored.
        right: the true number.
        unit: `%`, `$` or a word that follows the number.

    Returns:
        A sentence; a guess within a tenth of the true number is called good.

    Example:
        >>> score_guess(90, 100, "calls")
        'You said 90 calls, it is 100 calls: well guessed.'
    """
    value = as_float(answer)
    if value is None:
        return (
            f"It is {_format_number(right, unit)}. Next time guess first: a number, before "
            "you run it."
        )
    off = abs(value - right)
    # a guess within a tenth counts as good
    is_close = off <= 0.1 * abs(right)
    distance = _format_number(off, "points" if unit == "%" else unit)
    return (
        f"You said {_format_number(value, unit)}, it is {_format_number(right, unit)}: "
        f"{'well guessed.' if is_close else f'off by {distance}.'}"
    )


def _format_number(value: float, unit: str) -> str:
    if unit == "$":
        return f"${value:,.2f}"
    short = f"{value:.2g}" if 0 < abs(value) < 10 else f"{value:,.0f}"
    unit = unit.removesuffix("s") if value == 1 else unit
    return f"{short}{' ' if unit and unit != '%' else ''}{unit}"
