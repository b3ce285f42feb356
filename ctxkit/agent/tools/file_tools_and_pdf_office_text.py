"""Tools that read, write, patch, list and search files, and read documents, below a root folder."""

# The text of pdf, docx, pptx and xlsx files is read in a worker process with bounded time and
# memory. Files beside the root, such as those of a context store, have paths of their own
# (`ExtraFiles`).

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.redaction import REDACTION_MARK
from ctxkit.agent.tools import document_worker
from ctxkit.agent.tools import file_search as text_search
from ctxkit.agent.tools.execution_and_results import (
    MAX_IMAGE_BYTES,
    detect_media_type,
    image_from_bytes,
)
from ctxkit.agent.tools.file_search import FolderWalk
from ctxkit.agent.tools.tool import Tool, tool_with_cached_schema
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session.messages import Attachment  # noqa: TC001  looked up by `tool_with_cached_schema`

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.session.messages import ToolSchema


__all__ = [
    "DOCUMENT_MODULES",
    "Document",
    "DocumentPiece",
    "DocumentReadLimits",
    "detect_document_kind",
    "is_document",
    "read_document",
]
__dir__ = make_dunder_dir(__all__)


MAX_LISTED_FILES = 500


class ExtraFiles(Protocol):
    """Readable files beside the root with paths of their own, such as those of a context store."""

    def contains(self, path: str) -> bool:
        """Return whether a path belongs to these files."""

    def open_file(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Yield a file, open for reading."""

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the files below a folder."""

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in the files below a folder.

        Args:
            pattern: the regular expression.
            path: the folder.
            files: glob that the names of files match.
        """


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

    def read_file(path: str, start: int = 1, end: int | None = None) -> str | Attachment:
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

    return tuple(
        tool_with_cached_schema(f) for f in (read_file, write_file, patch_file, list_files, search)
    )


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
            content = read_document(file, path, _select_pieces(path, part))
        if part and not content.pieces:
            with open_file(root, extra_files, path) as file:
                names = ", ".join(repr(p.name) for p in read_document(file, path).pieces[:50])
            raise BadArguments(f"{path[:200]!r} has no part {part[:80]!r}; it has {names}.")
        text = content.text if part else _format_outline(content)
        return read_lines(io.BytesIO(text.encode()), path, start, end)

    return tool_with_cached_schema(document)


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

    Args:
        file: the open file.
        path: its path, for the hint.
        start: first line, from 1.
        end: last line; None: the end of the file.
        limit: maximum bytes.

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
    """Return how often a text has a piece, as a phrase such as "once"; overlapping places count.

    Args:
        text: the text.
        piece: the piece that is looked for.
    """
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


DOCUMENT_MODULES = {".pdf": "pypdf", ".docx": "docx", ".pptx": "pptx", ".xlsx": "openpyxl"}
"""Suffixes of the documents that can be read, with the module that reads each."""
_PASSED_VARIABLES = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "SYSTEMROOT",
    "VIRTUAL_ENV",
    "HOME",
    "TMPDIR",
)
"""Environment variables that the worker gets; none of them holds a key."""


class DocumentPiece(NamedTuple):
    """A page, a slide, a sheet, or the whole text of a document that has none of these."""

    name: str
    text: str


class Document(NamedTuple):
    """The text of a document."""

    pieces: tuple[DocumentPiece, ...]
    raw_bytes: int
    """Size of the file."""
    note: str = ""
    """Note on what was left out; empty if everything was read."""

    @property
    def text(self) -> str:
        """The whole text; with several pieces each has its name as a heading."""
        if len(self.pieces) == 1 and not self.note:
            return self.pieces[0].text
        sections = [f"## {p.name}\n\n{p.text}" for p in self.pieces]
        return "\n\n".join([*sections, *([f"[{self.note}]"] if self.note else [])])


def is_document(name: str) -> bool:
    """Return whether a file is, by its name, a document that can be read.

    Args:
        name: name of the file; its ending decides.

    Returns:
        True for pdf, docx, pptx and xlsx.

    Example:
        >>> from ctxkit.agent.tools.file_tools_and_pdf_office_text import is_document
        >>> is_document("report.PDF"), is_document("report.txt")
        (True, False)
    """
    return Path(name).suffix.lower() in DOCUMENT_MODULES


def detect_document_kind(name: str) -> str:
    """Return the kind of a document by its name.

    Raises:
        BadArguments: it is no document, or the package that reads it is not installed.
    """
    ending = Path(name).suffix.lower()
    if ending not in DOCUMENT_MODULES:
        raise BadArguments(
            f"{sanitize_line(name, 200)!r} is no document: those end in "
            f"{', '.join(DOCUMENT_MODULES)}."
        )
    if find_spec(DOCUMENT_MODULES[ending]) is None:
        raise BadArguments(
            f"To read a {ending} file, run `pip install 'jupyter-ctxkit[documents]'`."
        )
    return ending[1:]


def read_document(
    file: BinaryIO,
    name: str,
    piece_names: Sequence[str] | None = None,
    limits: DocumentReadLimits | None = None,
) -> Document:
    """Return the text of a document.

    A worker process with bounded time and memory reads it. If a bound ends it, what it had read so
    far is returned with a note.

    Args:
        file: a real file, open for reading.
        name: its name, which says its kind.
        piece_names: names of the pieces to read; None: all.
        limits: bounds of reading; None: the defaults.

    Returns:
        The text by piece (page, slide, sheet), the size of the file in bytes, and a note; empty if
        all was read.

    Raises:
        BadArguments: documents of this kind cannot be read.
        StoreError: it is damaged, too large, or takes too much time or memory.
    """
    limits = limits or DocumentReadLimits()
    request = {"kind": detect_document_kind(name), "wanted": piece_names, **limits._asdict()}
    size = os.fstat(file.fileno()).st_size
    rows, note = _run_worker(file, msgspec.json.encode(request).decode(), limits.seconds)
    pieces, why = [], ""
    for row in rows:
        if "error" in row:
            why = row["error"]
        elif "note" in row:
            note = row["note"]
        else:
            pieces.append(DocumentPiece(row["name"], row["text"]))
    if why or (note and not pieces):
        raise StoreError(
            f"{sanitize_line(name, 200)!r} was not read: {sanitize_line(why or note, 300)}."
        )
    return Document(tuple(pieces), size, note)


def _run_worker(file: BinaryIO, request: str, seconds: float) -> tuple[list[dict[str, str]], str]:
    """Return the worker's lines, and a note if it was ended or failed."""
    environment = {k: os.environ[k] for k in _PASSED_VARIABLES if k in os.environ}
    command = [sys.executable, "-P", "-B", str(Path(document_worker.__file__)), request]
    with subprocess.Popen(  # noqa: S603  our own file, and numbers
        command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        try:
            out, _ = child.communicate(timeout=seconds)
            note = "" if child.returncode == 0 else "reading it took too much memory or time"
        except subprocess.TimeoutExpired:
            child.kill()
            out, _ = child.communicate()
            note = f"reading it was ended after {seconds:g} seconds"
        except BaseException:
            child.kill()
            raise
    return [*_parse_lines(out)], note


def _parse_lines(out: bytes) -> list[dict[str, str]]:
    """Return the complete lines of JSON."""
    rows = []
    for each in out.split(b"\n"):
        try:
            rows.append(msgspec.json.decode(each, type=dict[str, str]))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue  # the last line, cut off
    return rows


class DocumentReadLimits(NamedTuple):
    """Bounds of reading a document."""

    file_bytes: int = 100_000_000
    """Bytes of the file; a larger one is refused."""
    unpacked_bytes: int = 400_000_000
    """Bytes that an archive (docx, pptx, xlsx) declares to unpack to; a larger one is refused."""
    entries: int = 20_000
    """Files in such an archive."""
    pieces: int = 2_000
    """Pages, slides or sheets that are read."""
    cells: int = 1_000_000
    """Cells of a workbook that are read, including empty ones between others."""
    chars: int = 10_000_000
    """Characters of text that are returned."""
    seconds: float = 60.0
    """Seconds after which the worker is killed."""
    memory: int = 1_500_000_000
    """Bytes of the worker's address space, where the system can limit it."""


class CombinedExtraFiles:
    """Several kinds of extra files as one; the first that holds a path answers."""

    def __init__(self, *parts: ExtraFiles) -> None:
        self._parts = parts

    def _part(self, path: str) -> ExtraFiles:
        return next(part for part in self._parts if part.contains(path))

    def contains(self, path: str) -> bool:
        """Return whether a path belongs to one of them."""
        return any(part.contains(path) for part in self._parts)

    def open_file(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Yield a file, open for reading."""
        return self._part(path).open_file(path)

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the files below a folder."""
        return self._part(path).list_files(path)

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in the files below a folder."""
        return self._part(path).search(pattern, path, files)


def describe_artifact_reading(tools: Iterable[ToolSchema]) -> str:
    """Return how parts of an artifact are read with the given tools, with `{path}` for its path.

    Args:
        tools: schemas of the session's tools.

    Returns:
        A sentence for the stub of a stored result; it names the tool that reads lines, else the one
        that searches, else says that none does.
    """
    names = {t.name: t.parameters.get("properties", {}) for t in tools}
    parameters = set(names.get("read_file", {}))
    lines = next((pair for pair in _LINE_PARAMETERS if parameters.issuperset(pair)), None)
    search = next((name for name in ("search", "grep_in_file") if name in names), None)
    if lines is None and search is None:
        return "No tool of this session reads it: run the call again so that it gives less."
    if lines is None:
        return f"Use {search} with path='{{path}}' for the parts you need."
    advice = f"Use read_file with path='{{path}}', {lines[0]} and {lines[1]}"
    return f"{advice}, or {search} with that path." if search else f"{advice}."


_LINE_PARAMETERS = (("start", "end"), ("startLine", "maxLines"))
