"""Columns of logs kept on disk as raw arrays that grow, so that opening a log again costs only its
new lines.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.caches import cache_folder
from ctxkit.held_folders import Folder
from ctxkit.snapshots.faults import SnapshotFault
from ctxkit.snapshots.snapshot_columns import ARRAYS, TEXTS, Block, Words, rows, width
from ctxkit.snapshots.snapshot_files import SnapshotLog

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    _Files = dict[str, tuple[str, np.dtype[Any]]]

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


def folder_for(key: str, root: str | Path | None = None) -> Path:
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


def load(folder: Path) -> CacheIndex | None:
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


def save(folder: Path, index: CacheIndex) -> None:
    """Replace the index, and drop the arrays of older generations."""
    head = msgspec.json.encode(index.head)
    body = msgspec.json.encode((index.logs, index.runs, index.faults))
    with Folder.own(folder) as here:
        here.write(_INDEX, (_mark(head), b" ", head, b"\n", body))
    for old in folder.iterdir():
        if old.is_dir() and old.name != index.head.generation:
            shutil.rmtree(old, ignore_errors=True)


def begin(folder: Path, index: CacheIndex) -> None:
    """Make the folder of a new generation, without rows."""
    index.head = CacheHead(os.urandom(6).hex(), words={name: [] for name in TEXTS})
    index.runs = []
    (folder / index.head.generation).mkdir(mode=0o700, parents=True)


def append(
    folder: Path, index: CacheIndex, block: Block, runs: list[tuple[int, int]], words: Words
) -> None:
    """Write rows, with their `words`, after those that count; the index is not touched."""
    head = index.head
    old, new = _files(folder, head), _files(folder, head, words)
    for name, (file, dtype) in new.items():
        if old[name][0] != file and head.rows:  # more texts than its codes could hold
            with _private(file) as f:
                f.write(np.fromfile(*old[name], count=head.rows).astype(dtype).data)
        with _private(file) as f:
            f.seek(head.rows * dtype.itemsize)
            f.write(np.ascontiguousarray(block[name], dtype).data)
    head.words = {name: list(texts) for name, texts in words.items()}
    head.rows += rows(block)
    index.runs = joined([*index.runs, *runs])


def _files(
    folder: Path, head: CacheHead, words: Mapping[str, Collection[str]] | None = None
) -> _Files:
    """The file and the type of each array, for the head's own texts or for more."""
    texts = head.words if words is None else words
    where = f"{folder}{os.sep}{head.generation}{os.sep}"
    widths = {name: width(name, len(texts.get(name, ()))) for name in ARRAYS}
    return {name: (f"{where}{name}.{dtype.name}.bin", dtype) for name, dtype in widths.items()}


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with neighbours of one log as one, without empty ones."""
    out: list[tuple[int, int]] = []
    for log, n in runs:
        if out and out[-1][0] == log:
            out[-1] = (log, out[-1][1] + n)
        elif n:
            out.append((log, n))
    return out


def mapped(folder: Path, head: CacheHead) -> Block:
    """Return the rows as they lie, mapped into memory; writing to them changes a private copy.

    Raises:
        OSError, ValueError: an array is not there, or too short.
    """
    if not head.rows:
        return {name: np.empty(0, dtype) for name, dtype in ARRAYS.items()}
    return {
        name: _mapped(file, dtype, head.rows)
        for name, (file, dtype) in _files(folder, head).items()
    }


def arranged(folder: Path, index: CacheIndex, ranks: Sequence[int]) -> Block:
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


def _private(path: str) -> Any:
    """Open a file that only its owner may read, as private as the log may be."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "r+b")


def is_whole(folder: Path, head: CacheHead) -> bool:
    """True where every array is at least as long as the head says."""
    sizes = (
        (Path(file), dtype.itemsize * head.rows) for file, dtype in _files(folder, head).values()
    )
    return all(
        not least or (file.is_file() and file.stat().st_size >= least) for file, least in sizes
    )


def forget(folder: Path) -> None:
    """Drop an index that turned out to be of no use: what it describes is read anew."""
    Path(_index(folder)).unlink(missing_ok=True)
