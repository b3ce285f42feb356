# ruff: noqa: PTH102, PTH116
# names in an open folder are not for `pathlib`
"""Files below an open directory handle: atomic writes, locks, no links followed; the cache
folder.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from ctxkit.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


SUPPORTS_DIR_FD = os.open in os.supports_dir_fd
"""True where the system opens files relative to a folder that is held open (Windows does not)."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_FILE = _NOFOLLOW
for _flag in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
    _FILE |= getattr(os, _flag, 0)
_ENDING = ".ctxkit-new"
"""End of the name that a file has in the moment before it takes the place of another."""
LOCK_NAME = ".lock"
"""Name of the file that is locked while a folder is changed by one process."""
_MOMENT = 1.0
"""Seconds after which it is one that a killed process left, where it is written under no name."""
_STALE = 3600.0
"""The same, where it has that name all the while that it is written."""


class SafeFolder:
    """A folder that is held open.

    Every name is opened relative to its folder and never through a link: neither a link that lies
    there nor one that another process puts there meanwhile leads elsewhere. On Windows, each part
    is looked at before it is used instead: a link that lies there is refused, one that is made in
    that moment is not.

    Raises:
        OSError: of any method; a link is ELOOP or ENOTDIR.
    """

    def __init__(self, path: str | Path, handle: int | None = None) -> None:
        self.path = Path(path)
        self._handle = (
            (os.open(self.path, _FOLDER) if SUPPORTS_DIR_FD else -1) if handle is None else handle
        )

    @classmethod
    def own(cls, path: Path) -> Self:
        """Return a folder of the kit's own, made where it is missing; links lead to it."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path.resolve())

    def at(self, name: str) -> tuple[Any, dict[str, int]]:
        """Return how functions of `os` are told of a name in this folder: path and keywords."""
        if self._handle >= 0:
            return name, {"dir_fd": self._handle}
        return self.path / name, {}

    def enter(self, name: str, *, make: int | None = None) -> SafeFolder:
        """Return a folder in this one; where it is missing and `make` is a mode, it is made."""
        path, where = self.at(name)
        if make is not None:
            with suppress(FileExistsError):
                os.mkdir(path, make, **where)
        if self._handle >= 0:
            return SafeFolder(self.path / name, os.open(path, _FOLDER, **where))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return SafeFolder(path, -1)

    def below(self, parts: Sequence[str], *, make: int | None = None) -> SafeFolder:
        """Return the folder at the end of a path, and let this one go."""
        here = self
        for part in parts:
            with here:
                there = here.enter(part, make=make)
            here = there
        return here

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Return a handle of a regular file in this folder; no pipe and no device is waited for."""
        path, where = self.at(name)
        found = self.stat(name)  # a device may do something when it is opened
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise _irregular(found, name)
        handle = os.open(path, flags | _FILE, mode, **where)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise _irregular(found, name)
        return handle

    def open_own(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Return a handle that writes at the end of a file; one that has other names is refused.

        A hard link looks like any file: what is added to it would be added to a file elsewhere.
        """
        handle = self.open(name, flags | os.O_APPEND, mode)
        if os.fstat(handle).st_nlink == 1:
            return handle
        os.close(handle)
        raise OSError(errno.EMLINK, "it has other names, which are hard links", name)

    def append(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Write at the end of a file, all or nothing."""
        handle = self.open_own(name, os.O_WRONLY | os.O_CREAT, mode)
        with os.fdopen(handle, "wb", buffering=0) as file:
            size, left = os.fstat(handle).st_size, memoryview(data)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                os.ftruncate(handle, size)
                raise

    @contextmanager
    def locked(self, seconds: float = 10.0) -> Iterator[None]:
        """Hold this folder against other processes that ask for the same; `.lock` in it stays.

        Raises:
            OSError: another one holds it all the while, or the place cannot be locked.
        """
        from filelock import lock_descriptor

        handle = self.open(LOCK_NAME, os.O_RDWR | os.O_CREAT)
        with os.fdopen(handle, "rb"):
            until = time.monotonic() + seconds
            while not lock_descriptor(handle, blocking=False):
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, "another process is writing there", str(self.path))
                time.sleep(0.01)
            yield  # closing it gives it free

    def itself(self) -> os.stat_result:
        """Return what is said of this folder."""
        return os.fstat(self._handle) if self._handle >= 0 else os.stat(self.path)

    def entries(self) -> list[tuple[str, bool]]:
        """Return the names of files (True) and folders (False) in order, without links."""
        path, where = self.at(".")
        listed = os.open(path, os.O_RDONLY, **where) if where else path
        try:
            with os.scandir(listed) as found:
                kinds = [(e.name, e.is_file(follow_symlinks=False), e) for e in found]
                return sorted((n, f) for n, f, e in kinds if f or e.is_dir(follow_symlinks=False))
        finally:
            if where:
                os.close(listed)

    def stat(self, name: str) -> os.stat_result | None:
        """Return what is said of a name, not of what it links to; None where there is nothing."""
        path, where = self.at(name)
        try:
            return os.stat(path, follow_symlinks=False, **where)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file, where there is one."""
        path, where = self.at(name)
        with suppress(FileNotFoundError):
            os.unlink(path, **where)

    def write(self, name: str, data: Iterable[bytes], mode: int = 0o600) -> None:
        """Write a file whole or not at all: the old one stays until all of the new is on the disk.

        A file that is there keeps its mode and, where that is allowed, its owner; a new one gets
        `mode` without what the umask takes. The name gets a new file: another name of the old one
        (a hard link) keeps the old content.
        """
        old = self._replaced(name)
        handle, new = self._unnamed(name, mode if old is None else 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(data)
                file.flush()
                if old is not None:
                    _copy_owner_and_mode(file, old)
                os.fsync(handle)
                if new is None:
                    new = self._named(handle, name, fresh=old is None)
            if new != name:
                self.rename(new, name)
        except BaseException:
            if new is not None:
                self.remove(new)
            raise

    def rename(self, old: str, new: str) -> None:
        """Give a file of this folder another name; what has that name already is replaced."""
        (source, here), (target, there) = self.at(old), self.at(new)
        os.replace(source, target, src_dir_fd=here.get("dir_fd"), dst_dir_fd=there.get("dir_fd"))

    def link(self, name: str, there: SafeFolder, new: str) -> None:
        """Give a file of this folder one more name in another one; a link that it is stays one."""
        (source, mine), (target, theirs) = self.at(name), there.at(new)
        handles = {"src_dir_fd": mine.get("dir_fd"), "dst_dir_fd": theirs.get("dir_fd")}
        os.link(source, target, **handles, follow_symlinks=False)

    def close(self) -> None:
        """Let the folder go."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------

    def _replaced(self, name: str) -> os.stat_result | None:
        """Return what is said of the regular file to be replaced, which may be written, or None."""
        try:
            handle = self.open(name, os.O_WRONLY)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def _unnamed(self, name: str, mode: int) -> tuple[int, str | None]:
        """Return a new file and its name, or None: it needs none, and a kill leaves nothing."""
        if self._handle >= 0 and hasattr(os, "O_TMPFILE"):
            with suppress(OSError):
                return os.open(".", os.O_TMPFILE | os.O_WRONLY, mode, dir_fd=self._handle), None
        self._sweep(_beside(name, ""))
        new = _beside(name)
        return self.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), new

    def _named(self, handle: int, name: str, *, fresh: bool) -> str:
        """Give a nameless file a name: its own where that is `fresh`, else one for a moment.

        That one is always the same, so that a process killed in that moment leaves one file at
        most, which the next write takes away; one that changes meanwhile is another writer's.
        """
        source, moment = f"/proc/self/fd/{handle}", _beside(name, _ENDING[1:])
        target, seen, since = name if fresh else moment, 0, time.monotonic()
        if fresh:
            self._forget(moment)
        while True:
            with suppress(FileExistsError):
                os.link(source, target, dst_dir_fd=self._handle, follow_symlinks=True)
                return target
            target, left = moment, self._forget(moment)
            if left is not None and left.st_ino != seen:
                seen, since = left.st_ino, time.monotonic()
            elif time.monotonic() - since > _MOMENT:
                self.remove(moment)
            time.sleep(0.001)

    def _forget(self, moment: str) -> os.stat_result | None:
        """Remove what a killed write left under the name of a moment; return what lies there else.

        A file is named in the instant of its last change, so an old one is nobody's any more.
        """
        left = self.stat(moment)
        if left is None or time.time() - left.st_ctime <= _MOMENT:
            return left
        self.remove(moment)
        return None

    def _sweep(self, start: str) -> None:
        """Remove what killed processes left of earlier writes to a file."""
        left = (n for n, is_file in self.entries() if is_file and n.startswith(start))
        for name in (n for n in left if n.endswith(_ENDING)):
            found = self.stat(name)
            if found is not None and time.time() - found.st_mtime > _STALE:
                self.remove(name)


