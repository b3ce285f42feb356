"""A session on disk: appended and flushed entry by entry, one writer at a time, a torn end set aside and reported."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Self

from filelock import FileLock, Timeout

from ctxkit.errors import BadArguments, ReadError, StoreError
from ctxkit.readers.catalogue import read
from ctxkit.writers.entries import Tree, header, to_line
from ctxkit.writers.native import begin, entry_lines, stand

if TYPE_CHECKING:
    from types import TracebackType

    from ctxkit.session import Entry, Session

_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")
_PRIVATE = 0o600


def checked(name: str) -> str:
    """Return the name of a session, which is a part of paths.

    Raises:
        BadArguments: it is none.
    """
    if not _NAME.match(name):
        raise BadArguments(f"{name[:80]!r} is no name for a session: use letters, digits, '_', '-' and '.'.")
    return name


class SessionLog:
    """The file of one live session and the right to write it.

    An entry is acknowledged when `append` returns: it has then left this process, and a killed kernel cannot lose it.

    Args:
        folder: where sessions are kept, usually `.ctxkit/sessions`.
        name: the session's name; letters, digits, `_`, `-` and `.`.
        fresh: what a new session is (its id, model, tools, ...); used where the file does not exist.

    Raises:
        BadArguments: the name is no name.
        StoreError: another process holds the session (the sentence says which), or the file cannot be opened.
    """

    def __init__(self, folder: str | Path, name: str, fresh: Session) -> None:
        self.folder, self.name = Path(folder), checked(name)
        self.path = self.folder / f"{name}.jsonl"
        self.recovered: str | None = None
        """What was set aside when the file was opened, for the user to read; None: it was whole."""
        self._handle = -1
        self._make_folder()
        self._lock = FileLock(self.folder / f".{name}.lock", mode=_PRIVATE)
        self._acquire()
        try:
            self.session = self._open(fresh)
        except BaseException:
            self._lock.release()
            raise

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, *entries: Entry) -> Session:
        """Write entries at the leaf, in one piece, and return the session with them.

        Raises:
            StoreError: the disk refused; the session stays as it was.
        """
        grown = self.session.append(*entries)
        tree, first = Tree(grown), len(self.session.log)
        lines = [line for i in range(first, len(grown.log)) for line in entry_lines(tree, i, grown.log[i])]
        self._write(b"".join(lines))
        self.session = grown
        return grown

    def move(self, entry: str | int) -> Session:
        """Stand at an earlier entry; everything written stays, and what is appended next begins a branch there."""
        moved = self.session.branch(entry)
        self._write(stand(moved))
        self.session = moved
        return moved

    def close(self) -> None:
        """Give the session free for another writer."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._holder.unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        if self._handle < 0:
            raise StoreError(f"Session {self.name!r} is closed; open it again to go on.")
        at = os.lseek(self._handle, 0, os.SEEK_END)
        try:
            written = os.write(self._handle, data)
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError as e:
            os.ftruncate(self._handle, at)  # no half line stays behind
            raise StoreError(f"Session {self.name!r} could not be written ({e.strerror}); nothing was lost.") from None

    # -- opening -------------------------------------------------------------------------------------------------

    @property
    def _holder(self) -> Path:
        return self.folder / f".{self.name}.holder"

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as e:
            raise StoreError(f"The folder {self.folder} cannot be made ({e.strerror}).") from None

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            try:
                held = json.loads(self._holder.read_text())
                who = f"process {int(held['pid'])} on {str(held['host'])[:60]}"
            except (OSError, ValueError, KeyError, TypeError):
                who = "another process"
            raise StoreError(
                f"Session {self.name!r} is being written by {who}: stop it there, or choose another name."
            ) from None
        _private(self._holder, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())

    def _open(self, fresh: Session) -> Session:
        try:
            new = not self.path.exists() or not self.path.stat().st_size
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _PRIVATE)
        except OSError as e:
            raise StoreError(f"{self.path} cannot be opened for writing ({e.strerror}).") from None
        if new:
            self._write(to_line(header(fresh)) + begin(fresh))
            return fresh
        self._mend()
        try:
            return read(self.path, format="native")
        except ReadError as e:
            raise StoreError(f"{self.path} is no session of ours: {e.why}") from None

    def _mend(self) -> None:
        """Set a torn last line aside in a file of its own."""
        size = os.lseek(self._handle, 0, os.SEEK_END)
        keep, torn = size, b""
        while keep:
            tail = os.pread(self._handle, min(keep, 1 << 16), max(keep - (1 << 16), 0))
            cut = tail.rfind(b"\n")
            if cut >= 0 or keep <= len(tail):
                keep -= len(tail) - cut - 1
                torn = os.pread(self._handle, size - keep, keep)
                break
            keep -= len(tail)
        if torn:
            aside = self.path.with_suffix(".torn")
            _private(aside, torn)
            os.ftruncate(self._handle, keep)
            self.recovered = f"The last line was torn ({len(torn)} bytes); it was set aside in {aside.name}."


def _private(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
