"""Archives of session logs: incremental, deduplicated copies; full-text search in sessions."""

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

from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_line, sanitize_text
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import SafeFolder
from ctxkit.errors import BadArguments, CtxkitError, ReadError
from ctxkit.formats.compressed_files import is_compressed
from ctxkit.formats.log_discovery import iter_location_folders
from ctxkit.formats.log_file_content import SQLITE_MAGIC
from ctxkit.formats.native import encode_session_lines
from ctxkit.formats.reading import read_all
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.formats.untrusted_record_parsing import json_to_text
from ctxkit.session.messages import Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd

    from ctxkit.formats.log_discovery import LogLocation
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session


__all__ = ["FIND_COLUMNS", "KEEP_COLUMNS", "find", "keep"]
__dir__ = make_dunder_dir(__all__)


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
"""The columns of `keep`.

`what` is `new`, `grown` (the older copy is a prefix and was replaced), `changed` (the older copy
stays beside the new one, except for the sessions of a database), `same` (not copied again) or
`failed` (for the reason in `why`). `kept` is the copy's name in the archive. `size_bytes` is the
size of the original, `packed_bytes` that of the copy (missing if nothing was copied)."""


def keep(
    folder: str | os.PathLike[str],
    home: str | os.PathLike[str] | None = None,
    tools: str | Iterable[str] | None = None,
) -> pd.DataFrame:
    """Copy the sessions that `ck.discover` lists into an archive; later calls copy what is new.

    A copy has the same name and relative folder as its original, so that files of one session stay
    together. It is compressed with zstd, which all readers decompress: use `ck.read_all(folder)`
    and `ck.find(folder, text)`. A database is archived as one native log per session. Copies are
    readable by their owner only; they contain whatever the logs contain, secrets included.

    Nothing is written outside the archive: links in it are not followed, and a file whose copy
    would lie behind one is `failed`. An interrupted call is completed by the next one.

    Args:
        folder: the archive; created if missing.
        home: the home directory to search; None: this user's, with the tools' environment
            variables.
        tools: names as in the `tool` column of `ck.discover`; None: all.

    Returns:
        One row per file, with the columns of `KEEP_COLUMNS`.

    Raises:
        BadArguments: the archive would be among a tool's sessions, or a tool is unknown.
        CtxkitError: the archive cannot be written.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as home:
        ...     log = Path(home, ".claude/projects/app/session.jsonl")
        ...     log.parent.mkdir(parents=True)
        ...     _ = log.write_text('{"type": "user"}' + chr(10))
        ...     first, second = (keep(f"{home}/archive", home=home) for _ in range(2))
        >>> first["what"].tolist(), second["what"].tolist()
        (['new'], ['same'])
    """
    import pandas as pd

    archive_folder = _check_folder(folder)
    selected_tools = None if tools is None else {tools} if isinstance(tools, str) else set(tools)
    locations = list(iter_location_folders(home))
    _check_arguments(
        archive_folder,
        [top for location, top in locations if location.below],
        selected_tools,
        {location.tool for location, _ in locations},
    )
    chosen = [
        (location, top)
        for location, top in locations
        if selected_tools is None or location.tool in selected_tools
    ]
    try:
        with LogCopyArchiveWriter(archive_folder) as archive:
            rows = [
                _make_row(o, archive) for o in islice(_iter_unique_originals(chosen), _MAX_FILES)
            ]
    except OSError as e:
        raise CtxkitError(
            f"The archive could not be written: {sanitize_text(_describe_copy_error(e), 300)}."
        ) from None
    frame = pd.DataFrame({n: [r[n] for r in rows] for n in KEEP_COLUMNS}).astype(KEEP_COLUMNS)
    return frame.sort_values(["tool", "path"], ignore_index=True, kind="stable")


def _iter_unique_originals(locations: list[tuple[LogLocation, Path]]) -> Iterator[_OriginalFile]:
    unique_paths: set[str] = set()
    for location, top in locations:
        for original in _iter_originals(location, top):
            if str(original.path) not in unique_paths:
                unique_paths.add(str(original.path))
                yield original


def _make_row(original: _OriginalFile, archive: LogCopyArchiveWriter) -> dict[str, object]:
    try:
        result = archive.copy_original(original)
    except (OSError, CtxkitError, UnicodeError) as e:
        message = _describe_copy_error(e)
        result = _CopyResult(
            status="failed", reason=sanitize_text(message or type(e).__name__, 300)
        )
    return {
        "tool": original.tool,
        "path": sanitize_text(str(original.path)),
        "kept": result.copy_name,
        "what": result.status,
        "size_bytes": result.original_bytes,
        "packed_bytes": result.packed_bytes,
        "why": result.reason,
    }


