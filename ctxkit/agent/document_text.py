"""Text of pdf, docx, pptx and xlsx files, read in a worker process with bounded time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.lazy import public_dir
from ctxkit.agent import document_worker
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "DOCUMENT_MODULES",
    "Document",
    "DocumentPiece",
    "DocumentReadLimits",
    "detect_document_kind",
    "is_document",
    "read_document",
]
__dir__ = public_dir(__all__)


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
    """Say by its name whether a file is a document that can be read.

    Args:
        name: of a file; its ending decides.

    Returns:
        True for pdf, docx, pptx and xlsx.

    Example:
        >>> from ctxkit.agent.document_text import is_document
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
    bounds: DocumentReadLimits | None = None,
) -> Document:
    """Return the text of a document.

    A worker process with bounded time and memory reads it. If a bound ends it, what it had read so
    far is returned with a note.

    Args:
        file: a real file, open for reading.
        name: its name, which says its kind.
        piece_names: names of the pieces to read; None: all.
        bounds: bounds of reading; None: the defaults.

    Returns:
        The text by piece (page, slide, sheet), the size of the file in bytes, and a note; empty if
        all was read.

    Raises:
        BadArguments: documents of this kind cannot be read.
        StoreError: it is damaged, too large, or takes too much time or memory.
    """
    bounds = bounds or DocumentReadLimits()
    request = {"kind": detect_document_kind(name), "wanted": piece_names, **bounds._asdict()}
    size = os.fstat(file.fileno()).st_size
    rows, note = _run_worker(file, msgspec.json.encode(request).decode(), bounds.seconds)
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
