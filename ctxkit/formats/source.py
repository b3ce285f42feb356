"""A log file as readers see it: decoded once, by lines or whole, bounded; JSON members of zips.

Nothing but `ReadError` leaves this file. The bytes are untrusted: size, depth and encoding are
bounded here.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from functools import cached_property, partial
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.compression import (
    FREE_BYTES,
    MAX_FILE_BYTES,
    MAX_RATIO,
    ZIP_MAGIC,
    compression_kind,
    decompress,
    is_compressed,
    iter_decompressed,
)
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LARGE_FILE_BYTES = 64 << 20
"""From so many bytes on a file of lines is read line by line by the readers that can."""
SQLITE_MAGIC = b"SQLite format 3\0"
"""How a database begins."""
_SMALL_FILE_BYTES = 1 << 20
"""A file of fewer bytes is read whole when its beginning is asked for."""
_FIRST_BYTES = 4 << 20
_MAX_LINE_BYTES = 1 << 29
"""No line is longer."""
_BOM = b"\xef\xbb\xbf"
_UTF16_STARTS = (
    (re.compile(rb"\s*[\[{]\0"), "utf-16-le"),
    (re.compile(rb"(\0\s)*\0[\[{]"), "utf-16-be"),
)
"""UTF-16 without a mark: JSON begins with a bracket, which is one byte beside a null."""
_HEAD_OBJECTS = 64
_MAX_NEIGHBOUR_BYTES = 256 << 20


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
        whole = self._data is not None or len(self._start) < min(_SMALL_FILE_BYTES, MAX_FILE_BYTES)
        data = decompress(self._start if whole else self._read(), self.path)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace").encode("utf-8", "replace")
        wide = next((name for start, name in _UTF16_STARTS if start.match(data)), None)
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
            if about.st_size > MAX_FILE_BYTES and most < 0:
                raise ReadError(
                    f"the file has {about.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are read.",
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
        return self._start.startswith(SQLITE_MAGIC)

    @cached_property
    def _start(self) -> bytes:
        """The first bytes, packed or not; of a small file all of them: it is opened once."""
        return self._read(_SMALL_FILE_BYTES) if self._data is None else self._data

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
        size = len(start) if len(start) < _SMALL_FILE_BYTES else self.path.stat().st_size
        if size <= (
            LARGE_FILE_BYTES >> 4 if is_compressed(start) else LARGE_FILE_BYTES
        ) or start.startswith(ZIP_MAGIC):
            return False
        first = decode_json_lines(self._first[:1], [])
        return len(self._first) > 1 and bool(first)

    @cached_property
    def _first(self) -> list[bytes]:
        """The whole lines of the first four megabytes."""
        with self.path.open("rb") as file:
            parts = (
                iter_decompressed(file, self.path)
                if is_compressed(self._start)
                else iter([file.read(_FIRST_BYTES)])
            )
            start = b""
            for part in parts:
                start += part
                if len(start) >= _FIRST_BYTES:
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
            for _, record in decode_json_lines([line.removeprefix(start)], found):
                yield number, record
            self._passed += [Fault(number, f.why) for f in found]

    def _raw_lines(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if not is_compressed(self._start):
                yield from iter(partial(file.readline, _MAX_LINE_BYTES), b"")
                return
            rest, whole = bytearray(), 0
            most = max(MAX_FILE_BYTES, MAX_RATIO * self.path.stat().st_size)
            for chunk in iter_decompressed(file, self.path):
                whole += len(chunk)
                if whole > most or len(rest) > _MAX_LINE_BYTES:
                    kind = compression_kind(self._start)
                    told = (
                        f"has a line of more than {_MAX_LINE_BYTES:,} bytes"
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
            return JSON_DECODER.decode(self.data)
        except JSON_ERRORS as e:
            if "trailing characters" in str(e):  # the first value is whole: a file of lines
                return None
            self._replaced = type(e) is UnicodeDecodeError
            try:
                return decode_lenient_json(self.data, e)
            except (ValueError, RecursionError):
                return None

    @cached_property
    def head(self) -> list[dict[str, Any]]:
        """The first JSON objects of a file of lines (at most 64), for sniffing; or the document."""
        if self.is_database:
            return []
        if self.is_large:
            first = [s for s in self._first[: _HEAD_OBJECTS * 4] if s.lstrip()[:1] == b"{"]
            return [r for _, r in decode_json_lines(first, [])[:_HEAD_OBJECTS]]
        if self.document is not None:
            return [self.document] if type(self.document) is dict else []
        if self._at_once is not None:
            return self._at_once[:_HEAD_OBJECTS]
        if self.data.startswith(ZIP_MAGIC):
            return []
        first = self.data[: 1 << 22].split(b"\n", _HEAD_OBJECTS * 4)[: _HEAD_OBJECTS * 4]
        objects = [s for s in first if s.lstrip()[:1] == b"{"]
        return [r for _, r in decode_json_lines(objects, [])[:_HEAD_OBJECTS]]

    @cached_property
    def _at_once(self) -> list[dict[str, Any]] | None:
        """All lines at once; None if one is blank, broken or no object: each is then read alone."""
        data = self.data
        try:
            records = JSON_DECODER.decode_lines(data)
        except JSON_ERRORS:
            return None
        whole = len(records) == _count_lines(data) and all(type(r) is dict for r in records)
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
        if self.data.startswith(ZIP_MAGIC):
            return "an archive of several files, or a damaged one: unpack it and give the folder"
        return "binary" if b"\0" in self.data[:4096] else self._broken

    @property
    def _broken(self) -> str:
        """What is wrong with text that looks like JSON."""
        if self.data.lstrip()[:1] not in (b"{", b"["):
            return "text, not JSON objects"
        try:
            JSON_DECODER.decode(self.data)
        except JSON_ERRORS as e:
            why = describe_json_error(self.data, e)
            return "JSON that is cut short" if "truncated" in why else f"broken JSON ({why})"
        return "JSON"

    @cached_property
    def _lines(self) -> tuple[list[tuple[int, dict[str, Any]]], list[Fault]]:
        if type(self.document) is dict:
            return [(1, self.document)], [Fault(1, NOT_UTF8)] if self._replaced else []
        if self._at_once is not None:
            return list(enumerate(self._at_once, 1)), []
        if self.data.startswith(ZIP_MAGIC):  # members that are not packed would look like lines
            return [], []
        faults: list[Fault] = []
        return decode_json_lines(self.data.split(b"\n"), faults), faults

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


def _count_lines(data: bytes) -> int:
    """Return how many lines there are; on long ones `bytes.count` takes five times as long."""
    n = at = 0
    while (at := data.find(b"\n", at) + 1) > 0:
        n += 1
    return n + (not data.endswith(b"\n"))


def read_json_object(file: Path, faults: list[Fault]) -> dict[str, Any]:
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


def read_neighbour_json(file: Path) -> Any:
    """Return the JSON value in a file beside a log; None where there is none that can be read.

    Nobody named it: it is no link, and has at most 256 MiB.
    """
    try:
        about = file.lstat()
        fits = S_ISREG(about.st_mode) and about.st_size <= _MAX_NEIGHBOUR_BYTES
        return Source(file).document if fits else None
    except (OSError, ReadError):
        return None


NOT_UTF8 = "not UTF-8: read with its broken bytes replaced"
"""What is said of bytes that are no UTF-8."""
JSON_DECODER = msgspec.json.Decoder()
"""Decodes one value, or lines of them."""
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""What decoding raises."""
_BEYOND = (b"\\u", b"NaN", b"Infinity")


