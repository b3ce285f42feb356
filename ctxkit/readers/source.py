"""A file as readers see it: bytes decoded once, JSON by lines or whole, every unreadable place
counted.

Nothing but `ReadError` leaves this file. The bytes are untrusted: size, depth and encoding are
bounded here.
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.decoding import BROKEN_JSON, DECODER, REPLACED, by_lines, lenient, wrong_with
from ctxkit.readers.packed import MAX_BYTES, RATIO, ZIP, chunks, is_packed, kind_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = 64 << 20
"""From so many bytes on a file of lines is read line by line by the readers that can."""
SQLITE = b"SQLite format 3\0"
"""How a database begins."""
_SMALL = 1 << 20
"""A file of fewer bytes is read whole when its beginning is asked for."""
_START = 4 << 20
_LINE = 1 << 29
"""No line is longer."""
_BOM = b"\xef\xbb\xbf"
_WIDE = ((re.compile(rb"\s*[\[{]\0"), "utf-16-le"), (re.compile(rb"(\0\s)*\0[\[{]"), "utf-16-be"))
"""UTF-16 without a mark: JSON begins with a bracket, which is one byte beside a null."""
_HEAD = 64
_BESIDE = 256 << 20


class Source:
    """One file to be read, with everything that several readers would otherwise each work out
    again.

    Args:
        path: the file. It is opened only here, never because a log names it.
        data: the bytes, for a member of an archive or a test; `path` is then only a name.

    Raises:
        ReadError: the file is missing, forbidden, a folder, or too large.
    """

    def __init__(self, path: str | Path, data: bytes | None = None) -> None:
        self.path = Path(path)
        self._data = data
        self._replaced = False
        """True where the document was no UTF-8."""
        self._passed: list[Fault] | None = None
        """Faults of the lines that `stream` has passed."""

    @property
    def on_disk(self) -> bool:
        """True where `path` is a real file, whose neighbours a reader may look at."""
        return self._data is None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the file, unpacked, without a byte-order mark; UTF-16 is turned into UTF-8.

        Raises:
            ReadError: the file cannot be read, or grows beyond all measure.
        """
        whole = self._data is not None or len(self._start) < min(_SMALL, MAX_BYTES)
        data = unpacked(self._start if whole else self._read(), self.path)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace").encode("utf-8", "replace")
        wide = next((name for start, name in _WIDE if start.match(data)), None)
        return (
            data.decode(wide, "replace").encode("utf-8", "replace")
            if wide
            else data.removeprefix(_BOM)
        )

    def _read(self, most: int = -1) -> bytes:
        """Return the first bytes of the file; all of them where `most` is negative."""
        try:
            about = self.path.stat()
            if not S_ISREG(about.st_mode):
                raise ReadError(
                    "expected a file, found a folder or device; ctxkit.read_all takes folders.",
                    self.path,
                )
            if about.st_size > MAX_BYTES and most < 0:
                raise ReadError(
                    f"the file has {about.st_size:,} bytes; at most {MAX_BYTES:,} are read.",
                    self.path,
                )
            with self.path.open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            raise ReadError("there is no such file.", self.path) from None
        except PermissionError:
            raise ReadError("the file may not be read: check its permissions.", self.path) from None
        except (OSError, ValueError) as e:
            why = (isinstance(e, OSError) and e.strerror) or type(e).__name__
            raise ReadError(f"the file could not be opened ({why}).", self.path) from None

    @cached_property
    def is_database(self) -> bool:
        """True where the file is an SQLite database; its bytes are then not read whole."""
        return self._start.startswith(SQLITE)

    @cached_property
    def _start(self) -> bytes:
        """The first bytes, packed or not; of a small file all of them: it is opened once."""
        return self._read(_SMALL) if self._data is None else self._data

    @property
    def is_blank(self) -> bool:
        """True where the file holds nothing but white space."""
        return not self.data or self.data.isspace()

    @cached_property
    def is_large(self) -> bool:
        """True for a large file of JSON lines, even packed: `stream` reads it in bounded memory."""
        if self._data is not None:
            return False
        start = self._start
        size = len(start) if len(start) < _SMALL else self.path.stat().st_size
        if size <= (LARGE >> 4 if is_packed(start) else LARGE) or start.startswith(ZIP):
            return False
        first = by_lines(self._first[:1], [])
        return len(self._first) > 1 and bool(first)

    @cached_property
    def _first(self) -> list[bytes]:
        """The whole lines of the first four megabytes."""
        with self.path.open("rb") as file:
            parts = chunks(file, self.path) if is_packed(self._start) else iter([file.read(_START)])
            start = b""
            for part in parts:
                start += part
                if len(start) >= _START:
                    break
        return start.removeprefix(_BOM).split(b"\n")[:-1]

    def stream(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield every line that is a JSON object, as `records` holds them; a large file is never
        whole in memory.

        What is no object is in `faults` once it was passed.
        """
        if not self.is_large:
            yield from self.records
            return
        self._passed = []
        for number, line in enumerate(self._raw_lines(), 1):
            found = list[Fault]()
            start = _BOM if number == 1 else b""
            for _, record in by_lines([line.removeprefix(start)], found):
                yield number, record
            self._passed += [Fault(number, f.why) for f in found]

    def _raw_lines(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if not is_packed(self._start):
                yield from iter(partial(file.readline, _LINE), b"")
                return
            rest, whole = bytearray(), 0
            most = max(MAX_BYTES, RATIO * self.path.stat().st_size)
            for chunk in chunks(file, self.path):
                whole += len(chunk)
                if whole > most or len(rest) > _LINE:
                    kind = kind_of(self._start)
                    told = (
                        f"has a line of more than {_LINE:,} bytes"
                        if whole <= most
                        else (f"grows beyond {most:,} bytes: refused as a bomb")
                    )
                    raise ReadError(f"the {kind} file {told}.", self.path)
                rest += chunk
                if b"\n" in chunk:
                    *lines, last = bytes(rest).split(b"\n")
                    rest = bytearray(last)
                    yield from lines
            if rest:
                yield bytes(rest)

    @cached_property
    def text(self) -> str:
        """The file as text; bytes that are no UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace")

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value, or None where it is none (lines of JSON are none)."""
        if self.is_database or self.is_large:
            return None
        start = self.data[:64].lstrip()[:1]
        if start not in (b"{", b"["):
            return None
        try:
            return DECODER.decode(self.data)
        except BROKEN_JSON as e:
            if "trailing characters" in str(e):  # the first value is whole: a file of lines
                return None
            self._replaced = type(e) is UnicodeDecodeError
            try:
                return lenient(self.data, e)
            except (ValueError, RecursionError):
                return None

    @cached_property
    def head(self) -> list[dict[str, Any]]:
        """The first JSON objects of a file of lines (at most 64), for sniffing; or the document."""
        if self.is_database:
            return []
        if self.is_large:
            first = [s for s in self._first[: _HEAD * 4] if s.lstrip()[:1] == b"{"]
            return [r for _, r in by_lines(first, [])[:_HEAD]]
        if self.document is not None:
            return [self.document] if type(self.document) is dict else []
        if self._at_once is not None:
            return self._at_once[:_HEAD]
        if self.data.startswith(ZIP):
            return []
        first = self.data[: 1 << 22].split(b"\n", _HEAD * 4)[: _HEAD * 4]
        objects = [s for s in first if s.lstrip()[:1] == b"{"]
        return [r for _, r in by_lines(objects, [])[:_HEAD]]

    @cached_property
    def _at_once(self) -> list[dict[str, Any]] | None:
        """All lines at once; None if one is blank, broken or no object: each is then read alone."""
        data = self.data
        try:
            records = DECODER.decode_lines(data)
        except BROKEN_JSON:
            return None
        whole = len(records) == _lines_in(data) and all(type(r) is dict for r in records)
        return records if whole else None

    def as_lines(self) -> Source | None:
        """Return a list of objects (`jq --slurp`) as the lines of a log; None where it is none."""
        values = self.document
        if type(values) is not list or not values or any(type(v) is not dict for v in values):
            return None
        return Source(self.path, b"\n".join(map(msgspec.json.encode, values)))

    def documents(self) -> Iterator[Source]:
        """Yield each object of a list or of lines as its own document; `path` is only its name."""
        values = self.document if type(self.document) is list else [r for _, r in self.records]
        for i, value in enumerate(values):
            if type(value) is dict:
                yield Source(
                    self.path.with_name(f"{self.path.stem}-{i}"), msgspec.json.encode(value)
                )

    @property
    def looks(self) -> str:
        """What the file looks like, in a few words, for an error."""
        if self.is_database:
            return "an SQLite database of another program"
        if type(self.document) is dict:
            keys = ", ".join(map(repr, list(self.document)[:6]))
            return f"a JSON object with {keys}" if keys else "an empty JSON object"
        if self.document is not None:
            return "a JSON list"
        if self.head:
            return "lines of JSON objects with " + ", ".join(map(repr, list(self.head[0])[:6]))
        if self.data.startswith(ZIP):
            return "an archive of several files, or a damaged one: unpack it and give the folder"
        return "binary" if b"\0" in self.data[:4096] else self._broken

    @property
    def _broken(self) -> str:
        """What is wrong with text that looks like JSON."""
        if self.data.lstrip()[:1] not in (b"{", b"["):
            return "text, not JSON objects"
        try:
            DECODER.decode(self.data)
        except BROKEN_JSON as e:
            why = wrong_with(self.data, e)
            return "JSON that is cut short" if "truncated" in why else f"broken JSON ({why})"
        return "JSON"

    @cached_property
    def _lines(self) -> tuple[list[tuple[int, dict[str, Any]]], list[Fault]]:
        if type(self.document) is dict:
            return [(1, self.document)], [Fault(1, REPLACED)] if self._replaced else []
        if self._at_once is not None:
            return list(enumerate(self._at_once, 1)), []
        if self.data.startswith(ZIP):  # members that are not packed would look like lines
            return [], []
        faults: list[Fault] = []
        return by_lines(self.data.split(b"\n"), faults), faults

    @property
    def records(self) -> list[tuple[int, dict[str, Any]]]:
        """Every line that is a JSON object, as (line counted from 1, object)."""
        return self._lines[0]

    @property
    def faults(self) -> list[Fault]:
        """Lines of a file of lines that are no JSON object: comments, torn or broken ones."""
        if self._passed is not None:
            return self._passed
        return self._lines[1]


def _lines_in(data: bytes) -> int:
    """Return how many lines there are; on long ones `bytes.count` takes five times as long."""
    n = at = 0
    while (at := data.find(b"\n", at) + 1) > 0:
        n += 1
    return n + (not data.endswith(b"\n"))


def object_in(file: Path, faults: list[Fault]) -> dict[str, Any]:
    """Return the JSON object in a file of a folder that is one session; of one that holds none the
    name is noted.

    Raises:
        ReadError: the file cannot be read.
    """
    document = Source(file).document
    if type(document) is dict:
        return document
    faults.append(Fault(0, f"{file.name[:80]}: expected a JSON object"))
    return {}


def beside(file: Path) -> Any:
    """Return the JSON value in a file beside a log; None where there is none that can be read.

    Nobody named it: it is no link, and has at most 256 MiB.
    """
    try:
        about = file.lstat()
        fits = S_ISREG(about.st_mode) and about.st_size <= _BESIDE
        return Source(file).document if fits else None
    except (OSError, ReadError):
        return None
