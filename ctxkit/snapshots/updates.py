"""Kept columns brought up to date: what is new is read, or all where a log is another."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ctxkit.snapshots import cache
from ctxkit.snapshots.faults import Faults, Report, SnapshotFault
from ctxkit.snapshots.parse import parse
from ctxkit.snapshots.snapshot_columns import TEXTS, Block, Words, new_words, recode
from ctxkit.snapshots.snapshot_files import SnapshotLog, Stamp, groups, seal, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TRIES = 3


def up_to_date(folder: Path, logs: list[str]) -> tuple[Block, Mapping[str, Any], Faults] | None:
    """Return a cache's rows, texts and faults, brought up to date; None where none is kept."""
    for _ in range(_TRIES):
        try:
            index = _opened(folder, logs) or _update(folder, logs)
        except (OSError, ValueError):  # no place, no right, or a damaged folder
            return None
        try:
            return *_rows(folder, index, logs), Faults(index.head.faults)
        except (OSError, ValueError):  # another process began anew, or the arrays are damaged
            cache.forget(folder)
    return None


def all_faults(found: list[SnapshotFault], logs: list[SnapshotLog]) -> Faults:
    """Return faults and last lines that are not finished, in the order of the logs."""
    report = Report()
    report.remember(found)
    for log in logs:
        if log.open:
            why = f"the last line is not finished ({log.open:,} bytes): it is read when it is"
            report.add(log.path, log.newlines + 1, why)
    if not report.faults:
        return Faults()
    place = {log.path: i for i, log in enumerate(logs)}
    return Faults(sorted(report.faults, key=lambda f: (place.get(f.file, -1), f.line)))


def _opened(folder: Path, logs: list[str]) -> cache.CacheIndex | None:
    """The head alone, where no log has changed and none has come or gone."""
    head = cache.load_head(folder)
    return cache.CacheIndex([], head=head) if head is not None and head.seal == seal(logs) else None


def _rows(
    folder: Path, index: cache.CacheIndex, logs: list[str]
) -> tuple[Block, Mapping[str, Any]]:
    if index.head.seal:
        return cache.mapped(folder, index.head), index.head.words
    return _recoded(folder, index, logs)


def _recoded(folder: Path, index: cache.CacheIndex, logs: list[str]) -> tuple[Block, Words]:
    """The rows in the order of the logs, with texts in order of appearance."""
    words = new_words()
    return (
        recode(cache.arranged(folder, index, _ranks(index, logs)), index.head.words, words),
        words,
    )


def _ranks(index: cache.CacheIndex, logs: list[str]) -> list[int]:
    """The place of each log of the index among those asked for."""
    place = {path: i for i, path in enumerate(logs)}
    return [place[log.path] for log in index.logs]


# -- what is new ----------------------------------------------------------------------------------


def _update(folder: Path, logs: list[str]) -> cache.CacheIndex:
    """Read what is new, or all where a log is not what it was; return these logs' index."""
    from filelock import FileLock

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(folder / "lock", mode=0o600):
        now = {path: stamp(path) for path in logs}
        index = cache.load(folder)
        if index is None or not _goes_on(index, now) or not cache.is_whole(folder, index.head):
            index = cache.CacheIndex(logs=[])
            cache.begin(folder, index)
        changed = _changed(index, now)
        if changed:
            _grow(folder, index, changed)
        else:
            _tidy(folder, index, logs)
        _note(index, logs)
        cache.save(folder, index)
    return index


def _goes_on(index: cache.CacheIndex, now: Mapping[str, Stamp]) -> bool:
    """True where every log still begins with what was read of it."""
    return all(
        log.stamp == now.get(log.path) or (log.path in now and log.has_grown())
        for log in index.logs
    )


def _changed(index: cache.CacheIndex, now: Mapping[str, Stamp]) -> list[int]:
    """Numbers of the logs of which there is more; those that are new are taken up."""
    known = {log.path for log in index.logs}
    index.logs.extend(SnapshotLog(path) for path in now if path not in known)
    return [i for i, log in enumerate(index.logs) if log.stamp != now[log.path]]


def _grow(folder: Path, index: cache.CacheIndex, changed: list[int]) -> None:
    report = Report()
    report.remember(index.faults)
    words = {
        name: {text: i for i, text in enumerate(index.head.words.get(name, []))} for name in TEXTS
    }
    for parts in groups([index.logs[i] for i in changed], report):
        block, runs = parse(parts, words, report)
        cache.append(folder, index, block, [(changed[i], n) for i, n in runs], words)
    index.faults = report.faults


def _tidy(folder: Path, index: cache.CacheIndex, logs: list[str]) -> None:
    """Write the rows anew in the order of the logs, so that they can be mapped again."""
    ranks = _ranks(index, logs)
    if cache.is_ordered(index.runs, ranks):
        return  # another process was quicker
    runs = sorted(index.runs, key=lambda run: ranks[run[0]])
    block, words = _recoded(folder, index, logs)  # before a new generation begins
    cache.begin(folder, index)
    cache.append(folder, index, block, runs, words)


def _note(index: cache.CacheIndex, logs: list[str]) -> None:
    """Write into the head what opening the same logs again needs."""
    ranks = _ranks(index, logs)
    here = [log for _, log in sorted(zip(ranks, index.logs, strict=True), key=itemgetter(0))]
    ordered = cache.is_ordered(index.runs, ranks)
    index.head.seal = seal(logs, (log.stamp for log in here)) if ordered else ""
    index.head.faults = list(all_faults(index.faults, here))
