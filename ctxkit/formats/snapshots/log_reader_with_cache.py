"""Reading of snapshot logs into a frame, with an on-disk cache of their columns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import accumulate
from mmap import ACCESS_COPY, mmap
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd

from ctxkit._internal.safe_files import SafeFolder, get_ctxkit_cache_folder
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.snapshots.column_blocks_and_faults import (
    ARRAY_DTYPES,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
    ColumnBlock,
    FaultCollector,
    SnapshotFault,
    SnapshotFaults,
    TextCodes,
    block_to_frame,
    concat_blocks,
    count_rows,
    get_disk_dtype,
    new_text_codes,
    recode_block,
)
from ctxkit.formats.snapshots.incremental_reading_and_following import (
    FileState,
    LogReadPosition,
    find_snapshot_logs,
    get_file_state,
    hash_file_states,
    read_new_parts,
    to_absolute_paths,
)
from ctxkit.formats.snapshots.lines_to_columns import parse_log_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Files = dict[str, tuple[str, np.dtype[Any]]]


Where = Callable[[pd.DataFrame], Any] | Mapping[str, Any]
# With a condition, rows are selected slice by slice, so that memory holds the result and one slice.
# With a cache the slices are views of memory-mapped arrays; without one they are parsed parts.
_ROWS_PER_SLICE = 1 << 18
"""Number of rows that a condition is applied to at a time."""


def read_snapshots(
    paths: str | Path | Iterable[str | Path],
    columns: Collection[str] | None = None,
    where: Where | None = None,
    *,
    cache: bool | str | Path = True,
) -> pd.DataFrame:
    """Read snapshot logs into a frame.

    Args:
        paths: files (of any name), folders (every ``ctx_snapshots*.jsonl`` below them, in both
            layouts of fuseraft) and patterns such as ``"logs/**/ctx_*.jsonl"``.
        columns: the columns to return; None: all.
        where: a condition for rows: a function that takes a frame of some 100,000 rows with all
            columns and returns a boolean for each, or a mapping of columns to a value, a list of
            values, a ``slice(low, high)`` with both ends included, or a function of the column.
            Only matching rows stay in memory, so that logs may be larger than it.
        cache: True keeps the columns in the cache folder (`CTXKIT_CACHE_DIR`, else the user's own),
            a path in that folder, so that a later call reads only what was appended; False keeps
            nothing. The cache may be deleted at any time.

    Returns:
        One row per line in the order of the sorted files, with compaction markers (agent
        ``"system"``). Columns: `ts` (UTC, to 100 ns), `session` and `agent` (categories),
        `turn`, `turn_input_tokens`, `turn_output_tokens`, `cumulative_input_tokens`, `warn_at`,
        `cutover_at` (Int64, missing if the line has none) and `compaction_occurred` (True on
        markers only). Token counts are billed over all calls of a turn; they are no context sizes.
        A session under another usual name (`session_id`) is read as `session`, with a fault.
        For turns without markers see `turns`. ``attrs["faults"]`` has every place that could not be
        read, wholly or in part, as (file, line, why, kept); its `.frame` is a DataFrame. An
        unfinished last line is read once it is finished.

    Raises:
        ReadError: a path matches nothing, or a folder has no log.
        BadArguments: a column or condition does not exist.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...         writer.turn("Reviewer", 1, 700, 60)
        ...     frame = read_snapshots(folder, where={"agent": "Coder"}, cache=False)
        >>> frame["turn_input_tokens"].tolist()
        [1200]
    """
    _check_arguments(columns, where)
    absolute_paths = to_absolute_paths(paths)
    logs = find_snapshot_logs(absolute_paths)
    cached = None
    if cache is not False:
        cached = _update_and_load_cache(
            _get_cache_folder("\0".join(absolute_paths), None if cache is True else cache), logs
        )
    if cached is not None:
        block, texts, faults = cached
        blocks = [block] if where is None else _iter_slices(block)
        selected = _select_rows(blocks, texts, columns, where)
    else:
        codes, report = new_text_codes(), FaultCollector()
        new_logs = [LogReadPosition(path) for path in logs]
        selected = _select_rows(_parse_logs(new_logs, codes, report), codes, columns, where)
        texts, faults = codes, _sort_faults(report.faults, new_logs)
    frame = block_to_frame(selected, texts, SNAPSHOT_FIELDS if columns is None else list(columns))
    if where is not None:
        for name in set(TEXT_FIELDS) & set(frame.columns):
            frame[name] = frame[name].cat.remove_unused_categories()
    frame.attrs["faults"] = faults
    return frame


# -- selection of rows and columns ----------------------------------------------------------------


def _parse_logs(
    logs: list[LogReadPosition], codes: TextCodes, report: FaultCollector
) -> Iterator[ColumnBlock]:
    for parts in read_new_parts(logs, report):
        yield parse_log_parts(parts, codes, report)[0]


def _iter_slices(block: ColumnBlock) -> Iterator[ColumnBlock]:
    for start in range(0, count_rows(block), _ROWS_PER_SLICE):
        yield {name: values[start : start + _ROWS_PER_SLICE] for name, values in block.items()}


def _select_rows(
    blocks: Iterable[ColumnBlock],
    texts: Mapping[str, Any],
    columns: Collection[str] | None,
    where: Where | None,
) -> ColumnBlock:
    """Return the selected rows and arrays."""
    array_names = [
        name for name in ARRAY_DTYPES if columns is None or name.removesuffix(".missing") in columns
    ]
    selected = []
    for block in blocks:
        if where is None:
            selected.append({name: block[name] for name in array_names})
        else:
            mask = _make_mask(block_to_frame(block, texts), where)
            selected.append({name: block[name][mask] for name in array_names})
    return concat_blocks(selected)


def _make_mask(chunk: pd.DataFrame, where: Where) -> np.ndarray[Any, Any]:
    if callable(where):
        return _to_mask(where(chunk), len(chunk))
    mask = np.ones(len(chunk), np.bool_)
    for name, condition in where.items():
        mask &= _to_mask(_match_condition(chunk[name], condition), len(chunk))
    return mask


def _match_condition(column: pd.Series[Any], condition: Any) -> Any:
    if callable(condition):
        return condition(column)
    if isinstance(condition, slice):
        low = True if condition.start is None else column >= condition.start
        high = True if condition.stop is None else column <= condition.stop
        return (column == column) & low & high  # noqa: PLR0124  missing values never match
    if isinstance(condition, Collection) and not isinstance(condition, str):
        return column.isin(list(condition))
    return column == condition


def _to_mask(result: Any, n_rows: int) -> np.ndarray[Any, Any]:
    values = (
        pd.array(np.asarray(result, dtype=object), dtype="boolean")
        if not hasattr(result, "dtype")
        else result
    )
    if getattr(values, "shape", None) != (n_rows,) or not pd.api.types.is_bool_dtype(values.dtype):
        raise BadArguments(
            f"where= must give one truth value for each of the {n_rows} rows it is shown."
        )
    return pd.array(values, dtype="boolean").to_numpy(dtype=np.bool_, na_value=False)


def _check_arguments(columns: Collection[str] | None, where: Where | None) -> None:
    if isinstance(columns, str):
        raise BadArguments(f"columns= takes a list: columns=[{columns!r}].")
    if where is not None and not callable(where) and not isinstance(where, Mapping):
        raise BadArguments("where= takes a function of a frame, or a mapping of columns to values.")
    for name in [*(columns or ()), *(where if isinstance(where, Mapping) else ())]:
        if name not in SNAPSHOT_FIELDS:
            raise BadArguments(
                f"Snapshot logs have no column {name!r}.{did_you_mean(str(name), SNAPSHOT_FIELDS)}"
            )


# One folder per set of paths: `index.jsonl`, and a folder per generation with one file per array.
# Crash safety: rows are appended first, then the index is replaced atomically. The index says how
# many rows are valid; rows beyond that were left by a crash and are overwritten. Writers hold a
# lock, readers never wait. The folder may be deleted at any time.
# The index has two lines. The head begins with its own hash and has a seal, one hash of the states
# of all logs: if the seal fits, nothing else is read and the arrays are memory-mapped. The second
# line has the state of each log and the runs of rows in the arrays.
# Rows are stored in the order of reading. A log that grew has rows in several places; the next
# reading without changes writes a new generation in the order of the logs.

_MAX_TRIES = 3


def _update_and_load_cache(
    folder: Path, logs: list[str]
) -> tuple[ColumnBlock, Mapping[str, Any], SnapshotFaults] | None:
    """Return the rows, texts and faults of a cache after an update; None if it is not usable."""
    for _ in range(_MAX_TRIES):
        try:
            index = _load_unchanged(folder, logs) or _update(folder, logs)
        except (OSError, ValueError):  # no space, no permission, or a damaged folder
            return None
        try:
            return *_load_rows(folder, index, logs), SnapshotFaults(index.head.faults)
        except (OSError, ValueError):  # another process changed the generation, or damage
            _delete_index(folder)
    return None


def _sort_faults(faults: list[SnapshotFault], logs: list[LogReadPosition]) -> SnapshotFaults:
    """Return faults, and those of unfinished last lines, in the order of the logs."""
    report = FaultCollector()
    report.add_all(faults)
    for log in logs:
        if log.unfinished_bytes:
            size = f"{log.unfinished_bytes:,} bytes"
            reason = f"the last line is not finished ({size}): it is read when it is"
            report.add(log.path, log.newlines + 1, reason)
    if not report.faults:
        return SnapshotFaults()
    position_by_path = {log.path: i for i, log in enumerate(logs)}
    return SnapshotFaults(
        sorted(report.faults, key=lambda f: (position_by_path.get(f.file, -1), f.line))
    )


def _load_unchanged(folder: Path, logs: list[str]) -> _CacheIndex | None:
    """Return an index with the head only, if no log changed, appeared or disappeared."""
    head = _load_header(folder)
    return (
        _CacheIndex([], head=head)
        if head is not None and head.seal == hash_file_states(logs)
        else None
    )


def _load_rows(
    folder: Path, index: _CacheIndex, logs: list[str]
) -> tuple[ColumnBlock, Mapping[str, Any]]:
    if index.head.seal:
        return _memory_map_rows(folder, index.head), index.head.words
    return _load_rows_in_order(folder, index, logs)


def _load_rows_in_order(
    folder: Path, index: _CacheIndex, logs: list[str]
) -> tuple[ColumnBlock, TextCodes]:
    """Return the rows in the order of the logs, with texts in order of appearance."""
    codes = new_text_codes()
    return (
        recode_block(
            _read_rows_in_order(folder, index, _rank_logs(index, logs)), index.head.words, codes
        ),
        codes,
    )


def _rank_logs(index: _CacheIndex, logs: list[str]) -> list[int]:
    """Return the position of each log of the index in the list of logs."""
    position_by_path = {path: i for i, path in enumerate(logs)}
    return [position_by_path[log.path] for log in index.logs]


# -- update ---------------------------------------------------------------------------------------


def _update(folder: Path, logs: list[str]) -> _CacheIndex:
    """Read what is new, or everything if a log was replaced; return the index."""
    from filelock import FileLock

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "lock", mode=0o600):
        states = {path: get_file_state(path) for path in logs}
        index = _load_index(folder)
        if (
            index is None
            or not _all_continue(index, states)
            or not _has_all_rows(folder, index.head)
        ):
            index = _CacheIndex(logs=[])
            _begin_generation(folder, index)
        changed = _find_changed_logs(index, states)
        if changed:
            _append_new_rows(folder, index, changed)
        else:
            _reorder_rows(folder, index, logs)
        _update_head(index, logs)
        _save_index(folder, index)
    return index


def _all_continue(index: _CacheIndex, states: Mapping[str, FileState]) -> bool:
    """Return True if every log still begins with what was read of it."""
    return all(
        log.stamp == states.get(log.path) or (log.path in states and log.has_grown())
        for log in index.logs
    )


def _find_changed_logs(index: _CacheIndex, states: Mapping[str, FileState]) -> list[int]:
    """Add new logs to the index; return the numbers of the logs with something to read."""
    known_paths = {log.path for log in index.logs}
    index.logs.extend(LogReadPosition(path) for path in states if path not in known_paths)
    return [i for i, log in enumerate(index.logs) if log.stamp != states[log.path]]


def _append_new_rows(folder: Path, index: _CacheIndex, changed: list[int]) -> None:
    report = FaultCollector()
    report.add_all(index.faults)
    codes = {
        name: {text: log_number for log_number, text in enumerate(index.head.words.get(name, []))}
        for name in TEXT_FIELDS
    }
    for parts in read_new_parts([index.logs[log_number] for log_number in changed], report):
        block, runs = parse_log_parts(parts, codes, report)
        _append_rows(
            folder,
            index,
            block,
            [(changed[log_number], n_rows) for log_number, n_rows in runs],
            codes,
        )
    index.faults = report.faults


def _reorder_rows(folder: Path, index: _CacheIndex, logs: list[str]) -> None:
    """Write the rows in the order of the logs, so that they can be memory-mapped."""
    ranks = _rank_logs(index, logs)
    if _has_log_order(index.runs, ranks):
        return  # another process did it
    runs = sorted(index.runs, key=lambda run: ranks[run[0]])
    block, words = _load_rows_in_order(folder, index, logs)  # before a new generation begins
    _begin_generation(folder, index)
    _append_rows(folder, index, block, runs, words)


def _update_head(index: _CacheIndex, logs: list[str]) -> None:
    """Update the seal and the faults in the head."""
    ranks = _rank_logs(index, logs)
    logs_in_order = [
        log for _, log in sorted(zip(ranks, index.logs, strict=True), key=itemgetter(0))
    ]
    in_order = _has_log_order(index.runs, ranks)
    index.head.seal = (
        hash_file_states(logs, (log.stamp for log in logs_in_order)) if in_order else ""
    )
    index.head.faults = list(_sort_faults(index.faults, logs_in_order))


_VERSION = 3
_INDEX = "index.jsonl"
_DECODE_ERRORS = (ValueError, RecursionError)
"""Errors of decoding a damaged index; those of msgspec are ValueErrors."""


class _CacheHeader(msgspec.Struct):
    """Description of the arrays in a folder."""

    generation: str = ""
    rows: int = 0
    words: dict[str, list[str]] = {}
    seal: str = ""
    """Hash of the logs' paths and states, in the order of the rows; empty if they are unordered."""
    faults: list[SnapshotFault] = []
    """All faults in the order of the logs, with those of unfinished last lines."""
    version: int = _VERSION


class _CacheIndex(msgspec.Struct):
    """State of each log, and the position of its rows in the arrays."""

    logs: list[LogReadPosition]
    runs: list[tuple[int, int]] = []
    """(number of the log, number of rows), in the order of the arrays."""
    faults: list[SnapshotFault] = []
    """Faults of the lines read, in the order of reading."""
    head: _CacheHeader = msgspec.field(default_factory=_CacheHeader)


_HEAD_DECODER = msgspec.json.Decoder(_CacheHeader)
_BODY_DECODER = msgspec.json.Decoder(
    tuple[list[LogReadPosition], list[tuple[int, int]], list[SnapshotFault]]
)


def _get_cache_folder(key: str, root: str | Path | None = None) -> Path:
    """Return the cache folder for a key (the paths as given), without creating it."""
    base = get_ctxkit_cache_folder() / "snapshots" if root is None else Path(root)
    return base / blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _load_header(folder: Path) -> _CacheHeader | None:
    """Return the head of a folder's index; None if this version cannot use it."""
    try:
        with open(_index_path(folder), "rb") as file:  # noqa: PTH123
            return _decode_head(file.readline())
    except (OSError, *_DECODE_ERRORS):
        return None


def _load_index(folder: Path) -> _CacheIndex | None:
    """Return the whole index of a folder; None if this version cannot use it."""
    try:
        first, _, second = Path(_index_path(folder)).read_bytes().partition(b"\n")
        index = _CacheIndex(*_BODY_DECODER.decode(second), head=_decode_head(first))
    except (OSError, *_DECODE_ERRORS):
        return None
    is_consistent = index.head.rows == sum(n_rows for _, n_rows in index.runs)
    return (
        index
        if is_consistent and all(0 <= log < len(index.logs) for log, _ in index.runs)
        else None
    )


def _decode_head(line: bytes) -> _CacheHeader:
    digest, _, body = line.rstrip(b"\n").partition(b" ")
    if digest != _hash_line(body):
        raise ValueError("not as it was written")
    head = _HEAD_DECODER.decode(body)
    if head.version != _VERSION or not head.generation.isalnum() or head.rows < 0:
        raise ValueError("of another version, or no index")
    return head


def _hash_line(line: bytes) -> bytes:
    return blake2b(line, digest_size=12).hexdigest().encode()


def _index_path(folder: Path) -> str:
    return f"{folder}{os.sep}{_INDEX}"


def _save_index(folder: Path, index: _CacheIndex) -> None:
    """Replace the index, and delete the arrays of older generations."""
    head = msgspec.json.encode(index.head)
    body = msgspec.json.encode((index.logs, index.runs, index.faults))
    with SafeFolder.open_or_create(folder) as safe_folder:
        safe_folder.write(_INDEX, (_hash_line(head), b" ", head, b"\n", body))
    for old in folder.iterdir():
        if old.is_dir() and old.name != index.head.generation:
            shutil.rmtree(old, ignore_errors=True)


def _begin_generation(folder: Path, index: _CacheIndex) -> None:
    """Create the folder of a new generation, without rows."""
    index.head = _CacheHeader(os.urandom(6).hex(), words={name: [] for name in TEXT_FIELDS})
    index.runs = []
    (folder / index.head.generation).mkdir(mode=0o700, parents=True)


def _append_rows(
    folder: Path,
    index: _CacheIndex,
    block: ColumnBlock,
    runs: list[tuple[int, int]],
    codes: TextCodes,
) -> None:
    """Write rows after the valid ones, without saving the index.

    Args:
        folder: the cache folder.
        index: its index; head and runs are updated.
        block: the rows.
        runs: (number of the log, number of rows) of the block.
        codes: codes by text, including all texts of the block.
    """
    head = index.head
    old_files, new_files = _array_files(folder, head), _array_files(folder, head, codes)
    for name, (file, dtype) in new_files.items():
        if old_files[name][0] != file and head.rows:  # the codes need a wider type
            with _open_private(file) as handle:
                handle.write(np.fromfile(*old_files[name], count=head.rows).astype(dtype).data)
        with _open_private(file) as handle:
            handle.seek(head.rows * dtype.itemsize)
            handle.write(np.ascontiguousarray(block[name], dtype).data)
    head.words = {name: list(texts) for name, texts in codes.items()}
    head.rows += count_rows(block)
    index.runs = _merge_runs([*index.runs, *runs])


def _array_files(
    folder: Path, head: _CacheHeader, more_texts: Mapping[str, Collection[str]] | None = None
) -> _Files:
    """Return the file and type of each array, for the head's own texts or for more."""
    texts = head.words if more_texts is None else more_texts
    prefix = f"{folder}{os.sep}{head.generation}{os.sep}"
    dtypes = {name: get_disk_dtype(name, len(texts.get(name, ()))) for name in ARRAY_DTYPES}
    return {name: (f"{prefix}{name}.{dtype.name}.bin", dtype) for name, dtype in dtypes.items()}


def _merge_runs(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge neighbouring runs of one log, and drop empty ones."""
    merged: list[tuple[int, int]] = []
    for log, n_rows in runs:
        if merged and merged[-1][0] == log:
            merged[-1] = (log, merged[-1][1] + n_rows)
        elif n_rows:
            merged.append((log, n_rows))
    return merged


def _memory_map_rows(folder: Path, head: _CacheHeader) -> ColumnBlock:
    """Return the rows in stored order, memory-mapped; writes change a private copy.

    Raises:
        OSError, ValueError: an array is missing or too short.
    """
    if not head.rows:
        return {name: np.empty(0, dtype) for name, dtype in ARRAY_DTYPES.items()}
    return {
        name: _map_array(file, dtype, head.rows)
        for name, (file, dtype) in _array_files(folder, head).items()
    }


def _read_rows_in_order(folder: Path, index: _CacheIndex, ranks: Sequence[int]) -> ColumnBlock:
    """Read the rows in the order of the logs.

    Args:
        folder: the cache folder.
        index: its index.
        ranks: the position of each log of the index in that order.

    Raises:
        OSError, ValueError: an array is missing or too short.
    """
    bounds = _row_slices(index.runs, ranks)
    return {
        name: _read_slices(file, dtype, bounds)
        for name, (file, dtype) in _array_files(folder, index.head).items()
    }


def _has_log_order(runs: list[tuple[int, int]], ranks: Sequence[int]) -> bool:
    """Return True if the rows on disk are in the order of the logs."""
    places = [ranks[log] for log, _ in runs]
    return places == sorted(places)


def _row_slices(runs: list[tuple[int, int]], ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Return slices of the rows on disk in the order of the logs, with neighbours merged."""
    slices: list[tuple[int, int]] = []
    stops = list(accumulate(n for _, n in runs))
    for run in sorted(range(len(runs)), key=[ranks[log] for log, _ in runs].__getitem__):
        start, stop = stops[run] - runs[run][1], stops[run]
        if slices and slices[-1][1] == start:
            start = slices.pop()[0]
        slices.append((start, stop))
    return slices


def _map_array(path: str, dtype: np.dtype[Any], n_rows: int) -> np.ndarray[Any, Any]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return np.frombuffer(mmap(descriptor, n_rows * dtype.itemsize, access=ACCESS_COPY), dtype)
    finally:
        os.close(descriptor)


def _read_slices(
    path: str, dtype: np.dtype[Any], bounds: list[tuple[int, int]]
) -> np.ndarray[Any, Any]:
    gathered = np.empty(sum(stop - start for start, stop in bounds), dtype)
    position = 0
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        for start, stop in bounds:
            file.seek(start * dtype.itemsize)
            if (
                file.readinto(gathered[position : position + stop - start].data)
                != (stop - start) * dtype.itemsize
            ):
                raise ValueError("too short")
            position += stop - start
    return gathered


def _open_private(path: str) -> Any:
    """Open a file that only its owner may read."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "r+b")


def _has_all_rows(folder: Path, head: _CacheHeader) -> bool:
    """Return True if every array is at least as long as the head says."""
    sizes = (
        (Path(file), dtype.itemsize * head.rows)
        for file, dtype in _array_files(folder, head).values()
    )
    return all(
        not min_bytes or (file.is_file() and file.stat().st_size >= min_bytes)
        for file, min_bytes in sizes
    )


def _delete_index(folder: Path) -> None:
    """Delete an unusable index, so that everything is read again."""
    Path(_index_path(folder)).unlink(missing_ok=True)
