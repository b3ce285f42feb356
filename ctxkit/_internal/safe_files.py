# ruff: noqa: PTH102, PTH116
# `pathlib` has no names relative to an open folder
"""Files relative to an open directory handle (atomic writes, locks, no links followed), and the
cache folder.
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
"""True where the system opens files relative to an open folder (Windows does not)."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_FILE_FLAGS = _NOFOLLOW
for _flag in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
    _FILE_FLAGS |= getattr(os, _flag, 0)
_TEMP_SUFFIX = ".ctxkit-new"
"""Suffix of temporary files, which replace another file when they are complete."""
LOCK_NAME = ".lock"
"""Name of the file that is locked while one process changes a folder."""
_STALE_LINK_SECONDS = 10.0
"""Age after which a temporary file that gets its name when complete is one of a killed process.

A process of a busy machine may stand still for some seconds between two steps.
"""
_STALE_FILE_SECONDS = 3600.0
"""The same for a temporary file that has its name from the beginning."""

# Atomic writes.
#
# Where the system has `O_TMPFILE`, the new content is written to a file without a name, which then
# gets a name by a link: its own if that is free, else a temporary one that is renamed over the old
# file. A killed process leaves at most one temporary file, with a fixed name, which the next write
# removes. Elsewhere the content is written to a temporary file with a random name, and old ones are
# removed before. In both cases the data is on the disk (`fsync`) before the rename.
# Invariant: at any time the name refers to the whole old or the whole new content.


