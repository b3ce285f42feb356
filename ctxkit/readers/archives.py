"""JSON zips opened without trust: members, sizes and ratios bounded before a byte is unpacked."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.packed import FREE, RATIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.readers.source import Source

MEMBERS = 100_000
"""An archive with more members is refused."""
BYTES = 512 << 20
"""At most so much is unpacked from one archive, and from one member."""
_ZSTD = 93
_PLAIN = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTD}
_HEAD = struct.Struct("<4s5H3L2H")
"""A member's own header: mark, five words, checksum, two sizes, lengths of name and extra field."""
_decode = msgspec.json.Decoder().decode


def open_json(source: Source, wanted: Callable[[str], bool], faults: list[Fault]) -> dict[str, Any]:
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
        if len(entries) > MEMBERS:
            raise ReadError(
                f"the archive has {len(entries):,} members; at most {MEMBERS:,} are read.",
                source.path,
            )
        chosen = {
            e.filename: e for e in entries if wanted(e.filename) and e.filename.endswith(".json")
        }
        whole = 0
        for entry in chosen.values():
            whole += entry.file_size
            if whole > BYTES or entry.file_size > max(FREE, RATIO * entry.compress_size):
                why = (
                    f"member {entry.filename[:80]!r} grows to {entry.file_size:,} bytes: refused as"
                    " a bomb."
                )
                raise ReadError(why, source.path)
        out: dict[str, Any] = {}
        for name, entry in chosen.items():
            try:
                out[name] = _decode(_unpack(archive, entry))
            except _BROKEN as e:
                faults.append(Fault(0, f"member {name[:80]!r}: {_why(entry, e)}"))
        return out


_BROKEN = (
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
    if entry.compress_type == _ZSTD:
        data = _zstd(archive, entry)
    else:
        with archive.open(entry) as member:
            data = member.read(entry.file_size + 1)
    if len(data) > entry.file_size:
        raise ValueError("longer than the archive's directory says")
    return data


def _zstd(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return a member packed with zstd, which Python itself opens from 3.14 on."""
    import pyarrow as pa

    file = archive.fp
    if file is None or entry.compress_size > BYTES:
        raise ValueError("the archive is closed, or the member too large")
    file.seek(entry.header_offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(b"PK\3\4"):
        raise ValueError("no member where the archive's directory says")
    name, extra = _HEAD.unpack(head)[-2:]
    file.seek(name + extra, io.SEEK_CUR)
    packed = pa.BufferReader(file.read(entry.compress_size))
    with pa.CompressedInputStream(packed, "zstd") as stream:
        return bytes(stream.read(entry.file_size + 1))


def _why(entry: zipfile.ZipInfo, error: Exception) -> str:
    if entry.compress_type not in _PLAIN:
        return "an unknown compression"
    return str(error)[:120] or type(error).__name__
