"""Compressed logs (gzip, zstd, single-file zip) as streams, bounded against bombs."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, Self, cast

from ctxkit.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_FILE_BYTES = 2 << 30
"""Files above this are refused, packed or not: a session of two gigabytes is no session."""
MAX_RATIO = 400
"""What grows more than so many times, beyond a megabyte, is a bomb: JSON logs reach about 30."""
ZIP_MAGIC = b"PK\3\4"
"""How an archive begins."""
_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 16
FREE_BYTES = 1 << 20
_INSPECT_MEMBERS = ("samples/", "_journal/", "header.json", "summaries.json")
"""Members of Inspect's archives, which its reader opens itself."""
DECOMPRESS_ERRORS = (
    OSError,
    zlib.error,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    IndexError,
)
"""What the unpackers raise on damage."""


def is_compressed(start: bytes) -> bool:
    """Say whether a file that begins so is unpacked when read (a zip only with one log in it)."""
    return start.startswith((_GZIP, _ZSTD, ZIP_MAGIC))


def decompress(data: bytes, path: Path) -> bytes:
    """Return what packed bytes hold, as far as they are whole; other bytes as they are.

    Args:
        data: the bytes of a file.
        path: its name, for errors.

    Raises:
        ReadError: it is damaged from the start, or grows beyond all measure.
    """
    if not is_compressed(data[:4]):
        return data
    member = find_single_member(data, path) if data.startswith(ZIP_MAGIC) else None
    if data.startswith(ZIP_MAGIC) and member is None:
        return data
    out, limit = bytearray(), min(MAX_FILE_BYTES, MAX_RATIO * len(data) + FREE_BYTES)
    for chunk in iter_decompressed(io.BytesIO(data), path):
        out += chunk
        if len(out) > limit:
            kind = compression_kind(data)
            raise ReadError(
                f"the {kind} file grows beyond {limit:,} bytes: refused as a bomb.", path
            )
    return bytes(out)


def compression_kind(start: bytes) -> str:
    """Return the packing of a file that begins so, in a word."""
    if start.startswith(_GZIP):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD) else "zip"


def find_single_member(data: Any, path: Path) -> zipfile.ZipInfo | None:
    """Return the one member of an archive with one log in it; None for an archive of several
    things.

    Args:
        data: the archive's bytes, or the open file.
        path: its name, for errors.

    Raises:
        ReadError: it grows beyond all measure.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        with zipfile.ZipFile(file) as archive:
            found = [e for e in archive.infolist() if not e.is_dir()]
    except (zipfile.BadZipFile, *DECOMPRESS_ERRORS):
        return None  # the reader of archives says what is wrong
    logs = [e for e in found if not e.filename.startswith("__MACOSX/")]
    if len(logs) != 1 or logs[0].filename.startswith(_INSPECT_MEMBERS):
        return None
    if logs[0].file_size > max(FREE_BYTES, MAX_RATIO * logs[0].compress_size):
        why = f"its member grows to {logs[0].file_size:,} bytes: refused as a bomb."
        raise ReadError(f"the zip file is no log: {why}", path)
    return logs[0]


def iter_decompressed(file: Any, path: Path) -> Iterator[bytes]:
    """Yield what a packed file holds, piece by piece, as far as it is whole; in bounded memory.

    Args:
        file: open for reading bytes, at its beginning.
        path: its name, for errors.

    Raises:
        ReadError: nothing of it can be unpacked.
    """
    start = file.read(4)
    file.seek(0)
    kind, some = compression_kind(start), False
    try:
        with _opened(kind, file, path) as stream:
            while chunk := stream.read(_CHUNK):
                some = True
                yield chunk
    except EOFError:
        if not some:
            why = f"the {kind} file is cut short: nothing of it can be unpacked."
            raise ReadError(why, path) from None
    except (zipfile.BadZipFile, *DECOMPRESS_ERRORS) as e:
        cut = "runcated" in str(e)
        if cut and some:
            return  # a log that is still being written ends early
        told = (
            "is cut short: nothing of it can be unpacked."
            if cut
            else f"is damaged ({str(e)[:80]})."
        )
        raise ReadError(f"the {kind} file {told}", path) from None


def _opened(kind: str, file: Any, path: Path) -> Any:
    if kind == "gzip":
        return _Eager(gzip.GzipFile(fileobj=file))
    if kind == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    member = find_single_member(file, path)
    file.seek(0)
    return zipfile.ZipFile(file).open(cast("zipfile.ZipInfo", member))


class _Eager:
    """A gzip stream that gives what is whole before it says that the rest is missing."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.read = file.read1
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
