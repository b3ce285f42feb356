"""`ctxkit.course.report`: tries and marks of one student, as a table and, if asked, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit._internal.safe_fs import SafeFolder
from ctxkit.course.exercises import load_exercises
from ctxkit.course.students import current_student
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.course.exercises import Exercise

__all__ = ["report"]

_FULL_TRIES, _HALF_TRIES = 2, 4
"""Tries up to which a right answer counts whole, and half."""


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


def _score_tries(exercise: Exercise, tries: int) -> float:
    if exercise.is_choice:
        return float(tries == 1)
    return 1.0 if tries <= _FULL_TRIES else 0.5 if tries <= _HALF_TRIES else 0.0


def _write_report(path: Path, table: pd.DataFrame) -> None:
    # a spreadsheet would take some names for formulas
    safe = table.assign(student=["'" + n if n[:1] in "=+-@" else n for n in table["student"]])
    try:
        with SafeFolder.own(path.resolve().parent) as folder:
            folder.write(path.name, (safe.to_csv(index=False).encode(),))
    except OSError as error:
        sentence = f"The report cannot be written to {str(path)!r} ({error.strerror})."
        raise BadArguments(sentence) from None