def _describe_copy_error(error: Exception) -> str:
    """Return why a file could not be copied, with its path if known."""
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or type(error).__name__
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        reason = f"{reason}; links are not followed: move what lies there away"
    return f"{error.filename}: {reason}" if error.filename else reason


def _check_folder(folder: object) -> Path:
    if not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder) or "\0" in str(folder):
        raise BadArguments("keep expects the folder of the archive as a path.")
    return Path(os.fspath(folder)).expanduser()


def _check_arguments(
    archive_folder: Path,
    session_folders: list[Path],
    selected_tools: set[str] | None,
    all_tools: set[str],
) -> None:
    unknown = sorted((selected_tools or set()) - all_tools)
    if unknown:
        raise BadArguments(f"No tool is called {unknown[0]!r}: {', '.join(sorted(all_tools))}.")
    real_folder = archive_folder.resolve()
    if real_folder.exists() and not real_folder.is_dir():
        raise BadArguments("keep expects a folder for the archive, found a file.")
    for folder in session_folders:
        if (
            folder.name
            and folder not in (Path.home(), Path.cwd())
            and real_folder.is_relative_to(folder.resolve())
        ):
            problem = (
                f"The archive would lie among the sessions of {folder}: choose another folder."
            )
            raise BadArguments(problem)


_CONTEXT_CHARS = 60
FIND_COLUMNS = {
    "format": "string",
    "session": "string",
    "path": "string",
    "position": "Int64",
    "role": "string",
    "time": "datetime64[ns, UTC]",
    "text": "string",
}
"""The columns of `find`: `position` is that of the message frame and indexes `session.path`, `text`
is the words in context.
"""


def find(folder: SessionsLike, text: str, most: int = 1_000) -> pd.DataFrame:
    """Search messages and tool calls for a text, ignoring case.

    Args:
        folder: an archive of `ck.keep`, any file, folder or glob that `ck.read_all` takes, or
            sessions that were read.
        text: the text; several words must stand together.
        most: largest number of rows.

    Returns:
        One row per message, with the columns of `FIND_COLUMNS`; `.attrs["truncated"]` is True if
        there are more rows, `.attrs["failed"]` the number of files that could not be read.

    Raises:
        BadArguments: the text is empty, or `most` is no positive number.
        ReadError: there is no such folder.

    Example:
        >>> import ctxkit as ck
        >>> frame = find(ck.samples.path("chat"), "the", most=2)
        >>> len(frame), frame.attrs["truncated"]
        (2, True)
    """
    import pandas as pd

    from ctxkit._internal.data_frame_display import (
        DisplayColumn,
        FramePreviewRenderer,
        with_display,
    )

    if not isinstance(text, str) or not text.strip():
        raise BadArguments("find expects the words to look for.")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise BadArguments("find expects `most` as a whole number, one or more.")
    sessions, failed = _read_searched_sessions(folder)
    rows, is_truncated = list[dict[str, Any]](), False
    for session in sessions:
        for row in _find_in_session(session, text.casefold()):
            if len(rows) == most:
                is_truncated = True
                break
            rows.append(row)
    columns: dict[str, Any] = {name: [each[name] for each in rows] for name in FIND_COLUMNS}
    columns["time"] = pd.to_datetime(columns["time"], unit="s", utc=True).as_unit("ns")
    frame = pd.DataFrame(columns).astype(FIND_COLUMNS)
    frame.attrs.update(truncated=is_truncated, failed=failed)
    display_columns = tuple(DisplayColumn(*column) for column in _DISPLAY_COLUMNS)
    return with_display(frame, FramePreviewRenderer(display_columns, _describe_hits))


def _read_searched_sessions(folder: SessionsLike) -> tuple[list[Session], int]:
    """Return the sessions to be searched, and how many files could not be read."""
    if not isinstance(folder, (str, os.PathLike)):
        return as_sessions(folder), 0
    sessions = read_all(folder, progress=False)
    if not sessions and not Path(os.fspath(folder)).expanduser().exists():
        raise ReadError("there is no such folder.", Path(os.fspath(folder)))
    return list(sessions), len(sessions.failed)


