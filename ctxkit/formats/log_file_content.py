"""A log file as readers see it: bounded, decoded once, as lines or as one document."""

# The bytes are untrusted: size, depth and encoding are bounded here, and nothing but `ReadError`
# leaves this module. The first records of a file of lines are decoded on access.

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, overload

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.compressed_files import (
    MAX_FILE_BYTES,
    MAX_RATIO,
    MIN_BOMB_BYTES,
    ZIP_MAGIC,
    decompress,
    get_compression_kind,
    is_compressed,
    iter_decompressed,
)
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


# A file is in one of four states, found from its first bytes:
#   database   begins with SQLite's magic; only `read_only_sqlite.open_database` reads it
#   large      lines of JSON of more than LARGE_FILE_BYTES (a sixteenth of that when packed):
#              `stream` reads them one by one, `data` is never loaded
#   document   one JSON value
#   lines      one JSON object per line; blank, broken and non-object lines become faults
# All views are cached, since up to 34 readers look at a file before one reads it. The fast path
# decodes all lines in one call; only where that fails is each line decoded alone, which yields the
# number of each bad line.
LARGE_FILE_BYTES = 64 << 20
"""A file of JSON lines above this size is read line by line."""
SQLITE_MAGIC = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""
_SMALL_FILE_BYTES = 1 << 16
"""A file below this size is read whole when its first bytes are needed."""
_FIRST_BYTES = 4 << 20
_MAX_LINE_BYTES = 1 << 29
"""Longer lines are refused."""
_BOM = b"\xef\xbb\xbf"
_UTF16_STARTS = (
    (re.compile(rb"\s*[\[{]\0"), "utf-16-le"),
    (re.compile(rb"(\0\s)*\0[\[{]"), "utf-16-be"),
)
"""JSON in UTF-16 without a byte-order mark: its first bracket is one byte beside a null."""
_HEAD_OBJECTS = 64
_MAX_NEIGHBOUR_BYTES = 256 << 20


