"""What could not be read in snapshot logs, each place with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path


class SnapshotFault(NamedTuple):
    """One place of a log."""

    file: str
    line: int
    """Counted from 1; 0 is the whole file."""
    why: str
    kept: bool
    """True where the line is a row of the frame all the same, as far as it could be read."""


class Faults(tuple[SnapshotFault, ...]):
    """The faults of one reading, in order of files and lines; small enough to live in
    `frame.attrs`.

    pandas copies `attrs` deeply with every operation and writes them as JSON: a tuple of tuples
    bears both.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """The faults as a frame: file, line, why, kept."""
        return pd.DataFrame([tuple(f) for f in self], columns=list(SnapshotFault._fields))


class Report:
    """Collects faults while reading; what holds for many lines of a file is told once."""

    def __init__(self) -> None:
        self.faults: list[SnapshotFault] = []
        self._told: set[tuple[str, str]] = set()

    def add(self, file: str | Path, line: int, why: str, *, kept: bool = False) -> None:
        """Note one place."""
        self.faults.append(SnapshotFault(str(file), line, why, kept))

    def once(self, file: str | Path, line: int, why: str) -> None:
        """Note something that holds for many lines of a file at its first line only."""
        if (str(file), why) not in self._told:
            self._told.add((str(file), why))
            self.add(file, line, why, kept=True)

    def remember(self, faults: list[SnapshotFault]) -> None:
        """Take over the faults of an earlier reading."""
        self.faults.extend(faults)
        self._told.update((f.file, f.why) for f in faults if f.kept)