_DISPLAY_COLUMNS = (
    ("time", "when", "when"),
    ("session", "session"),
    ("position", "message", "message", "its position in the message frame and in session.path"),
    ("role", "role"),
    ("text", "text"),
)


def _describe_hits(frame: pd.DataFrame) -> str:
    """Return in a sentence how many messages there are, and what was left out."""
    sessions = frame["session"].nunique()
    hits = f"{pluralize(len(frame), 'message')} in {pluralize(sessions, 'session')}."
    more = " There are more: most= sets how many." if frame.attrs.get("truncated") else ""
    failed = frame.attrs.get("failed", 0)
    unread = f" {pluralize(failed, 'file')} could not be read." if failed else ""
    return f"{hits}{more}{unread}"


def _find_in_session(
    session: Session, words: str, path: str | None = None
) -> Iterator[dict[str, Any]]:
    path = session.path_ or path
    for n, m in enumerate(session.path):
        if not isinstance(m, Message):
            continue
        text = _searchable_text(m)
        position = text.casefold().find(words)
        if position >= 0:
            yield {
                "format": session.format,
                "session": sanitize_line(session.id, 200),
                "path": path,
                "position": n,
                "role": m.role,
                "time": m.time,
                "text": sanitize_line(_cut_out(text, position, len(words)), 400),
            }
    for child in session.children:
        yield from _find_in_session(child, words, path)


def _cut_out(text: str, position: int, length: int) -> str:
    """Return a part of a text with its surroundings; an ellipsis marks where the text goes on."""
    start, stop = max(position - _CONTEXT_CHARS, 0), position + length + _CONTEXT_CHARS
    start += _skip_part_word(text[max(start - 1, 0) : position]) if start else 0
    if stop < len(text):
        stop -= _skip_part_word(text[position + length : stop + 1][::-1])
    return f"{'…' * (start > 0)}{text[start:stop]}{'…' * (stop < len(text))}"


def _skip_part_word(text: str) -> int:
    """Return how many characters end the word that a text begins in; 0 if it has no end there.

    The first character is the one before the part that is shown: after a space no word is torn.
    """
    rest = text.lstrip()
    if len(rest) < len(text):
        return len(text) - len(rest) - 1
    words = text.split(maxsplit=1)
    return len(text) - len(words[1]) - 1 if len(words) == 2 else 0


def _searchable_text(message: Message) -> str:
    calls = [
        f"{p.name} {p.raw or json_to_text(p.arguments)}"
        for p in message.parts
        if isinstance(p, ToolCall)
    ]
    return "\n".join([message.text, *calls])


