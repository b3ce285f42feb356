"""Compressed log files (gzip, zstd, single-file zip) as streams, bounded against bombs."""

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
"""Files above this size are refused, packed or not."""
MAX_RATIO = 400
"""Largest ratio of unpacked to packed size beyond a megabyte; JSON logs reach about 30."""
ZIP_MAGIC = b"PK\3\4"
"""The first bytes of a zip archive."""
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 1 << 16
MIN_BOMB_BYTES = 1 << 20
"""Up to this unpacked size `MAX_RATIO` does not apply."""
_INSPECT_MEMBERS = ("samples/", "_journal/", "header.json", "summaries.json")
"""Members of Inspect's archives, which the reader of Inspect logs opens itself."""
DECOMPRESS_ERRORS = (
    OSError,
    zlib.error,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    IndexError,
)
"""Errors that the decompressors raise on damaged data."""


def is_compressed(start: bytes) -> bool:
    """Return True if these first bytes are those of a gzip, zstd or zip file."""
    return start.startswith((_GZIP_MAGIC, _ZSTD_MAGIC, ZIP_MAGIC))


def decompress(data: bytes, path: Path) -> bytes:
    """Decompress the bytes of a file as far as they are intact; return other bytes unchanged.

    A zip archive is decompressed only if it holds a single log.

    Args:
        data: the bytes of a file.
        path: its name, for errors.

    Raises:
        ReadError: it is damaged from the start, or is refused as a decompression bomb.
    """
    if not is_compressed(data[:4]):
        return data
    member = _find_single_member(data, path) if data.startswith(ZIP_MAGIC) else None
    if data.startswith(ZIP_MAGIC) and member is None:
        return data
    decompressed, limit = bytearray(), min(MAX_FILE_BYTES, MAX_RATIO * len(data) + MIN_BOMB_BYTES)
    for chunk in iter_decompressed(io.BytesIO(data), path):
        decompressed += chunk
        if len(decompressed) > limit:
            kind = get_compression_kind(data)
            raise ReadError(
                f"the {kind} file grows beyond {limit:,} bytes: refused as a bomb.", path
            )
    return bytes(decompressed)


def get_compression_kind(start: bytes) -> str:
    """Return "gzip", "zstd" or "zip" for the first bytes of a compressed file."""
    if start.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if start.startswith(_ZSTD_MAGIC) else "zip"


def _find_single_member(data: Any, path: Path) -> zipfile.ZipInfo | None:
    """Return the member of a zip archive that holds a single log; None for other archives.

    Args:
        data: the archive's bytes, or the open file.
        path: its name, for errors.

    Raises:
        ReadError: the member is refused as a decompression bomb.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    try:
        with zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, *DECOMPRESS_ERRORS):
        return None  # a reader of archives reports the damage
    log_entries = [entry for entry in entries if not entry.filename.startswith("__MACOSX/")]
    if len(log_entries) != 1 or log_entries[0].filename.startswith(_INSPECT_MEMBERS):
        return None
    if log_entries[0].file_size > max(MIN_BOMB_BYTES, MAX_RATIO * log_entries[0].compress_size):
        reason = f"its member grows to {log_entries[0].file_size:,} bytes: refused as a bomb."
        raise ReadError(f"the zip file is no log: {reason}", path)
    return log_entries[0]


def iter_decompressed(file: Any, path: Path) -> Iterator[bytes]:
    """Yield the decompressed content of a file in chunks, as far as it is intact.

    Args:
        file: the compressed file, open for reading bytes, at its beginning.
        path: its name, for errors.

    Raises:
        ReadError: nothing of it can be decompressed.
    """
    start = file.read(4)
    file.seek(0)
    kind, has_output = get_compression_kind(start), False
    try:
        with _open_stream(kind, file, path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                has_output = True
                yield chunk
    except EOFError:
        if not has_output:
            reason = f"the {kind} file is cut short: nothing of it can be unpacked."
            raise ReadError(reason, path) from None
    except (zipfile.BadZipFile, *DECOMPRESS_ERRORS) as e:
        is_truncated = "runcated" in str(e)
        if is_truncated and has_output:
            return  # a log that is still being written ends early
        problem = (
            "is cut short: nothing of it can be unpacked."
            if is_truncated
            else f"is damaged ({str(e)[:80]})."
        )
        raise ReadError(f"the {kind} file {problem}", path) from None


def _open_stream(kind: str, file: Any, path: Path) -> Any:
    if kind == "gzip":
        return _EagerGzip(gzip.GzipFile(fileobj=file))
    if kind == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
    member = _find_single_member(file, path)
    file.seek(0)
    return zipfile.ZipFile(file).open(cast("zipfile.ZipInfo", member))


class _EagerGzip:
    """A gzip stream that returns all intact data before it raises for the truncated rest."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.read = file.read1
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
