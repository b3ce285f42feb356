"""The files of a board, and the rows of their sessions."""

from __future__ import annotations

import os
from pathlib import Path

from ctxkit.boards.kept import Stamp
from ctxkit.boards.tallied import Tallied, family, tallied
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.readers.log_folders import find
from ctxkit.readers.reader_names import read_all

FILE, VERSION = "board.jsonl", 2
"""The notes of what was read, and of what their lines mean."""


class FileRows(Stamp, frozen=True, kw_only=True, gc=False):
    """A file, and the rows of its sessions; none where it cannot be read."""

    rows: tuple[Tallied, ...]


def stamps(where: str | os.PathLike[str] | None) -> list[Stamp]:
    """Return the files that may be sessions, the newest first.

    Raises:
        BadArguments: there is none.
    """
    if where is None:
        from ctxkit.discoveries import found

        paths = [Path(entry.path) for _, entry, _ in found()]
    else:
        place = Path(os.fspath(where)).expanduser()
        paths = [f.path for f in find(place, lambda _: None) if not f.why]
    told = [s for path in paths if (s := Stamp.of(path)) is not None]
    if not told:
        raise BadArguments(
            f"There is no file at {str(where)!r}."
            if where is not None
            else "No tool keeps sessions on this machine: give a folder."
        )
    return sorted(told, key=lambda s: -s.modified)


def rows_of(stamp: Stamp) -> tuple[Tallied, ...]:
    """Return the rows of a file; none where it cannot be read."""
    try:
        return tuple(
            tallied(each, stamp.path)
            for s in read_all(stamp.path, progress=False)
            for each in family(s)
        )
    except (CtxkitError, OSError, ValueError, ArithmeticError, LookupError):
        return ()
