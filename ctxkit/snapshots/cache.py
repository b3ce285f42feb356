"""Columns of logs kept on disk as raw arrays that grow, so that opening a log again costs only its new lines.

One folder holds one reading: `index.json` and, in a folder of its own generation, one file an array. The index says how
many rows count; rows beyond it were cut short and are written over. It is replaced as a whole, after the rows are
written: a reader never waits, a writer holds a lock. The folder may be deleted at any time.
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

from ctxkit.snapshots.columns import ARRAYS, TEXTS, Block, Words, rows, width
from ctxkit.snapshots.faults import Fault
from ctxkit.snapshots.files import Log
from ctxkit.tokens.vocabularies import cache_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    _Files = dict[str, tuple[Path, np.dtype[Any]]]

_VERSION = 1


class Index(msgspec.Struct):
    """What the arrays of a folder hold."""

    logs: list[Log]
    generation: str = ""
    rows: int = 0
    runs: list[tuple[int, int]] = []
    """Rows as they lie in the arrays: number of the log, number of rows."""
    words: dict[str, list[str]] = {}
    faults: list[Fault] = []
    version: int = _VERSION


_decoder = msgspec.json.Decoder(Index)


def folder_for(key: str, root: str | Path | None = None) -> Path:
    """Return the folder for a reading; not created here. `key` names what was asked for: a new log changes no key."""
    base = cache_folder() / "snapshots" if root is None else Path(root)
    return base / blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def load(folder: Path) -> Index | None:
    """Return the index of a folder; None where there is none that this version can use."""
    try:
        index = _decoder.decode((folder / "index.json").read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    sound = index.version == _VERSION and index.rows == sum(n for _, n in index.runs) and index.generation.isalnum()
    return index if sound and all(0 <= log < len(index.logs) for log, _ in index.runs) else None


def save(folder: Path, index: Index) -> None:
    """Replace the index, and drop the arrays of older generations."""
    new = folder / f"index.{os.getpid()}.new"
    with _private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as f:
        f.write(msgspec.json.encode(index))
    new.replace(folder / "index.json")
    for old in folder.iterdir():
        if old.is_dir() and old.name != index.generation:
            shutil.rmtree(old, ignore_errors=True)


def begin(folder: Path, index: Index) -> None:
    """Make the folder of a new generation."""
    index.generation = os.urandom(6).hex()
    index.words = {name: [] for name in TEXTS}
    (folder / index.generation).mkdir(mode=0o700, parents=True)


def append(folder: Path, index: Index, block: Block, runs: list[tuple[int, int]], words: Words) -> None:
    """Write rows after those that count; the index on disk is not touched. `words` are those of the block."""
    old, new = _files(folder, index), _files(folder, index, words)
    for name, (file, dtype) in new.items():
        if old[name][0] != file and index.rows:  # more texts than its codes could hold
            with _private(file, os.O_RDWR | os.O_CREAT) as f:
                f.write(np.fromfile(*old[name], count=index.rows).astype(dtype).data)
        with _private(file, os.O_RDWR | os.O_CREAT) as f:
            f.seek(index.rows * dtype.itemsize)
            f.write(np.ascontiguousarray(block[name], dtype).data)
    index.words = {name: list(texts) for name, texts in words.items()}
    index.rows += rows(block)
    index.runs = joined([*index.runs, *runs])


def _files(folder: Path, index: Index, words: Mapping[str, Collection[str]] | None = None) -> _Files:
    """The file and the type of each array, for the index's own texts or for more."""
    texts = index.words if words is None else words
    widths = {name: width(name, len(texts.get(name, ()))) for name in ARRAYS}
    where = folder / index.generation
    return {name: (where / f"{name}.{dtype.name}.bin", dtype) for name, dtype in widths.items()}


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with neighbours of one log as one, without empty ones."""
    out: list[tuple[int, int]] = []
    for log, n in runs:
        if out and out[-1][0] == log:
            out[-1] = (log, out[-1][1] + n)
        elif n:
            out.append((log, n))
    return out


def arrays(folder: Path, index: Index, ranks: Sequence[int]) -> Block:
    """Return the rows in the order of the logs, mapped into memory; writing to them changes a private copy.

    Args:
        folder: the reading's folder.
        index: what lies there.
        ranks: for each log by its number, its place among the logs. A log that grew and is not the last has its rows
            in two places: they are then read together instead.

    Raises:
        OSError, ValueError: an array is not there, or too short.
    """
    if not index.rows:
        return {name: np.empty(0, dtype) for name, dtype in ARRAYS.items()}
    bounds = [(0, index.rows)] if is_ordered(index.runs, ranks) else _bounds(index.runs, ranks)
    take = _mapped if len(bounds) == 1 else _gathered
    return {name: take(file, dtype, bounds) for name, (file, dtype) in _files(folder, index).items()}


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


def _mapped(path: Path, dtype: np.dtype[Any], bounds: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    with path.open("rb") as f:
        private = mmap(f.fileno(), bounds[0][1] * dtype.itemsize, access=ACCESS_COPY)
    return np.frombuffer(private, dtype)


def _gathered(path: Path, dtype: np.dtype[Any], bounds: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    out = np.empty(sum(b - a for a, b in bounds), dtype)
    at = 0
    with path.open("rb", buffering=0) as f:
        for a, b in bounds:
            f.seek(a * dtype.itemsize)
            if f.readinto(out[at : at + b - a].data) != (b - a) * dtype.itemsize:
                raise ValueError("too short")
            at += b - a
    return out


def _private(path: Path, flags: int) -> Any:
    """Open a file that only its owner may read: a log may be private, and its columns are no less so."""
    return os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600), "r+b" if flags & os.O_RDWR else "wb")


def is_whole(folder: Path, index: Index) -> bool:
    """True where every array is at least as long as the index says."""
    sizes = ((file, dtype.itemsize * index.rows) for file, dtype in _files(folder, index).values())
    return all(not least or (file.is_file() and file.stat().st_size >= least) for file, least in sizes)


def forget(folder: Path) -> None:
    """Drop an index that turned out to be of no use: what it describes is read anew."""
    (folder / "index.json").unlink(missing_ok=True)
