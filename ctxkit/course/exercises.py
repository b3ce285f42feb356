"""Exercises by key, and `check`, which marks an answer."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from ctxkit.course.marking import AnswerMark
from ctxkit.errors import BadArguments, CtxkitError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Exercise", "check", "exercise", "guess", "tasks"]

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


_EXERCISES: dict[str, Exercise] = {}


def exercise(key: str, asks: str, because: str = "") -> Callable[[Callable[..., str]], Any]:
    """Register a function that says what is wrong with an answer; empty where nothing is."""
    return _register(key, asks, because, guess=False)


def guess(key: str, asks: str, because: str = "") -> Callable[[Callable[..., str]], Any]:
    """Register a function that scores the guess of a notebook: it says what is so."""
    return _register(f"{key}-guess", asks, because, guess=True)


def _register(
    key: str, asks: str, because: str, *, guess: bool
) -> Callable[[Callable[..., str]], Any]:
    def register(judge: Callable[..., str]) -> Callable[..., str]:
        _EXERCISES[key] = Exercise(key, asks, judge, because, guess)
        return judge

    return register


def tasks() -> dict[str, str]:
    """Return what each exercise asks, by its key, in the order of the notebooks."""
    return {key: each.asks for key, each in sorted(_load_exercises().items())}


def check(key: str, answer: Any = ..., *given: Any) -> AnswerMark:
    """Mark an answer: say whether it is right, and if not what is wrong with it.

    What is right is worked out from the sample when it is asked for. A guess is told how far it
    was off.

    Args:
        key: of the exercise, such as ``"03-a"``; `ctxkit.course.tasks()` lists them.
        answer: a number, a word, a list or rules, as the exercise asks; left out or ``...``: the
            exercise is read out.
        given: what the exercise is about, where it is no sample but something of yours.

    Raises:
        BadArguments: there is no such exercise.

    Example:
        >>> import ctxkit as ck
        >>> ck.check("01-a", 3)
        01-a: not yet. Give two numbers: (first, last).
    """
    exercises = _load_exercises()
    if key not in exercises:
        raise BadArguments(
            f"There is no exercise {key!r}; ctxkit.course.tasks() lists them."
            f"{did_you_mean(str(key), exercises)}"
        )
    chosen = exercises[key]
    if answer is ... or answer is None:
        return AnswerMark(key, None, f"{chosen.asks} (Put your answer in place of the three dots.)")
    # the first parameter of a judge is the answer; the others take what was given with it
    if len(given) > len(signature(chosen.judge).parameters) - 1:
        return AnswerMark(key, right=False, said="Give one answer: several belong in one list.")
    try:
        comment = chosen.judge(answer, *given)
    except CtxkitError as error:
        return AnswerMark(key, right=False, said=str(error))
    except LookupError:
        # an exercise on a sample alone cannot lack a row or a column: that is the kit's own fault
        if not given:
            raise
        sentence = (
            "What stands behind your answer is not what the notebook made; run its cells again."
        )
        return AnswerMark(key, right=False, said=sentence)
    if chosen.guess:
        return AnswerMark(key, None, f"{comment} {chosen.because}".strip())
    return AnswerMark(key, not comment, comment or chosen.because)


def _load_exercises() -> dict[str, Exercise]:
    # a lesson registers its exercises when it is imported; Python imports each once
    for lesson in _LESSONS:
        import_module(f"ctxkit.course.lessons.{lesson}")
    return _EXERCISES
