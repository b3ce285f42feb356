"""Exercises by key: registration, marks for answers (`check`), and a table of one student's tries
(`report`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from inspect import signature
from itertools import islice
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    sanitize_line,
    sanitize_text,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import SafeFolder
from ctxkit._internal.tables import TEXT_COLOR_CSS
from ctxkit.course.students import digest_answer, draw_numbers, get_student_and_ambiguity_note
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean, short_repr
from ctxkit.widgets.progress_notice import show_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pandas as pd


__all__ = ["Exercise", "check", "exercise", "guess", "load_exercises", "numbers", "report", "tasks"]
__dir__ = make_dunder_dir(__all__)


_FULL_TRIES, _HALF_TRIES = 2, 4
"""Tries up to which a right answer counts whole, and half."""
_LESSONS = (
    "lesson_01_read_sessions",
    "lessons_02_03_policies_and_thrash",
    "lessons_02_03_policies_and_thrash",
    "lesson_04_live_session",
    "lessons_05_06_cache_bill_and_loss",
    "lessons_05_06_cache_bill_and_loss",
    "lesson_07_sweeps",
    "lessons_08_09_snapshot_logs_and_replay_trust",
    "lessons_08_09_snapshot_logs_and_replay_trust",
    "lessons_10_11_prompt_sections_and_teams",
    "lessons_10_11_prompt_sections_and_teams",
    "appendix_and_capstone_exercises",
    "appendix_and_capstone_exercises",
)


@dataclass(frozen=True)
class Exercise:
    """One task of a notebook."""

    key: str
    """Such as `03-a`; `03-guess` is the guess that the notebook begins with."""
    question: str
    judge: Callable[..., str]
    """Takes the answer, and says what is wrong with it (a guess: how far it was off)."""
    explanation: str = ""
    """Said with a right answer."""
    is_guess: bool = False
    hint: str = ""
    """A hint, shown with the second wrong answer."""
    numbers: Sequence[dict[str, Any]] = ()
    """The numbers that are in it, those of the page first; a student gets one of them."""
    is_choice: bool = False
    """It is answered with one word of a few."""


_EXERCISES: dict[str, Exercise] = {}


def exercise(
    key: str,
    question: str,
    explanation: str = "",
    *,
    hint: str,
    numbers: Sequence[dict[str, Any]] = (),
    is_choice: bool = False,
) -> Callable[[Callable[..., str]], Any]:
    """Register a function that says what is wrong with an answer; empty where nothing is.

    Args:
        key: key of the exercise.
        question: text of the question; names in braces are its numbers.
        explanation: said with a right answer.
        hint: said with a second wrong one: how to get there.
        numbers: sets of values for those names, the page's first; each student gets one set.
        is_choice: it is answered with one word of a few.

    Returns:
        A decorator of the function that judges an answer, given its numbers by name.
    """
    return _register(
        lambda judge: Exercise(
            key, question, judge, explanation, hint=hint, numbers=numbers, is_choice=is_choice
        )
    )


def guess(key: str, question: str, explanation: str = "") -> Callable[[Callable[..., str]], Any]:
    """Register a function that scores the guess of a notebook: it says what is so.

    Args:
        key: key of the exercise that follows the guess; the guess has this key with `-guess`.
        question: text of the question.
        explanation: said with the true number.

    Returns:
        A decorator of the function that scores an answer.
    """
    return _register(
        lambda judge: Exercise(f"{key}-guess", question, judge, explanation, is_guess=True)
    )


def numbers(key: str) -> dict[str, Any]:
    """Return the numbers that an exercise asks you about; without a name those of the page.

    Args:
        key: key of the exercise.

    Returns:
        The numbers by name; they are drawn from the reader's name, so that neighbours differ.

    Raises:
        BadArguments: there is no such exercise.

    Example:
        >>> import ctxkit as ck
        >>> sorted(ck.course.numbers("05-b"))
        ['behind', 'taken']
    """
    return draw_numbers(key, _find_exercise(key).numbers, get_student_and_ambiguity_note()[0])


def tasks() -> dict[str, str]:
    """Return what each exercise asks, by its key, in the order of the notebooks.

    Returns:
        A text by key, with the reader's own numbers in it.

    Example:
        >>> import ctxkit as ck
        >>> list(ck.course.tasks())[0]
        '01-a'
    """
    return {key: _read_out(each) for key, each in sorted(load_exercises().items())}


def check(key: str, answer: Any = ..., *given: Any) -> AnswerMark:
    """Mark an answer: say whether it is right and, if not, what is wrong with it.

    The right answer is computed from the sample at each check. For a guess the mark says how far it
    was off.

    Args:
        key: key of the exercise, such as ``"03-a"``; `ctxkit.course.tasks()` lists them.
        answer: a number, a word, a list or rules, as the exercise asks; left out or ``...``: the
            exercise is printed.
        given: the object that the exercise is about, where it is your own and no sample.

    Returns:
        The mark: its `right` is None for a guess, and where the exercise was only printed.

    Raises:
        BadArguments: there is no such exercise.

    Example:
        >>> import ctxkit as ck
        >>> ck.check("01-a", 3)
        01-a: not yet. Give two numbers: (first, last).
    """
    # the first answer of a kernel also waits for what the exercises are made of
    with show_waiting("working out what is right, to mark this answer ..."):
        return _mark(_find_exercise(key), answer, given)


def load_exercises() -> dict[str, Exercise]:
    """Return all exercises by key.

    Returns:
        The exercises of all notebooks; the lessons are imported at the first call.

    Example:
        >>> sorted(load_exercises())[:2]
        ['01-a', '01-b']
    """
    # a lesson registers its exercises when it is imported; Python imports each once
    for lesson in _LESSONS:
        import_module(f"ctxkit.course.lessons.{lesson}")
    return _EXERCISES


def report(to: str | Path | None = None) -> pd.DataFrame:
    """Return how often you tried each exercise, and what that is worth.

    A right answer within two tries is one point, within four half a point; where an exercise is a
    choice of a few words, only the first try counts. Guesses carry no points. Answers are not kept.

    Args:
        to: a file to hand in (CSV); None: nothing is written. Naming one is your consent.

    Returns:
        One row an exercise: `student`, `key`, `tries`, `right` and `points`.

    Raises:
        BadArguments: the file cannot be written.

    Example:
        >>> import ctxkit as ck
        >>> table = ck.course.report()
        >>> list(table.columns)
        ['student', 'key', 'tries', 'right', 'points']
    """
    import pandas as pd

    student, _ = get_student_and_ambiguity_note()
    rows = []
    for key, exercise in sorted(load_exercises().items()):
        tries = student.tries(key)
        right = any(each.right for each in tries)
        points = _score_tries(exercise, len(tries)) if right else 0.0
        rows.append((student.name, key, len(tries), right, None if exercise.is_guess else points))
    table = pd.DataFrame(rows, columns=["student", "key", "tries", "right", "points"])
    table["points"] = table["points"].astype("Float64")
    if to is not None:
        _write_report(Path(to), table)
    return table


def _register(make: Callable[[Callable[..., str]], Exercise]) -> Callable[..., Any]:
    def register(judge: Callable[..., str]) -> Callable[..., str]:
        new_exercise = make(judge)
        _EXERCISES[new_exercise.key] = new_exercise
        return judge

    return register


def _mark(chosen: Exercise, answer: Any, subjects: tuple[Any, ...]) -> AnswerMark:
    """Return the mark of an answer, and keep the try."""
    student, who = get_student_and_ambiguity_note()
    if answer is ... or answer is None:
        asks = f"{_read_out(chosen)} (Put your answer in place of the three dots.)"
        return AnswerMark(chosen.key, None, f"{asks} {who}".strip())
    # the first parameter of a judge is the answer; the others take what came with it
    if len(subjects) > len(signature(chosen.judge).parameters) - 1:
        return AnswerMark(
            chosen.key, right=False, said="Give one answer: several belong in one list."
        )
    comment, is_read = _judge(chosen, answer, subjects)
    if not is_read:
        return AnswerMark(chosen.key, right=False, said=comment)
    right = None if chosen.is_guess else not comment
    student.add(chosen.key, digest_answer(answer), right)
    if chosen.is_guess:
        return AnswerMark(chosen.key, None, f"{comment} {chosen.explanation}".strip())
    tries = len(student.tries(chosen.key))
    hint = f" {chosen.hint}" if comment and tries > 1 else ""
    text = f"{comment or chosen.explanation}{hint} {who}".strip()
    return AnswerMark(chosen.key, not comment, text, tries)


def _judge(chosen: Exercise, answer: Any, subjects: tuple[Any, ...]) -> tuple[str, bool]:
    """Return what is wrong with an answer, and whether it was one that could be judged."""
    try:
        return chosen.judge(answer, *subjects), True
    except CtxkitError as error:
        return str(error), False
    except LookupError:
        # an exercise on a sample alone cannot lack a row or a column
        if subjects:
            return (
                "What stands behind your answer is not what the notebook made; run its cells again."
            ), False
        return "Your answer cannot be read: it is no answer of the kind that is asked for.", False
    # an answer may be any object, and rules may hold any function
    except Exception as error:  # noqa: BLE001
        kind, text = type(error).__name__, sanitize_line(_text_of(error), 200)
        return f"Your answer cannot be used: it raised {kind}{': ' * bool(text)}{text}.", False


def _text_of(error: Exception) -> str:
    try:
        return str(error).rstrip(".")
    except Exception:  # noqa: BLE001  an error of the answer's own class
        return ""


def _find_exercise(key: str) -> Exercise:
    exercises = load_exercises()
    if not isinstance(key, str) or key not in exercises:
        raise BadArguments(
            f"There is no exercise {short_repr(key)}; ctxkit.course.tasks() lists them."
            f"{did_you_mean(str(key)[:20], exercises)}"
        )
    return exercises[key]


def _read_out(chosen: Exercise) -> str:
    drawn = draw_numbers(chosen.key, chosen.numbers, get_student_and_ambiguity_note()[0])
    return chosen.question.format(**drawn) if drawn else chosen.question


def _score_tries(exercise: Exercise, tries: int) -> float:
    if exercise.is_choice:
        return float(tries == 1)
    return 1.0 if tries <= _FULL_TRIES else 0.5 if tries <= _HALF_TRIES else 0.0


def _write_report(path: Path, table: pd.DataFrame) -> None:
    # a spreadsheet would take some names for formulas
    safe = table.assign(student=["'" + n if n[:1] in "=+-@" else n for n in table["student"]])
    try:
        with SafeFolder.open_or_create(path.resolve().parent) as folder:
            folder.write(path.name, (safe.to_csv(index=False).encode(),))
    except OSError as error:
        sentence = f"The report cannot be written to {str(path)!r} ({error.strerror})."
        raise BadArguments(sentence) from None


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
        return f"{self.key}: {word}{sanitize_text(self.said)}{tries}"

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
    answer: Any,
    expected: float,
    *,
    tolerance: float = 0.005,
    common_mistakes: Mapping[str, float] | None = None,
) -> str:
    """Return what is wrong with a number, as a sentence; empty where it is right.

    Args:
        answer: the answer.
        expected: the right answer.
        tolerance: share of it that an answer may be off.
        common_mistakes: what one gets by a known mistake, by the sentence that says so.

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
    if _is_near(value, expected, tolerance):
        return ""
    # known mistakes come before general hints, as they say more
    for sentence, slip in (common_mistakes or {}).items():
        if _is_near(value, slip, tolerance):
            return sentence
    if value and expected and (value < 0) != (expected < 0):
        return "The sign is wrong."
    for factor, sentence in _SCALES:
        if _is_near(value, expected * factor, tolerance) or _is_near(
            value, expected / factor, tolerance
        ):
            return sentence
    # no direction and no distance: with them halving an interval would find any number
    return "It is another number."


