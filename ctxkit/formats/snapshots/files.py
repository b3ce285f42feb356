"""Which files are snapshot logs, and their lines from where the last reading stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from glob import glob, has_magic
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from ctxkit.errors import BadArguments, ReadError
from ctxkit.formats.snapshots.line_parsing import LogPart, decode_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ctxkit.formats.snapshots.schema import FaultCollector

CHUNK_BYTES = 8 << 20
"""Bytes of one log that are read at a time."""
GROUP_BYTES = 2 << 20
"""Bytes of small logs that are parsed together."""
MAX_LINE_BYTES = 16 << 20
"""Bytes of a line; what is longer is no snapshot and is passed over."""
_NEWLINE = 10
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SAMPLES, _SAMPLE = 16, 4096


FileState = tuple[int, int, int, int]
"""A file's size (-1: never read), times of change (content, anything; ns), and inode."""


class SnapshotLog(msgspec.Struct):
    """One log and how far it was read."""

    path: str
    stamp: FileState = (-1, 0, 0, 0)
    """Its state when it was last read."""
    offset: int = 0
    """Bytes that were read: whole lines."""
    newlines: int = 0
    """Newlines among them."""
    print: str = ""
    """Hash of samples of the bytes that were read."""
    open: int = 0
    """Bytes of an unfinished last line, which are read when it is finished."""

    def is_same(self) -> bool:
        """True where the file has not changed since."""
        return self.stamp == get_file_state(self.path)

    def has_grown(self) -> bool:
        """True where the file still begins with what was read: only what follows is new."""
        now = get_file_state(self.path)
        return (
            now[3] == self.stamp[3]
            and now[0] > self.stamp[0]
            and now[0] >= self.offset
            and self.print == fingerprint(self.path, self.offset)
        )


def get_file_state(path: str) -> FileState:
    """Return size, times of change and inode of a file; zeros where it cannot be asked."""
    try:
        s = os.stat(path)  # noqa: PTH116  a thousand files: Path costs more than the question
    except OSError:
        return (0, 0, 0, 0)
    return (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)


def hash_file_states(paths: list[str], stamps: Iterable[FileState] | None = None) -> str:
    """Return one hash of files in their order and of their states, by default the present ones."""
    states: list[int] = []
    for state in map(get_file_state, paths) if stamps is None else stamps:
        states += state  # no thousand tuples that live on: they would wake the garbage collector
    names = "\0".join(paths).encode("utf-8", "surrogatepass")
    return blake2b(msgspec.msgpack.encode((names, states)), digest_size=16).hexdigest()