# Layout and invariants of an archive.
#
#   TOOL-FOLDER/.../NAME     a copy, packed with zstd unless its original was packed already
#   kept.index               append-only JSON lines: path, kept, stamp, size, hash; for each path
#                            the last line holds
# A file is copied again only if its stamp (size and mtime, also those of a database's write-ahead
# log) differs from the index. The new content is compared with the old by hash:
#   prefix is the old content   grown: the copy is replaced
#   otherwise                   changed: the old copy is renamed to NAME~HASH, none is ever lost
#   equal to another copy       one file with two names (hard link)
# A copy is written to NAME.part, then renamed, then indexed. A crash between any two steps leaves a
# state that the next call completes. A torn line of the index is ignored: its file is copied again.
INDEX_NAME = "kept.index"
"""Name of the index: one JSON line per copy, the newest last."""
LOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another writer of the same archive."""
_PART_SUFFIX = ".part"
_CHUNK_BYTES = 1 << 20
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class _CopyResult:
    """Result of archiving one file."""

    status: str
    copy_name: str | None = None
    original_bytes: int | None = None
    packed_bytes: int | None = None
    reason: str | None = None


class LogCopyArchiveWriter:
    """An archive, open for one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[str, dict[str, Any]] = {}
        """The newest index entry of each original, by its key."""
        self._owner_by_copy: dict[str, str] = {}
        """The original's key by the copy's name."""
        self._copy_by_hash: dict[str, str] = {}
        """The name of a copy by the hash of its content."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._root = stack.enter_context(SafeFolder.open_or_create(self.folder))
            try:
                stack.enter_context(self._root.lock(LOCK_TIMEOUT_SECONDS))
            except OSError as e:
                if e.errno != errno.EBUSY:
                    raise
                raise CtxkitError(
                    "Another keep is writing into this archive: wait for it to end."
                ) from None
            for line in _read_index(self._root):
                self._index_entry(line)
                self._copy_by_hash[line["hash"]] = line["kept"]
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def copy_original(self, original: _OriginalFile) -> _CopyResult:
        """Copy one file if it is new or has changed.

        Raises:
            OSError: it cannot be read, or the copy cannot be written.
            CtxkitError: it is a database that cannot be read.
        """
        status = original.path.lstat()
        key, stamp = original.index_key, [status.st_size, status.st_mtime_ns]
        with suppress(OSError):  # a database's latest changes are in its write-ahead log
            wal_status = original.path.with_name(original.path.name + "-wal").lstat()
            stamp += [wal_status.st_size, wal_status.st_mtime_ns]
        entry = self._find_entry(key)
        name = entry["kept"] if entry else self._free_name(original.name, key)
        if entry and entry["stamp"] == stamp and self._has_copy(name):
            return _CopyResult(status="same", copy_name=name, original_bytes=status.st_size)
        if original.is_database:
            return self._copy_sessions(original, name, stamp)
        return self._copy_content(key, name, _read_chunks(original.path), stamp)

    def _find_entry(self, key: str) -> dict[str, Any] | None:
        """Return the index entry of an original, if its copy was not taken over by another."""
        entry = self._entries.get(key)
        return entry if entry and self._owner_by_copy[entry["kept"]] == key else None

    def _free_name(self, name: str, key: str) -> str:
        """Return a copy's name, with a mark if another original has the plain one."""
        if self._owner_by_copy.get(name, key) == key:
            return name
        return _add_mark_to_name(name, hashlib.sha256(key.encode()).hexdigest())

    def _has_copy(self, name: str) -> bool:
        """Return True if a copy, or the folder of a database's copies, exists and is no link."""
        with suppress(OSError), self._open_copy_folder(name) as (folder, file_name):
            status = folder.stat(file_name)
            return status is not None and not stat.S_ISLNK(status.st_mode)
        return False

    @contextmanager
    def _open_copy_folder(
        self, name: str, make: int | None = None
    ) -> Iterator[tuple[SafeFolder, str]]:
        """Yield the folder of a copy, opened without following links, and the copy's file name."""
        *folder_names, file_name = name.split("/")
        with self._root.open_folder(".").open_subfolder(folder_names, create_mode=make) as folder:
            yield folder, file_name

    def _copy_content(
        self,
        key: str,
        name: str,
        chunks: Iterable[bytes],
        stamp: list[int],
        *,
        replaces: bool = False,
    ) -> _CopyResult:
        """Copy one content; with `replaces` a changed copy replaces the older one."""
        entry = self._find_entry(key)
        previous = (entry["size"], entry["hash"]) if entry else (-1, "")
        with self._open_copy_folder(name, make=0o700) as (folder, file_name):
            part_name = file_name + _PART_SUFFIX
            folder.remove(part_name)  # left by a crash; it may be a hard link to another copy
            try:
                size, digest, is_grown = _write_packed(chunks, folder, part_name, *previous)
                has_copy = folder.stat(file_name) is not None
                if entry and digest == entry["hash"] and has_copy:
                    result = _CopyResult(status="same", copy_name=name, original_bytes=size)
                else:
                    if (
                        not (is_grown or replaces)
                        and has_copy
                        and not _has_same_content(folder, part_name, folder, file_name)
                    ):
                        folder.rename(
                            file_name,
                            _add_mark_to_name(file_name, entry["hash"] if entry else "older"),
                        )
                    packed = self._place_copy(folder, part_name, name, digest)
                    status = "new" if entry is None else "grown" if is_grown else "changed"
                    result = _CopyResult(
                        status=status, copy_name=name, original_bytes=size, packed_bytes=packed
                    )
            finally:
                with suppress(OSError):
                    folder.remove(part_name)
        if not entry or (entry["stamp"], entry["hash"]) != (stamp, digest):
            self._append_entry(key, name, stamp, size, digest)
        return result

    def _place_copy(self, folder: SafeFolder, part_name: str, name: str, digest: str) -> int:
        """Move a finished copy to its name, or link an equal copy there; return its packed size."""
        status, twin_name = folder.stat(part_name), self._copy_by_hash.get(digest)
        packed_bytes = 0 if status is None else status.st_size
        with suppress(OSError):  # the copy is gone, or the file system has no hard links
            if twin_name is not None and self._link_twin(folder, part_name, twin_name):
                packed_bytes = 0
        folder.rename(part_name, name.rpartition("/")[2])
        self._copy_by_hash[digest] = name
        return packed_bytes

    def _link_twin(self, folder: SafeFolder, part_name: str, twin_name: str) -> bool:
        """Replace a copy by a hard link to an older one if their content is equal."""
        with self._open_copy_folder(twin_name) as (twin_folder, twin_file_name):
            if not _has_same_content(folder, part_name, twin_folder, twin_file_name):
                return False
            folder.remove(f"{part_name}2")
            twin_folder.link(twin_file_name, folder, f"{part_name}2")
            folder.rename(f"{part_name}2", part_name)
            return True

    def _copy_sessions(
        self, original: _OriginalFile, copy_folder: str, stamp: list[int]
    ) -> _CopyResult:
        """Archive a database as one native log per session; unchanged ones are not rewritten."""
        sessions = read_all(original.path, progress=False)
        if not sessions:
            raise CtxkitError(
                str(sessions.failed["why"].iloc[0])
                if len(sessions.failed)
                else "no session is in it."
            )
        copies, id_counts = list[_CopyResult](), Counter[str]()
        for session in sessions:
            key = f"{original.index_key}#{session.id}" + "#" * id_counts[session.id]
            id_counts[session.id] += 1
            name = f"{copy_folder}/{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"
            copies.append(
                self._copy_content(key, name, encode_session_lines(session), [0, 0], replaces=True)
            )
        previous = self._find_entry(original.index_key)
        size = sum(c.original_bytes or 0 for c in copies)
        self._append_entry(original.index_key, copy_folder, stamp, size, "")
        is_changed = any(c.status != "same" for c in copies)
        status = "new" if previous is None else "changed" if is_changed else "same"
        packed = sum(c.packed_bytes or 0 for c in copies)
        return _CopyResult(
            status=status, copy_name=copy_folder, original_bytes=stamp[0], packed_bytes=packed
        )

    def _append_entry(
        self, key: str, copy_name: str, stamp: list[int], size: int, digest: str
    ) -> None:
        line = {"path": key, "kept": copy_name, "stamp": stamp, "size": size, "hash": digest}
        # The leading newline separates the entry from a torn line before it.
        self._root.append(INDEX_NAME, b"\n" + msgspec.json.encode(line))
        self._index_entry(line)

    def _index_entry(self, line: dict[str, Any]) -> None:
        self._entries[line["path"]] = line
        self._owner_by_copy[line["kept"]] = line["path"]


