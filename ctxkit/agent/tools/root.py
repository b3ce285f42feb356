"""A root folder that no path leaves, and the names that tools may not write.

Somebody opens a shell or an editor, runs the tests or asks for a `git status`, and has run what
stands there. Names are compared without case, wherever they lie below the root; reading is free.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ctxkit._internal.safe_fs import SUPPORTS_DIR_FD, SafeFolder
from ctxkit.errors import BadArguments, StoreError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


class Root:
    """A folder in which an agent's file tools work.

    A path is resolved, links inside the root included, and then opened part by part without
    following any: a link that is put there in between does not lead out. Files are replaced, never
    changed in place, so that a hard link to a file outside (which cannot be told from any other
    file) is read as a file of the root, and not written through.

    Args:
        folder: made if it does not exist.
        allow: names out of `protected.PROTECTED` that may be written all the same.

    Raises:
        StoreError: it cannot be made.
        BadArguments: a name is not protected.
    """

    def __init__(self, folder: str | Path, allow: Sequence[str] = ()) -> None:
        self._allowed = check_allowed(allow)
        try:
            self.folder = Path(folder).expanduser().resolve()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._identity = _folder_identity(self.folder.stat())
        except (OSError, RuntimeError, ValueError) as e:
            problem = f"The root folder {str(folder)!r} cannot be used"
            raise StoreError(f"{problem} ({_os_reason(e)}).") from None

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
        parts = self.parts(path)
        if not parts:
            raise StoreError(f"{path[:200]!r} is a folder, not a file.")
        with self.open_at(parts) as file:
            yield file

    @contextmanager
    def open_at(self, parts: Sequence[str]) -> Iterator[BinaryIO]:
        """Yield a regular file at the end of a path without links, open for reading.

        Raises:
            StoreError: it is no regular file, is missing, or a part of the path is a link.
        """
        with self.open_parent(parts) as folder:
            file = os.fdopen(folder.open(parts[-1], os.O_RDONLY), "rb")
        with file:
            yield file

    def read(self, path: str, limit: int = 10_000_000, *, whole: bool = False) -> bytes:
        """Return the bytes of a regular file, at most `limit`; with `whole` a larger file is an
        error.

        Raises:
            StoreError: it is no regular file, is missing, is too large, or leads out of the root.
        """
        with self.opened(path) as file:
            if whole and os.fstat(file.fileno()).st_size > limit:
                raise StoreError(
                    f"{path[:200]!r} is larger than {limit:,} bytes: it is not taken in part."
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

        Raises:
            StoreError: the path leads out of the root, is no path, or should be `there` and is not.
        """
        real = self.resolve(path)
        # os.path: a name too long is no error here; a pipe would be waited for
        if there and not (os.path.isfile(real) or os.path.isdir(real)):  # noqa: PTH112, PTH113
            raise StoreError(f"There is no file or folder {path[:200]!r}.")
        return real.relative_to(self.folder).parts

    def is_file(self, parts: Sequence[str]) -> bool:
        """Return True where a regular file lies at the end of a path without links."""
        status = self._stat_path(parts)
        return status is not None and stat.S_ISREG(status.st_mode)

    def exists(self, parts: Sequence[str]) -> bool:
        """Return True where anything lies at the end of a path without links."""
        return self._stat_path(parts) is not None

    def _stat_path(self, parts: Sequence[str]) -> os.stat_result | None:
        try:
            with self.open_parent(parts) as folder:
                return folder.stat(parts[-1])
        except (StoreError, ValueError):
            return None

    @contextmanager
    def open_parent(self, parts: Sequence[str], make: int | None = None) -> Iterator[SafeFolder]:
        """Yield the folder of a path without links, held open; errors in it become sentences.

        Args:
            parts: the path below the root, as its parts; the last one is not looked at.
            make: the mode in which folders are made that are missing; None: that is an error.

        Raises:
            StoreError: a part is a link, is missing, or the system refuses.
        """
        path = "/".join(parts)[:200]
        try:
            with self.below(parts[:-1], make) as folder:
                yield folder
        except FileNotFoundError:
            raise StoreError(f"There is no file {path!r}.") from None
        except OSError as e:
            done = "opened" if make is None else "written"
            raise StoreError(f"{path!r} cannot be {done} ({_os_reason(e)}).") from None

    def below(self, parts: Sequence[str], make: int | None = None) -> SafeFolder:
        """Return a folder below the root, held open.

        Raises:
            StoreError: another folder has the name of the root now.
            OSError: a part is a link, is missing, or the system refuses.
        """
        top = SafeFolder(self.folder)
        if SUPPORTS_DIR_FD and _folder_identity(top.itself()) != self._identity:
            top.close()
            raise StoreError(
                f"{self.folder} is another folder than before: open the session again."
            )
        return top.below(parts, make=make)


def _folder_identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _os_reason(error: Exception) -> str:
    """Return why the system refused, in its words."""
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


def check_allowed(names: Sequence[str]) -> frozenset[str]:
    """Return names that shall be allowed.

    Raises:
        BadArguments: one is not protected.
    """
    for name in names:
        if name not in PROTECTED_NAMES:
            raise BadArguments(
                f"{name!r} is no protected name.{did_you_mean(name, PROTECTED_NAMES)} Those are: "
                f"{', '.join(PROTECTED_NAMES)}."
            )
    return frozenset(names)


def check_writable(path: str, parts: Sequence[str], allowed: Collection[str]) -> None:
    """Let a path be written that holds no protected name, or one that is allowed.

    Args:
        path: as the agent gave it.
        parts: its parts below the root, without links.
        allowed: names out of `PROTECTED`.

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
