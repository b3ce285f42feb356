"""A root folder that no path leaves: `..`, absolute paths, symlinks, NUL bytes and device files are refused."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ctxkit.errors import StoreError
from ctxkit.tools.folders import RELATIVE, Folder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Root:
    """A folder in which an agent's file tools work.

    A path is resolved, links inside the root included, and then opened part by part without
    following any: a link that is put there in between does not lead out. Files are replaced, never
    changed in place, so that a hard link to a file outside (which cannot be told from any other
    file) is read as a file of the root, and not written through.

    Args:
        folder: made if it does not exist.

    Raises:
        StoreError: it cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            self.folder = Path(folder).expanduser().resolve()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._is = _identity(self.folder.stat())
        except (OSError, RuntimeError, ValueError) as e:
            said = f"The root folder {str(folder)!r} cannot be used"
            raise StoreError(f"{said} ({_why(e)}).") from None

    def resolve(self, path: str) -> Path:
        """Return the real path inside the root.

        Raises:
            StoreError: the path leads out of the root, or is no path.
        """
        if "\0" in path or len(path) > 4096:
            raise StoreError("The path is not a path: it holds a NUL or is too long.")
        try:
            real = (self.folder / path.strip()).resolve()
        except (OSError, RuntimeError, ValueError):
            raise StoreError(f"The path {path[:200]!r} cannot be resolved.") from None
        if real != self.folder and not real.is_relative_to(self.folder):
            raise StoreError(
                f"The path {path[:200]!r} leads out of the root folder; give one relative to it."
            )
        return real

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """Yield a regular file, open for reading.

        Raises:
            StoreError: it is no regular file, is missing, or leads out of the root.
        """
        with self._place(path) as (folder, name):
            file = os.fdopen(folder.open(name, os.O_RDONLY), "rb")
        with file:
            yield file

    def has(self, path: str) -> bool:
        """Return True where there is a file at a path.

        Raises:
            StoreError: the path leads out of the root.
        """
        return os.path.isfile(self.resolve(path))  # noqa: PTH113  a name too long is no error here

    def read(self, path: str, limit: int = 10_000_000, *, whole: bool = False) -> bytes:
        """Return the bytes of a regular file, at most `limit`; with `whole` a larger file is an error.

        Raises:
            StoreError: it is no regular file, is missing, is too large, or leads out of the root.
        """
        with self.opened(path) as file:
            if whole and os.fstat(file.fileno()).st_size > limit:
                raise StoreError(
                    f"{path!r} is larger than {limit:,} bytes: it is not taken in part."
                )
            return file.read(limit)

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> Path:
        """Write a regular file whole or not at all, or at its end; return its real path.

        Folders that are missing are made.

        A new file that is `private` can be read by its owner only. At the end of a file that has
        other names (hard links) nothing is written.

        Raises:
            StoreError: it is a folder or a device, leads out of the root, or the disk refused.
                The file is as it was.
        """
        mode = 0o600 if private else 0o644
        with self._place(path, make=0o777) as (folder, name):
            if append:
                _append(folder, name, data, mode)
            else:
                folder.write(name, (data,), mode)
            return folder.path / name

    def relative(self, path: Path) -> str:
        """Return a path as the agent sees it: relative to the root, with forward slashes."""
        return path.relative_to(self.folder).as_posix() or "."

    # -- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _place(self, path: str, make: int | None = None) -> Iterator[tuple[Folder, str]]:
        """Yield the folder of a path, held open, and the name in it; errors become sentences."""
        parts = self.resolve(path).relative_to(self.folder).parts
        if not parts:
            raise StoreError(f"{path[:200]!r} is a folder, not a file.")
        try:
            with self._top() as top, top.reach(parts[:-1], make=make) as folder:
                yield folder, parts[-1]
        except FileNotFoundError:
            raise StoreError(f"There is no file {path[:200]!r}.") from None
        except OSError as e:
            done = "opened" if make is None else "written"
            raise StoreError(f"{path[:200]!r} cannot be {done} ({_why(e)}).") from None

    def _top(self) -> Folder:
        """Return the root, held open.

        Raises:
            StoreError: another folder has its name now.
        """
        top = Folder(self.folder)
        if RELATIVE and _identity(top.itself()) != self._is:
            top.close()
            raise StoreError(
                f"{self.folder} is another folder than before: open the session again."
            )
        return top


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _append(folder: Folder, name: str, data: bytes, mode: int) -> None:
    handle = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    with os.fdopen(handle, "ab", buffering=0) as file:
        if os.fstat(handle).st_nlink > 1:
            raise OSError(0, "it has other names, hard links; nothing is added to such a file")
        file.write(data)


def _why(error: Exception) -> str:
    """Return why the system refused, in its words."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