def _is_near(value: float, right: float, within: float) -> bool:
    # the constant lets an answer of 0 be right, of which a share is nothing
    return abs(value - right) <= within * abs(right) + 1e-12


def mark_choice(
    answer: Any, expected: str, choices: Collection[str], explanations: Mapping[str, str]
) -> str:
    """Say what is wrong with one word of several; `explanations` has a sentence for each wrong one.

    Args:
        answer: a word; case and blanks at its ends do not matter.
        expected: the right word, in lower case.
        choices: all words that may be chosen.
        explanations: a sentence by wrong word; `No.` for a word without one.

    Returns:
        A sentence; empty for the right word.

    Example:
        >>> mark_choice("Pi", "none", ("pi", "none"), {"pi": "It cuts twice."})
        'It cuts twice.'
    """
    word = _normalise_word(answer)
    if word == expected:
        return ""
    if word not in choices:
        return f"Answer with one of {', '.join(map(repr, choices))}."
    return explanations.get(word, "No.")


def mark_list(answer: Any, expected: Collection[Any]) -> str:
    """Say how many of several answers are wrong and how many are missing.

    Args:
        answer: a list, a set or an array; at most 1,000 of its items are looked at.
        expected: the items that belong there, in any order.

    Returns:
        A sentence with two counts; empty where the sets are equal.

    Example:
        >>> mark_list(["a", "b"], ["a", "c"])
        '1 of yours does not belong there and 1 is missing.'
    """
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        return "Give a list."
    answered = set(map(_normalise_word, islice(answer, _MAX_ANSWERS)))
    belonging = set(map(_normalise_word, expected))
    wrong, missing = len(answered - belonging), len(belonging - answered)
    parts = [f"{wrong} of yours {_plural(wrong, 'does', 'do')} not belong there"] if wrong else []
    parts += [f"{missing} {_plural(missing, 'is', 'are')} missing"] if missing else []
    return f"{' and '.join(parts).capitalize()}." if parts else ""


def _plural(n: int, one: str, more: str) -> str:
    return one if n == 1 else more


def _normalise_word(word: Any) -> str:
    """Return a word in the form that is compared; for other values a name that is never right."""
    return word.strip().rstrip(".").lower() if isinstance(word, str) else f"object {id(word)}"


def mark_span(answer: Any, expected: tuple[int, int]) -> str:
    """Return which end of a span is wrong, but not in which direction; empty where both are right.

    Args:
        answer: the answer, as the student wrote it.
        expected: first and last number.
    """
    pair = as_pair(answer)
    if pair is None:
        return "Give two numbers: (first, last)."
    ends = (("first", pair[0], expected[0]), ("last", pair[1], expected[1]))
    wrong = [f"the {name}" for name, value, right in ends if value != right]
    return f"It is not right yet: {' and '.join(wrong)}." if wrong else ""


def score_guess(answer: Any, right: float, unit: str = "") -> str:
    """Score a guess of a number: what it is, and how far the guess was off.

    Args:
        answer: the guess; only a number is scored.
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
    return f"{short} {unit}".rstrip()
