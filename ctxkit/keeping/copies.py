"""The archive on disk: packed copies beside an index of their originals; whole or absent."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from posixpath import splitext
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit.errors import CtxkitError
from ctxkit.held_folders import Folder
from ctxkit.keeping.originals import Original, whole
from ctxkit.readers.packed import is_packed
from ctxkit.readers.reader_names import read_all
from ctxkit.writers.as_native import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

INDEX = "kept.index"
"""The index: a line of JSON for each copy made, the newest last."""
WAIT = 10.0
"""Seconds for which another keep is waited for."""
_PART = ".part"
_CHUNK = 1 << 20
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
        with ExitStack() as undo:
            self._root = undo.enter_context(Folder.own(self.folder))
            try:
                undo.enter_context(self._root.locked(WAIT))
            except OSError as e:
                if e.errno != errno.EBUSY:
                    raise
                raise CtxkitError(
                    "Another keep is writing into this archive: wait for it to end."
                ) from None
            for line in _read_index(self._root):
                self._learn(line)
                self._held[line["hash"]] = line["kept"]
            self._closing = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def take(self, original: Original) -> Copied:
        """Copy one file where it is new or has changed since.

        Raises:
            OSError: it cannot be read, or the copy cannot be written.
            CtxkitError: it is a database that cannot be read.
        """
        about = original.path.lstat()
        key, stamp = original.key, [about.st_size, about.st_mtime_ns]
        with suppress(OSError):  # what a database's tool has written lately lies beside it
            beside = original.path.with_name(original.path.name + "-wal").lstat()
            stamp += [beside.st_size, beside.st_mtime_ns]
        known = self._newest(key)
        name = known["kept"] if known else self._free(original.name, key)
        if known and known["stamp"] == stamp and self._has(name):
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

    def _has(self, name: str) -> bool:
        """Say whether a copy, or the folder of a database's copies, is there; a link is none."""
        with suppress(OSError), self._at(name) as (here, own):
            found = here.stat(own)
            return found is not None and not stat.S_ISLNK(found.st_mode)
        return False

    @contextmanager
    def _at(self, name: str, make: int | None = None) -> Iterator[tuple[Folder, str]]:
        """Yield the folder of a copy, reached without following a link, and its name in there."""
        *parts, own = name.split("/")
        with self._root.enter(".").below(parts, make=make) as here:
            yield here, own

    def _copy(
        self, key: str, name: str, chunks: Iterable[bytes], stamp: list[int], *, once: bool = False
    ) -> Copied:
        """Copy one content; `once`: the copy before it does not stay."""
        known = self._newest(key)
        old = (known["size"], known["hash"]) if known else (-1, "")
        with self._at(name, make=0o700) as (here, own):
            part = own + _PART
            here.remove(part)  # what a kill left; it may be another name of a file elsewhere
            try:
                size, digest, grown = _pack(chunks, here, part, *old)
                is_there = here.stat(own) is not None
                if known and digest == known["hash"] and is_there:
                    done = Copied(what="same", kept=name, size=size)
                else:
                    if not (grown or once) and is_there and not _same(here, part, here, own):
                        here.rename(own, _marked(own, known["hash"] if known else "older"))
                    packed = self._placed(here, part, name, digest)
                    what = "new" if known is None else "grown" if grown else "changed"
                    done = Copied(what=what, kept=name, size=size, packed=packed)
            finally:
                with suppress(OSError):
                    here.remove(part)
        if not known or (known["stamp"], known["hash"]) != (stamp, digest):
            self._note(key, name, stamp, size, digest)
        return done

    def _placed(self, here: Folder, part: str, name: str, digest: str) -> int:
        """Put a copy in its place; equal content is one file under two names."""
        about, twin = here.stat(part), self._held.get(digest)
        packed = 0 if about is None else about.st_size
        with suppress(OSError):  # no such copy any more, or no links here
            if twin is not None and self._is_twin(here, part, twin):
                packed = 0
        here.rename(part, name.rpartition("/")[2])
        self._held[digest] = name
        return packed

    def _is_twin(self, here: Folder, part: str, twin: str) -> bool:
        """Make a copy one more name of an older one, where that has the same content."""
        with self._at(twin) as (there, other):
            if not _same(here, part, there, other):
                return False
            here.remove(f"{part}2")
            there.link(other, here, f"{part}2")
            here.rename(f"{part}2", part)
            return True

    def _sessions(self, original: Original, folder: str, stamp: list[int]) -> Copied:
        """Keep a database as a log of our own format per session; unchanged ones stay."""
        found = read_all(original.path, progress=False)
        if not found:
            raise CtxkitError(
                str(found.failed["why"].iloc[0]) if len(found.failed) else "no session is in it."
            )
        copies, times = list[Copied](), Counter[str]()
        for session in found:
            key = f"{original.key}#{session.id}" + "#" * times[session.id]
            times[session.id] += 1
            name = f"{folder}/{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"
            copies.append(self._copy(key, name, lines(session), [0, 0], once=True))
        before = self._newest(original.key)
        size = sum(c.size or 0 for c in copies)
        self._note(original.key, folder, stamp, size, "")
        changed = any(c.what != "same" for c in copies)
        what = "new" if before is None else "changed" if changed else "same"
        packed = sum(c.packed or 0 for c in copies)
        return Copied(what=what, kept=folder, size=stamp[0], packed=packed)

    def _note(self, key: str, kept: str, stamp: list[int], size: int, digest: str) -> None:
        line = {"path": key, "kept": kept, "stamp": stamp, "size": size, "hash": digest}
        # what was torn before stays alone
        self._root.append(INDEX, b"\n" + msgspec.json.encode(line))
        self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        self._known[line["path"]] = line
        self._owners[line["kept"]] = line["path"]


def _marked(name: str, mark: str) -> str:
    stem, ending = splitext(name)
    return f"{stem}~{mark[:12]}{ending}"


def _same(here: Folder, one: str, there: Folder, other: str) -> bool:
    """Say whether two files have the same content; what is no file has none."""
    try:
        with (
            os.fdopen(here.open(one, os.O_RDONLY), "rb") as first,
            os.fdopen(there.open(other, os.O_RDONLY), "rb") as second,
        ):
            while True:
                chunk = first.read(_CHUNK)
                if chunk != second.read(_CHUNK):
                    return False
                if not chunk:
                    return True
    except OSError:
        return False


def _read_index(archive: Folder) -> Iterator[dict[str, Any]]:
    """The lines of an index; one that a kill has torn is left out: its file is looked at again."""
    try:
        with os.fdopen(archive.open(INDEX, os.O_RDONLY), "rb") as file:
            data = file.read()
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
    chunks: Iterable[bytes], here: Folder, part: str, old_size: int, old_hash: str
) -> tuple[int, str, bool]:
    """Write chunks packed with zstd; return their size, their hash, and whether they begin with the
    older content.

    The older content is known by its size and hash alone.
    """
    import pyarrow as pa

    digest, size, grown = hashlib.sha256(), 0, False
    fd = here.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
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
