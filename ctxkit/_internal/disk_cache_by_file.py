"""A cache on disk of values computed from files, by path, modification time and size."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ctxkit._internal.safe_files import SafeFolder

if TYPE_CHECKING:
    from pathlib import Path

_MAX_ENTRIES = 100_000
"""Largest number of entries that are written; the newest ones are."""
_MAX_CACHE_BYTES = 256 << 20
"""Largest size, in bytes, of a cache file that is read."""


class FileStamp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Path, modification time and size of a file when it was read."""

    path: str
    modified: float
    """Time of the last change, in seconds since 1970."""
    size: int
    """Bytes."""

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """Return the stamp of a file; None if it does not exist."""
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        absolute = os.path.abspath(path)  # noqa: PTH100  without `..`
        return cls(path=absolute, modified=status.st_mtime, size=status.st_size)


StampT = TypeVar("StampT", bound=FileStamp)


class FileCache(Generic[StampT]):
    """Values computed from files, in a file of JSON lines that only its owner can read.

    The first line has the versions of the format and of ctxkit; a file of other versions is
    ignored. A cache that cannot be read or written is ignored, too: it only saves time.

    Args:
        path: the cache file.
        kind: type of an entry: a stamp with the computed values.
        version: version of the entries' format.
        kit: version of ctxkit.
    """

    def __init__(self, path: Path, kind: type[StampT], version: int, kit: str) -> None:
        self.path = path
        self._header = {path.stem: version, "ctxkit": kit}
        self._entries: dict[str, StampT] = {}
        self._is_changed = False
        with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
            self._load(kind)

    def _load(self, kind: type[StampT]) -> None:
        if self.path.stat().st_size > _MAX_CACHE_BYTES:
            return
        first, _, rest = self.path.read_bytes().partition(b"\n")
        if msgspec.json.decode(first) == self._header:
            lines = msgspec.json.Decoder(kind).decode_lines(rest)
            self._entries = {entry.path: entry for entry in lines}

    def get(self, stamp: FileStamp) -> StampT | None:
        """Return the entry of a file; None where there is none or the file changed since."""
        entry = self._entries.get(stamp.path)
        if entry is None or (entry.modified, entry.size) != (stamp.modified, stamp.size):
            return None
        return entry

    def put(self, entry: StampT) -> None:
        """Set the entry of a file."""
        self._entries.pop(entry.path, None)
        self._entries[entry.path] = entry
        self._is_changed = True

    def all(self) -> list[StampT]:
        """Return all entries, the oldest first."""
        return list(self._entries.values())

    def write(self) -> None:
        """Write the cache file atomically, if an entry was set."""
        if not self._is_changed:
            return
        rows: list[Any] = [self._header, *self.all()[-_MAX_ENTRIES:]]
        with suppress(OSError), SafeFolder.open_or_create(self.path.parent) as folder:
            folder.write(self.path.name, map(_encode_line, rows))
        self._is_changed = False


def _encode_line(entry: Any) -> bytes:
    try:
        return msgspec.json.encode(entry) + b"\n"
    except UnicodeEncodeError:  # a path that is not UTF-8 is not cached
        return b""
