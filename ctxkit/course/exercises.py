"""Exercises by key: `check` marks an answer, and `report` makes a table of one student's tries."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.safe_fs import SafeFolder
from ctxkit.course.answer_marking import AnswerMark
from ctxkit.course.students import current_student, digest_answer, draw_numbers
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean, short_repr
from ctxkit.widgets.waiting_line import show_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

__all__ = ["Exercise", "check", "exercise", "guess", "load_exercises", "numbers", "report", "tasks"]

_FULL_TRIES, _HALF_TRIES = 2, 4
"""Tries up to which a right answer counts whole, and half."""
_LESSONS = (
    "lesson_01_read_sessions",
    "lesson_02_policies",
    "lesson_03_thrash",
    "lesson_04_live_session",
    "lesson_05_cache_bill",
    "lesson_06_loss",
    "lesson_07_sweeps",
    "lesson_08_snapshot_logs",
    "lesson_09_replay_trust",
    "lesson_10_prompt_sections",
    "lesson_11_team_views",
    "lesson_appendix",
    "lesson_capstone",
)


@dataclass(frozen=True)
class Exercise:
    """One task of a notebook."""

    key: str
    """Such as `03-a`; `03-guess` is the guess that the notebook begins with."""
    asks: str
    judge: Callable[..., str]
    """Takes the answer, and says what is wrong with it (a guess: how far it was off)."""
    because: str = ""
    """Said with a right answer."""
    guess: bool = False
    hint: str = ""
    """A hint, shown with the second wrong answer."""
    numbers: Sequence[dict[str, Any]] = ()
    """The numbers that are in it, those of the page first; a student gets one of them."""
    is_choice: bool = False
    """It is answered with one word of a few."""


_EXERCISES: dict[str, Exercise] = {}


def exercise(
    key: str,
    asks: str,
    because: str = "",
    *,
    hint: str,
    numbers: Sequence[dict[str, Any]] = (),
    is_choice: bool = False,
) -> Callable[[Callable[..., str]], Any]:
    """Register a function that says what is wrong with an answer; empty where nothing is.

    Args:
        key: of the exercise.
        asks: what it asks; names in braces are its numbers.
        because: said with a right answer.
        hint: said with a second wrong one: how to get there.
        numbers: the numbers that it may be asked with.
        is_choice: it is answered with one word of a few.

    Returns:
        A decorator of the function that judges an answer, given its numbers by name.
    """
    return _register(
        lambda judge: Exercise(
            key, asks, judge, because, hint=hint, numbers=numbers, is_choice=is_choice
        )
    )


def guess(key: str, asks: str, because: str = "") -> Callable[[Callable[..., str]], Any]:
    """Register a function that scores the guess of a notebook: it says what is so.

    Args:
        key: of the exercise that follows the guess; the guess has this key with `-guess`.
        asks: what is guessed.
        because: said with the true number.

    Returns:
        A decorator of the function that scores an answer.
    """
    return _register(lambda judge: Exercise(f"{key}-guess", asks, judge, because, guess=True))


def numbers(key: str) -> dict[str, Any]:
    """Return the numbers that an exercise asks you about; without a name those of the page.

    Args:
        key: of the exercise.

    Returns:
        The numbers by name; they are drawn from the reader's name, so that neighbours differ.

    Raises:
        BadArguments: there is no such exercise.

    Example:
        >>> import ctxkit as ck
        >>> sorted(ck.course.numbers("05-b"))
        ['behind', 'taken']
    """
    return draw_numbers(key, _find_exercise(key).numbers, current_student()[0])


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
    """Mark an answer: say whether it is right, and if not what is wrong with it.

    What is right is worked out from the sample when it is asked for. A guess is told how far it
    was off.

    Args:
        key: of the exercise, such as ``"03-a"``; `ctxkit.course.tasks()` lists them.
        answer: a number, a word, a list or rules, as the exercise asks; left out or ``...``: the
            exercise is read out.
        given: what the exercise is about, where it is no sample but something of yours.

    Returns:
        The mark: its `right` is None for a guess, and where the exercise was only read out.

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

    student, _ = current_student()
    rows = []
    for key, exercise in sorted(load_exercises().items()):
        tries = student.tries(key)
        right = any(each.right for each in tries)
        points = _score_tries(exercise, len(tries)) if right else 0.0
        rows.append((student.name, key, len(tries), right, None if exercise.guess else points))
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
    student, who = current_student()
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
    right = None if chosen.guess else not comment
    student.add(chosen.key, digest_answer(answer), right)
    if chosen.guess:
        return AnswerMark(chosen.key, None, f"{comment} {chosen.because}".strip())
    tries = len(student.tries(chosen.key))
    hint = f" {chosen.hint}" if comment and tries > 1 else ""
    text = f"{comment or chosen.because}{hint} {who}".strip()
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
    drawn = draw_numbers(chosen.key, chosen.numbers, current_student()[0])
    return chosen.asks.format(**drawn) if drawn else chosen.asks


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