def _add_mark_to_name(name: str, mark: str) -> str:
    base, ending = splitext(name)
    return f"{base}~{mark[:12]}{ending}"


def _has_same_content(
    folder: SafeFolder, name: str, other_folder: SafeFolder, other_name: str
) -> bool:
    """Return True if both are files and have the same content."""
    try:
        with (
            os.fdopen(folder.open(name, os.O_RDONLY), "rb") as first,
            os.fdopen(other_folder.open(other_name, os.O_RDONLY), "rb") as second,
        ):
            while True:
                chunk = first.read(_CHUNK_BYTES)
                if chunk != second.read(_CHUNK_BYTES):
                    return False
                if not chunk:
                    return True
    except OSError:
        return False


def _read_index(archive: SafeFolder) -> Iterator[dict[str, Any]]:
    """Yield the valid entries of an index; a torn line is skipped, so its file is copied again."""
    try:
        with os.fdopen(archive.open(INDEX_NAME, os.O_RDONLY), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return
    for line in data.splitlines():
        try:
            entry = _decode(line)
            has_valid_types = [
                type(entry[k]) for k in ("path", "kept", "size", "hash", "stamp")
            ] == [
                str,
                str,
                int,
                str,
                list,
            ]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            continue
        if (
            has_valid_types
            and not entry["kept"].startswith(("/", "\\"))
            and ".." not in entry["kept"].split("/")
        ):
            yield entry


def _write_packed(
    chunks: Iterable[bytes], folder: SafeFolder, part_name: str, old_size: int, old_hash: str
) -> tuple[int, str, bool]:
    """Write chunks to a new file, packed with zstd unless they are packed already.

    Args:
        chunks: the content.
        folder: the folder of the new file.
        part_name: its name.
        old_size: size of the older content in bytes; -1 if there is none.
        old_hash: hash of the older content.

    Returns:
        Size in bytes, hash, and whether the content begins with the older one.
    """
    import pyarrow as pa

    digest, size, is_grown = hashlib.sha256(), 0, False
    descriptor = folder.open(part_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file, ExitStack() as closing:
        write: Callable[[bytes], object] | None = None
        for chunk in chunks:
            if write is None:  # the first chunk shows whether the content is packed already:
                write = file.write  # then it is stored unchanged, as readers unpack once
                if not is_compressed(chunk):
                    packing = pa.CompressedOutputStream(pa.PythonFile(file, mode="w"), "zstd")
                    write = closing.enter_context(packing).write
            if size < old_size <= size + len(chunk):
                prefix_digest = digest.copy()
                prefix_digest.update(chunk[: old_size - size])
                is_grown = prefix_digest.hexdigest() == old_hash
            digest.update(chunk)
            size += len(chunk)
            write(chunk)
    return size, digest.hexdigest(), is_grown or old_size == 0


_ARCHIVED_SUFFIXES = (".json", ".jsonl", ".jsonl.zst", ".md", ".db", ".ndjson", ".txt", ".yaml")
_MAX_DEPTH = 10
_MAX_FILE_BYTES = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _OriginalFile:
    """A file to archive, and the name of its copy."""

    tool: str
    path: Path
    name: str
    """Relative to the archive; made from names of folders only, never from a file's content."""

    @property
    def index_key(self) -> str:
        """The path in the index; one that is not valid UTF-8 is replaced and gets its hash."""
        path, raw = str(self.path), os.fsencode(self.path)
        readable = _to_utf8_name(path)
        return path if readable == path else f"{readable}#{sha256(raw).hexdigest()[:16]}"

    @property
    def is_database(self) -> bool:
        """True if the file is an SQLite database."""
        with _OpenedFile(self.path) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


class _OpenedFile:
    """Context manager that opens a file without following a link or blocking on a pipe."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        self.fd = os.open(path, flags | getattr(os, "O_BINARY", 0))

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def _read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file up to its size at opening; later appends are not read.

    Raises:
        OSError: it is missing, forbidden, or a link.
        ReadError: it is no regular file, or too large.
    """
    with _OpenedFile(path) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise ReadError("not kept: no plain file, or larger than 16 GB.", path)
        remaining = status.st_size
        while remaining and (chunk := os.read(descriptor, min(remaining, 1 << 20))):
            remaining -= len(chunk)
            yield chunk


def _iter_originals(location: LogLocation, folder: Path) -> Iterator[_OriginalFile]:
    """Yield all files that may belong to the sessions of a location; links are skipped."""
    root = folder
    if location.archived_folder:
        root = next(
            (
                ancestor
                for ancestor in (folder, *folder.parents)
                if ancestor.name == location.archived_folder
            ),
            folder,
        )
    base = f"{location.tool}/{_archive_prefix(root)}"
    depth = _MAX_DEPTH if location.below and location.max_depth else 0
    for path, subfolders in _walk_folder(root, depth):
        file_name = path.name
        if depth == 0 and not (
            file_name.endswith(location.suffixes)
            and file_name.startswith(location.prefixes or ("",))
        ):
            continue
        archive_name = _to_utf8_name("/".join((base, *subfolders, file_name)))
        yield _OriginalFile(tool=location.tool, path=path, name=archive_name)


def _to_utf8_name(path: str) -> str:
    """Return a path with invalid UTF-8 replaced by U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def _archive_prefix(root: Path) -> str:
    """Return the name of a location's folder in the archive, with its parent's if it is generic."""
    parent_name, name = root.parent.name.lstrip("."), root.name.lstrip(".")
    return (
        f"{parent_name}-{name}" if parent_name and name in _GENERIC_FOLDER_NAMES else name or "home"
    )


_GENERIC_FOLDER_NAMES = {"sessions", "tasks", "storage", "tmp", "projects", "agents", "logs"}


def _walk_folder(root: Path, depth: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
    pending: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while pending:
        folder, subfolders = pending.pop()
        try:
            with os.scandir(folder) as entries:
                sorted_entries = sorted(entries, key=lambda e: e.name)
        except OSError:
            continue  # not there, or not ours to read
        for entry in sorted_entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if len(subfolders) < depth:
                        pending.append((Path(entry.path), (*subfolders, entry.name)))
                elif entry.is_file(follow_symlinks=False) and entry.name.endswith(
                    _ARCHIVED_SUFFIXES
                ):
                    yield Path(entry.path), subfolders
            except OSError:
                continue
