"""Columns of snapshot logs kept on disk and brought up to date.

One folder holds one reading: `index.jsonl` and, in a folder of its own generation, one file an
array. The index says how many rows count; rows beyond it were cut short and are written over. It is
replaced as a whole, after the rows are written: a reader never waits, a writer holds a lock. The
folder may be deleted at any time.

The index is two lines. The head, which begins with its own hash, is all that opening unchanged logs
takes: the states of all logs are in its seal, one more hash. What is known of each log by itself
stands in the second line, and is read where the seal does not fit.
"""

from __future__ import annotations

import os
import shutil
from hashlib import blake2b
from itertools import accumulate
from mmap import ACCESS_COPY, mmap
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit._internal.safe_fs import SafeFolder, cache_folder
from ctxkit.formats.snapshots.files import (
    FileState,
    SnapshotLog,
    get_file_state,
    hash_file_states,
    read_new_parts,
)
from ctxkit.formats.snapshots.line_parsing import parse_log_parts
from ctxkit.formats.snapshots.schema import (
    ARRAY_DTYPES,
    TEXT_FIELDS,
    ColumnBlock,
    FaultCollector,
    Faults,
    SnapshotFault,
    TextCodes,
    disk_dtype,
    new_text_codes,
    recode_block,
    row_count,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    _Files = dict[str, tuple[str, np.dtype[Any]]]


_TRIES = 3


def load_up_to_date(
    folder: Path, logs: list[str]
) -> tuple[ColumnBlock, Mapping[str, Any], Faults] | None:
    """Return a cache's rows, texts and faults, brought up to date; None where none is kept."""
    for _ in range(_TRIES):
        try:
            index = _load_unchanged(folder, logs) or _update(folder, logs)
        except (OSError, ValueError):  # no place, no right, or a damaged folder
            return None
        try:
            return *_load_rows(folder, index, logs), Faults(index.head.faults)
        except (OSError, ValueError):  # another process began anew, or the arrays are damaged
            drop_index(folder)
    return None


def sort_faults(found: list[SnapshotFault], logs: list[SnapshotLog]) -> Faults:
    """Return faults and last lines that are not finished, in the order of the logs."""
    report = FaultCollector()
    report.remember(found)
    for log in logs:
        if log.open:
            why = f"the last line is not finished ({log.open:,} bytes): it is read when it is"
            report.add(log.path, log.newlines + 1, why)
    if not report.faults:
        return Faults()
    place = {log.path: i for i, log in enumerate(logs)}
    return Faults(sorted(report.faults, key=lambda f: (place.get(f.file, -1), f.line)))


def _load_unchanged(folder: Path, logs: list[str]) -> CacheIndex | None:
    """The head alone, where no log has changed and none has come or gone."""
    head = load_head(folder)
    return (
        CacheIndex([], head=head)
        if head is not None and head.seal == hash_file_states(logs)
        else None
    )


def _load_rows(
    folder: Path, index: CacheIndex, logs: list[str]
) -> tuple[ColumnBlock, Mapping[str, Any]]:
    if index.head.seal:
        return map_rows(folder, index.head), index.head.words
    return _recoded(folder, index, logs)


def _recoded(folder: Path, index: CacheIndex, logs: list[str]) -> tuple[ColumnBlock, TextCodes]:
    """The rows in the order of the logs, with texts in order of appearance."""
    words = new_text_codes()
    return (
        recode_block(
            read_rows_in_order(folder, index, _ranks(index, logs)), index.head.words, words
        ),
        words,
    )


def _ranks(index: CacheIndex, logs: list[str]) -> list[int]:
    """The place of each log of the index among those asked for."""
    place = {path: i for i, path in enumerate(logs)}
    return [place[log.path] for log in index.logs]


# -- what is new ----------------------------------------------------------------------------------


def _update(folder: Path, logs: list[str]) -> CacheIndex:
    """Read what is new, or all where a log is not what it was; return these logs' index."""
    from filelock import FileLock

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "lock", mode=0o600):
        now = {path: get_file_state(path) for path in logs}
        index = load_index(folder)
        if index is None or not _all_continue(index, now) or not has_all_rows(folder, index.head):
            index = CacheIndex(logs=[])
            begin_generation(folder, index)
        changed = _changed(index, now)
        if changed:
            _grow(folder, index, changed)
        else:
            _tidy(folder, index, logs)
        _update_head(index, logs)
        save_index(folder, index)
    return index


def _all_continue(index: CacheIndex, now: Mapping[str, FileState]) -> bool:
    """True where every log still begins with what was read of it."""
    return all(
        log.stamp == now.get(log.path) or (log.path in now and log.has_grown())
        for log in index.logs
    )


def _changed(index: CacheIndex, now: Mapping[str, FileState]) -> list[int]:
    """Numbers of the logs of which there is more; those that are new are taken up."""
    known = {log.path for log in index.logs}
    index.logs.extend(SnapshotLog(path) for path in now if path not in known)
    return [i for i, log in enumerate(index.logs) if log.stamp != now[log.path]]


