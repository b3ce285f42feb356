"""Tools over files inside a root: read, write, patch, list, search."""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ctxkit.errors import BadArguments
from ctxkit.messages import Image  # noqa: TC001  looked up by `kit_tool`
from ctxkit.redaction import MARK
from ctxkit.tools import passages, text_search
from ctxkit.tools.pictures import MOST_BYTES, media_type, picture
from ctxkit.tools.tool import Tool, kit_tool
from ctxkit.tools.walks import Walk

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ctxkit.tools.root import Root

MAX_LISTED = 500


class Shelves(Protocol):
    """Files beside the root that can be read, under paths of their own (`library.Library`)."""

    def holds(self, path: str) -> bool:
        """Say whether a path is one of theirs."""

    def opened(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Yield a file, open for reading."""

    def listed(self, path: str) -> list[str]:
        """Return the paths of the files below a folder."""

    def searched(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression below a folder."""


def opened(root: Root, shelves: Shelves | None, path: str) -> AbstractContextManager[BinaryIO]:
    """Return a file of the shelves or of the root, to be opened for reading.

    Raises:
        StoreError: it is no regular file, is missing, or leads out.
    """
    if shelves is not None and shelves.holds(path):
        return shelves.opened(path)
    return root.opened(path)


def file_tools(root: Root, shelves: Shelves | None = None) -> tuple[Tool, ...]:
    """Return the five file tools, confined to a root folder; shelves are read and listed, too."""

    def read_file(path: str, start: int = 1, end: int | None = None) -> str | Image:
        """Read a text file of the working folder; `start` and `end` are line numbers counted from
        1, both included.
        """
        with opened(root, shelves, path) as file:
            begin = file.read(12)
            if media_type(begin):
                return picture(begin + file.read(MOST_BYTES), path)
            file.seek(0)
            return passages.read(file, path, start, end)

    def write_file(path: str, content: str) -> str:
        """Write a text file of the working folder, replacing what was there."""
        data = content.encode("utf-8", "replace")
        if MARK in content:
            there = root.is_file(root.parts(path))
            _check_marks(path, data, root.read(path, whole=True) if there else b"")
        return f"Wrote {len(data)} bytes to {root.relative(root.write(path, data))}."

    def patch_file(path: str, old: str, new: str) -> str:
        """Replace one piece of a text file: `old` must occur exactly once, as it stands."""
        text = root.read(path, whole=True).decode("utf-8", "surrogateescape")
        found = passages.count(text, old)
        if found != "once":
            said = f"{path[:200]!r} holds the old text {found}; it must occur exactly once."
            raise BadArguments(said + _hidden(old))
        data = text.replace(old, new).encode("utf-8", "surrogateescape")
        _check_marks(path, data, text.encode("utf-8", "surrogateescape"))
        root.write(path, data)
        return f"Patched {path}."

    def list_files(path: str = ".", pattern: str = "*") -> str:
        """List files below a folder of the working folder whose name matches a pattern such as
        `*.py`.
        """
        if shelves is not None and shelves.holds(path):
            held = [p for p in shelves.listed(path) if fnmatch(p.rsplit("/", 1)[-1], pattern)]
            return "\n".join(held or ["(no files)"])
        walk = Walk(root, path, pattern)
        found = [f.path for f in islice(walk, MAX_LISTED + 1)]
        lines = found[:MAX_LISTED] or ["(no files)"]
        if len(found) > MAX_LISTED:
            lines.append(f"[more than {MAX_LISTED}: narrow the path or the pattern]")
        return "\n".join([*lines, *filter(None, [walk.told()])])

    def search(pattern: str, path: str = ".", files: str = "*") -> str:
        """Search text files below a folder for a regular expression; gives `file:line: text`, the
        first 200 hits.
        """
        if shelves is not None and shelves.holds(path):
            return shelves.searched(pattern, path, files)
        return text_search.search(root, pattern, path, files)

    return tuple(kit_tool(f) for f in (read_file, write_file, patch_file, list_files, search))


def _check_marks(path: str, new: bytes, old: bytes) -> None:
    """Refuse to write a mark that stands for a key: the file would lose the key.

    Raises:
        BadArguments: the new content has more marks than the old one.
    """
    if new.count(MARK.encode()) > old.count(MARK.encode()):
        raise BadArguments(
            f"Nothing was written to {path[:200]!r}: {MARK} stands for a key that you cannot see, "
            "and would replace it. Patch the lines around it, or read the key from the environment."
        )


def _hidden(old: str) -> str:
    if MARK not in old:
        return ""
    return f" {MARK} stands for a key that you cannot see: patch the lines around it."
