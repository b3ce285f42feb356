"""Archive sessions before their tools delete them, and search archives for words."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from posixpath import splitext
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit._internal.formatting import sanitize_line, sanitize_text
from ctxkit._internal.lazy import public_dir
from ctxkit._internal.safe_fs import SafeFolder
from ctxkit.errors import BadArguments, CtxkitError, ReadError
from ctxkit.formats.compression import is_compressed
from ctxkit.formats.discovery import iter_location_folders
from ctxkit.formats.fields import to_text
from ctxkit.formats.native import encode_session_lines
from ctxkit.formats.reading import read_all
from ctxkit.formats.source import SQLITE_MAGIC
from ctxkit.session.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd

    from ctxkit.formats.discovery import LogLocation
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session


__all__ = ["FIND_COLUMNS", "KEEP_COLUMNS", "find", "keep"]
__dir__ = public_dir(__all__)


_MAX_FILES = 1_000_000
KEEP_COLUMNS = {
    "tool": "string",
    "path": "string",
    "kept": "string",
    "what": "string",
    "size_bytes": "Int64",
    "packed_bytes": "Int64",
    "why": "string",
}
"""The columns of `keep`. `what`: `new`, `grown` (its older copy is part of it), `changed` (the
older copy stays beside it; of a database's sessions only the newest), `same` (not copied again) or
`failed` (`why` says why). `size_bytes` of the original, `packed_bytes` of the copy (missing where
nothing was copied)."""


def keep(
    folder: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    tools: str | Iterable[str] | None = None,
) -> pd.DataFrame:
    """Copy the sessions that `ck.discover` finds into an archive, and what is new of them when
    called again.

    A file keeps its name and its place below the tool's folder, so that readers find what belongs
    together; its bytes are packed with zstd, which every reader unpacks (`ck.read_all(folder)`,
    `ck.find(folder, text)`). Databases are kept as one log of the kit's own format a session. Files
    are readable by their owner alone. A copy that is broken off goes on at the next call; an
    archive holds what the logs hold, secrets included.

    Nothing is written outside the archive: no link in it is followed, and what would lie behind one
    is `failed`. Bytes of a name that are no UTF-8 become U+FFFD in the copy's name.

    Args:
        folder: the archive; made where it is missing.
        home: the home directory to look in; None: this user's, and where environment variables
            point.
        tools: names as in the `tool` column of `ck.discover`; None: all.

    Returns:
        One row a file looked at (columns: `COLUMNS`).

    Raises:
        BadArguments: the archive would lie among a tool's own sessions, or no tool has such a name.
        CtxkitError: the archive cannot be written.
    """
    import pandas as pd

    place = _place(folder)
    wanted = None if tools is None else {tools} if isinstance(tools, str) else set(tools)
    places = list(iter_location_folders(home))
    _check(place, [top for p, top in places if p.below], wanted, {p.tool for p, _ in places})
    chosen = [(p, top) for p, top in places if wanted is None or p.tool in wanted]
    try:
        with Archive(place) as archive:
            rows = [_row(o, archive) for o in islice(_each(chosen), _MAX_FILES)]
    except OSError as e:
        raise CtxkitError(
            f"The archive could not be written: {sanitize_text(_why(e), 300)}."
        ) from None
    frame = pd.DataFrame({n: [r[n] for r in rows] for n in KEEP_COLUMNS}).astype(KEEP_COLUMNS)
    return frame.sort_values(["tool", "path"], ignore_index=True, kind="stable")


def _each(chosen: list[tuple[LogLocation, Path]]) -> Iterator[OriginalFile]:
    seen: set[str] = set()
    for place, top in chosen:
        for original in iter_originals(place, top):
            if str(original.path) not in seen:
                seen.add(str(original.path))
                yield original


def _row(original: OriginalFile, archive: Archive) -> dict[str, object]:
    try:
        done = archive.take(original)
    except (OSError, CtxkitError, UnicodeError) as e:
        said = _why(e)
        done = CopyResult(what="failed", why=sanitize_text(said or type(e).__name__, 300))
    return {
        "tool": original.tool,
        "path": sanitize_text(str(original.path)),
        "kept": done.kept,
        "what": done.what,
        "size_bytes": done.size,
        "packed_bytes": done.packed,
        "why": done.why,
    }


def _why(error: Exception) -> str:
    """Return why a file is not kept, with the path or the part of it where that is known."""
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or type(error).__name__
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        said = f"{said}; links are not followed: move what lies there away"
    return f"{error.filename}: {said}" if error.filename else said


def _place(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder) or "\0" in str(folder):
        raise BadArguments("keep expects the folder of the archive as a path.")
    return Path(os.fspath(folder)).expanduser()


def _check(place: Path, tops: list[Path], wanted: set[str] | None, known: set[str]) -> None:
    strange = sorted((wanted or set()) - known)
    if strange:
        raise BadArguments(f"No tool is called {strange[0]!r}: {', '.join(sorted(known))}.")
    real = place.resolve()
    if real.exists() and not real.is_dir():
        raise BadArguments("keep expects a folder for the archive, found a file.")
    for top in tops:
        if top.name and top not in (Path.home(), Path.cwd()) and real.is_relative_to(top.resolve()):
            why = f"The archive would lie among the sessions of {top}: choose another folder."
            raise BadArguments(why)


_CONTEXT_CHARS = 60
FIND_COLUMNS = {
    "format": "string",
    "session": "string",
    "path": "string",
    "message": "Int64",
    "role": "string",
    "time": "datetime64[ns, UTC]",
    "text": "string",
}
"""Columns of `find`: `message` is its index in the session, `text` what is around the words."""


def find(folder: str | os.PathLike[str], text: str, most: int = 1_000) -> pd.DataFrame:
    """Return the messages that hold a text, in whatever case, in what the model said, was told and
    called.

    Args:
        folder: an archive of `ck.keep`, or any file, folder or glob that `ck.read_all` takes.
        text: the words to look for; of several words, as they stand together.
        most: rows at most.

    Returns:
        One row a message (columns: `FOUND`); `.attrs["truncated"]` is True where there are more,
        `.attrs["failed"]` the number of files that could not be read.

    Raises:
        BadArguments: no text is given.
        ReadError: there is no such folder.
    """
    import pandas as pd

    if not isinstance(text, str) or not text.strip():
        raise BadArguments("find expects the words to look for.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise BadArguments("find expects `most` as a whole number, one or more.")
    found = read_all(folder, progress=False)
    if not found and not Path(os.fspath(folder)).expanduser().exists():
        raise ReadError("there is no such folder.", Path(os.fspath(folder)))
    rows, more = list[dict[str, Any]](), False
    for session in found:
        for row in _find_in_session(session, text.casefold()):
            if len(rows) == most:
                more = True
                break
            rows.append(row)
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in FIND_COLUMNS}
    columns["time"] = pd.to_datetime(columns["time"], unit="s", utc=True).as_unit("ns")
    frame = pd.DataFrame(columns).astype(FIND_COLUMNS)
    frame.attrs.update(truncated=more, failed=len(found.failed))
    return frame


def _find_in_session(
    session: Session, words: str, path: str | None = None
) -> Iterator[dict[str, Any]]:
    path = session.path_ or path
    for n, m in enumerate(session.messages):
        said = _searchable_text(m)
        at = said.casefold().find(words)
        if at >= 0:
            yield {
                "format": session.format,
                "session": sanitize_line(session.id, 200),
                "path": path,
                "message": n,
                "role": m.role,
                "time": m.time,
                "text": sanitize_line(
                    said[max(at - _CONTEXT_CHARS, 0) : at + len(words) + _CONTEXT_CHARS], 400
                ),
            }
    for child in session.children:
        yield from _find_in_session(child, words, path)


def _searchable_text(m: Message) -> str:
    calls = [
        f"{p.name} {p.raw or to_text(p.arguments)}" for p in m.parts if isinstance(p, ToolCall)
    ]
    return "\n".join([m.text, *calls])


INDEX_NAME = "kept.index"
"""The index: a line of JSON for each copy made, the newest last."""
WAIT = 10.0
"""Seconds for which another keep is waited for."""
_PART = ".part"
_CHUNK = 1 << 20
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
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
            self._root = undo.enter_context(SafeFolder.own(self.folder))
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

    def take(self, original: OriginalFile) -> CopyResult:
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
            return CopyResult(what="same", kept=name, size=about.st_size)
        if original.is_database:
            return self._sessions(original, name, stamp)
        return self._copy(key, name, read_chunks(original.path), stamp)

    def _newest(self, key: str) -> dict[str, Any] | None:
        """Return the line of an original whose copy is still its own."""
        known = self._known.get(key)
        return known if known and self._owners[known["kept"]] == key else None

    def _free(self, name: str, key: str) -> str:
        """Return the name for a copy; marked where another folder's file has it."""
        if self._owners.get(name, key) == key:
            return name
        return _name_with_mark(name, hashlib.sha256(key.encode()).hexdigest())

    def _has(self, name: str) -> bool:
        """Say whether a copy, or the folder of a database's copies, is there; a link is none."""
        with suppress(OSError), self._at(name) as (here, own):
            found = here.stat(own)
            return found is not None and not stat.S_ISLNK(found.st_mode)
        return False

    @contextmanager
    def _at(self, name: str, make: int | None = None) -> Iterator[tuple[SafeFolder, str]]:
        """Yield the folder of a copy, reached without following a link, and its name in there."""
        *parts, own = name.split("/")
        with self._root.enter(".").below(parts, make=make) as here:
            yield here, own

    def _copy(
        self, key: str, name: str, chunks: Iterable[bytes], stamp: list[int], *, once: bool = False
    ) -> CopyResult:
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
                    done = CopyResult(what="same", kept=name, size=size)
                else:
                    if (
                        not (grown or once)
                        and is_there
                        and not _same_content(here, part, here, own)
                    ):
                        here.rename(own, _name_with_mark(own, known["hash"] if known else "older"))
                    packed = self._placed(here, part, name, digest)
                    what = "new" if known is None else "grown" if grown else "changed"
                    done = CopyResult(what=what, kept=name, size=size, packed=packed)
            finally:
                with suppress(OSError):
                    here.remove(part)
        if not known or (known["stamp"], known["hash"]) != (stamp, digest):
            self._note(key, name, stamp, size, digest)
        return done

    def _placed(self, here: SafeFolder, part: str, name: str, digest: str) -> int:
        """Put a copy in its place; equal content is one file under two names."""
        about, twin = here.stat(part), self._held.get(digest)
        packed = 0 if about is None else about.st_size
        with suppress(OSError):  # no such copy any more, or no links here
            if twin is not None and self._is_twin(here, part, twin):
                packed = 0
        here.rename(part, name.rpartition("/")[2])
        self._held[digest] = name
        return packed

    def _is_twin(self, here: SafeFolder, part: str, twin: str) -> bool:
        """Make a copy one more name of an older one, where that has the same content."""
        with self._at(twin) as (there, other):
            if not _same_content(here, part, there, other):
                return False
            here.remove(f"{part}2")
            there.link(other, here, f"{part}2")
            here.rename(f"{part}2", part)
            return True

    def _sessions(self, original: OriginalFile, folder: str, stamp: list[int]) -> CopyResult:
        """Keep a database as a log of our own format per session; unchanged ones stay."""
        found = read_all(original.path, progress=False)
        if not found:
            raise CtxkitError(
                str(found.failed["why"].iloc[0]) if len(found.failed) else "no session is in it."
            )
        copies, times = list[CopyResult](), Counter[str]()
        for session in found:
            key = f"{original.key}#{session.id}" + "#" * times[session.id]
            times[session.id] += 1
            name = f"{folder}/{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"
            copies.append(self._copy(key, name, encode_session_lines(session), [0, 0], once=True))
        before = self._newest(original.key)
        size = sum(c.size or 0 for c in copies)
        self._note(original.key, folder, stamp, size, "")
        changed = any(c.what != "same" for c in copies)
        what = "new" if before is None else "changed" if changed else "same"
        packed = sum(c.packed or 0 for c in copies)
        return CopyResult(what=what, kept=folder, size=stamp[0], packed=packed)

    def _note(self, key: str, kept: str, stamp: list[int], size: int, digest: str) -> None:
        line = {"path": key, "kept": kept, "stamp": stamp, "size": size, "hash": digest}
        # what was torn before stays alone
        self._root.append(INDEX_NAME, b"\n" + msgspec.json.encode(line))
        self._learn(line)

    def _learn(self, line: dict[str, Any]) -> None:
        self._known[line["path"]] = line
        self._owners[line["kept"]] = line["path"]


def _name_with_mark(name: str, mark: str) -> str:
    stem, ending = splitext(name)
    return f"{stem}~{mark[:12]}{ending}"


def _same_content(here: SafeFolder, one: str, there: SafeFolder, other: str) -> bool:
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


def _read_index(archive: SafeFolder) -> Iterator[dict[str, Any]]:
    """The lines of an index; one that a kill has torn is left out: its file is looked at again."""
    try:
        with os.fdopen(archive.open(INDEX_NAME, os.O_RDONLY), "rb") as file:
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
    chunks: Iterable[bytes], here: SafeFolder, part: str, old_size: int, old_hash: str
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
                if not is_compressed(chunk):
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


_ENDINGS = (".json", ".jsonl", ".jsonl.zst", ".md", ".db", ".ndjson", ".txt", ".yaml")
_DEPTH = 10
_MAX_FILE_BYTES = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalFile:
    """A file to keep, and the name that it gets in the archive."""

    tool: str
    path: Path
    name: str
    """Relative to the archive; its parts are names of folders as found, never a file's content."""

    @property
    def key(self) -> str:
        """The path as the index has it: where it is no UTF-8, readable, and with its hash."""
        path, raw = str(self.path), os.fsencode(self.path)
        readable = _readable(path)
        return path if readable == path else f"{readable}#{sha256(raw).hexdigest()[:16]}"

    @property
    def is_database(self) -> bool:
        """True for an SQLite database."""
        with _Opened(self.path) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


class _Opened:
    """A regular file, opened without following a link and without waiting for a pipe."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        self.fd = os.open(path, flags | getattr(os, "O_BINARY", 0))

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file as long as it was when it was opened; what is appended meanwhile is
    for the next time.

    Raises:
        OSError: it is gone, forbidden, or a link.
        ReadError: it is no file, or too large.
    """
    with _Opened(path) as fd:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_FILE_BYTES:
            raise ReadError("not kept: no plain file, or larger than 16 GB.", path)
        left = about.st_size
        while left and (chunk := os.read(fd, min(left, 1 << 20))):
            left -= len(chunk)
            yield chunk


def iter_originals(place: LogLocation, top: Path) -> Iterator[OriginalFile]:
    """Yield the files of a place: all that may belong to its sessions, links left alone."""
    root = top
    if place.copied:
        root = next((p for p in (top, *top.parents) if p.name == place.copied), top)
    base = f"{place.tool}/{_archive_prefix(root)}"
    depth = _DEPTH if place.below and place.depth else 0
    for path, between in _walk_folder(root, depth):
        name = path.name
        if depth == 0 and not (
            name.endswith(place.endings) and name.startswith(place.starts or ("",))
        ):
            continue
        kept = _readable("/".join((base, *between, name)))
        yield OriginalFile(tool=place.tool, path=path, name=kept)


def _readable(path: str) -> str:
    """Return a path as UTF-8: bytes of names that are none become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def _archive_prefix(root: Path) -> str:
    """A place's name in the archive: its own, with those above where it says little."""
    above, own = root.parent.name.lstrip("."), root.name.lstrip(".")
    return f"{above}-{own}" if above and own in _COMMON else own or "home"


_COMMON = {"sessions", "tasks", "storage", "tmp", "projects", "agents", "logs"}


def _walk_folder(root: Path, depth: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
    waiting: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while waiting:
        folder, between = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda e: e.name)
        except OSError:
            continue  # not there, or not ours to read
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if len(between) < depth:
                        waiting.append((Path(entry.path), (*between, entry.name)))
                elif entry.is_file(follow_symlinks=False) and entry.name.endswith(_ENDINGS):
                    yield Path(entry.path), between
            except OSError:
                continue