def _grow(folder: Path, index: CacheIndex, changed: list[int]) -> None:
    report = FaultCollector()
    report.remember(index.faults)
    words = {
        name: {text: i for i, text in enumerate(index.head.words.get(name, []))}
        for name in TEXT_FIELDS
    }
    for parts in read_new_parts([index.logs[i] for i in changed], report):
        block, runs = parse_log_parts(parts, words, report)
        append_rows(folder, index, block, [(changed[i], n) for i, n in runs], words)
    index.faults = report.faults


def _tidy(folder: Path, index: CacheIndex, logs: list[str]) -> None:
    """Write the rows anew in the order of the logs, so that they can be mapped again."""
    ranks = _ranks(index, logs)
    if is_ordered(index.runs, ranks):
        return  # another process was quicker
    runs = sorted(index.runs, key=lambda run: ranks[run[0]])
    block, words = _recoded(folder, index, logs)  # before a new generation begins
    begin_generation(folder, index)
    append_rows(folder, index, block, runs, words)


def _update_head(index: CacheIndex, logs: list[str]) -> None:
    """Write into the head what opening the same logs again needs."""
    ranks = _ranks(index, logs)
    here = [log for _, log in sorted(zip(ranks, index.logs, strict=True), key=itemgetter(0))]
    ordered = is_ordered(index.runs, ranks)
    index.head.seal = hash_file_states(logs, (log.stamp for log in here)) if ordered else ""
    index.head.faults = list(sort_faults(index.faults, here))


_VERSION = 2
_INDEX = "index.jsonl"
_DAMAGE = (
    ValueError,
    RecursionError,
)  # what msgspec raises for bytes that are no index; its own is a ValueError


class CacheHead(msgspec.Struct):
    """The arrays of a folder and their meaning."""

    generation: str = ""
    rows: int = 0
    words: dict[str, list[str]] = {}
    seal: str = ""
    """Hash of the logs, in the order of the rows; empty where the rows lie in no such order."""
    faults: list[SnapshotFault] = []
    """All faults in the order of the logs: the index's, and last lines that are not finished."""
    version: int = _VERSION


class CacheIndex(msgspec.Struct):
    """What was read of each log, and where its rows lie in the arrays."""

    logs: list[SnapshotLog]
    runs: list[tuple[int, int]] = []
    """Rows as they lie in the arrays: number of the log, number of rows."""
    faults: list[SnapshotFault] = []
    """Faults of the lines that were read, as they came."""
    head: CacheHead = msgspec.field(default_factory=CacheHead)


_heads = msgspec.json.Decoder(CacheHead)
_bodies = msgspec.json.Decoder(tuple[list[SnapshotLog], list[tuple[int, int]], list[SnapshotFault]])


def get_cache_folder(key: str, root: str | Path | None = None) -> Path:
    """Return the folder for a reading, which is not made; a new log changes no `key`."""
    base = cache_folder() / "snapshots" if root is None else Path(root)
    return base / blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def load_head(folder: Path) -> CacheHead | None:
    """Return the head of a folder's index; None where there is none that this version can use."""
    try:
        with open(_index(folder), "rb") as f:  # noqa: PTH123
            return _head(f.readline())
    except (OSError, *_DAMAGE):
        return None


def load_index(folder: Path) -> CacheIndex | None:
    """Return the whole index of a folder; None where there is none that this version can use."""
    try:
        first, _, second = Path(_index(folder)).read_bytes().partition(b"\n")
        index = CacheIndex(*_bodies.decode(second), head=_head(first))
    except (OSError, *_DAMAGE):
        return None
    sound = index.head.rows == sum(n for _, n in index.runs)
    return index if sound and all(0 <= log < len(index.logs) for log, _ in index.runs) else None


def _head(line: bytes) -> CacheHead:
    mark, _, told = line.rstrip(b"\n").partition(b" ")
    if mark != _mark(told):
        raise ValueError("not as it was written")
    head = _heads.decode(told)
    if head.version != _VERSION or not head.generation.isalnum() or head.rows < 0:
        raise ValueError("of another version, or no index")
    return head


def _mark(line: bytes) -> bytes:
    return blake2b(line, digest_size=12).hexdigest().encode()


def _index(folder: Path) -> str:
    return f"{folder}{os.sep}{_INDEX}"


def save_index(folder: Path, index: CacheIndex) -> None:
    """Replace the index, and drop the arrays of older generations."""
    head = msgspec.json.encode(index.head)
    body = msgspec.json.encode((index.logs, index.runs, index.faults))
    with SafeFolder.own(folder) as here:
        here.write(_INDEX, (_mark(head), b" ", head, b"\n", body))
    for old in folder.iterdir():
        if old.is_dir() and old.name != index.head.generation:
            shutil.rmtree(old, ignore_errors=True)


