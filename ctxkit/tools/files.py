"""Tools over files inside a root: read, write, patch, list, search."""

from __future__ import annotations

import fnmatch
from itertools import islice
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.redaction import MARK
from ctxkit.tools import searches
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ctxkit.tools.root import Root

MAX_LISTED = 500


def file_tools(root: Root) -> tuple[Tool, ...]:
    """Return the five file tools, confined to a root folder."""

    def read_file(path: str, start: int = 1, end: int | None = None) -> str:
        """Read a text file of the working folder; `start` and `end` are line numbers counted from 1, both included."""
        text = root.read(path).decode("utf-8", "replace")
        if start <= 1 and end is None:
            return text
        lines = text.splitlines(keepends=True)
        if start > len(lines):
            raise BadArguments(f"{path!r} has {len(lines)} lines; line {start} does not exist.")
        return "".join(lines[max(start, 1) - 1 : end])

    def write_file(path: str, content: str) -> str:
        """Write a text file of the working folder, replacing what was there."""
        data = content.encode("utf-8", "replace")
        if MARK in content:
            _check_marks(path, data, root.read(path, whole=True) if root.has(path) else b"")
        return f"Wrote {len(data)} bytes to {root.relative(root.write(path, data))}."

    def patch_file(path: str, old: str, new: str) -> str:
        """Replace one piece of a text file: `old` must occur exactly once, as it stands."""
        text = root.read(path, whole=True).decode("utf-8", "surrogateescape")
        found = text.count(old) if old else 0
        if found != 1:
            said = f"{path!r} holds the old text {found} times; it must occur exactly once."
            raise BadArguments(said + _hidden(old))
        data = text.replace(old, new).encode("utf-8", "surrogateescape")
        _check_marks(path, data, text.encode("utf-8", "surrogateescape"))
        root.write(path, data)
        return f"Patched {path}."

    def list_files(path: str = ".", pattern: str = "*") -> str:
        """List files below a folder of the working folder whose name matches a pattern such as `*.py`."""
        found = list(islice(_walk(root, root.resolve(path), pattern), MAX_LISTED + 1))
        more = f"\n[more than {MAX_LISTED}: narrow the path or the pattern]" if len(found) > MAX_LISTED else ""
        return "\n".join(root.relative(p) for p in found[:MAX_LISTED]) + more or "(no files)"

    def search(pattern: str, path: str = ".", files: str = "*") -> str:
        """Search text files below a folder for a regular expression; gives `file:line: text`, the first 200 hits."""
        folder = root.resolve(path)
        return searches.search(root, pattern, folder, files, _walk(root, folder, files))

    return tuple(tool(f) for f in (read_file, write_file, patch_file, list_files, search))


def _check_marks(path: str, new: bytes, old: bytes) -> None:
    """Refuse to write a mark that stands for a key: the file would lose the key.

    Raises:
        BadArguments: the new content has more marks than the old one.
    """
    if new.count(MARK.encode()) > old.count(MARK.encode()):
        raise BadArguments(
            f"Nothing was written to {path!r}: {MARK} stands for a key that you cannot see, and "
            "would replace it. Patch the lines around it, or read the key from the environment."
        )


def _hidden(old: str) -> str:
    if MARK not in old:
        return ""
    return f" {MARK} stands for a key that you cannot see: patch the lines around it."


def _walk(root: Root, folder: Path, pattern: str) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    for path in sorted(folder.rglob("*")):
        if not fnmatch.fnmatch(path.name, pattern) or ".git" in path.parts:
            continue
        if path.is_file() and path.resolve().is_relative_to(root.folder):
            yield path