class Source:
    r"""One log file, with views of its content that all readers share (bytes, lines, document).

    The file is opened when a view is first used.

    Args:
        path: the file.
        data: the bytes, for content that is not in a file; `path` is then only a name.

    Raises:
        ReadError: on first use, if the file is missing, forbidden, a folder, or too large.

    Example:
        >>> source = Source("chat.jsonl", b'{"role": "user"}\n{"role": "assistant"}\n')
        >>> [record["role"] for _, record in source.records]
        ['user', 'assistant']
    """

    def __init__(self, path: str | Path, data: bytes | None = None) -> None:
        self.path = Path(path)
        self._data = data
        self._is_repaired_utf8 = False
        """True if the document was not valid UTF-8 and was decoded with replacements."""
        self._stream_faults: list[Fault] | None = None
        """Faults of the lines that a streaming pass has read so far; None before one began."""

    @property
    def on_disk(self) -> bool:
        """True if `path` is a real file, whose neighbours a reader may look at."""
        return self._data is None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the file, unpacked, without a byte-order mark; UTF-16 becomes UTF-8.

        Raises:
            ReadError: the file cannot be read, or is refused as a decompression bomb.
        """
        is_complete = self._data is not None or len(self._first_bytes) < min(
            _SMALL_FILE_BYTES, MAX_FILE_BYTES
        )
        data = decompress(self._first_bytes if is_complete else self._read_bytes(), self.path)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16", "replace").encode("utf-8", "replace")
        utf16 = next((name for start, name in _UTF16_STARTS if start.match(data)), None)
        return (
            data.decode(utf16, "replace").encode("utf-8", "replace")
            if utf16
            else data.removeprefix(_BOM)
        )

    def _read_bytes(self, max_bytes: int = -1) -> bytes:
        """Return the first bytes of the file; all of them if `max_bytes` is negative."""
        try:
            status = self.path.stat()
            if not S_ISREG(status.st_mode):
                raise ReadError(
                    "expected a file, found a folder or device; ctxkit.read_all takes folders.",
                    self.path,
                )
            if status.st_size > MAX_FILE_BYTES and max_bytes < 0:
                raise ReadError(
                    f"the file has {status.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are read.",
                    self.path,
                )
            with self.path.open("rb") as file:
                return file.read(max_bytes)
        except FileNotFoundError:
            raise ReadError("there is no such file.", self.path) from None
        except PermissionError:
            raise ReadError("the file may not be read: check its permissions.", self.path) from None
        except (OSError, ValueError) as e:
            reason = (isinstance(e, OSError) and e.strerror) or type(e).__name__
            raise ReadError(f"the file could not be opened ({reason}).", self.path) from None

    @cached_property
    def is_database(self) -> bool:
        """True if the file is an SQLite database; its bytes are then not read whole."""
        return self._first_bytes.startswith(SQLITE_MAGIC)

    @cached_property
    def _first_bytes(self) -> bytes:
        """The first bytes as stored; for a small file all of them, so that it is opened once."""
        return self._read_bytes(_SMALL_FILE_BYTES) if self._data is None else self._data

    @property
    def is_blank(self) -> bool:
        """True if the file holds nothing but white space."""
        return not self.data or self.data.isspace()

    @cached_property
    def is_large(self) -> bool:
        """True for a large file of JSON lines, packed or not, to be read as a stream."""
        if self._data is not None:
            return False
        start = self._first_bytes
        size = len(start) if len(start) < _SMALL_FILE_BYTES else self.path.stat().st_size
        if size <= (
            LARGE_FILE_BYTES >> 4 if is_compressed(start) else LARGE_FILE_BYTES
        ) or start.startswith(ZIP_MAGIC):
            return False
        first_records = _decode_json_lines(self._first_lines[:1], [])
        return len(self._first_lines) > 1 and bool(first_records)

    @cached_property
    def _first_lines(self) -> list[bytes]:
        """The complete lines within the first 4 MiB, unpacked."""
        with self.path.open("rb") as file:
            parts = (
                iter_decompressed(file, self.path)
                if is_compressed(self._first_bytes)
                else iter([file.read(_FIRST_BYTES)])
            )
            start = b""
            for part in parts:
                start += part
                if len(start) >= _FIRST_BYTES:
                    break
        return start.removeprefix(_BOM).split(b"\n")[:-1]

    def stream(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield every JSON object among the lines as (line from 1, object).

        A large file is never whole in memory. The lines passed that hold no object are in `faults`.
        """
        if not self.is_large:
            yield from self.records
            return
        self._stream_faults = []
        for number, line in enumerate(self._raw_lines(), 1):
            faults = list[Fault]()
            prefix = _BOM if number == 1 else b""
            for _, record in _decode_json_lines([line.removeprefix(prefix)], faults):
                yield number, record
            self._stream_faults += [Fault(number, f.why) for f in faults]

    def _raw_lines(self) -> Iterator[bytes]:
        """Yield the lines of a large file, unpacked chunk by chunk under the size bounds."""
        with self.path.open("rb") as file:
            if not is_compressed(self._first_bytes):
                yield from iter(partial(file.readline, _MAX_LINE_BYTES), b"")
                return
            partial_line, total_bytes = bytearray(), 0
            max_bytes = max(MAX_FILE_BYTES, MAX_RATIO * self.path.stat().st_size)
            for chunk in iter_decompressed(file, self.path):
                total_bytes += len(chunk)
                if total_bytes > max_bytes or len(partial_line) > _MAX_LINE_BYTES:
                    kind = get_compression_kind(self._first_bytes)
                    problem = (
                        f"has a line of more than {_MAX_LINE_BYTES:,} bytes"
                        if total_bytes <= max_bytes
                        else (f"grows beyond {max_bytes:,} bytes: refused as a bomb")
                    )
                    raise ReadError(f"the {kind} file {problem}.", self.path)
                partial_line += chunk
                if b"\n" in chunk:
                    *lines, last = bytes(partial_line).split(b"\n")
                    partial_line = bytearray(last)
                    yield from lines
            if partial_line:
                yield bytes(partial_line)

    @cached_property
    def text(self) -> str:
        """The file as text; invalid UTF-8 becomes U+FFFD."""
        return self.data.decode("utf-8", "replace")

    @cached_property
    def document(self) -> Any:
        """The file as one JSON object or list, or None if it is neither (as JSON lines are)."""
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
            self._is_repaired_utf8 = type(e) is UnicodeDecodeError
            try:
                return _decode_lenient_json(self.data, e)
            except (ValueError, RecursionError):
                return None

    @cached_property
    def head(self) -> Sequence[dict[str, Any]]:
        """The first JSON objects of a file of lines (at most 64), or its document in a list."""
        if self.is_database:
            return []
        if not self.is_large:
            if self.document is not None:
                return [self.document] if type(self.document) is dict else []
            if self.data.startswith(ZIP_MAGIC):
                return []
        lines = self._first_lines if self.is_large else io.BytesIO(self.data)
        return _LazyRecords(_decode_objects(islice(lines, _HEAD_OBJECTS * 4)), _HEAD_OBJECTS)

    @cached_property
    def _all_records(self) -> list[dict[str, Any]] | None:
        """All lines decoded in one call; None if one of them is blank, broken or no object."""
        data = self.data
        try:
            records = JSON_DECODER.decode_lines(data)
        except JSON_ERRORS:
            return None
        is_complete = len(records) == _count_raw_lines(data) and all(
            type(r) is dict for r in records
        )
        return records if is_complete else None

    def as_lines(self) -> Source | None:
        """Return a document that is a list of objects (`jq --slurp`) as a source of lines."""
        values = self.document
        if type(values) is not list or not values or any(type(v) is not dict for v in values):
            return None
        return Source(self.path, b"\n".join(map(msgspec.json.encode, values)))

    def documents(self) -> Iterator[Source]:
        """Yield each object of a list, or each line, as a document with a numbered name."""
        values = self.document if type(self.document) is list else [r for _, r in self.records]
        for i, value in enumerate(values):
            if type(value) is dict:
                yield Source(
                    self.path.with_name(f"{self.path.stem}-{i}"), msgspec.json.encode(value)
                )

    @property
    def description(self) -> str:
        """A short description of the content, for error messages."""
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
        return "binary" if b"\0" in self.data[:4096] else self._describe_broken_json

    @property
    def _describe_broken_json(self) -> str:
        """A short description of text that could not be decoded."""
        if self.data.lstrip()[:1] not in (b"{", b"["):
            return "text, not JSON objects"
        try:
            JSON_DECODER.decode(self.data)
        except JSON_ERRORS as e:
            reason = _describe_json_error(self.data, e)
            return "JSON that is cut short" if "truncated" in reason else f"broken JSON ({reason})"
        return "JSON"

    @cached_property
    def _numbered_records(self) -> tuple[list[tuple[int, dict[str, Any]]], list[Fault]]:
        if type(self.document) is dict:
            return [(1, self.document)], [Fault(1, NOT_UTF8)] if self._is_repaired_utf8 else []
        if self._all_records is not None:
            return list(enumerate(self._all_records, 1)), []
        if self.data.startswith(ZIP_MAGIC):  # stored (uncompressed) members would look like lines
            return [], []
        faults: list[Fault] = []
        return _decode_json_lines(self.data.split(b"\n"), faults), faults

    def decode_records(
        self, decoder: msgspec.json.Decoder[Any]
    ) -> tuple[list[tuple[int, dict[str, Any]]], list[Fault]]:
        """Return what `records` and `faults` hold, decoded by a reader's own decoder of a line.

        A decoder of a `TypedDict` passes over the fields that its reader never uses, which are
        most bytes of some formats. Lines that only the lenient decoder reads keep all fields.

        Args:
            decoder: decodes one line to a dict.
        """
        if type(self.document) is dict or self.data.startswith(ZIP_MAGIC):
            return self._numbered_records
        try:
            records = decoder.decode_lines(self.data)
        except JSON_ERRORS:
            records = []
        if records and len(records) == _count_raw_lines(self.data):
            return list(enumerate(records, 1)), []
        faults: list[Fault] = []
        return _decode_json_lines(self.data.split(b"\n"), faults, decoder), faults

    @property
    def records(self) -> list[tuple[int, dict[str, Any]]]:
        """Every line that is a JSON object, as (line from 1, object)."""
        return self._numbered_records[0]

    @property
    def faults(self) -> list[Fault]:
        """Faults of the lines that hold no JSON object: comments, torn or broken lines."""
        if self._stream_faults is not None:
            return self._stream_faults
        return self._numbered_records[1]


