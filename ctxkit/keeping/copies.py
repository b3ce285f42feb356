"""The archive on disk: packed copies beside an index of their originals; whole or absent."""

from __future__ import annotations

import filecmp
import hashlib
import os
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from posixpath import splitext
from typing import TYPE_CHECKING, Any, Self

import filelock
import msgspec

from ctxkit.errors import CtxkitError
from ctxkit.keeping.originals import Original, whole
from ctxkit.readers.packed import is_packed
from ctxkit.readers.reader_names import read_all
from ctxkit.writers.as_native import lines

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
        self._owners: dict[str, str] = {}
        """Each copy to the original that it is of."""
        self._held: dict[str, str] = {}
        """Hash of a content to a copy that held it."""

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
            self._learn(line)
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
        known = self._newest(key)
        name = known["kept"] if known else self._free(original.name, key)
        if known and known["stamp"] == stamp and (self.folder / name).exists():
            return Copied(what="same", kept=name, size=about.st_size)
        if original.is_database:
            return self._sessions(original, name, stamp)
        return self._copy(key, name, whole(original.path), stamp)

    def _newest(self, key: str) -> dict[str, Any] | None:
        """Return the line of an original whose copy is still its own."""
        known = self._known.get(key)
        return known if known and self._owners[known["kept"]] == key else None

    def _free(self, name: str, key: str) -> str:
        """Return the name for a copy; marked where another folder's file has it."""
        if self._owners.get(name, key) == key:
            return name
        return _marked(name, hashlib.sha256(key.encode()).hexdigest())

    def _copy(
        self, key: str, name: str, chunks: Iterable[bytes], stamp: list[int], *, once: bool = False
    ) -> Copied:
        """Copy one content; `once`: the copy before it does not stay."""
        known, target = self._newest(key), self.folder / name
        part = target.with_name(target.name + _PART)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        old = (known["size"], known["hash"]) if known else (-1, "")
        try:
            size, digest, grown = _pack(chunks, part, *old)
            if known and digest == known["hash"] and target.exists():
                done = Copied(what="same", kept=name, size=size)
            else:
                if not (grown or once) and target.exists() and not _same(part, target):
                    mark = known["hash"] if known else "older"
                    target.replace(target.with_name(_marked(target.name, mark)))
                packed = self._placed(part, target, digest)
                what = "new" if known is None else "grown" if grown else "changed"
                done = Copied(what=what, kept=name, size=size, packed=packed)
        finally:
            with suppress(OSError):
                part.unlink()
        if not known or (known["stamp"], known["hash"]) != (stamp, digest):
            self._note(key, name, stamp, size, digest)
        return done

    def _placed(self, part: Path, target: Path, digest: str) -> int:
        """Put a copy in its place; equal content is one file under two names."""
        packed, twin = part.stat().st_size, self.folder / self._held.get(digest, "")
        with suppress(OSError):  # no such copy any more, or no links here
            if _same(part, twin):
                link = part.with_name(part.name + "2")
                os.link(twin, link)
                link.replace(part)
                packed = 0
        part.replace(target)
        self._held[digest] = target.relative_to(self.folder).as_posix()
        return packed

    def _sessions(self, original: Original, folder: str, stamp: list[int]) -> Copied:
        """Keep a database as a log of our own format per session; unchanged ones stay."""
        found = read_all(original.path, progress=False)
        if not found:
            raise CtxkitError(
                str(found.failed["why"].iloc[0]) if len(found.failed) else "no session is in it."
            )
        copies, times = list[Copied](), Counter[str]()
        for session in found:
            key = f"{original.path}#{session.id}" + "#" * times[session.id]
            times[session.id] += 1
            name = f"{folder}/{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"
            copies.append(self._copy(key, name, lines(session), [0, 0], once=True))
        before = self._newest(str(original.path))
        size = sum(c.size or 0 for c in copies)
        self._note(str(original.path), folder, stamp, size, "")
        changed = any(c.what != "same" for c in copies)
        what = "new" if before is None else "changed" if changed else "same"
        packed = sum(c.packed or 0 for c in copies)
        return Copied(what=what, kept=folder, size=stamp[0], packed=packed)

    def _note(self, key: str, kept: str, stamp: list[int], size: int, digest: str) -> None:
        line = {"path": key, "kept": kept, "stamp": stamp, "size": size, "hash": digest}
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        fd = os.open(self.folder / INDEX, flags, 0o600)
        try:
            os.write(fd, b"\n" + msgspec.json.encode(line))  # what was torn before stays alone
        finally:
            os.close(fd)
        self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        self._known[line["path"]] = line
        self._owners[line["kept"]] = line["path"]


def _marked(name: str, mark: str) -> str:
    stem, ending = splitext(name)
    return f"{stem}~{mark[:12]}{ending}"


def _same(one: Path, other: Path) -> bool:
    return filecmp.cmp(one, other, shallow=False)


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
    """Write chunks packed with zstd; return their size, their hash, and whether they begin with the
    older content.

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
