"""A folder of memory: an entry a file, `MEMORY.md` as its index, `audit.jsonl` of what was done.

No link is followed, nothing outside the folder is read or written, and no more is read than the
bounds here say: the folder may be anybody's.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import StoreError
from ctxkit.held_folders import Folder
from ctxkit.memory.entry import MOST_BYTES, MemoryEntry, decoded, encoded
from ctxkit.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX, AUDIT = "MEMORY.md", "audit.jsonl"
MOST_ENTRIES = 500
"""Files that are read; of more, those that were written last."""
MOST_AUDIT = 2_000_000
"""Bytes of the audit that are read, its newest."""


class MemoryFolder:
    """The entries in a folder. Nothing is made before something is kept.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> tuple[list[MemoryEntry], int]:
        """Return the entries by name, and how many files are not used."""
        if not self.path.is_dir():
            return [], 0
        found, unsound = dict[str, MemoryEntry](), 0
        try:
            with self._opened() as here:
                names, left = _names(here)
                for name in names:
                    kept = decoded(_bytes(here, name))
                    if kept is None or kept.guid in found:
                        unsound += 1
                    else:
                        found[kept.guid] = kept
        except (OSError, StoreError):
            return [], 1
        entries = sorted(found.values(), key=lambda e: e.name.casefold())
        return entries, unsound + left

    def put(self, kept: MemoryEntry) -> None:
        """Keep an entry, in the place of the one with its guid.

        Raises:
            StoreError: it cannot be written.
        """
        with self._opened(make=True) as here, here.locked():
            here.write(_file(here, kept.guid), (encoded(kept),))
            self._index(here)

    def remove(self, kept: MemoryEntry) -> None:
        """Take an entry out.

        Raises:
            StoreError: it cannot be removed.
        """
        with self._opened() as here, here.locked():
            here.remove(_file(here, kept.guid))
            self._index(here)

    def note(self, **row: Any) -> None:
        """Add a row to the audit.

        Raises:
            StoreError: it cannot be written.
        """
        told = json.dumps(redacted(row), ensure_ascii=False, default=str)
        with self._opened(make=True) as here:
            here.append(AUDIT, f"{told}\n".encode("utf-8", "replace"))

    def audit(self, guid: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of the audit on an entry, or all, the oldest first."""
        if not self.path.is_dir():
            return []
        with suppress(OSError, StoreError), self._opened() as here:
            rows = (
                _row(told) for told in _bytes(here, AUDIT, MOST_AUDIT, newest=True).split(b"\n")
            )
            return [row for row in rows if row and guid in (None, row.get("guid"))]
        return []

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[Folder]:
        try:
            if make:
                self.path.parent.resolve().mkdir(parents=True, exist_ok=True, mode=0o700)
            top = Folder(self.path.parent.resolve())
            with top.below((self.path.name,), make=0o700 if make else None) as here:
                yield here
        except OSError as e:
            why = f"{e.strerror or type(e).__name__}; links are not followed there"
            raise StoreError(f"{line(str(self.path), 300)} cannot be used ({why}).") from None

    def _index(self, here: Folder) -> None:
        """Write the index anew, of the files that are there."""
        rows = ["# Memory Index", ""]
        for name in _names(here)[0]:
            kept = decoded(_bytes(here, name))
            if kept is not None:
                rows.append(f"- [{kept.name.replace(']', ')')}]({name}) — {kept.description}")
        here.write(INDEX, ("\n".join([*rows, ""]).encode("utf-8", "replace"),))


def _names(here: Folder) -> tuple[list[str], int]:
    """Return the names of the files that may be entries, in order, and how many more there are."""
    names = [n for n, is_file in here.entries() if is_file and _is_entry(n)]
    if len(names) <= MOST_ENTRIES:
        return names, 0

    def written(name: str) -> int:
        stat = here.stat(name)
        return stat.st_mtime_ns if stat is not None else 0

    last = sorted(names, key=written, reverse=True)[:MOST_ENTRIES]
    return sorted(last), len(names) - MOST_ENTRIES


def _is_entry(name: str) -> bool:
    return name.endswith(".md") and name != INDEX and not name.startswith(".")


def _file(here: Folder, guid: str) -> str:
    """Return the file that an entry has, or gets: a person may have named it otherwise."""
    wanted = f"memory_{guid}.md"
    if here.stat(wanted) is not None:
        return wanted
    for name, is_file in here.entries():
        if is_file and _is_entry(name):
            kept = decoded(_bytes(here, name))
            if kept is not None and kept.guid == guid:
                return name
    return wanted


def _bytes(here: Folder, name: str, most: int = MOST_BYTES + 1, *, newest: bool = False) -> bytes:
    """Return the bytes of a file, of a large one no more than `most`; nothing where it is none."""
    try:
        handle = here.open(name, os.O_RDONLY)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        if newest:
            file.seek(max(os.fstat(file.fileno()).st_size - most, 0))
        return file.read(most)


def _row(told: bytes) -> dict[str, Any]:
    try:
        row = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}
