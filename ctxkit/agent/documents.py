"""Read pdf, docx, pptx and xlsx files as text, in a bounded worker process."""

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
    "DocumentBounds",
    "DocumentPiece",
    "detect_document_kind",
    "is_document",
    "read_document",
]
__dir__ = public_dir(__all__)


DOCUMENT_MODULES = {".pdf": "pypdf", ".docx": "docx", ".pptx": "pptx", ".xlsx": "openpyxl"}
"""Endings of documents that are read, and the module that reads each."""
_PASSED_VARIABLES = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "SYSTEMROOT",
    "VIRTUAL_ENV",
    "HOME",
    "TMPDIR",
)
"""What the process gets of the environment: no key is among it."""


class DocumentPiece(NamedTuple):
    """A page, a slide, a sheet, or the whole text of a document that has none of these."""

    name: str
    text: str


class Document(NamedTuple):
    """What was read of a document."""

    pieces: tuple[DocumentPiece, ...]
    raw_bytes: int
    """Size of the file."""
    note: str = ""
    """What was left out, in words; empty where all was read."""

    @property
    def text(self) -> str:
        """All of it, each piece under its name where there are several."""
        if len(self.pieces) == 1 and not self.note:
            return self.pieces[0].text
        said = [f"## {p.name}\n\n{p.text}" for p in self.pieces]
        return "\n\n".join([*said, *([f"[{self.note}]"] if self.note else [])])


def is_document(name: str) -> bool:
    """Say by its name whether a file is a document that can be read."""
    return Path(name).suffix.lower() in DOCUMENT_MODULES


def detect_document_kind(name: str) -> str:
    """Return the kind of a document by its name.

    Raises:
        BadArguments: it is none, or what reads it is not installed.
    """
    ending = Path(name).suffix.lower()
    if ending not in DOCUMENT_MODULES:
        raise BadArguments(
            f"{sanitize_line(name, 200)!r} is no document: those end in "
            f"{', '.join(DOCUMENT_MODULES)}."
        )
    if find_spec(DOCUMENT_MODULES[ending]) is None:
        raise BadArguments(
            f"A {ending} file is read with `pip install 'jupyter-ctxkit[documents]'`."
        )
    return ending[1:]


def read_document(
    file: BinaryIO,
    name: str,
    wanted: Sequence[str] | None = None,
    bounds: DocumentBounds | None = None,
) -> Document:
    """Return the text of a document.

    It is read by another process, which is held to time and memory: what it had read by then is
    returned with a note.

    Args:
        file: open for reading, a real file.
        name: its name, by which its kind is known.
        wanted: names of pieces; None: all.
        bounds: where reading ends.

    Raises:
        BadArguments: its kind is not read.
        StoreError: it is damaged, too large, or takes too much.
    """
    bounds = bounds or DocumentBounds()
    asked = {"kind": detect_document_kind(name), "wanted": wanted, **bounds._asdict()}
    size = os.fstat(file.fileno()).st_size
    said, note = _run_worker(file, msgspec.json.encode(asked).decode(), bounds.seconds)
    pieces, why = [], ""
    for told in said:
        if "error" in told:
            why = told["error"]
        elif "note" in told:
            note = told["note"]
        else:
            pieces.append(DocumentPiece(told["name"], told["text"]))
    if why or (note and not pieces):
        raise StoreError(
            f"{sanitize_line(name, 200)!r} was not read: {sanitize_line(why or note, 300)}."
        )
    return Document(tuple(pieces), size, note)


def _run_worker(file: BinaryIO, asked: str, seconds: float) -> tuple[list[dict[str, str]], str]:
    """Return the lines that the process wrote, and a note where it was ended."""
    passed = {k: os.environ[k] for k in _PASSED_VARIABLES if k in os.environ}
    words = [sys.executable, "-P", "-B", str(Path(document_worker.__file__)), asked]
    with subprocess.Popen(  # noqa: S603  our own file, and numbers
        words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=passed
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
    """Return the lines that are whole."""
    told = []
    for each in out.split(b"\n"):
        try:
            told.append(msgspec.json.decode(each, type=dict[str, str]))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue  # the last one, cut off
    return told


class DocumentBounds(NamedTuple):
    """Where reading a document ends."""

    file_bytes: int = 100_000_000
    """A larger file is refused."""
    unpacked_bytes: int = 400_000_000
    """The same for what an archive (docx, pptx, xlsx) says that it unpacks to."""
    entries: int = 20_000
    """Files in such an archive."""
    pieces: int = 2_000
    """Pages, slides or sheets that are read."""
    cells: int = 1_000_000
    """Cells of a workbook that are read, empty ones between others included."""
    chars: int = 10_000_000
    """Characters of text that are taken."""
    seconds: float = 60.0
    """By the clock; the process is ended then."""
    memory: int = 1_500_000_000
    """Bytes of address space of that process, where the system can hold it to them."""
