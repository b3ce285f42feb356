"""Read snapshot logs to a frame, or follow them while they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from ctxkit.errors import BadArguments, ReadError, did_you_mean
from ctxkit.formats.snapshots.cache import get_cache_folder, load_up_to_date, sort_faults
from ctxkit.formats.snapshots.files import (
    SnapshotLog,
    find_snapshot_logs,
    read_new_parts,
    to_absolute_paths,
)
from ctxkit.formats.snapshots.line_parsing import parse_log_parts
from ctxkit.formats.snapshots.schema import (
    ARRAY_DTYPES,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
    ColumnBlock,
    FaultCollector,
    Faults,
    TextCodes,
    block_to_frame,
    concat_blocks,
    new_text_codes,
    row_count,
)

if TYPE_CHECKING:
    from pathlib import Path


Where = Callable[[pd.DataFrame], Any] | Mapping[str, Any]
_SLICE = 1 << 18  # rows that a condition sees at a time


def read_snapshots(
    paths: str | Path | Iterable[str | Path],
    columns: Collection[str] | None = None,
    where: Where | None = None,
    *,
    cache: bool | str | Path = True,
) -> pd.DataFrame:
    """Return every line of snapshot logs as a row, compaction markers included (agent
    ``"system"``), in file order.

    Columns, always these: `ts` (UTC, to 100 ns), `session` and `agent` (categories of text: an id
    ``"000012"`` stays text), `turn`, `turn_input_tokens`, `turn_output_tokens`,
    `cumulative_input_tokens`, `warn_at`, `cutover_at` (Int64, missing where the line has none) and
    `compaction_occurred` (True on markers only). Token counts are what was billed in a turn, over
    all its calls: not the occupancy of the window. For turns without markers see `turns`.

    ``frame.attrs["faults"]`` holds every place that could not be read, wholly or in part, as (file,
    line, why, kept); its `.frame` is a DataFrame. An unfinished last line is left, and read when it
    is finished.

    Args:
        paths: files (of any name), folders (every ``ctx_snapshots*.jsonl`` below them, in both
            layouts of fuseraft) and patterns such as ``"logs/**/ctx_*.jsonl"``; rows come in the
            order of the sorted files.
        columns: the columns wanted, all if None.
        where: which rows: a function that takes a frame of some 100,000 rows with all columns and
            returns a truth value for each, or a mapping of columns to a value, a list of values, a
            ``slice(low, high)`` with both ends included, or a function of the column. Logs larger
            than memory are read so: only what is asked for stays.
        cache: keep columns in the cache folder (`CTXKIT_CACHE_DIR`, else the user's own), or in the
            folder named, so that opening again costs nothing and appended lines cost only
            themselves; False keeps nothing. Logs are never written to. A cache that is deleted,
            damaged or not writable costs time and nothing else.

    Raises:
        ReadError: a path names nothing, or a folder holds no log.
        BadArguments: a column or a condition that does not exist.
    """
    _check(columns, where)
    given = to_absolute_paths(paths)
    logs = find_snapshot_logs(given)
    found = None
    if cache is not False:
        found = load_up_to_date(
            get_cache_folder("\0".join(given), None if cache is True else cache), logs
        )
    if found is not None:
        block, words, faults = found
        blocks = [block] if where is None else _slices(block)
        picked = _select(blocks, words, columns, where)
    else:
        grown, report = new_text_codes(), FaultCollector()
        fresh = [SnapshotLog(path) for path in logs]
        picked = _select(_read(fresh, grown, report), grown, columns, where)
        words, faults = grown, sort_faults(report.faults, fresh)
    out = block_to_frame(picked, words, SNAPSHOT_FIELDS if columns is None else list(columns))
    if where is not None:
        for name in set(TEXT_FIELDS) & set(out.columns):
            out[name] = out[name].cat.remove_unused_categories()
    out.attrs["faults"] = faults
    return out


# -- what is asked for ----------------------------------------------------------------------------


def _read(
    logs: list[SnapshotLog], words: TextCodes, report: FaultCollector
) -> Iterator[ColumnBlock]:
    for parts in read_new_parts(logs, report):
        yield parse_log_parts(parts, words, report)[0]


def _slices(block: ColumnBlock) -> Iterator[ColumnBlock]:
    for start in range(0, row_count(block), _SLICE):
        yield {name: values[start : start + _SLICE] for name, values in block.items()}


def _select(
    blocks: Iterable[ColumnBlock],
    words: Mapping[str, Any],
    columns: Collection[str] | None,
    where: Where | None,
) -> ColumnBlock:
    """The rows and arrays asked for; of all others nothing is kept."""
    names = [
        name for name in ARRAY_DTYPES if columns is None or name.removesuffix(".missing") in columns
    ]
    picked = []
    for block in blocks:
        if where is None:
            picked.append({name: block[name] for name in names})
        else:
            mask = _mask(block_to_frame(block, words), where)
            picked.append({name: block[name][mask] for name in names})
    return concat_blocks(picked)


def _mask(chunk: pd.DataFrame, where: Where) -> np.ndarray[Any, Any]:
    if callable(where):
        return _truths(where(chunk), len(chunk))
    out = np.ones(len(chunk), np.bool_)
    for name, wanted in where.items():
        out &= _truths(_fits(chunk[name], wanted), len(chunk))
    return out


def _fits(column: pd.Series[Any], wanted: Any) -> Any:
    if callable(wanted):
        return wanted(column)
    if isinstance(wanted, slice):
        low = True if wanted.start is None else column >= wanted.start
        high = True if wanted.stop is None else column <= wanted.stop
        return (column == column) & low & high  # noqa: PLR0124  missing values fit nothing
    if isinstance(wanted, Collection) and not isinstance(wanted, str):
        return column.isin(list(wanted))
    return column == wanted


def _truths(given: Any, n: int) -> np.ndarray[Any, Any]:
    truths = (
        pd.array(np.asarray(given, dtype=object), dtype="boolean")
        if not hasattr(given, "dtype")
        else given
    )
    if getattr(truths, "shape", None) != (n,) or not pd.api.types.is_bool_dtype(truths.dtype):
        raise BadArguments(
            f"where= must give one truth value for each of the {n} rows it is shown."
        )
    return pd.array(truths, dtype="boolean").to_numpy(dtype=np.bool_, na_value=False)


def _check(columns: Collection[str] | None, where: Where | None) -> None:
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
    """Return an iterator over new rows of logs that are being written, as frames of
    `read_snapshots`'s columns.

    ``for new in follow("logs/"): ...`` first gives what is there, then sleeps between looks. New
    files of a folder are found; a log that was replaced is read from its beginning; paths that do
    not exist yet are waited for.

    Args:
        paths: as for `read_snapshots`.
        poll: seconds between two looks.
        idle: seconds without anything new after which the iteration ends; None never ends it: use
            `stop`.
        from_end: pass over what is there already.

    Raises:
        BadArguments: `poll` is not above zero, or something given is no path.
    """
    if poll <= 0:
        raise BadArguments("poll= takes seconds above zero.")
    return Follower(to_absolute_paths(paths), poll, idle, from_end=from_end)


class Follower:
    """New rows of logs, one frame at a time; made by `follow`."""

    def __init__(
        self, paths: list[str], poll: float, idle: float | None, *, from_end: bool = False
    ) -> None:
        self._paths, self._poll, self._idle = paths, poll, idle
        self._logs: dict[str, SnapshotLog] = {}
        self._words = new_text_codes()
        self._stopped = Event()
        if from_end:
            self.new()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pd.DataFrame:
        waited = 0.0
        while not self._stopped.is_set():
            found = self.new()
            if len(found):
                return found
            if self._idle is not None and waited >= self._idle:
                break
            self._stopped.wait(self._poll)
            waited += self._poll
        raise StopIteration

    def new(self) -> pd.DataFrame:
        """Return what is new since the last look, maybe a frame without rows; never waits."""
        report = FaultCollector()
        changed = [log for log in map(self._log, self._found()) if not log.is_same()]
        blocks = [
            parse_log_parts(parts, self._words, report)[0]
            for parts in read_new_parts(changed, report)
        ]
        out = block_to_frame(concat_blocks([b for b in blocks if row_count(b)]), self._words)
        out.attrs["faults"] = Faults(report.faults)
        return out

    def stop(self) -> None:
        """End the iteration, from any thread; what is there is not lost to a later `new`."""
        self._stopped.set()

    def _found(self) -> list[str]:
        out: list[str] = []
        for path in self._paths:
            try:
                out += find_snapshot_logs([path])
            except ReadError:  # not there yet
                continue
        return list(dict.fromkeys(out))

    def _log(self, path: str) -> SnapshotLog:
        log = self._logs.setdefault(path, SnapshotLog(path))
        if log.offset and not log.is_same() and not log.has_grown():
            log = self._logs[path] = SnapshotLog(path)
        return log
