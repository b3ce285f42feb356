"""A root folder that no path leaves, and the names that tools may not write.

Files with protected names run by themselves: when somebody opens a shell or an editor, runs the
tests or `git status`. Names are compared without case at any depth below the root. Reading them is
allowed.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ctxkit._internal.safe_files import SUPPORTS_DIR_FD, SafeFolder
from ctxkit.errors import BadArguments, StoreError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


# Confinement to the root
#
# A path is resolved first, links inside the root included, and must stay below it. Then it is
# opened part by part from a descriptor of the root, following no link (`openat`, `O_NOFOLLOW`). A
# link that another process puts there in between makes the open fail instead of leading out (no
# check-then-use race). The root is identified by device and inode, so a folder that was swapped is
# noticed. Files are replaced, never changed in place: a hard link to a file outside cannot be told
# from any other file, so it is readable, but writing breaks the link instead of following it.


class RootFolder:
    """A folder in which an agent's file tools work.

    Args:
        folder: the folder, created if it does not exist.
        allow: names out of `PROTECTED_NAMES` that may be written nevertheless.

    Raises:
        StoreError: it cannot be created.
        BadArguments: a name is not protected.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import RootFolder
        >>> root = RootFolder(tempfile.mkdtemp())
        >>> root.write("a.txt", b"hello").name
        'a.txt'
        >>> root.read("a.txt")
        b'hello'
    """

    def __init__(self, folder: str | Path, allow: Sequence[str] = ()) -> None:
        self._allowed = check_allowed_protected_names(allow)
        try:
            self.folder = Path(folder).expanduser().resolve()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._identity = _folder_identity(self.folder.stat())
        except (OSError, RuntimeError, ValueError) as e:
            problem = f"The root folder {str(folder)!r} cannot be used"
            raise StoreError(f"{problem} ({_os_reason(e)}).") from None

    def resolve(self, path: str) -> Path:
        """Return the real path inside the root.

        Args:
            path: path relative to the root, or an absolute one; links in it are followed.

        Raises:
            StoreError: the path leads out of the root, or is not a path.
        """
        if "\0" in path or len(path) > 4096:
            raise StoreError("The path is not valid: it has a NUL character or is too long.")
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
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Yield a regular file, open for reading.

        Args:
            path: path relative to the root.

        Raises:
            StoreError: it is no regular file, is missing, or leads out of the root.
        """
        parts = self.parts(path)
        if not parts:
            raise StoreError(f"{path[:200]!r} is a folder, not a file.")
        with self.open_at(parts) as file:
            yield file

    @contextmanager
    def open_at(self, parts: Sequence[str]) -> Iterator[BinaryIO]:
        """Yield the regular file at a path without links, open for reading.

        Args:
            parts: the names on the path, from the root.

        Raises:
            StoreError: it is no regular file, is missing, or a part of the path is a link.
        """
        with self.open_parent(parts) as folder:
            file = os.fdopen(folder.open(parts[-1], os.O_RDONLY), "rb")
        with file:
            yield file

    def read(self, path: str, limit: int = 10_000_000, *, whole: bool = False) -> bytes:
        """Return the bytes of a regular file, at most `limit`.

        With `whole` a larger file is an error.

        Args:
            path: path relative to the root.
            limit: bytes that are read at most.
            whole: raise an error for a larger file.

        Raises:
            StoreError: it is no regular file, is missing, is too large, or leads out of the root.
        """
        with self.open_file(path) as file:
            if whole and os.fstat(file.fileno()).st_size > limit:
                raise StoreError(
                    f"{path[:200]!r} is larger than {limit:,} bytes: it is not taken in part."
                )
            return file.read(limit)

    def write(self, path: str, data: bytes, *, append: bool = False, private: bool = False) -> Path:
        """Write a regular file atomically, or append to it; return its real path.

        Missing folders are created. Nothing is appended to a file that has other names (hard
        links).

        Args:
            path: path below the root.
            data: the content.
            append: append instead of replacing.
            private: a new file can be read by its owner only.

        Raises:
            StoreError: it is a folder or a device, leads out of the root, is protected, or the disk
                refused. The file is unchanged.
        """
        mode = 0o600 if private else 0o644
        parts = self.parts(path)
        if not parts:
            raise StoreError(f"{path[:200]!r} is a folder, not a file.")
        check_writable(path, parts, self._allowed)
        with self.open_parent(parts, make=0o777) as folder:
            if append:
                folder.append(parts[-1], data, mode)
            else:
                folder.write(parts[-1], (data,), mode)
        return self.folder.joinpath(*parts)

    def relative_path(self, path: Path) -> str:
        """Return a path as the agent sees it: relative to the root, with forward slashes."""
        return path.relative_to(self.folder).as_posix() or "."

    def parts(self, path: str, *, there: bool = False) -> tuple[str, ...]:
        """Return the real path inside the root as its parts.

        Args:
            path: path relative to the root.
            there: raise an error if the path does not exist.

        Raises:
            StoreError: the path leads out of the root, is not a path, or `there` is true and it
                does not exist.
        """
        real = self.resolve(path)
        # os.path: a name too long is no error here; a pipe would be waited for
        if there and not (os.path.isfile(real) or os.path.isdir(real)):  # noqa: PTH112, PTH113
            raise StoreError(f"There is no file or folder {path[:200]!r}.")
        return real.relative_to(self.folder).parts

    def is_file(self, parts: Sequence[str]) -> bool:
        """Return True if a regular file is at a path without links."""
        status = self._stat_path(parts)
        return status is not None and stat.S_ISREG(status.st_mode)

    def exists(self, parts: Sequence[str]) -> bool:
        """Return True if anything is at a path without links."""
        return self._stat_path(parts) is not None

    def _stat_path(self, parts: Sequence[str]) -> os.stat_result | None:
        try:
            with self.open_parent(parts) as folder:
                return folder.stat(parts[-1])
        except (StoreError, ValueError):
            return None

    @contextmanager
    def open_parent(self, parts: Sequence[str], make: int | None = None) -> Iterator[SafeFolder]:
        """Yield the parent folder of a path without links, held open; system errors get a sentence.

        Args:
            parts: the path below the root, as its parts; the last one is not looked at.
            make: mode of missing folders, which are created; None: a missing folder is an error.

        Raises:
            StoreError: a part is a link, is missing, or the system refuses.
        """
        path = "/".join(parts)[:200]
        try:
            with self.open_subfolder(parts[:-1], make) as folder:
                yield folder
        except FileNotFoundError:
            raise StoreError(f"There is no file {path!r}.") from None
        except OSError as e:
            done = "opened" if make is None else "written"
            raise StoreError(f"{path!r} cannot be {done} ({_os_reason(e)}).") from None

    def open_subfolder(self, parts: Sequence[str], make: int | None = None) -> SafeFolder:
        """Return a folder below the root, held open.

        Args:
            parts: names of the folders on the path.
            make: permissions of folders that are created; None: a missing one is an error.

        Raises:
            StoreError: the root's name now belongs to another folder.
            OSError: a part is a link, is missing, or the system refuses.
        """
        top = SafeFolder(self.folder)
        if SUPPORTS_DIR_FD and _folder_identity(top.get_status()) != self._identity:
            top.close()
            raise StoreError(
                f"{self.folder} is another folder than before: open the session again."
            )
        return top.open_subfolder(parts, create_mode=make)


