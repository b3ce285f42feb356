"""Finished runs on disk: one JSON line each, flushed as soon as it is done; a torn last line is
written anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit.errors import StoreError
from ctxkit.sweeps.batches import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

Key = tuple[str, str, str]
"""Session, rules, options."""


class Notes:
    """A file of finished runs; without a path nothing is kept."""

    def __init__(self, path: str | Path | None, options: str) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self.options = options
        self.known: dict[Key, dict[str, Any]] = {}
        self._file: Any = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        try:
            whole = self._read()
            self._file = self.path.open("ab")
            if not whole:
                self._file.write(b"\n")
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise StoreError(f"Runs cannot be kept in {str(self.path)!r}: {why}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> bool:
        """Read what is there; return whether its last line is whole."""
        if self.path is None or not self.path.exists():
            return True
        data = self.path.read_bytes()
        for line in data.split(b"\n"):
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                continue  # a torn line: its run is made again
            if row.get("version") == VERSION and {"of", "key", "options"} <= row.keys():
                self.known[(row["of"], row["key"], row["options"])] = row
        return not data or data.endswith(b"\n")

    def done(self, session: str, rules: str) -> dict[str, Any] | None:
        """Return the row of a run that was finished before."""
        return self.known.get((session, rules, self.options))

    def keep(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write finished runs; failed ones too, but they are made again the next time."""
        if self._file is None:
            return
        for row in rows:
            if row.get("error") is None:
                told = {**row, "options": self.options, "version": VERSION}
                self._file.write(msgspec.json.encode(told) + b"\n")
        self._file.flush()