def _irregular(found: os.stat_result, name: str) -> OSError:
    """Return the error of what is no regular file."""
    if stat.S_ISLNK(found.st_mode):
        return OSError(errno.ELOOP, "it is a link", name)
    if stat.S_ISDIR(found.st_mode):
        return OSError(errno.EISDIR, "it is a folder", name)
    return OSError(errno.EINVAL, "it is no regular file", name)


def _beside(name: str, mark: str | None = None) -> str:
    """Return the name of a file in the moment before it is called `name`."""
    mark = f"{secrets.token_hex(4)}{_ENDING}" if mark is None else mark
    return f".{os.fsencode(name)[:200].decode('utf-8', 'ignore')}.{mark}"


def _copy_owner_and_mode(file: BinaryIO, old: os.stat_result) -> None:
    """Give a new file the owner and mode of the one that it replaces, as far as is allowed."""
    if hasattr(os, "fchmod"):
        with suppress(PermissionError):
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


def cache_folder() -> Path:
    """Return `CTXKIT_CACHE_DIR`, else `ctxkit` in the user's cache; it is not made here."""
    named = os.environ.get("CTXKIT_CACHE_DIR")
    if named:
        return Path(named)
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "ctxkit"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ctxkit"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "ctxkit"


def write_file(path: Path, lines: Iterable[bytes], mode: int = 0o600) -> None:
    """Write a file whole or not at all, in a folder that exists; `mode`: of one that is new."""
    try:
        real = path.resolve()  # the user named it: a link leads where the user let it lead
        with SafeFolder(real.parent) as folder:
            folder.write(real.name, lines, mode)
    except (OSError, ValueError, RuntimeError) as e:
        why = (e.strerror if isinstance(e, OSError) else None) or str(e)
        raise StoreError(
            f"{str(path)!r} could not be written ({why}). Choose a folder that exists and may be "
            "written, and no device or pipe."
        ) from None
