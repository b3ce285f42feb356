"""The archive on disk: packed copies beside an index of what they are copies of; whole or not there."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import filelock
import msgspec

from ctxkit.errors import CtxkitError
from ctxkit.keeping.originals import Original, whole
from ctxkit.readers.catalogue import read_all
from ctxkit.readers.packed import is_packed
from ctxkit.writers.native import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

INDEX = "kept.index"
"""The index: a line of JSON for each copy made, the newest last."""
_PART = ".part"
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What became of one file."""

    what: str
    kept: str | None = None
    size: int | None = None
    packed: int | None = None
    why: str | None = None


class Archive:
    """An archive, open for one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        """The newest line of the index for each original."""
        self._held: dict[str, str] = {}
        """Hash of a content to the copy that holds it."""

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = filelock.FileLock(self.folder / ".lock")
        try:
            self._lock.acquire(timeout=10)
        except filelock.Timeout:
            raise CtxkitError(
                "Another keep is writing into this archive: wait for it to end."
            ) from None
        for line in _read_index(self.folder / INDEX):
            self._known[line["path"]] = line
            self._held[line["hash"]] = line["kept"]
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def take(self, original: Original) -> Copied:
        """Copy one file where it is new or has changed since.

        Raises:
            OSError: it cannot be read, or the copy cannot be written.
            CtxkitError: it is a database that cannot be read.
        """
        about = original.path.lstat()
        key, stamp = str(original.path), [about.st_size, about.st_mtime_ns]
        with suppress(OSError):  # what a database's tool has written lately lies beside it
            beside = original.path.with_name(original.path.name + "-wal").lstat()
            stamp += [beside.st_size, beside.st_mtime_ns]
        known = self._known.get(key)
        if known and known["stamp"] == stamp and (self.folder / known["kept"]).exists():
            return Copied(what="same", kept=known["kept"], size=about.st_size)
        if original.is_database:
            return self._sessions(original, stamp)
        return self._file(original, key, stamp, known)

    def _file(
        self, original: Original, key: str, stamp: list[int], known: dict[str, Any] | None
    ) -> Copied:
        target = self.folder / original.name
        part = target.with_name(target.name + _PART)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = (known["size"], known["hash"]) if known else (-1, "")
        try:
            size, digest, grown = _pack(whole(original.path), part, *old)
            if known and digest == known["hash"] and target.exists():
                part.unlink()
                self._note(key, original.name, stamp, size, digest)
                return Copied(what="same", kept=original.name, size=size)
            if target.exists() and not grown:
                tag = (known["hash"] if known else "older")[:12]
                target.replace(target.with_name(f"{target.stem}~{tag}{target.suffix}"))
            packed = self._placed(part, target, digest)
        finally:
            with suppress(OSError):
                part.unlink()
        self._note(key, original.name, stamp, size, digest)
        what = "new" if known is None else "grown" if grown else "changed"
        return Copied(what=what, kept=original.name, size=size, packed=packed)

    def _placed(self, part: Path, target: Path, digest: str) -> int:
        """Put a copy in its place; where the archive holds the same content, as one file under two names."""
        held = self._held.get(digest)
        twin = self.folder / held if held else None
        if twin is not None and twin != target and twin.is_file():
            with suppress(OSError):
                other = part.with_name(part.name + "2")
                os.link(twin, other)
                other.replace(target)
                return 0
        packed = part.stat().st_size
        part.replace(target)
        self._held[digest] = target.relative_to(self.folder).as_posix()
        return packed

    def _sessions(self, original: Original, stamp: list[int]) -> Copied:
        """Keep a database as one log of our own format a session; those that did not change are left alone."""
        found = read_all(original.path, progress=False)
        if not found:
            raise CtxkitError(
                str(found.failed["why"].iloc[0]) if len(found.failed) else "no session is in it."
            )
        folder, changed, packed, size = original.name, 0, 0, 0
        for n, session in enumerate(found):
            name = f"{folder}/{hashlib.sha256(session.id.encode()).hexdigest()[:16]}-{n}.jsonl"
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = target.with_name(target.name + _PART)
            known = self._known.get(f"{original.path}#{session.id}")
            length, digest, _ = _pack(lines(session), part, -1, "")
            size += length
            if known and known["hash"] == digest and target.exists():
                part.unlink()
                continue
            packed += self._placed(part, target, digest)
            changed += 1
            self._note(f"{original.path}#{session.id}", name, [0, 0], length, digest)
        before = self._known.get(str(original.path))
        self._note(str(original.path), folder, stamp, size, "")
        what = "new" if before is None else "changed" if changed else "same"
        return Copied(what=what, kept=folder, size=stamp[0], packed=packed)

    def _note(self, key: str, kept: str, stamp: list[int], size: int, digest: str) -> None:
        line = {"path": key, "kept": kept, "stamp": stamp, "size": size, "hash": digest}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self.folder / INDEX, flags, 0o600)
        try:
            os.write(fd, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(fd)
        self._known[key] = line


def _read_index(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of an index; one that a kill has torn is left out: its file is looked at again."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines():
        try:
            found = _decode(line)
            ok = [type(found[k]) for k in ("path", "kept", "size", "hash", "stamp")] == [
                str,
                str,
                int,
                str,
                list,
            ]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
        if (
            ok
            and not found["kept"].startswith(("/", "\\"))
            and ".." not in found["kept"].split("/")
        ):
            yield found


def _pack(
    chunks: Iterable[bytes], part: Path, old_size: int, old_hash: str
) -> tuple[int, str, bool]:
    """Write chunks packed with zstd; return their size, their hash, and whether they begin with the older content.

    The older content is known by its size and hash alone.
    """
    import pyarrow as pa

    digest, size, grown = hashlib.sha256(), 0, False
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(fd, "wb") as file, ExitStack() as closing:
        write: Callable[[bytes], object] | None = None
        for chunk in chunks:
            if write is None:  # what is packed already stays as it is: readers unpack once
                write = file.write
                if not is_packed(chunk):
                    packing = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
                    write = closing.enter_context(packing).write
            if size < old_size <= size + len(chunk):
                start = digest.copy()
                start.update(chunk[: old_size - size])
                grown = start.hexdigest() == old_hash
            digest.update(chunk)
            size += len(chunk)
            write(chunk)
    return size, digest.hexdigest(), grown or old_size == 0