def _count_raw_lines(data: bytes) -> int:
    """Count lines; on long lines `find` takes a fifth of the time of `bytes.count`."""
    count = position = 0
    while (position := data.find(b"\n", position) + 1) > 0:
        count += 1
    return count + (not data.endswith(b"\n"))


def read_json_object_or_fault(file: Path, faults: list[Fault]) -> dict[str, Any]:
    """Return the JSON object in one file of a session folder; an empty one where it holds none.

    Args:
        file: path of the file.
        faults: gets a fault with the file's name where it holds no object.

    Raises:
        ReadError: the file cannot be read.
    """
    document = Source(file).document
    if type(document) is dict:
        return document
    faults.append(Fault(0, f"{file.name[:80]}: expected a JSON object"))
    return {}


def read_json_or_none(file: Path) -> Any:
    """Return the JSON value of a file beside a log, or None if it cannot be read.

    As the user did not name this file, links and files above 256 MiB are not read.
    """
    try:
        status = file.lstat()
        fits = S_ISREG(status.st_mode) and status.st_size <= _MAX_NEIGHBOUR_BYTES
        return Source(file).document if fits else None
    except (OSError, ReadError):
        return None


NOT_UTF8 = "not UTF-8: read with its broken bytes replaced"
"""The fault of bytes that are not valid UTF-8."""
JSON_DECODER = msgspec.json.Decoder()
"""The decoder of single values and of lines."""
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)
"""Errors that decoding untrusted JSON raises."""
_LENIENT_TOKENS = (b"\\u", b"NaN", b"Infinity")
"""Bytes that the strict decoder may refuse and the lenient one accepts."""


