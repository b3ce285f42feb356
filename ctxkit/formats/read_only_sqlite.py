"""Read-only access to the SQLite databases of other programs."""

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

    from ctxkit.formats.log_file_content import Source

MAX_DATABASE_BYTES = 16 << 30
"""Databases above this size are refused."""
MAX_ROWS = 5_000_000
"""Largest number of rows read from one table."""
LOCK_TIMEOUT = 5.0
"""Seconds to wait for a lock."""
_MAX_CELL_BYTES = 256 << 20
_MAX_COPY_BYTES = 4 << 30
_decode = msgspec.json.Decoder().decode


class Database:
    """An open database; rows are dicts by column name."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path
        connection.row_factory = sqlite3.Row
        connection.text_factory = lambda b: b.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
        connection.execute("PRAGMA query_only = 1")
        connection.execute("PRAGMA trusted_schema = 0")

    def column_names(self, table: str) -> set[str]:
        """Return the column names of a table; empty if there is no such table (or it is a view)."""
        table_row = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if table_row is None:
            return set()
        return {
            str(row[0])
            for row in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        }

    def iter_rows(
        self, table: str, columns: tuple[str, ...], order: str, **where: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table as dicts, without the columns that the table does not have.

        Args:
            table: the table. This and all column names must come from a reader, never from a file.
            columns: the columns.
            order: columns to order by, separated by ", "; missing ones are ignored.
            where: columns that must equal a value.
        """
        existing = self.column_names(table)
        names = [column for column in columns if column in existing]
        order_columns = [column for column in order.split(", ") if column in existing] + ["rowid"]
        if not names or not existing.issuperset(where):
            return
        condition = " AND ".join(f'"{column}" = ?' for column in where) or "1"
        selected = ", ".join(f'"{column}"' for column in names)
        sql = (
            f'SELECT {selected} FROM "{table}" WHERE {condition} '  # noqa: S608  a reader's names
            f"ORDER BY {', '.join(order_columns)} LIMIT {MAX_ROWS}"
        )
        for row in self._connection.execute(sql, tuple(where.values())):
            yield dict(zip(names, row, strict=True))


def decode_json_cell(value: Any) -> Any:
    """Decode the JSON in a cell; None if it holds none."""
    if not isinstance(value, (str, bytes)):
        return None
    try:
        return _decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None


@contextmanager
def open_database(source: Source) -> Iterator[Database]:
    """Open a database for reading in one transaction; no file beside it is created or changed.

    Raises:
        ReadError: it is locked, damaged, too large, or no database.
    """
    if not source.is_database:
        raise ReadError(f"expected an SQLite database, found {source.description}.", source.path)
    try:
        with _connect(source) as connection:
            connection.execute("BEGIN")
            yield Database(connection, source.path)
    except (
        sqlite3.Error,
        UnicodeDecodeError,
        OverflowError,
    ) as e:
        message = str(e)[:100]
        if "locked" in message or "busy" in message:
            reason = (
                "the database is locked by the tool that writes it: try again when it is idle, or"
                " copy it."
            )
        elif "too big" in message:
            reason = "a cell of the database is too large."
        else:
            reason = f"the database is torn ({message})."
        raise ReadError(reason, source.path) from None


@contextmanager
def _connect(source: Source) -> Iterator[sqlite3.Connection]:
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
    with _choose_file_and_mode(path, size) as (file, mode):
        connection = sqlite3.connect(
            f"{file.resolve().as_uri()}?{mode}", uri=True, timeout=LOCK_TIMEOUT
        )
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def _choose_file_and_mode(path: Path, size: int) -> Iterator[tuple[Path, str]]:
    """Yield the file to open and the URI parameters to open it with."""
    # Even with mode=ro SQLite creates or updates a -shm file when a write-ahead log (-wal) exists.
    # Four cases:
    #   no log, no rollback journal   immutable: no lock, nothing is written
    #   rollback journal              read-only; SQLite honours the journal
    #   log and its index (-shm)      read-only through the index that the running tool maintains
    #   log without an index          the tool was killed: read a temporary copy of both
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
    """Return a database image that opens in memory, with the write-ahead flag cleared."""
    return data[:18] + b"\1\1" + data[20:] if data[18:20] == b"\2\2" else data
