"""SQLite databases of other programs, opened read-only."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.source import Source

MAX_DATABASE_BYTES = 16 << 30
"""Databases above this are refused."""
MAX_ROWS = 5_000_000
"""At most so many rows are read of one table."""
LOCK_TIMEOUT = 5.0
"""Seconds for which a lock is waited for."""
_MAX_CELL_BYTES = 256 << 20
_MAX_COPY_BYTES = 4 << 30
_decode = msgspec.json.Decoder().decode


class Database:
    """An open database: its tables, and rows as objects by the names of their columns."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda b: b.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA trusted_schema = 0")

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; none where there is no such table (or a view)."""
        found = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if found is None:
            return set()
        return {
            str(r[0])
            for r in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        }

    def rows(
        self, table: str, wanted: tuple[str, ...], order: str, **where: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield rows as objects; columns that this version of the tool has not are left out.

        Args:
            table: a name out of a reader, never out of the file.
            wanted: columns, likewise.
            order: columns to order by, likewise; those that are missing are left out.
            where: columns that must be equal to a value.
        """
        there = self.columns(table)
        names = [c for c in wanted if c in there]
        by = [c for c in order.split(", ") if c in there] + ["rowid"]
        if not names or not there.issuperset(where):
            return
        only = " AND ".join(f'"{c}" = ?' for c in where) or "1"
        chosen = ", ".join(f'"{c}"' for c in names)
        sql = (
            f'SELECT {chosen} FROM "{table}" WHERE {only} ORDER BY {", ".join(by)} LIMIT {MAX_ROWS}'  # noqa: S608  names are a reader's
        )
        for row in self._connection.execute(sql, tuple(where.values())):
            yield dict(zip(names, row, strict=True))


def decode_json_cell(value: Any) -> Any:
    """Return the JSON in a cell, or None where it is none."""
    if not isinstance(value, (str, bytes)):
        return None
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None


@contextmanager
def open_database(source: Source) -> Iterator[Database]:
    """Open a database for reading, as of one moment; nothing beside it is made, changed or removed.

    Raises:
        ReadError: it is locked, torn, too large, or no database.
    """
    if not source.is_database:
        raise ReadError(f"expected an SQLite database, found {source.looks}.", source.path)
    try:
        with _connected(source) as connection:
            connection.execute("BEGIN")
            yield Database(connection, source.path)
    except (
        sqlite3.Error,
        UnicodeDecodeError,
        OverflowError,
    ) as e:  # errors of a torn one are no text
        said = str(e)[:100]
        if "locked" in said or "busy" in said:
            why = (
                "the database is locked by the tool that writes it: try again when it is idle, or"
                " copy it."
            )
        elif "too big" in said:
            why = "a cell of the database is too large."
        else:
            why = f"the database is torn ({said})."
        raise ReadError(why, source.path) from None


@contextmanager
def _connected(source: Source) -> Iterator[sqlite3.Connection]:
    if not source.on_disk:
        connection = sqlite3.connect(":memory:")
        try:
            connection.deserialize(_without_wal(source.data))
            yield connection
        finally:
            connection.close()
        return
    path = source.path
    size = path.stat().st_size
    if size > MAX_DATABASE_BYTES:
        raise ReadError(
            f"the database has {size:,} bytes; at most {MAX_DATABASE_BYTES:,} are read.", path
        )
    with _choose_file(path, size) as (place, how):
        connection = sqlite3.connect(
            f"{place.resolve().as_uri()}?{how}", uri=True, timeout=LOCK_TIMEOUT
        )
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def _choose_file(path: Path, size: int) -> Iterator[tuple[Path, str]]:
    """Yield which file to open and how: nobody's file is written, and a read-only opening may write
    beside one.

    A database that nobody writes is opened as unchangeable. One with a log of writes beside it is
    opened through the index that the writer keeps; where that is missing (the tool was killed), a
    copy of both is read.
    """
    wal, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    if not wal.exists() or wal.stat().st_size == 0:
        journal = Path(f"{path}-journal")
        yield path, "mode=ro" if journal.exists() else "mode=ro&immutable=1"
    elif index.exists():
        yield path, "mode=ro"
    elif size + wal.stat().st_size > _MAX_COPY_BYTES:
        raise ReadError(
            "the tool was killed while it wrote: open and close it once, then read again.", path
        )
    else:
        with tempfile.TemporaryDirectory(prefix="ctxkit-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(path, copy)
            shutil.copyfile(wal, f"{copy}-wal")
            yield copy, "mode=rw"


def _without_wal(data: bytes) -> bytes:
    """Return an image that can be opened in memory: there, none has a log of writes beside it."""
    return data[:18] + b"\1\1" + data[20:] if data[18:20] == b"\2\2" else data