def _decode_json_lines(
    lines: list[bytes], faults: list[Fault], decoder: msgspec.json.Decoder[Any] | None = None
) -> list[tuple[int, dict[str, Any]]]:
    """Return the JSON objects among lines as (line from 1, object); other lines become faults."""
    decode = JSON_DECODER.decode if decoder is None else partial(_decode_object, decoder)
    numbered: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        try:
            record = decode(line)
        except JSON_ERRORS as e:
            try:
                record = _decode_lenient_json(line, e)
            except (ValueError, RecursionError):
                faults.append(Fault(number, _describe_json_error(line, e)))
                continue
            if type(e) is UnicodeDecodeError:
                faults.append(Fault(number, NOT_UTF8))
        if type(record) is dict:
            numbered.append((number, record))
        else:
            message = f"expected a JSON object, found {type(record).__name__}"
            faults.append(Fault(number, message))
    return numbered


def _decode_objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects among lines, each decoded when it is asked for."""
    for line in lines:
        if line.lstrip()[:1] == b"{":
            yield from (record for _, record in _decode_json_lines([line], []))


def _decode_object(decoder: msgspec.json.Decoder[Any], line: bytes) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:  # no object: its fault says what it is
        return JSON_DECODER.decode(line)


def _decode_lenient_json(data: bytes, error: Exception) -> Any:
    """Decode almost-JSON: lone surrogates, NaN and Infinity (as None), invalid UTF-8.

    Args:
        data: bytes that the strict decoder refused.
        error: the error that it raised.

    Raises:
        ValueError: the lenient decoder cannot read it either.
        RecursionError: it is nested too deeply.
    """
    is_text = type(error) is not UnicodeDecodeError
    if is_text and not any(word in data for word in _LENIENT_TOKENS):
        raise ValueError("nothing that the lenient decoder accepts")
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


def _describe_json_error(line: bytes, error: Exception) -> str:
    """Return a short description of why a line could not be decoded."""
    if line.lstrip().startswith(b"//"):
        return "a comment, not JSON"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON: " + str(error)[:120]


MAX_ZIP_MEMBERS = 100_000
"""Archives with more members are refused."""
MAX_UNPACKED_BYTES = 512 << 20
"""Largest total size of the members that are unpacked from one archive."""
_ZIP_ZSTD_METHOD = 93
_KNOWN_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZIP_ZSTD_METHOD}
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
"""Local header of a member: magic, five words, checksum, two sizes, lengths of name and extra."""


# Guards against hostile archives, before anything is unpacked: number of members, total size, and
# ratio of each member. The sizes come from the archive's own directory, which can lie, so unpacking
# is bounded by them as well. A member that cannot be read becomes a fault and the others are read.
def read_zip_json(
    source: Source, accepts: Callable[[str], bool], faults: list[Fault]
) -> dict[str, Any]:
    """Decode the wanted JSON members of a zip archive.

    Args:
        source: the archive.
        accepts: predicate over member names.
        faults: receives a fault for each wanted member that cannot be read.

    Returns:
        The decoded members by name.

    Raises:
        ReadError: it is no zip, has too many members, or is refused as a decompression bomb.
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
            e.filename: e for e in entries if accepts(e.filename) and e.filename.endswith(".json")
        }
        total_bytes = 0
        for entry in chosen.values():
            total_bytes += entry.file_size
            if total_bytes > MAX_UNPACKED_BYTES or entry.file_size > max(
                MIN_BOMB_BYTES, MAX_RATIO * entry.compress_size
            ):
                reason = (
                    f"member {entry.filename[:80]!r} grows to {entry.file_size:,} bytes: refused as"
                    " a bomb."
                )
                raise ReadError(reason, source.path)
        documents: dict[str, Any] = {}
        for name, entry in chosen.items():
            try:
                documents[name] = JSON_DECODER.decode(_unpack_member(archive, entry))
            except _ZIP_ERRORS as e:
                faults.append(Fault(0, f"member {name[:80]!r}: {_describe_zip_error(entry, e)}"))
        return documents


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


