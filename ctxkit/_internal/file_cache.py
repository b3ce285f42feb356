"""What was worked out of files, cached on disk by path, time and size."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ctxkit._internal.safe_fs import SafeFolder

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 100_000
"""Files that are remembered, those that were read last."""
_LARGEST = 256 << 20
"""Bytes of notes that are read."""


class FileStamp(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file as it was when it was read."""

    path: str
    modified: float
    """When it was written to last, in seconds since 1970."""
    size: int
    """Bytes."""

    @classmethod
    def of(cls, path: Path) -> FileStamp | None:
        """Return the stamp of a file; None where it is not there."""
        try:
            told = path.stat()
        except (OSError, ValueError):
            return None
        where = os.path.abspath(path)  # noqa: PTH100  without `..`
        return cls(path=where, modified=told.st_mtime, size=told.st_size)


StampT = TypeVar("StampT", bound=FileStamp)


class FileCache(Generic[StampT]):
    """What is known of files, in a file of JSON lines for its owner only.

    The first line names what the others mean and the kit that wrote them; those of another kit are
    not read. Notes that cannot be read or written are done without: they only save time.

    Args:
        path: the file of the notes.
        kind: what a line is: a stamp, and what was worked out.
        version: of what a line means.
        kit: the version of the kit.
    """

    def __init__(self, path: Path, kind: type[StampT], version: int, kit: str) -> None:
        self.path = path
        self._head = {path.stem: version, "ctxkit": kit}
        self._known: dict[str, StampT] = {}
        self._new = False
        with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
            self._load(kind)

    def _load(self, kind: type[StampT]) -> None:
        if self.path.stat().st_size > _LARGEST:
            return
        first, _, rest = self.path.read_bytes().partition(b"\n")
        if msgspec.json.decode(first) == self._head:
            lines = msgspec.json.Decoder(kind).decode_lines(rest)
            self._known = {each.path: each for each in lines}

    def get(self, stamp: FileStamp) -> StampT | None:
        """Return what is known of a file; None where it was not read as it is now."""
        was = self._known.get(stamp.path)
        same = was is not None and (was.modified, was.size) == (stamp.modified, stamp.size)
        return was if same else None

    def put(self, entry: StampT) -> None:
        """Note what was worked out of a file."""
        self._known.pop(entry.path, None)
        self._known[entry.path] = entry
        self._new = True

    def all(self) -> list[StampT]:
        """Return what is known of all files that were ever read."""
        return list(self._known.values())

    def write(self) -> None:
        """Write the notes for the next sitting, whole or not at all, where something is new."""
        if not self._new:
            return
        told: list[Any] = [self._head, *self.all()[-_MOST:]]
        with suppress(OSError), SafeFolder.own(self.path.parent) as folder:
            folder.write(self.path.name, map(_line, told))
        self._new = False


def _line(entry: Any) -> bytes:
    try:
        return msgspec.json.encode(entry) + b"\n"
    except UnicodeEncodeError:  # of a path that is no UTF-8: its file is read each time
        return b""
