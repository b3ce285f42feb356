"""Snapshot logs to a frame: what is kept is mapped, what is new is read, the wanted selected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.snapshots.cache import folder_for
from ctxkit.snapshots.faults import Report
from ctxkit.snapshots.parse import parse
from ctxkit.snapshots.snapshot_columns import (
    ARRAYS,
    NAMES,
    TEXTS,
    Block,
    Words,
    frame,
    join,
    new_words,
    rows,
)
from ctxkit.snapshots.snapshot_files import SnapshotLog, find, groups, named
from ctxkit.snapshots.updates import all_faults, up_to_date

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
    given = named(paths)
    logs = find(given)
    found = None
    if cache is not False:
        found = up_to_date(folder_for("\0".join(given), None if cache is True else cache), logs)
    if found is not None:
        block, words, faults = found
        blocks = [block] if where is None else _slices(block)
        picked = _select(blocks, words, columns, where)
    else:
        grown, report = new_words(), Report()
        fresh = [SnapshotLog(path) for path in logs]
        picked = _select(_read(fresh, grown, report), grown, columns, where)
        words, faults = grown, all_faults(report.faults, fresh)
    out = frame(picked, words, NAMES if columns is None else list(columns))
    if where is not None:
        for name in set(TEXTS) & set(out.columns):
            out[name] = out[name].cat.remove_unused_categories()
    out.attrs["faults"] = faults
    return out


# -- what is asked for ----------------------------------------------------------------------------


def _read(logs: list[SnapshotLog], words: Words, report: Report) -> Iterator[Block]:
    for parts in groups(logs, report):
        yield parse(parts, words, report)[0]


def _slices(block: Block) -> Iterator[Block]:
    for start in range(0, rows(block), _SLICE):
        yield {name: values[start : start + _SLICE] for name, values in block.items()}


def _select(
    blocks: Iterable[Block],
    words: Mapping[str, Any],
    columns: Collection[str] | None,
    where: Where | None,
) -> Block:
    """The rows and arrays asked for; of all others nothing is kept."""
    names = [name for name in ARRAYS if columns is None or name.removesuffix(".missing") in columns]
    picked = []
    for block in blocks:
        if where is None:
            picked.append({name: block[name] for name in names})
        else:
            mask = _mask(frame(block, words), where)
            picked.append({name: block[name][mask] for name in names})
    return join(picked)


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
        if name not in NAMES:
            raise BadArguments(
                f"Snapshot logs have no column {name!r}.{did_you_mean(str(name), NAMES)}"
            )