def _folder_identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _os_reason(error: Exception) -> str:
    """Return the operating system's reason for an error."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


PROTECTED_NAMES = (
    # what a version control system runs, and who one is to it
    ".git", ".hg", ".svn", ".gitconfig", ".gitmodules", ".husky",
    ".pre-commit-config.yaml", ".github/workflows", ".github/actions", ".gitlab-ci.yml",
    # sessions of the kit, and what fuseraft puts into prompts
    ".ctxkit", ".fuseraft",
    # shells
    ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc",
    ".config/fish", ".ssh",
    # Python and notebooks
    "conftest.py", "sitecustomize.py", "usercustomize.py", ".pth", ".ipython", ".jupyter",
    ".pypirc",
    # editors, agents and package managers
    ".claude", ".cursor",
    ".vscode", ".idea", ".devcontainer", ".vimrc", ".exrc", ".nvimrc", ".npmrc", ".yarnrc.yml",
)  # fmt: skip
"""Names of files and folders, or ends of paths; `.pth` is any file of that kind."""


def check_allowed_protected_names(names: Sequence[str]) -> frozenset[str]:
    """Return protected names that are allowed.

    Raises:
        BadArguments: a name is not protected.
    """
    for name in names:
        if name not in PROTECTED_NAMES:
            raise BadArguments(
                f"{name!r} is no protected name.{did_you_mean(name, PROTECTED_NAMES)} Those are: "
                f"{', '.join(PROTECTED_NAMES)}."
            )
    return frozenset(names)


def check_writable(path: str, parts: Sequence[str], allowed: Collection[str]) -> None:
    """Refuse to write to a path with a protected name.

    Args:
        path: the path as the agent gave it, for the message.
        parts: its parts below the root, without links.
        allowed: protected names that may be written.

    Raises:
        StoreError: it is not allowed; the sentence says how it can be.
    """
    folded_path = "/".join(["", *(p.casefold().rstrip(" .") or p for p in parts), ""])
    for name in PROTECTED_NAMES:
        is_protected = f"/{name}/" in folded_path or (
            name == ".pth" and folded_path.endswith(".pth/")
        )
        if is_protected and name not in allowed:
            raise StoreError(
                f"{path[:200]!r} was not written: what is in {name} runs by itself. The user can "
                f"allow it by `--allow {name}`."
            )
