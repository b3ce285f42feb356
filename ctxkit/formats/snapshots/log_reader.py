"""Reading of snapshot logs into a frame, and following them while they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from ctxkit.errors import BadArguments, ReadError, did_you_mean
from ctxkit.formats.snapshots.cache import get_cache_folder, sort_faults, update_and_load_cache
from ctxkit.formats.snapshots.incremental_reader import (
    LogReadPosition,
    find_snapshot_logs,
    read_new_parts,
    to_absolute_paths,
)
from ctxkit.formats.snapshots.lines_to_columns import parse_log_parts
from ctxkit.formats.snapshots.schema import (
    ARRAY_DTYPES,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
    ColumnBlock,
    FaultCollector,
    SnapshotFaults,
    TextCodes,
    block_to_frame,
    concat_blocks,
    count_rows,
    new_text_codes,
)

if TYPE_CHECKING:
    from pathlib import Path


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
        cached = update_and_load_cache(
            get_cache_folder("\0".join(absolute_paths), None if cache is True else cache), logs
        )
    if cached is not None:
        block, texts, faults = cached
        blocks = [block] if where is None else _iter_slices(block)
        selected = _select_rows(blocks, texts, columns, where)
    else:
        codes, report = new_text_codes(), FaultCollector()
        new_logs = [LogReadPosition(path) for path in logs]
        selected = _select_rows(_parse_logs(new_logs, codes, report), codes, columns, where)
        texts, faults = codes, sort_faults(report.faults, new_logs)
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
    """Iterator over new rows of logs, one frame at a time; created by `follow`."""

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
