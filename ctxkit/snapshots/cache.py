"""Columns of logs kept on disk as raw arrays that grow, so that opening a log again costs only its new lines.

One folder holds one reading: `index.json` and, in a folder of its own generation, one file an array. The index says how
many rows count; rows beyond it were cut short and are written over. It is replaced as a whole, after the rows are
written: a reader never waits, a writer holds a lock. The folder may be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit.snapshots.columns import ARRAYS, Block, join, rows
from ctxkit.snapshots.faults import Fault
from ctxkit.snapshots.files import Log
from ctxkit.tokens.vocabularies import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    (folder / index.generation).mkdir(mode=0o700, parents=True)


def append(folder: Path, index: Index, block: Block, runs: list[tuple[int, int]]) -> None:
    """Write rows after those that count; the index on disk is not touched."""
    for name, dtype in ARRAYS.items():
        with _private(folder / index.generation / f"{name}.bin", os.O_RDWR | os.O_CREAT) as f:
            f.seek(index.rows * dtype.itemsize)
            f.write(np.ascontiguousarray(block[name], dtype).data)
    index.rows += rows(block)
    index.runs = joined([*index.runs, *runs])


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs with neighbours of one log as one, without empty ones."""
    out: list[tuple[int, int]] = []
    for log, n in runs:
        if out and out[-1][0] == log:
            out[-1] = (log, out[-1][1] + n)
        elif n:
            out.append((log, n))
    return out


def arrays(folder: Path, index: Index) -> Block:
    """Return the rows as they lie on disk, mapped into memory; writing to them changes a private copy.

    Raises:
        OSError, ValueError: an array is not there, or too short.
    """
    if not index.rows:
        return {name: np.empty(0, dtype) for name, dtype in ARRAYS.items()}
    where = folder / index.generation
    return {
        name: np.asarray(np.memmap(where / f"{name}.bin", dtype, "c", shape=(index.rows,)))
        for name, dtype in ARRAYS.items()
    }


def in_order(index: Index, block: Block, ranks: Sequence[int]) -> Block:
    """Return the rows in the order of the logs (`ranks`, by number): a log that grew has its rows in two places."""
    stops = np.cumsum([n for _, n in index.runs])
    order = sorted(range(len(stops)), key=lambda k: (ranks[index.runs[k][0]], k))
    bounds: list[list[int]] = []
    for k in order:
        start, stop = int(stops[k]) - index.runs[k][1], int(stops[k])
        if bounds and bounds[-1][1] == start:
            bounds[-1][1] = stop
        else:
            bounds.append([start, stop])
    return block if len(bounds) < 2 else join([{n: v[a:b] for n, v in block.items()} for a, b in bounds])


def _private(path: Path, flags: int) -> Any:
    """Open a file that only its owner may read: a log may be private, and its columns are no less so."""
    return os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600), "r+b" if flags & os.O_RDWR else "wb")


def is_whole(folder: Path, index: Index) -> bool:
    """True where every array is at least as long as the index says."""
    where = folder / index.generation
    sizes = ((where / f"{name}.bin", dtype.itemsize * index.rows) for name, dtype in ARRAYS.items())
    return all(not least or (file.is_file() and file.stat().st_size >= least) for file, least in sizes)


def forget(folder: Path) -> None:
    """Drop an index that turned out to be of no use: what it describes is read anew."""
    (folder / "index.json").unlink(missing_ok=True)
