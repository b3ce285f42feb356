"""A root folder that no path leaves: `..`, absolute paths, symlinks, NUL bytes and device files are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ctxkit.errors import StoreError


class Root:
    """A folder in which an agent's file tools work.

    Every path is resolved, symlinks included, at the moment of use, and opened without following a link in its last
    part: a symlink made while the agent runs does not lead out either.

    Args:
        folder: made if it does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

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
            raise StoreError(f"The path {path[:200]!r} leads out of the root folder; give one relative to the root.")
        return real

    def read(self, path: str, limit: int = 10_000_000, *, whole: bool = False) -> bytes:
        """Return the bytes of a regular file, at most `limit`; with `whole` a larger file is an error.

        Raises:
            StoreError: it is no regular file, is missing, is too large, or leads out of the root.
        """
        real = self.resolve(path)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = self._open(real, flags, path)
        with os.fdopen(handle, "rb") as file:
            if whole and os.fstat(handle).st_size > limit:
                raise StoreError(f"{path!r} is larger than {limit:,} bytes: it is not taken in part.")
            return file.read(limit)

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> Path:
        """Write a regular file, or at its end, making its folders; return its real path.

        A new file that is `private` can be read by its owner only.

        Raises:
            StoreError: it is a folder or a device, or leads out of the root.
        """
        real = self.resolve(path)
        if real == self.folder or real.is_dir() or (real.exists() and not real.is_file()):
            raise StoreError(f"{path!r} is not a file that can be written.")
        real.parent.mkdir(parents=True, exist_ok=True)
        if not real.parent.resolve().is_relative_to(self.folder):
            raise StoreError(f"The path {path!r} leads out of the root folder.")
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = self._open(real, flags, path, 0o600 if private else 0o644)
        with os.fdopen(handle, "wb") as file:
            if append:
                file.seek(0, os.SEEK_END)
            else:
                file.truncate(0)
            file.write(data)
        return real

    def relative(self, path: Path) -> str:
        """Return a path as the agent sees it: relative to the root, with forward slashes."""
        return path.relative_to(self.folder).as_posix() or "."

    @staticmethod
    def _open(real: Path, flags: int, path: str, mode: int = 0o600) -> int:
        try:
            handle = os.open(real, flags, mode)
        except FileNotFoundError:
            raise StoreError(f"There is no file {path!r}.") from None
        except OSError as e:
            raise StoreError(f"{path!r} cannot be opened ({e.strerror}).") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StoreError(f"{path!r} is no regular file.")
        return handle