def _unpack_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
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
    """Unpack a zstd member, which `zipfile` supports only from Python 3.14 on."""
    import pyarrow as pa

    file = archive.fp
    if file is None or entry.compress_size > MAX_UNPACKED_BYTES:
        raise ValueError("the archive is closed, or the member too large")
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        raise ValueError("no member where the archive's directory says")
    name, extra = _LOCAL_HEADER.unpack(header)[-2:]
    file.seek(name + extra, io.SEEK_CUR)
    packed_bytes = pa.BufferReader(file.read(entry.compress_size))
    with pa.CompressedInputStream(packed_bytes, "zstd") as stream:
        return bytes(stream.read(entry.file_size + 1))


def _describe_zip_error(entry: zipfile.ZipInfo, error: Exception) -> str:
    if entry.compress_type not in _KNOWN_METHODS:
        return "an unknown compression"
    return str(error)[:120] or type(error).__name__


class _LazyRecords(Sequence[dict[str, Any]]):
    """A sequence over an iterator of records, which decodes no more records than are accessed.

    Up to 34 readers check the first records of a file, and most access fewer than five.

    Args:
        records: the records.
        limit: records that the sequence has at most.

    Example:
        >>> numbers = iter([{"n": 1}, {"n": 2}, {"n": 3}])
        >>> records = _LazyRecords(numbers, 64)
        >>> records[:1], next(numbers), len(records)
        ([{'n': 1}], {'n': 2}, 2)
    """

    def __init__(self, records: Iterator[dict[str, Any]], limit: int) -> None:
        self._decoded: list[dict[str, Any]] = []
        self._others = islice(records, limit)

    def _decode(self, count: int | None) -> list[dict[str, Any]]:
        """Return the records, decoded up to a number of them; all if it is None or negative."""
        missing = None if count is None or count < 0 else max(count - len(self._decoded), 0)
        self._decoded.extend(islice(self._others, missing))
        return self._decoded

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self._decode(index.stop)[index]
        return self._decode(-1 if index < 0 else index + 1)[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        position = 0
        while position < len(self._decode(position + 1)):
            yield self._decoded[position]
            position += 1

    def __bool__(self) -> bool:
        return bool(self._decode(1))

    def __len__(self) -> int:
        return len(self._decode(None))
