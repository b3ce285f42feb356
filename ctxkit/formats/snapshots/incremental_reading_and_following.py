"""Discovery, incremental reading and following of snapshot logs: only what is new is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from glob import glob, has_magic
from hashlib import blake2b
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import msgspec
import numpy as np

from ctxkit.errors import BadArguments, ReadError
from ctxkit.formats.snapshots.column_blocks_and_faults import (
    FaultCollector,
    SnapshotFaults,
    block_to_frame,
    concat_blocks,
    count_rows,
    new_text_codes,
)
from ctxkit.formats.snapshots.lines_to_columns import LogPart, decode_line, parse_log_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd


# A log is append-only. What was read of it is described by its file state (size, times, inode), the
# number of bytes and lines read, and a hash of samples of those bytes. On the next reading
#   equal state                               nothing is read
#   same inode, larger, equal sample hash     only what follows the offset is read
#   anything else                             the log was replaced; all is read again
# Only whole lines are consumed. A last line without newline is a row if it decodes, else it stays
# unread until it is finished.
CHUNK_BYTES = 8 << 20
"""Bytes of one log read at a time."""
GROUP_BYTES = 2 << 20
"""Total bytes of small logs that are parsed together."""
MAX_LINE_BYTES = 16 << 20
"""Longer lines are no snapshots and are skipped."""
_NEWLINE = 10
_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_N_SAMPLES, _SAMPLE_BYTES = 16, 4096


FileState = tuple[int, int, int, int]
"""Size (-1: never read), mtime and ctime (ns), and inode of a file."""


class LogReadPosition(msgspec.Struct):
    """One log and how far it was read."""

    path: str
    stamp: FileState = (-1, 0, 0, 0)
    """The state of the file when it was last read."""
    offset: int = 0
    """Number of bytes read, in whole lines."""
    newlines: int = 0
    """Number of lines read."""
    fingerprint: str = msgspec.field(name="print", default="")
    """Hash of samples of the bytes read."""
    unfinished_bytes: int = msgspec.field(name="open", default=0)
    """Size of an unfinished last line, which was not read."""

    def is_same(self) -> bool:
        """Return True if the file has not changed since it was read."""
        return self.stamp == get_file_state(self.path)

    def has_grown(self) -> bool:
        """Return True if a file grew and its beginning, which was read before, is unchanged."""
        state = get_file_state(self.path)
        return (
            state[3] == self.stamp[3]
            and state[0] > self.stamp[0]
            and state[0] >= self.offset
            and self.fingerprint == _hash_samples(self.path, self.offset)
        )


def get_file_state(path: str) -> FileState:
    """Return the state of a file; zeros if it is not accessible."""
    try:
        status = os.stat(path)  # noqa: PTH116  a Path costs more than the call
    except OSError:
        return (0, 0, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def hash_file_states(paths: list[str], cached_states: Iterable[FileState] | None = None) -> str:
    """Return one hash of paths, in order, and of the states of their files.

    Args:
        paths: the files.
        cached_states: their states; None: the present ones.
    """
    states: list[int] = []
    for state in map(get_file_state, paths) if cached_states is None else cached_states:
        states += state  # flat, as thousands of live tuples would trigger the garbage collector
    names = "\0".join(paths).encode("utf-8", "surrogatepass")
    return blake2b(msgspec.msgpack.encode((names, states)), digest_size=16).hexdigest()


def _hash_samples(path: str, size: int) -> str:
    """Hash at most 16 samples of 4 kB of the first `size` bytes, including both ends."""
    step = max((size - _SAMPLE_BYTES) // (_N_SAMPLES - 1), _SAMPLE_BYTES)
    digest = blake2b(digest_size=16)
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            for start in {*range(0, size, step), max(size - _SAMPLE_BYTES, 0)}:
                file.seek(start)
                digest.update(file.read(min(_SAMPLE_BYTES, size - start)))
    except OSError:
        return ""
    return digest.hexdigest()


# -- finding logs ---------------------------------------------------------------------------------


def to_absolute_paths(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """Return one or several paths as a list of absolute paths, which need not exist.

    Raises:
        BadArguments: an item is no path.
    """
    path_list = (
        [paths]
        if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable)
        else list(paths)
    )
    for path in path_list:
        if not isinstance(path, (str, os.PathLike)):
            raise BadArguments(
                f"Give a file, a folder or a pattern, or a list of them, not {type(path).__name__}."
            )
    return [os.path.abspath(os.path.expanduser(path)) for path in path_list]  # noqa: PTH100, PTH111


def find_snapshot_logs(paths: Iterable[str]) -> list[str]:
    """Return the logs that absolute paths name, each once, sorted within each folder or pattern.

    A file may have any name; a folder stands for all `ctx_snapshots*.jsonl` below it; a pattern may
    match both.

    Raises:
        ReadError: a path matches nothing, or a folder has no log.
    """
    logs_by_path = [_find_logs(path) for path in paths]
    return (
        logs_by_path[0]
        if len(logs_by_path) == 1
        else list(dict.fromkeys(chain.from_iterable(logs_by_path)))
    )


def _find_logs(path: str) -> list[str]:
    mode = _get_file_mode(path)
    if mode is None and has_magic(path):
        matches = sorted(glob(path, recursive=True, include_hidden=True))  # noqa: PTH207  absolute patterns
        logs = list(
            dict.fromkeys(
                log
                for match in matches
                for log in (
                    [match] if _has_file_type(stat.S_ISREG, match) else _find_logs_below(match)
                )
            )
        )
        if not logs:
            raise ReadError("no file fits the pattern.", path)
        return logs
    if mode is None:
        raise ReadError("there is no such file or folder.", path)
    if stat.S_ISDIR(mode):
        logs = _find_logs_below(path)
        if not logs:
            raise ReadError("the folder holds no ctx_snapshots*.jsonl, at no depth.", path)
        return logs
    if not stat.S_ISREG(mode):
        raise ReadError("expected a file or a folder.", path)
    return [path]


def _find_logs_below(folder: str) -> list[str]:
    """Return the logs below a folder, sorted; links to folders are not followed."""
    out: list[str] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        logs = sorted(
            [name for name in names if name[:13] == "ctx_snapshots" and name[-6:] == ".jsonl"]
        )
        out += [root + os.sep + name for name in logs]
    return out


def _get_file_mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return None


def _has_file_type(kind: Any, path: str) -> bool:
    mode = _get_file_mode(path)
    return mode is not None and bool(kind(mode))


# -- reading what is new --------------------------------------------------------------------------


def read_new_parts(logs: list[LogReadPosition], report: FaultCollector) -> Iterator[list[LogPart]]:
    """Yield what is new in all logs, as groups of parts of about `GROUP_BYTES`.

    Args:
        logs: logs and how far each is read; they are updated.
        report: collects faults.
    """
    group: list[LogPart] = []
    size = 0
    for number, log in enumerate(logs):
        for part in _read_new_of_log(number, log, report):
            if size and size + len(part.data) > GROUP_BYTES:
                yield group
                group, size = [], 0
            group.append(part)
            size += len(part.data)
    if group:
        yield group


def _read_new_of_log(
    number: int, log: LogReadPosition, report: FaultCollector
) -> Iterator[LogPart]:
    if not _has_file_type(stat.S_ISREG, log.path):  # opening a pipe would block
        report.add(log.path, 0, "expected a file")
        log.stamp = get_file_state(log.path)
        return
    try:
        with open(log.path, "rb", buffering=0) as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            yield from _read_chunks(number, log, file, report)
            log.stamp = state  # the earlier state: later writes make it differ
    except OSError as e:
        report.add(log.path, 0, f"the file could not be read ({type(e).__name__})")
        log.stamp = get_file_state(log.path)
        return
    log.fingerprint = _hash_samples(log.path, log.offset)


def _read_chunks(
    number: int, log: LogReadPosition, file: BinaryIO, report: FaultCollector
) -> Iterator[LogPart]:
    file.seek(log.offset)
    remainder = b""
    is_skipping = False
    while chunk := file.read(CHUNK_BYTES):
        last_newline = chunk.rfind(b"\n") + 1
        if log.offset == 0 and not remainder and chunk.startswith(_UTF16_MARKS):
            report.add(log.path, 0, "the file is UTF-16: save it as UTF-8")
            return
        if not last_newline:
            remainder = b"" if is_skipping else remainder + chunk
            if is_skipping or len(remainder) > MAX_LINE_BYTES:
                if not is_skipping:
                    report.add(
                        log.path, log.newlines + 1, f"a line of more than {MAX_LINE_BYTES:,} bytes"
                    )
                log.offset += len(chunk) if is_skipping else len(remainder)
                remainder, is_skipping = b"", True
            continue
        data = remainder + chunk[:last_newline]
        remainder = chunk[last_newline:]
        if is_skipping:
            data, is_skipping = _skip_line_end(log, data), False
        if data:
            yield _make_part(number, log, data)
    yield from _read_tail(number, log, b"" if is_skipping else remainder)


def _skip_line_end(log: LogReadPosition, data: bytes) -> bytes:
    """Return what follows the end of a skipped line."""
    line_end = data.index(b"\n") + 1
    log.offset += line_end
    log.newlines += 1
    return data[line_end:]


def _make_part(number: int, log: LogReadPosition, data: bytes) -> LogPart:
    # Six times as fast as bytes.count.
    n_lines = int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))
    part = LogPart(
        number,
        log.path,
        log.newlines + 1,
        data.removeprefix(_BOM) if log.offset == 0 else data,
        n_lines,
    )
    log.offset += len(data)
    log.newlines += n_lines
    return part


def _read_tail(number: int, log: LogReadPosition, remainder: bytes) -> Iterator[LogPart]:
    """Yield a last line without newline if it is complete; otherwise note its size."""
    log.unfinished_bytes = 0
    if not remainder or remainder.isspace():
        return
    if isinstance(decode_line(remainder), dict):
        first_line = log.newlines + 1
        log.offset += len(remainder)
        yield LogPart(number, log.path, first_line, remainder.removeprefix(_BOM) + b"\n", 1)
    else:
        log.unfinished_bytes = len(remainder)


def follow(
    paths: str | Path | Iterable[str | Path],
    *,
    poll: float = 0.25,
    idle: float | None = None,
    from_end: bool = False,
) -> Follower:
    """Iterate over the new rows of logs that are being written.

    New files of a folder are found, a replaced log is read from its beginning, and paths need not
    exist yet.

    Args:
        paths: as for `read_snapshots`.
        poll: seconds between two looks.
        idle: seconds without new rows after which the iteration ends; None: only `stop` ends it.
        from_end: True skips the rows that exist already.

    Returns:
        An iterator over frames with the columns of `read_snapshots`; the first has what exists.

    Raises:
        BadArguments: `poll` is not above zero, or an item is no path.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...     [len(frame) for frame in follow(folder, poll=0.01, idle=0.02)]
        [1]
    """
    if poll <= 0:
        raise BadArguments("poll= takes seconds above zero.")
    return Follower(to_absolute_paths(paths), poll, idle, from_end=from_end)


class Follower:
    """Iterator over new rows of logs, one frame at a time; created by `follow`.

    Args:
        paths: files and folders of logs, absolute; they need not exist yet.
        poll: seconds between two looks.
        idle: seconds without new rows after which the iteration ends; None: only `stop` ends it.
        from_end: True skips the rows that exist already.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter, follow
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     follower = follow(folder, poll=0.01, idle=0.02)
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...     len(follower.new()), len(follower.new())
        (1, 0)
    """

    def __init__(
        self, paths: list[str], poll: float, idle: float | None, *, from_end: bool = False
    ) -> None:
        self._paths, self._poll, self._idle = paths, poll, idle
        self._logs: dict[str, LogReadPosition] = {}
        self._codes = new_text_codes()
        self._stopped = Event()
        if from_end:
            self.new()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pd.DataFrame:
        waited_seconds = 0.0
        while not self._stopped.is_set():
            frame = self.new()
            if len(frame):
                return frame
            if self._idle is not None and waited_seconds >= self._idle:
                break
            self._stopped.wait(self._poll)
            waited_seconds += self._poll
        raise StopIteration

    def new(self) -> pd.DataFrame:
        """Return the rows added since the last look, without waiting; possibly none."""
        report = FaultCollector()
        changed_logs = [log for log in map(self._get_log, self._find_logs()) if not log.is_same()]
        blocks = [
            parse_log_parts(parts, self._codes, report)[0]
            for parts in read_new_parts(changed_logs, report)
        ]
        frame = block_to_frame(
            concat_blocks([block for block in blocks if count_rows(block)]), self._codes
        )
        frame.attrs["faults"] = SnapshotFaults(report.faults)
        return frame

    def stop(self) -> None:
        """End the iteration, from any thread; unread rows can still be read afterwards."""
        self._stopped.set()

    def _find_logs(self) -> list[str]:
        logs: list[str] = []
        for path in self._paths:
            try:
                logs += find_snapshot_logs([path])
            except ReadError:  # not there yet
                continue
        return list(dict.fromkeys(logs))

    def _get_log(self, path: str) -> LogReadPosition:
        log = self._logs.setdefault(path, LogReadPosition(path))
        if log.offset and not log.is_same() and not log.has_grown():
            log = self._logs[path] = LogReadPosition(path)
        return log