def decode_json_lines(lines: list[bytes], faults: list[Fault]) -> list[tuple[int, dict[str, Any]]]:
    """Return the JSON objects among lines, each with its number from 1; faults get the rest."""
    decode = JSON_DECODER.decode
    out: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            record = decode(line)
        except JSON_ERRORS as e:
            try:
                record = decode_lenient_json(line, e)
            except (ValueError, RecursionError):
                faults.append(Fault(number, describe_json_error(line, e)))
                continue
            if type(e) is UnicodeDecodeError:
                faults.append(Fault(number, NOT_UTF8))
        if type(record) is dict:
            out.append((number, record))
        else:
            said = f"expected a JSON object, found {type(record).__name__}"
            faults.append(Fault(number, said))
    return out


def decode_lenient_json(data: bytes, error: Exception) -> Any:
    """Decode what others write beyond JSON: halves of surrogate pairs, NaN, bytes of no UTF-8.

    Raises:
        ValueError: it is no JSON all the same.
        RecursionError: it is nested too deeply.
    """
    is_text = type(error) is not UnicodeDecodeError
    if is_text and not any(word in data for word in _BEYOND):
        raise ValueError("nothing that a more patient decoder would understand")
    value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
    return _replace_surrogates(value)


def _replace_surrogates(value: Any) -> Any:
    if type(value) is str:
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is dict:
        return {_replace_surrogates(k): _replace_surrogates(v) for k, v in value.items()}
    return [_replace_surrogates(v) for v in value] if type(value) is list else value