class SafeFolder:
    """An open folder, whose files are opened without following links.

    Every name is opened relative to its folder and never through a link, also where another process
    creates the link in between. On Windows each part is checked before it is used instead: an
    existing link is refused, one that is created right after the check is not.

    Raises:
        OSError: by any method; ELOOP or ENOTDIR for a link.
    """

    def __init__(self, path: str | Path, handle: int | None = None) -> None:
        self.path = Path(path)
        if handle is None:
            handle = os.open(self.path, _FOLDER_FLAGS) if SUPPORTS_DIR_FD else -1
        self._handle = handle

    @classmethod
    def open_or_create(cls, path: Path) -> Self:
        """Open a folder of ctxkit and create it if missing; links on its path are followed."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(path.resolve())

    def at(self, name: str) -> tuple[Any, dict[str, int]]:
        """Return path and keyword arguments by which functions of `os` reach a file here."""
        if self._handle >= 0:
            return name, {"dir_fd": self._handle}
        return self.path / name, {}

    def open_folder(self, name: str, *, create_mode: int | None = None) -> SafeFolder:
        """Open a folder in this one; create a missing one with `create_mode`.

        Args:
            name: name of the folder; a link is refused.
            create_mode: permissions of a folder that is created; None: a missing one is an error.

        Raises:
            OSError: there is no such folder, or it is a link or a file.
        """
        path, where = self.at(name)
        if create_mode is not None:
            with suppress(FileExistsError):
                os.mkdir(path, create_mode, **where)
        if self._handle >= 0:
            return SafeFolder(self.path / name, os.open(path, _FOLDER_FLAGS, **where))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return SafeFolder(path, -1)

    def open_subfolder(self, parts: Sequence[str], *, create_mode: int | None = None) -> SafeFolder:
        """Open the folder at the end of a path, and close this one.

        Args:
            parts: names of the folders on the path.
            create_mode: permissions of folders that are created; None: a missing one is an error.
        """
        folder = self
        for part in parts:
            with folder:
                child = folder.open_folder(part, create_mode=create_mode)
            folder = child
        return folder

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a regular file in this folder, no pipe or device, and return its handle.

        Args:
            name: name of the file; a link is refused.
            flags: flags of `os.open`.
            mode: permissions of a file that is created.
        """
        path, where = self.at(name)
        status = self.stat(name)  # checked before, as opening a device may have effects
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise _irregular_file_error(status, name)
        handle = os.open(path, flags | _FILE_FLAGS, mode, **where)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise _irregular_file_error(status, name)
        return handle

    def open_for_append(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file for appending and return its handle; a file with several names is refused.

        Data appended to a hard link would also appear under the file's other names.

        Args:
            name: name of the file in this folder.
            flags: flags of `os.open`; `O_APPEND` is added.
            mode: permissions of a file that is created.

        Raises:
            OSError: the file cannot be opened, or it is a hard link to a file with other names.
        """
        handle = self.open(name, flags | os.O_APPEND, mode)
        if os.fstat(handle).st_nlink == 1:
            return handle
        os.close(handle)
        raise OSError(errno.EMLINK, "it has other names, which are hard links", name)

    def append(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Append to a file, all or nothing.

        Args:
            name: name of the file; a missing one is created.
            data: bytes to append.
            mode: permissions of a file that is created.
        """
        handle = self.open_for_append(name, os.O_WRONLY | os.O_CREAT, mode)
        with os.fdopen(handle, "wb", buffering=0) as file:
            size, rest = os.fstat(handle).st_size, memoryview(data)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                os.ftruncate(handle, size)
                raise

    @contextmanager
    def lock(self, seconds: float = 10.0) -> Iterator[None]:
        """Lock this folder against other processes that lock it; its file `.lock` stays.

        Args:
            seconds: how long to wait for another process.

        Raises:
            OSError: another process holds the lock all that time, or the folder cannot be locked.
        """
        from filelock import lock_descriptor

        handle = self.open(LOCK_NAME, os.O_RDWR | os.O_CREAT)
        with os.fdopen(handle, "rb"):
            until = time.monotonic() + seconds
            while not lock_descriptor(handle, blocking=False):
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, "another process is writing there", str(self.path))
                time.sleep(0.01)
            yield  # closing the file releases the lock

    def get_status(self) -> os.stat_result:
        """Return the status of this folder."""
        return os.fstat(self._handle) if self._handle >= 0 else os.stat(self.path)

    def entries(self) -> list[tuple[str, bool]]:
        """Return the names of files (True) and folders (False) in order; links are left out."""
        path, where = self.at(".")
        target = os.open(path, os.O_RDONLY, **where) if where else path
        try:
            with os.scandir(target) as entries:
                kinds = [(e.name, e.is_file(follow_symlinks=False), e) for e in entries]
                return sorted((n, f) for n, f, e in kinds if f or e.is_dir(follow_symlinks=False))
        finally:
            if where:
                os.close(target)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a name, not of its link target; None where it does not exist."""
        path, where = self.at(name)
        try:
            return os.stat(path, follow_symlinks=False, **where)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        path, where = self.at(name)
        with suppress(FileNotFoundError):
            os.unlink(path, **where)

    def write(self, name: str, data: Iterable[bytes], mode: int = 0o600) -> None:
        """Write a file atomically: the old one stays until all of the new one is on the disk.

        An existing file keeps its mode and, where permitted, its owner. Another name of the old
        file (a hard link) keeps the old content.

        Args:
            name: name of the file.
            data: the content, in pieces.
            mode: permissions of a new file, less the umask.
        """
        old = self._replaced_status(name)
        handle, new = self._open_temp(name, mode if old is None else 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(data)
                file.flush()
                if old is not None:
                    _copy_owner_and_mode(file, old)
                os.fsync(handle)
                if new is None:
                    new = self._link_temp(handle, name, is_new=old is None)
            if new != name:
                self.rename(new, name)
        except BaseException:
            if new is not None:
                self.remove(new)
            raise

    def rename(self, old: str, new: str) -> None:
        """Rename a file of this folder; a file with the new name is replaced.

        Args:
            old: name of the file in this folder.
            new: its new name in this folder.
        """
        (source, source_dir), (target, target_dir) = self.at(old), self.at(new)
        source_fd, target_fd = source_dir.get("dir_fd"), target_dir.get("dir_fd")
        os.replace(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)

    def link(self, name: str, target_folder: SafeFolder, new: str) -> None:
        """Link a file of this folder into another one; a symbolic link is linked itself.

        Args:
            name: name of the file here.
            target_folder: folder that gets another name of the file.
            new: that name.
        """
        (source, source_dir), (target, target_dir) = self.at(name), target_folder.at(new)
        handles = {"src_dir_fd": source_dir.get("dir_fd"), "dst_dir_fd": target_dir.get("dir_fd")}
        os.link(source, target, **handles, follow_symlinks=False)

    def close(self) -> None:
        """Close the folder."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- temporary files ---------------------------------------------------------------------------

    def _replaced_status(self, name: str) -> os.stat_result | None:
        """Return the status of the writable regular file to be replaced; None if there is none."""
        try:
            handle = self.open(name, os.O_WRONLY)
        except FileNotFoundError:
            return None
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def _open_temp(self, name: str, mode: int) -> tuple[int, str | None]:
        """Open a temporary file; return its handle and name (None: it has no name yet)."""
        if self._handle >= 0 and hasattr(os, "O_TMPFILE"):
            with suppress(OSError):
                return os.open(".", os.O_TMPFILE | os.O_WRONLY, mode, dir_fd=self._handle), None
        self._remove_stale_temps(_temp_name(name, ""))
        new = _temp_name(name)
        return self.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), new

    def _link_temp(self, handle: int, name: str, *, is_new: bool) -> str:
        """Give an unnamed file its own name if `is_new`, else a temporary name; return the name.

        The temporary name is fixed, so that a killed process leaves at most one file. While the
        file under it changes, it is that of another writer, for which this one waits.
        """
        source, temp = f"/proc/self/fd/{handle}", _temp_name(name, _TEMP_SUFFIX[1:])
        target, inode, since = name if is_new else temp, 0, time.monotonic()
        if is_new:
            self._remove_if_stale(temp)
        while True:
            with suppress(FileExistsError):
                os.link(source, target, dst_dir_fd=self._handle, follow_symlinks=True)
                return target
            target, status = temp, self._remove_if_stale(temp)
            if status is not None and status.st_ino != inode:
                inode, since = status.st_ino, time.monotonic()
            elif time.monotonic() - since > _STALE_LINK_SECONDS:
                self.remove(temp)
            time.sleep(0.001)

    def _remove_if_stale(self, temp: str) -> os.stat_result | None:
        """Remove the temporary file of a killed process; return the status of any other one.

        A file is linked right after its last change, so an old one belongs to no running process.
        """
        status = self.stat(temp)
        if status is None or time.time() - status.st_ctime <= _STALE_LINK_SECONDS:
            return status
        self.remove(temp)
        return None

    def _remove_stale_temps(self, prefix: str) -> None:
        """Remove the temporary files that killed processes left when they wrote a file."""
        names = (n for n, is_file in self.entries() if is_file and n.startswith(prefix))
        for name in (n for n in names if n.endswith(_TEMP_SUFFIX)):
            status = self.stat(name)
            if status is not None and time.time() - status.st_mtime > _STALE_FILE_SECONDS:
                self.remove(name)


