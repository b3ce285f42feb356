"""Snapshot logs followed while they are written: new rows as they come, with no busy loop."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Self

from ctxkit.errors import BadArguments, ReadError
from ctxkit.snapshots.faults import Faults, Report
from ctxkit.snapshots.parse import parse
from ctxkit.snapshots.snapshot_columns import frame, join, new_words, rows
from ctxkit.snapshots.snapshot_files import SnapshotLog, find, groups, named

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd


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
    return Follower(named(paths), poll, idle, from_end=from_end)


class Follower:
    """New rows of logs, one frame at a time; made by `follow`."""

    def __init__(
        self, paths: list[str], poll: float, idle: float | None, *, from_end: bool = False
    ) -> None:
        self._paths, self._poll, self._idle = paths, poll, idle
        self._logs: dict[str, SnapshotLog] = {}
        self._words = new_words()
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
        report = Report()
        changed = [log for log in map(self._log, self._found()) if not log.is_same()]
        blocks = [parse(parts, self._words, report)[0] for parts in groups(changed, report)]
        out = frame(join([b for b in blocks if rows(b)]), self._words)
        out.attrs["faults"] = Faults(report.faults)
        return out

    def stop(self) -> None:
        """End the iteration, from any thread; what is there is not lost to a later `new`."""
        self._stopped.set()

    def _found(self) -> list[str]:
        out: list[str] = []
        for path in self._paths:
            try:
                out += find([path])
            except ReadError:  # not there yet
                continue
        return list(dict.fromkeys(out))

    def _log(self, path: str) -> SnapshotLog:
        log = self._logs.setdefault(path, SnapshotLog(path))
        if log.offset and not log.is_same() and not log.has_grown():
            log = self._logs[path] = SnapshotLog(path)
        return log
