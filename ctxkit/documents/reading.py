"""A document's text, piece by piece: pages, slides, sheets."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from ctxkit.display.markup import line
from ctxkit.documents import process
from ctxkit.documents.bounds import Bounds
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {".pdf": "pypdf", ".docx": "docx", ".pptx": "pptx", ".xlsx": "openpyxl"}
"""Endings of documents that are read, and the module that reads each."""
_PASSED = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "VIRTUAL_ENV", "HOME", "TMPDIR")
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
    return Path(name).suffix.lower() in KINDS


def kind_of(name: str) -> str:
    """Return the kind of a document by its name.

    Raises:
        BadArguments: it is none, or what reads it is not installed.
    """
    ending = Path(name).suffix.lower()
    if ending not in KINDS:
        raise BadArguments(f"{line(name, 200)!r} is no document: those end in {', '.join(KINDS)}.")
    if find_spec(KINDS[ending]) is None:
        raise BadArguments(f"A {ending} file is read with `pip install 'ctxkit[documents]'`.")
    return ending[1:]


def document(
    file: BinaryIO,
    name: str,
    wanted: Sequence[str] | None = None,
    bounds: Bounds | None = None,
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
    bounds = bounds or Bounds()
    asked = {"kind": kind_of(name), "wanted": wanted, **bounds._asdict()}
    size = os.fstat(file.fileno()).st_size
    said, note = _run(file, msgspec.json.encode(asked).decode(), bounds.seconds)
    pieces, why = [], ""
    for told in said:
        if "error" in told:
            why = told["error"]
        elif "note" in told:
            note = told["note"]
        else:
            pieces.append(DocumentPiece(told["name"], told["text"]))
    if why or (note and not pieces):
        raise StoreError(f"{line(name, 200)!r} was not read: {line(why or note, 300)}.")
    return Document(tuple(pieces), size, note)


def _run(file: BinaryIO, asked: str, seconds: float) -> tuple[list[dict[str, str]], str]:
    """Return the lines that the process wrote, and a note where it was ended."""
    passed = {k: os.environ[k] for k in _PASSED if k in os.environ}
    words = [sys.executable, "-P", "-B", str(Path(process.__file__)), asked]
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
    return [*_lines(out)], note


def _lines(out: bytes) -> list[dict[str, str]]:
    """Return the lines that are whole."""
    told = []
    for each in out.split(b"\n"):
        try:
            told.append(msgspec.json.decode(each, type=dict[str, str]))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue  # the last one, cut off
    return told
