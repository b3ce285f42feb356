"""Files that may be sessions: a file, a folder with all below, a glob; no circles through links."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOGS = {".json", ".jsonl", ".ndjson", ".traj", ".eval", ".log"}
_PACKED = {".gz", ".zst", ".zip"}
_BINARY = (
    b"PK\3\4",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"SQLite format 3\0",
)
"""How archives, packed files, UTF-16 and databases begin."""
_NEVER = {".git", "node_modules", "__pycache__", ".venv", ".ipynb_checkpoints"}
_PEEK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A file or whole folder to be read."""

    path: Path
    named: bool = False
    """The user named it, so it must be a session."""
    folder: Callable[[Path], Any] | None = None
    """Reads the folder, where a folder is one session."""
    why: str = ""
    """Why there is nothing to read, where that is known already."""
    folder_real: str = ""
    """The real path of the folder it was found in, where that is known."""

    @property
    def real(self) -> str:
        """Its real path; of a file that is no link its folder's and its name."""
        if self.folder_real and not os.path.islink(self.path):  # noqa: PTH114  a third of the time
            return os.path.join(self.folder_real, self.path.name)  # noqa: PTH118  a text
        return os.path.realpath(self.path)

    @property
    def is_log(self) -> bool:
        """True where the name ends like a log's: a file worth telling of if no reader knows it."""
        path = self.path
        packed = path.suffix.lower() in _PACKED and path.with_suffix("").suffix in LOGS
        return path.suffix.lower() in LOGS or packed


def find(place: Path, whole: Callable[[Path], Callable[[Path], Any] | None]) -> list[FoundLog]:
    """Return what lies at a place, by name; `whole` says how to read a folder of one session."""
    if place.is_dir():
        return list(_below(place, whole))
    if place.exists() or place.is_symlink() or not glob.has_magic(str(place)):
        return [FoundLog(path=place, named=True)]
    out: list[FoundLog] = []
    for name in sorted(glob.iglob(str(place), recursive=True)):  # noqa: PTH207  Path.glob refuses absolute patterns
        path = type(place)(name)
        if path.is_dir():
            out += [] if "**" in str(place) else _below(path, whole)
        else:
            out.append(FoundLog(path=path))
    return out or [FoundLog(path=place, named=True, why="no file matches.")]


def _below(top: Path, whole: Callable[[Path], Callable[[Path], Any] | None]) -> Iterator[FoundLog]:
    seen: set[str] = set()
    for folder, below, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        path = type(top)(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        reads = whole(path)
        if reads is not None:
            below.clear()
            yield FoundLog(path=path, folder=reads)
            continue
        below[:] = sorted(d for d in below if d not in _NEVER)
        for name in sorted(files):
            found = FoundLog(path=path / name, folder_real=real)
            known = os.path.splitext(name)[1].lower() in LOGS  # noqa: PTH122  ten times as quick
            if known or found.is_log or _may_be_text(found.path):
                yield found


def _may_be_text(path: Path) -> bool:
    """Say whether a file of another ending may be a log: text, packed, a database; no device."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as f:
            start = f.read(_PEEK)
    except OSError:
        return False
    return b"\0" not in start or start.startswith(_BINARY)