def fingerprint(path: str, size: int) -> str:
    """Return a hash of at most 16 samples of 4 kB of the first `size` bytes, ends included."""
    step = max((size - _SAMPLE) // (_SAMPLES - 1), _SAMPLE)
    seen = blake2b(digest_size=16)
    try:
        with open(path, "rb", buffering=0) as f:  # noqa: PTH123
            for start in {*range(0, size, step), max(size - _SAMPLE, 0)}:
                f.seek(start)
                seen.update(f.read(min(_SAMPLE, size - start)))
    except OSError:
        return ""
    return seen.hexdigest()


# -- finding logs ---------------------------------------------------------------------------------


def to_absolute_paths(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """Return paths as absolute ones, whether one or several are given; they need not exist.

    Raises:
        BadArguments: something given is no path.
    """
    given = (
        [paths]
        if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable)
        else list(paths)
    )
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise BadArguments(
                f"Give a file, a folder or a pattern, or a list of them, not {type(path).__name__}."
            )
    return [os.path.abspath(os.path.expanduser(path)) for path in given]  # noqa: PTH100, PTH111


def find_snapshot_logs(paths: Iterable[str]) -> list[str]:
    """Return the logs that absolute paths name, each once, sorted within each folder or pattern.

    A file is taken whatever its name; a folder gives all `ctx_snapshots*.jsonl` below it; a pattern
    may name both.

    Raises:
        ReadError: a path names nothing, or a folder holds no log.
    """
    found = [_named(path) for path in paths]
    return found[0] if len(found) == 1 else list(dict.fromkeys(chain.from_iterable(found)))


def _named(path: str) -> list[str]:
    mode = _mode(path)
    if mode is None and has_magic(path):
        matches = sorted(glob(path, recursive=True, include_hidden=True))  # noqa: PTH207  absolute patterns
        logs = list(
            dict.fromkeys(
                log for m in matches for log in ([m] if _is(stat.S_ISREG, m) else _below(m))
            )
        )
        if not logs:
            raise ReadError("no file fits the pattern.", path)
        return logs
    if mode is None:
        raise ReadError("there is no such file or folder.", path)
    if stat.S_ISDIR(mode):
        logs = _below(path)
        if not logs:
            raise ReadError("the folder holds no ctx_snapshots*.jsonl, at no depth.", path)
        return logs
    if not stat.S_ISREG(mode):
        raise ReadError("expected a file or a folder.", path)
    return [path]


def _below(folder: str) -> list[str]:
    """Logs of a folder, sorted; links to folders are not followed: there is no circle."""
    out: list[str] = []
    for where, folders, names in os.walk(folder):
        folders.sort()
        logs = sorted([n for n in names if n[:13] == "ctx_snapshots" and n[-6:] == ".jsonl"])
        out += [where + os.sep + n for n in logs]
    return out


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return None


def _is(kind: Any, path: str) -> bool:
    mode = _mode(path)
    return mode is not None and bool(kind(mode))


# -- reading what is new --------------------------------------------------------------------------


def read_new_parts(logs: list[SnapshotLog], report: FaultCollector) -> Iterator[list[LogPart]]:
    """Yield what is new in all logs as groups of parts; the logs note how far they were read."""
    group: list[LogPart] = []
    size = 0
    for number, log in enumerate(logs):
        for part in _read_new(number, log, report):
            if size and size + len(part.data) > GROUP_BYTES:
                yield group
                group, size = [], 0
            group.append(part)
            size += len(part.data)
    if group:
        yield group


def _read_new(number: int, log: SnapshotLog, report: FaultCollector) -> Iterator[LogPart]:
    if not _is(stat.S_ISREG, log.path):  # a pipe of that name would be waited for
        report.add(log.path, 0, "expected a file")
        log.stamp = get_file_state(log.path)
        return
    try:
        with open(log.path, "rb", buffering=0) as f:  # noqa: PTH123
            s = os.fstat(f.fileno())
            before = (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
            yield from _read(number, log, f, report)
            log.stamp = before  # of before: what is written meanwhile makes it differ
    except OSError as e:
        report.add(log.path, 0, f"the file could not be read ({type(e).__name__})")
        log.stamp = get_file_state(log.path)
        return
    log.print = fingerprint(log.path, log.offset)


def _read(number: int, log: SnapshotLog, f: BinaryIO, report: FaultCollector) -> Iterator[LogPart]:
    f.seek(log.offset)
    rest = b""
    skipping = False
    while chunk := f.read(CHUNK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if log.offset == 0 and not rest and chunk.startswith(_UTF16):
            report.add(log.path, 0, "the file is UTF-16: save it as UTF-8")
            return
        if not end:
            rest = b"" if skipping else rest + chunk
            if skipping or len(rest) > MAX_LINE_BYTES:
                if not skipping:
                    report.add(
                        log.path, log.newlines + 1, f"a line of more than {MAX_LINE_BYTES:,} bytes"
                    )
                log.offset += len(chunk) if skipping else len(rest)
                rest, skipping = b"", True
            continue
        data = rest + chunk[:end]
        rest = chunk[end:]
        if skipping:
            data, skipping = _after(log, data), False
        if data:
            yield _take(number, log, data)
    yield from _tail(number, log, b"" if skipping else rest)


def _after(log: SnapshotLog, data: bytes) -> bytes:
    """What follows the end of a line that was passed over."""
    cut = data.index(b"\n") + 1
    log.offset += cut
    log.newlines += 1
    return data[cut:]


def _take(number: int, log: SnapshotLog, data: bytes) -> LogPart:
    lines = int(
        np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    )  # six times faster than bytes.count
    part = LogPart(
        number,
        log.path,
        log.newlines + 1,
        data.removeprefix(_BOM) if log.offset == 0 else data,
        lines,
    )
    log.offset += len(data)
    log.newlines += lines
    return part


def _tail(number: int, log: SnapshotLog, rest: bytes) -> Iterator[LogPart]:
    """The last line without a newline: a row where it is whole, else left until it is finished."""
    log.open = 0
    if not rest or rest.isspace():
        return
    if isinstance(decode_line(rest), dict):
        first = log.newlines + 1
        log.offset += len(rest)
        yield LogPart(number, log.path, first, rest.removeprefix(_BOM) + b"\n", 1)
    else:
        log.open = len(rest)
