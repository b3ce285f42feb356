"""The files below a folder of the root, found part by part: without links, and told what fails."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.held_folders import Folder
    from ctxkit.tools.root import Root

PASSED_OVER = (".git", ".ctxkit")
"""Folders that are not looked into: what they hold is not the user's text."""


class FoundFile(NamedTuple):
    """A file, in its folder, which is held open until the next one is asked for."""

    folder: Folder
    name: str
    path: str
    """Relative to the root, with forward slashes."""


class Walk:
    """The files below a folder whose name matches a pattern, in the order of their paths.

    It goes as deep as folders go, and holds one of them open at a time.

    Args:
        root: where it walks.
        path: a folder below it, or a file.
        pattern: names that are taken, such as `*.py`.

    Raises:
        StoreError: the path leads out of the root, or is not there.
    """

    def __init__(self, root: Root, path: str, pattern: str) -> None:
        self._root, self._start, self._pattern = root, root.parts(path, there=True), pattern
        self.missed: list[str] = []
        """Folders that could not be looked into, relative to the root."""

    def __iter__(self) -> Iterator[FoundFile]:
        if self._start and self._root.is_file(self._start):
            with self._root.folder_of(self._start) as folder:
                yield FoundFile(folder, self._start[-1], "/".join(self._start))
            return
        waiting, at = [self._start], self._start
        here: Folder | None = None
        try:
            while waiting:
                parts = waiting.pop()
                try:
                    inside = here if parts and at == parts[:-1] else None
                    there, entries = self._entered(parts, inside)
                except OSError:
                    self.missed.append("/".join(parts) or ".")
                    continue
                if here is not None:
                    here.close()
                here, at = there, parts
                for name, is_file in entries:
                    if is_file and fnmatch.fnmatch(name, self._pattern):
                        yield FoundFile(here, name, "/".join((*parts, name)))
                folders = [n for n, is_file in entries if not is_file and n not in PASSED_OVER]
                waiting += [(*parts, n) for n in reversed(folders)]
        finally:
            if here is not None:
                here.close()

    def _entered(
        self, parts: tuple[str, ...], inside: Folder | None
    ) -> tuple[Folder, list[tuple[str, bool]]]:
        """Return a folder, held open, and what is in it; entered from `inside`, or the root."""
        folder = inside.enter(parts[-1]) if inside else self._root.below(parts)
        try:
            return folder, folder.entries()
        except OSError:
            folder.close()
            raise

    def told(self) -> str:
        """Return a line that says what was not looked at; empty where all was."""
        return f"[not looked into: {some(self.missed)}]" if self.missed else ""


def some(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(name[:200] for name in names[:3]) + more
