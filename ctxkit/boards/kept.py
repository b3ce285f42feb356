"""What a board has read, kept between sittings: figures by file, size and time of its last change."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit.boards.tallied import Tallied

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

VERSION = 1
"""Of what a row means; a file of another version is not read."""
_MOST = 256 << 20
"""Bytes of a file that is read."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """A file as it was when it was read."""

    path: str
    size: int
    changed: int
    """Nanoseconds since 1970."""

    @classmethod
    def of(cls, path: Path) -> Stamp | None:
        """Return the stamp of a file; None where it is not there."""
        try:
            told = path.stat()
        except (OSError, ValueError):
            return None
        return cls(str(path.absolute()), told.st_size, told.st_mtime_ns)


class _File(msgspec.Struct):
    version: int
    rows: dict[str, tuple[int, int, tuple[Tallied, ...]]]


class Kept:
    """Rows by file. As a context it is read when entered, and written when left where something was added.

    A file that cannot be read or written is done without: it only saves time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or place() / "board.msgpack"
        self._rows: dict[str, tuple[int, int, tuple[Tallied, ...]]] = {}
        self._new = False

    def get(self, stamp: Stamp) -> tuple[Tallied, ...] | None:
        """Return the rows of a file; None where it was not read as it is now."""
        size, changed, rows = self._rows.get(stamp.path, (-1, -1, ()))
        return rows if (size, changed) == (stamp.size, stamp.changed) else None

    def put(self, stamp: Stamp, rows: tuple[Tallied, ...]) -> None:
        """Keep the rows of a file."""
        self._rows[stamp.path] = (stamp.size, stamp.changed, rows)
        self._new = True

    def __enter__(self) -> Self:
        with suppress(OSError, msgspec.MsgspecError, ValueError):
            if self.path.stat().st_size <= _MOST:
                found = msgspec.msgpack.decode(self.path.read_bytes(), type=_File)
                self._rows = found.rows if found.version == VERSION else {}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._new:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".board-")
            try:
                with os.fdopen(handle, "wb") as f:
                    f.write(msgspec.msgpack.encode(_File(VERSION, self._rows)))
                Path(name).replace(self.path)  # whole or not at all; only the user may read it
            except OSError:
                Path(name).unlink(missing_ok=True)


def place() -> Path:
    """Return the folder of what is kept: `CTXKIT_CACHE`, else `ctxkit` in the user's caches."""
    told = os.environ.get("CTXKIT_CACHE")
    if told:
        return Path(told).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ctxkit"