def _irregular_file_error(status: os.stat_result, name: str) -> OSError:
    """Return the error for a link, a folder or a special file."""
    if stat.S_ISLNK(status.st_mode):
        return OSError(errno.ELOOP, "it is a link", name)
    if stat.S_ISDIR(status.st_mode):
        return OSError(errno.EISDIR, "it is a folder", name)
    return OSError(errno.EINVAL, "it is no regular file", name)


def _temp_name(name: str, mark: str | None = None) -> str:
    """Return the temporary name of a file, with a random mark unless one is given."""
    mark = f"{secrets.token_hex(4)}{_TEMP_SUFFIX}" if mark is None else mark
    return f".{os.fsencode(name)[:200].decode('utf-8', 'ignore')}.{mark}"


def _copy_owner_and_mode(file: BinaryIO, old: os.stat_result) -> None:
    """Give a new file the mode and, where permitted, the owner of the one that it replaces."""
    if hasattr(os, "fchmod"):
        with suppress(PermissionError):
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of a leading `~`.

    `~NAME` of a user that the system does not have stays as it is; `Path.expanduser` raises there.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111  see above


def get_ctxkit_cache_folder() -> Path:
    """Return the path `CTXKIT_CACHE_DIR`, else `ctxkit` in the user's cache; it may not exist.

    Example:
        >>> from unittest.mock import patch
        >>> from ctxkit import tokens
        >>> with patch.dict("os.environ", CTXKIT_CACHE_DIR="/tmp/ctxkit"):
        ...     tokens.get_ctxkit_cache_folder().as_posix()
        '/tmp/ctxkit'
    """
    configured = os.environ.get("CTXKIT_CACHE_DIR")
    if configured:
        return Path(configured)
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home() raises where there is no home
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "ctxkit"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ctxkit"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "ctxkit"


def write_file_atomically(path: Path, lines: Iterable[bytes], mode: int = 0o600) -> None:
    """Write a file atomically in an existing folder; a failure leaves an existing file unchanged.

    Args:
        path: the file; links in it are followed.
        lines: the content, in pieces.
        mode: permissions of a new file.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        real = path.resolve()  # the user named the path, so its links are followed
        with SafeFolder(real.parent) as folder:
            folder.write(real.name, lines, mode)
    except (OSError, ValueError, RuntimeError) as e:
        why = (e.strerror if isinstance(e, OSError) else None) or str(e)
        raise StoreError(
            f"{str(path)!r} could not be written ({why}). Choose a folder that exists and may be "
            "written, and no device or pipe."
        ) from None
