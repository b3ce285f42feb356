"""Tools that read, write, patch, list and search files, and read documents, below a root folder."""

from __future__ import annotations

import io
import re
from fnmatch import fnmatch
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ctxkit._internal.redaction import REDACTION_MARK
from ctxkit.agent.document_text import read_document as read
from ctxkit.agent.tools import search as text_search
from ctxkit.agent.tools.images import MAX_IMAGE_BYTES, detect_media_type, image_from_bytes
from ctxkit.agent.tools.search import FolderWalk
from ctxkit.agent.tools.tool import Tool, kit_tool
from ctxkit.errors import BadArguments
from ctxkit.session.messages import Image  # noqa: TC001  looked up by `kit_tool`

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ctxkit.agent.document_text import Document
    from ctxkit.agent.tools.confined_root import RootFolder


MAX_LISTED_FILES = 500


class ExtraFiles(Protocol):
    """Readable files beside the root with paths of their own, such as those of a context store."""

    def contains(self, path: str) -> bool:
        """Say whether a path belongs to these files."""

    def open_file(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Yield a file, open for reading."""

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the files below a folder."""

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in the files below a folder."""


def open_file(
    root: RootFolder, extra_files: ExtraFiles | None, path: str
) -> AbstractContextManager[BinaryIO]:
    """Return a context manager that opens a file of the extra files or of the root for reading.

    Args:
        root: folder of the tools.
        extra_files: files that come first where they have the path; None: there are none.
        path: as the model gave it.

    Returns:
        A context manager with the open file.

    Raises:
        StoreError: it is no regular file, is missing, or leads out of the root.
    """
    if extra_files is not None and extra_files.contains(path):
        return extra_files.open_file(path)
    return root.open_file(path)


def make_file_tools(root: RootFolder, extra_files: ExtraFiles | None = None) -> tuple[Tool, ...]:
    """Make the five file tools of an agent, confined to a folder.

    Args:
        root: folder outside of which nothing is read or written, links included.
        extra_files: files with paths of their own that can be read and listed, but not written,
            such as those of a context store; None: there are none.

    Returns:
        The tools `read_file`, `write_file`, `patch_file`, `list_files` and `search`.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import RootFolder, make_file_tools
        >>> [tool.name for tool in make_file_tools(RootFolder(tempfile.mkdtemp()))]
        ['read_file', 'write_file', 'patch_file', 'list_files', 'search']
    """

    def read_file(path: str, start: int = 1, end: int | None = None) -> str | Image:
        """Read a text file of the working folder; `start` and `end` are line numbers counted from
        1, both included.
        """
        with open_file(root, extra_files, path) as file:
            begin = file.read(12)
            if detect_media_type(begin):
                return image_from_bytes(begin + file.read(MAX_IMAGE_BYTES), path)
            file.seek(0)
            return read_lines(file, path, start, end)

    def write_file(path: str, content: str) -> str:
        """Write a text file of the working folder, replacing what was there."""
        data = content.encode("utf-8", "replace")
        if REDACTION_MARK in content:
            there = root.is_file(root.parts(path))
            _check_marks(path, data, root.read(path, whole=True) if there else b"")
        return f"Wrote {len(data)} bytes to {root.relative_path(root.write(path, data))}."

    def patch_file(path: str, old: str, new: str) -> str:
        """Replace one piece of a text file: `old` must occur exactly once, as it stands."""
        text = root.read(path, whole=True).decode("utf-8", "surrogateescape")
        occurrences = describe_occurrences(text, old)
        if occurrences != "once":
            problem = (
                f"{path[:200]!r} holds the old text {occurrences}; it must occur exactly once."
            )
            raise BadArguments(problem + _redaction_hint(old))
        data = text.replace(old, new).encode("utf-8", "surrogateescape")
        _check_marks(path, data, text.encode("utf-8", "surrogateescape"))
        root.write(path, data)
        return f"Patched {path}."

    def list_files(path: str = ".", pattern: str = "*") -> str:
        """List files below a folder of the working folder whose name matches a pattern such as
        `*.py`.
        """
        if extra_files is not None and extra_files.contains(path):
            matches = [
                p for p in extra_files.list_files(path) if fnmatch(p.rsplit("/", 1)[-1], pattern)
            ]
            return "\n".join(matches or ["(no files)"])
        walk = FolderWalk(root, path, pattern)
        paths = [f.path for f in islice(walk, MAX_LISTED_FILES + 1)]
        lines = paths[:MAX_LISTED_FILES] or ["(no files)"]
        if len(paths) > MAX_LISTED_FILES:
            lines.append(f"[more than {MAX_LISTED_FILES}: narrow the path or the pattern]")
        return "\n".join([*lines, *filter(None, [walk.describe_unreadable()])])

    def search(pattern: str, path: str = ".", files: str = "*") -> str:
        """Search text files below a folder for a regular expression; gives `file:line: text`, the
        first 200 hits.
        """
        if extra_files is not None and extra_files.contains(path):
            return extra_files.search(pattern, path, files)
        return text_search.search_files(root, pattern, path, files)

    return tuple(kit_tool(f) for f in (read_file, write_file, patch_file, list_files, search))


def _check_marks(path: str, new: bytes, old: bytes) -> None:
    """Refuse to write a redaction mark that was not there before, as it would replace a secret.

    Raises:
        BadArguments: the new content has more marks than the old one.
    """
    if new.count(REDACTION_MARK.encode()) > old.count(REDACTION_MARK.encode()):
        raise BadArguments(
            f"Nothing was written to {path[:200]!r}: {REDACTION_MARK} stands for a key that you "
            "cannot see, "
            "and would replace it. Patch the lines around it, or read the key from the environment."
        )


def _redaction_hint(old: str) -> str:
    if REDACTION_MARK not in old:
        return ""
    return f" {REDACTION_MARK} stands for a key that you cannot see: patch the lines around it."


_PART_RANGE = re.compile(r"(?:(page|slide)s? )?(\d{1,6})(?: ?- ?(\d{1,6}))?", re.IGNORECASE)
_MAX_PIECES = 5_000


def make_document_tool(root: RootFolder, extra_files: ExtraFiles | None = None) -> Tool:
    """Return the tool `document`, confined to a root and the extra files.

    Args:
        root: folder outside of which nothing is read.
        extra_files: files with paths of their own, such as those of a context store; None: none.

    Returns:
        The tool: without a part it lists the pages, slides or sheets of a document, with one it
        returns its text. It raises `BadArguments` for a part that the document does not have.
    """

    def document(path: str, part: str = "", start: int = 1, end: int | None = None) -> str:
        """Read a pdf, docx, pptx or xlsx file as text.
        Without `part`: its parts and their sizes. `part`: a sheet's name, a page or slide number,
        a range such as 3-7, or `all`; `start` and `end`: line numbers of that text.
        """
        with open_file(root, extra_files, path) as file:
            content = read(file, path, _select_pieces(path, part))
        if part and not content.pieces:
            with open_file(root, extra_files, path) as file:
                names = ", ".join(repr(p.name) for p in read(file, path).pieces[:50])
            raise BadArguments(f"{path[:200]!r} has no part {part[:80]!r}; it has {names}.")
        text = content.text if part else _format_outline(content)
        return read_lines(io.BytesIO(text.encode()), path, start, end)

    return kit_tool(document)


def _select_pieces(path: str, part: str) -> list[str] | None:
    """Return the piece names that a part selects; None: all pieces."""
    if not part or part == "all":
        return None
    match = _PART_RANGE.fullmatch(part.strip())
    if match is None or path.lower().endswith((".xlsx", ".docx")):
        return [part]
    first = int(match[2])
    last = min(int(match[3] or first), first + _MAX_PIECES)
    return [f"{kind} {n}" for n in range(first, last + 1) for kind in ("page", "slide")]


def _format_outline(document: Document) -> str:
    """Return the pieces of a document with the length of their texts."""
    lines = [f"{p.name}: {len(p.text):,} characters" for p in document.pieces]
    return "\n".join([*lines, *([f"[{document.note}]"] if document.note else [])])


MAX_READ_BYTES = 10_000_000
"""Bytes of a file that are returned at once."""
_LINE_PIECE_BYTES = 1 << 20
_MAX_COUNTED = 1000


def read_lines(
    file: BinaryIO, path: str, start: int, end: int | None, limit: int = MAX_READ_BYTES
) -> str:
    """Return the lines `start` to `end` of a file (from 1, both included), at most `limit` bytes.

    If there are more, the first line of the result says so, and how to read on.

    Raises:
        BadArguments: the file ends before `start`.
    """
    pieces, size, last = [], 0, 0
    for last, piece in _numbered_pieces(file):
        if last < start:
            continue
        if end is not None and last > end:
            break
        pieces.append(piece[: limit - size])
        size += len(pieces[-1])
        if len(pieces[-1]) < len(piece):
            return _cut_notice(start, last, limit) + b"".join(pieces).decode("utf-8", "replace")
    if start > max(last, 1):
        raise BadArguments(f"{path[:200]!r} has {last:,} lines; line {start} does not exist.")
    return b"".join(pieces).decode("utf-8", "replace")


def _numbered_pieces(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a file with their line numbers; a very long line has several."""
    number = 1
    while piece := file.readline(_LINE_PIECE_BYTES):
        yield number, piece
        number += piece.endswith(b"\n")


def _cut_notice(start: int, last: int, limit: int) -> str:
    beginning = f"[cut after {limit:,} bytes, in line {last:,}; "
    if last > max(start, 1):
        return f"{beginning}read on with start={last}]\n"
    return f"{beginning}which is longer than can be read]\n"


def describe_occurrences(text: str, piece: str) -> str:
    """Return as a phrase how often a text has a piece, overlapping places included."""
    position, occurrences, overlapping = text.find(piece) if piece else -1, 0, False
    while position >= 0 and occurrences < _MAX_COUNTED:
        occurrences += 1
        after = text.find(piece, position + 1)
        overlapping |= 0 <= after < position + len(piece)
        position = after
    if occurrences == 1:
        return "once"
    prefix = "more than " if position >= 0 else ""
    return f"{prefix}{occurrences} times" + (", in places that overlap" if overlapping else "")
