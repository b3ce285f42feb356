"""Students of the course: their numbers and attempts, stored in the user's own folder."""

from __future__ import annotations

import os
import time
import warnings
from collections import defaultdict
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.safe_files import SafeFolder
from ctxkit.course.contest_entry_serialization import get_notebook_folder
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ExerciseAttempt", "Student", "begin", "draw_numbers", "get_student_and_ambiguity_note"]

_FOLDER = Path(".ctxkit") / "course"
_MOST_BYTES = 1_000_000
"""Bytes of a student's file that are read."""
_LONGEST_NAME = 60


class ExerciseAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at an exercise; the answer itself is not stored."""

    key: str
    digest: str
    """Tells answers apart, so that a cell that is run again counts once."""
    right: bool | None
    """None: a guess."""
    time: float
    """Seconds since 1970."""


class _Head(msgspec.Struct, frozen=True):
    """The first line of a student's file."""

    student: str


class Student:
    """A reader of the course, whose tries are in a file; without a name in this kernel alone."""

    def __init__(self, name: str = "", path: Path | None = None) -> None:
        self.name, self.path = name, path
        self.warned = False
        self._tries: dict[str, list[ExerciseAttempt]] = defaultdict(list)
        if path is not None:
            for each in _read_file(path)[1]:
                self._tries[each.key].append(each)

    @property
    def seed(self) -> str:
        """Seed of the numbers in exercises and of the hidden sessions."""
        return self.name.casefold()

    def tries(self, key: str) -> Sequence[ExerciseAttempt]:
        """Return the different answers to an exercise up to the first right one."""
        counted: list[ExerciseAttempt] = []
        for each in self._tries[key]:
            if each.digest not in {other.digest for other in counted}:
                counted.append(each)
            if each.right:
                break
        return counted

    def add(self, key: str, digest: str, right: bool | None) -> None:
        """Store an attempt; where the file cannot be written, in this kernel only, with a warning.

        Args:
            key: name of the exercise.
            digest: hash of the answer.
            right: the answer is right; None: it was a guess, which is not marked.
        """
        new_try = ExerciseAttempt(key=key, digest=digest, right=right, time=round(time.time(), 1))
        self._tries[key].append(new_try)
        if self.path is None:
            return
        try:
            with SafeFolder.open_or_create(self.path.parent) as folder:
                folder.append(self.path.name, msgspec.json.encode(new_try) + b"\n")
        except OSError as error:
            if not self.warned:
                self.warned = True
                warnings.warn(
                    f"Tries are counted in this kernel alone: {str(self.path)!r} cannot be written "
                    f"({error.strerror}).",
                    UserWarning,
                    stacklevel=4,
                )


_current: dict[str, Student] = {}
"""The student of this kernel by working folder; empty: nobody has begun."""


def begin(name: str) -> str:
    """Begin the course under a name: numbers are drawn from it, and tries are kept.

    A file of the folder in which the notebook was opened keeps which exercises were tried, when,
    and whether the answer was right, not the answers. `report` shows it. Nothing leaves the folder.
    Later notebooks of the same folder continue under the name by themselves.

    Args:
        name: any name, at most 60 characters; the lecturer sees it if you hand in a report.

    Returns:
        A sentence that says where tries are kept, or why they cannot be.

    Raises:
        BadArguments: it is no name.

    Example:
        >>> import ctxkit as ck
        >>> ck.course.begin(" ")
        Traceback (most recent call last):
        ...
        ctxkit.errors.BadArguments: Give a name: ck.course.begin("Ada").
    """
    if not isinstance(name, str) or not (line := sanitize_line(name, _LONGEST_NAME).strip()):
        raise BadArguments('Give a name: ck.course.begin("Ada").')
    folder = get_notebook_folder() / _FOLDER
    path = folder / f"{sha256(line.casefold().encode()).hexdigest()[:12]}.jsonl"
    student = _current[str(get_notebook_folder())] = Student(line, path)
    try:
        if not path.exists():
            with SafeFolder.open_or_create(folder) as place:
                place.append(path.name, msgspec.json.encode(_Head(line)) + b"\n")
    except OSError as error:
        student.warned = True
        why = f"{str(path.parent)!r} cannot be written ({error.strerror})"
        return f"{line}: tries are counted in this kernel alone, as {why}."
    return f"{line}: tries are kept in {path.relative_to(get_notebook_folder())}."


def get_student_and_ambiguity_note() -> tuple[Student, str]:
    """Return who answers in this kernel, and a sentence where that is not clear.

    One who has not begun here is the one student of the folder; of several nobody is taken.

    Returns:
        The student, and the sentence; empty if it is clear.
    """
    here = str(get_notebook_folder())
    if here in _current:
        return _current[here], ""
    paths = [p for p in sorted((Path(here) / _FOLDER).glob("*.jsonl")) if _read_file(p)[0]]
    if len(paths) > 1:
        return _anonymous(here), (
            'Several students answer in this folder: say who you are with ck.course.begin("name").'
        )
    if paths:
        _current[here] = Student(_read_file(paths[0])[0], paths[0])
        return _current[here], ""
    return _anonymous(here), ""


def draw_numbers(key: str, variants: Sequence[dict[str, Any]], student: Student) -> dict[str, Any]:
    """Return the numbers of an exercise for a student; without a name those of the page.

    Args:
        key: name of the exercise.
        variants: sets of numbers; the first one is that of the page.
        student: the student, whose seed decides; without one the page's numbers are returned.
    """
    if not variants:
        return {}
    if not student.seed:
        return dict(variants[0])
    random = Random(f"{student.seed} {key}")  # noqa: S311  no secret
    return dict(random.choice(variants))


def digest_answer(answer: Any) -> str:
    """Return a short text that tells an answer from others, whatever it is."""
    try:
        text = repr(answer)[:10_000]
    except Exception:  # noqa: BLE001  an answer may be any object
        text = f"{type(answer).__name__} {id(answer)}"
    return sha256(text.encode(errors="replace")).hexdigest()[:12]


_unnamed: dict[str, Student] = {}


def _anonymous(folder: str) -> Student:
    return _unnamed.setdefault(f"{os.getpid()} {folder}", Student())


def _read_file(path: Path) -> tuple[str, list[ExerciseAttempt]]:
    """Return the name and the tries of a file; lines that are damaged are left out."""
    try:
        if path.is_symlink() or path.stat().st_size > _MOST_BYTES:
            return "", []
        first, *lines = path.read_bytes().splitlines()
        name = msgspec.json.decode(first, type=_Head).student
    except (OSError, ValueError, msgspec.MsgspecError):
        return "", []
    tries = []
    for line in lines:
        with suppress(msgspec.MsgspecError):
            tries.append(msgspec.json.decode(line, type=ExerciseAttempt))
    return name, tries