def begin_generation(folder: Path, index: CacheIndex) -> None:
    """Make the folder of a new generation, without rows."""
    index.head = CacheHead(os.urandom(6).hex(), words={name: [] for name in TEXT_FIELDS})
    index.runs = []
    (folder / index.head.generation).mkdir(mode=0o700, parents=True)


def append_rows(
    folder: Path,
    index: CacheIndex,
    block: ColumnBlock,
    runs: list[tuple[int, int]],
    words: TextCodes,
) -> None:
    """Write rows, with their `words`, after those that count; the index is not touched."""
    head = index.head
    old, new = _files(folder, head), _files(folder, head, words)
    for name, (file, dtype) in new.items():
        if old[name][0] != file and head.rows:  # more texts than its codes could hold
            with _open_private(file) as f:
                f.write(np.fromfile(*old[name], count=head.rows).astype(dtype).data)
        with _open_private(file) as f:
            f.seek(head.rows * dtype.itemsize)
            f.write(np.ascontiguousarray(block[name], dtype).data)
    head.words = {name: list(texts) for name, texts in words.items()}
    head.rows += row_count(block)
    index.runs = merge_runs([*index.runs, *runs])


def _files(
    folder: Path, head: CacheHead, words: Mapping[str, Collection[str]] | None = None
) -> _Files:
    """The file and the type of each array, for the head's own texts or for more."""
    texts = head.words if words is None else words
    where = f"{folder}{os.sep}{head.generation}{os.sep}"
    widths = {name: disk_dtype(name, len(texts.get(name, ()))) for name in ARRAY_DTYPES}
    return {name: (f"{where}{name}.{dtype.name}.bin", dtype) for name, dtype in widths.items()}


def merge_runs(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with neighbours of one log as one, without empty ones."""
    out: list[tuple[int, int]] = []
    for log, n in runs:
        if out and out[-1][0] == log:
            out[-1] = (log, out[-1][1] + n)
        elif n:
            out.append((log, n))
    return out


def map_rows(folder: Path, head: CacheHead) -> ColumnBlock:
    """Return the rows as they lie, mapped into memory; writing to them changes a private copy.

    Raises:
        OSError, ValueError: an array is not there, or too short.
    """
    if not head.rows:
        return {name: np.empty(0, dtype) for name, dtype in ARRAY_DTYPES.items()}
    return {
        name: _mapped(file, dtype, head.rows)
        for name, (file, dtype) in _files(folder, head).items()
    }


def read_rows_in_order(folder: Path, index: CacheIndex, ranks: Sequence[int]) -> ColumnBlock:
    """Return the rows in the order of the logs, read into memory.

    Args:
        folder: the reading's folder.
        index: what lies there.
        ranks: for each log by its number, its place among the logs. A log that grew and is not the
            last has its rows in two places.

    Raises:
        OSError, ValueError: an array is not there, or too short.
    """
    bounds = _bounds(index.runs, ranks)
    return {
        name: _gathered(file, dtype, bounds)
        for name, (file, dtype) in _files(folder, index.head).items()
    }


def is_ordered(runs: list[tuple[int, int]], ranks: Sequence[int]) -> bool:
    """True where the rows lie on disk in the order of the logs."""
    places = [ranks[log] for log, _ in runs]
    return places == sorted(places)


def _bounds(runs: list[tuple[int, int]], ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Slices of the rows on disk, in the order of the logs; neighbours are one."""
    out: list[tuple[int, int]] = []
    stops = list(accumulate(n for _, n in runs))
    for k in sorted(range(len(runs)), key=[ranks[log] for log, _ in runs].__getitem__):
        start, stop = stops[k] - runs[k][1], stops[k]
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, stop))
    return out


def _mapped(path: str, dtype: np.dtype[Any], n: int) -> np.ndarray[Any, Any]:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return np.frombuffer(mmap(fd, n * dtype.itemsize, access=ACCESS_COPY), dtype)
    finally:
        os.close(fd)


def _gathered(
    path: str, dtype: np.dtype[Any], bounds: list[tuple[int, int]]
) -> np.ndarray[Any, Any]:
    out = np.empty(sum(b - a for a, b in bounds), dtype)
    at = 0
    with open(path, "rb", buffering=0) as f:  # noqa: PTH123
        for a, b in bounds:
            f.seek(a * dtype.itemsize)
            if f.readinto(out[at : at + b - a].data) != (b - a) * dtype.itemsize:
                raise ValueError("too short")
            at += b - a
    return out


def _open_private(path: str) -> Any:
    """Open a file that only its owner may read, as private as the log may be."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "r+b")


def has_all_rows(folder: Path, head: CacheHead) -> bool:
    """True where every array is at least as long as the head says."""
    sizes = (
        (Path(file), dtype.itemsize * head.rows) for file, dtype in _files(folder, head).values()
    )
    return all(
        not least or (file.is_file() and file.stat().st_size >= least) for file, least in sizes
    )


def drop_index(folder: Path) -> None:
    """Drop an index that turned out to be of no use: what it describes is read anew."""
    Path(_index(folder)).unlink(missing_ok=True)