def describe_json_error(line: bytes, error: Exception) -> str:
    """Return what is wrong with a line, in a few words."""
    if line.lstrip().startswith(b"//"):
        return "a comment, not JSON"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON: " + str(error)[:120]


MAX_ZIP_MEMBERS = 100_000
"""An archive with more members is refused."""
MAX_UNPACKED_BYTES = 512 << 20
"""At most so much is unpacked from one archive, and from one member."""
_ZIP_ZSTD_METHOD = 93
_KNOWN_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZIP_ZSTD_METHOD}
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""A member's own header: mark, five words, checksum, two sizes, lengths of name and extra field."""
_decode_json = msgspec.json.Decoder().decode


def read_zip_json(
    source: Source, wanted: Callable[[str], bool], faults: list[Fault]
) -> dict[str, Any]:
    """Return the wanted JSON members of an archive by name; those that cannot be read are named in
    `faults`.

    Raises:
        ReadError: it is no zip, has too many members, or grows beyond all measure.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(source.data))
    except (
        zipfile.BadZipFile,
        ValueError,
        OSError,
        NotImplementedError,
        EOFError,
        IndexError,
    ) as e:
        raise ReadError(
            f"expected a zip archive ({str(e)[:80] or type(e).__name__}).", source.path
        ) from None
    with archive:
        entries = archive.infolist()
        if len(entries) > MAX_ZIP_MEMBERS:
            raise ReadError(
                f"the archive has {len(entries):,} members; at most {MAX_ZIP_MEMBERS:,} are read.",
                source.path,
            )
        chosen = {
            e.filename: e for e in entries if wanted(e.filename) and e.filename.endswith(".json")
        }
        whole = 0
        for entry in chosen.values():
            whole += entry.file_size
            if whole > MAX_UNPACKED_BYTES or entry.file_size > max(
                FREE_BYTES, MAX_RATIO * entry.compress_size
            ):
                why = (
                    f"member {entry.filename[:80]!r} grows to {entry.file_size:,} bytes: refused as"
                    " a bomb."
                )
                raise ReadError(why, source.path)
        out: dict[str, Any] = {}
        for name, entry in chosen.items():
            try:
                out[name] = _decode_json(_unpack(archive, entry))
            except _ZIP_ERRORS as e:
                faults.append(Fault(0, f"member {name[:80]!r}: {_describe_zip_error(entry, e)}"))
        return out


_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    msgspec.DecodeError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    EOFError,
)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    # The directory may lie about sizes: never unpack more than it promised.
    if entry.compress_type == _ZIP_ZSTD_METHOD:
        data = _unpack_zstd(archive, entry)
    else:
        with archive.open(entry) as member:
            data = member.read(entry.file_size + 1)
    if len(data) > entry.file_size:
        raise ValueError("longer than the archive's directory says")
    return data


def _unpack_zstd(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return a member packed with zstd, which Python itself opens from 3.14 on."""
    import pyarrow as pa

    file = archive.fp
    if file is None or entry.compress_size > MAX_UNPACKED_BYTES:
        raise ValueError("the archive is closed, or the member too large")
    file.seek(entry.header_offset)
    head = file.read(_LOCAL_HEADER.size)
    if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\3\4"):
        raise ValueError("no member where the archive's directory says")
    name, extra = _LOCAL_HEADER.unpack(head)[-2:]
    file.seek(name + extra, io.SEEK_CUR)
    packed = pa.BufferReader(file.read(entry.compress_size))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        return bytes(stream.read(entry.file_size + 1))


def _describe_zip_error(entry: zipfile.ZipInfo, error: Exception) -> str:
    if entry.compress_type not in _KNOWN_METHODS:
        return "an unknown compression"
    return str(error)[:120] or type(error).__name__
