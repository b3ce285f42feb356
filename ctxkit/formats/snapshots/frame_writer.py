"""Snapshot logs byte for byte as fuseraft writes them, appended and flushed line by line."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pandas as pd

from ctxkit._internal.safe_fs import write_file
from ctxkit.errors import BadArguments, StoreError
from ctxkit.formats.snapshots.schema import (
    COMPACTION_FIELD,
    REQUIRED_FIELDS,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ESCAPED = re.compile("[^ !#-%(-*,-;=?-\\[\\]-_a-~]")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\"}


def encode_snapshot(record: Mapping[str, Any]) -> str:
    """Return one line, without its newline: the ten fields in their order, those that are missing
    left out.

    Args:
        record: fields by name. `ts` is a time (datetime, pandas' Timestamp, or text that is one).

    Raises:
        BadArguments: a field that does not exist, or one without which there is no line.
    """
    unknown = [name for name in record if name not in SNAPSHOT_FIELDS]
    if unknown:
        raise BadArguments(
            f"A snapshot has no field {unknown[0]!r}: it has {', '.join(SNAPSHOT_FIELDS)}."
        )
    known = {
        name: record[name]
        for name in SNAPSHOT_FIELDS
        if name in record and not pd.isna(record[name])
    }
    lacking = [name for name in REQUIRED_FIELDS if name not in known]
    if lacking:
        raise BadArguments(f"A snapshot needs {', '.join(lacking)}.")
    if not known.get(COMPACTION_FIELD, True):
        del known[COMPACTION_FIELD]  # only markers carry it
    return "{" + ",".join(f'"{name}":{_json(name, value)}' for name, value in known.items()) + "}"


def _json(name: str, value: Any) -> str:
    if name == "ts":
        return f'"{_quoted(format_dotnet_time(value))}"'
    if name in TEXT_FIELDS:
        return f'"{_quoted(str(value))}"'
    return "true" if name == COMPACTION_FIELD else str(int(value))


def format_dotnet_time(time: datetime | pd.Timestamp | str) -> str:
    """Return a time as .NET's "O" format writes it: UTC, seven digits of a second, offset
    ``+00:00``.
    """
    moment = pd.Timestamp(time)
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}{moment.nanosecond // 100}+00:00"


def _quoted(text: str) -> str:
    r"""Text as .NET's default JSON encoder writes it: beyond plain ASCII, and for ``"&'+<>` ``,
    ``\uXXXX``.
    """
    return _ESCAPED.sub(_escape, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT:
        return _SHORT[char]
    if char in "\"'&+<>`\x7f":
        return f"\\u{ord(char):04X}"
    escaped = json.dumps(char)[1:-1]  # lower case, with surrogate pairs
    return escaped.upper().replace("\\U", "\\u")


class _Step(NamedTuple):
    """What one line says."""

    agent: str
    turn: int
    counts: tuple[int, int, int]
    ts: Any
    more: Mapping[str, Any]

    @property
    def said(self) -> tuple[Any, ...] | None:
        """What makes it the line that it is; None: a marker."""
        when = None if self.ts is None else format_dotnet_time(self.ts)
        return (
            None if COMPACTION_FIELD in self.more else (when, self.agent, self.turn, *self.counts)
        )


def _steps(rows: pd.DataFrame) -> Iterator[_Step]:
    """Yield the lines of turns, a marker behind each after which a compaction fired."""
    sums = ("turn_input_tokens", "turn_output_tokens", "cumulative_input_tokens")
    for row in rows.astype(object).to_dict("records"):
        counts = tuple(0 if pd.isna(row[name]) else int(row[name]) for name in sums)
        limits = {k: None if pd.isna(row[k]) else int(row[k]) for k in ("warn_at", "cutover_at")}
        turn, ts = int(row["turn"]), None if pd.isna(row["ts"]) else row["ts"]
        yield _Step(row["agent"], turn, counts, ts, limits)  # type: ignore[arg-type]
        if row["compaction_occurred"]:
            yield _Step("system", turn + 1, (0, 0, 0), ts, {COMPACTION_FIELD: True})


def _parse_step(raw: bytes) -> tuple[Any, ...] | None:
    """Return what a line says, as `_Step.said` does; one that is no object says nothing."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, dict):
        return ()
    return None if found.get(COMPACTION_FIELD) else tuple(found.get(k) for k in REQUIRED_FIELDS)


class SnapshotWriter:
    """Appends to one snapshot log, and keeps the running sum of each agent as fuseraft does.

    A torn last line of another process is ended first. A new writer on an old log begins its sums
    at zero and writes no marker: that is what a resumed session of fuseraft looks like.

    Args:
        path: the log; its folder is made.
        session: id written on every line, eight lower-case hex digits at fuseraft's.
        warn_at: threshold repeated on every turn; None or 0 leaves it out.
        cutover_at: the same.
        now: the clock.
        opener: opens the file (path, flags, mode) and gives its handle; None: `os.open`.
    """

    def __init__(
        self,
        path: str | Path,
        session: str | None = None,
        *,
        warn_at: int | None = None,
        cutover_at: int | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        opener: Callable[[Path, int, int], int] | None = None,
    ) -> None:
        self.path, self.session = Path(path), session
        self._thresholds = {"warn_at": warn_at or None, "cutover_at": cutover_at or None}
        self._now = now
        self._sums: dict[str, int] = {}
        try:
            if opener is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._file = os.fdopen((opener or os.open)(self.path, flags, 0o600), "r+b", buffering=0)
        except (OSError, ValueError) as e:
            raise StoreError(f"{self.path} cannot be written ({type(e).__name__}).") from None
        if self._file.seek(0, os.SEEK_END):
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def bring(self, rows: pd.DataFrame) -> None:
        """Bring the log to the turns that stand: after a branch or a restore it holds no others.

        Lines that say so already stay as they are; those from the first other one on are taken
        back, and what is missing is written. The running sums go on from there; fuseraft itself
        begins them at zero when a session is resumed.

        Args:
            rows: turns, as ``ctxkit.frame(per="turn")`` or `turns` of a log gives them.
        """
        wanted = list(_steps(rows))
        same, size = self._same([step.said for step in wanted])
        self._replace(size, b"".join(self._line(*step) for step in wanted[same:]))
        self._sums.clear()
        for step in wanted:
            if COMPACTION_FIELD in step.more:
                self._sums.clear()
            else:
                self._sums[step.agent.lower()] = step.counts[2]

    def _replace(self, size: int, tail: bytes) -> None:
        """Put other lines behind the first bytes; the old ones stay where that fails."""
        self._file.seek(size)
        old = self._file.read()
        if old == tail:
            return
        self._file.truncate(size)
        try:
            self._file.write(tail)
        except OSError:
            self._file.truncate(size)
            self._file.write(old)
            raise

    def _same(self, wanted: list[tuple[Any, ...] | None]) -> tuple[int, int]:
        """Return how many of the steps the log says already, and the bytes that say them."""
        self._file.seek(0)
        same = size = read = 0
        for raw in self._file.read().splitlines(keepends=True):
            said, read = _parse_step(raw), read + len(raw)
            again = (said is None and not wanted[:same]) or (
                same and said is None is wanted[same - 1]
            )
            if not again:
                if same == len(wanted) or said != wanted[same]:
                    break
                same += 1
            size = read
        return same, size

    def turn(
        self,
        agent: str | None,
        turn: int,
        input_tokens: int,
        output_tokens: int,
        ts: datetime | pd.Timestamp | str | None = None,
    ) -> None:
        """Write the row of one turn; without input tokens nothing is written, as at fuseraft's.

        Args:
            agent: its name; None is "Unknown".
            turn: zero-based index.
            input_tokens: prompts of all calls of the turn together.
            output_tokens: output of all calls together.
            ts: when it ended; now, if None.
        """
        if input_tokens <= 0:
            return
        name = agent or "Unknown"
        total = self._sums[name.lower()] = self._sums.get(name.lower(), 0) + input_tokens
        self._write(name, turn, (input_tokens, output_tokens, total), ts, self._thresholds)

    def marker(self, turns: int, ts: datetime | pd.Timestamp | str | None = None) -> None:
        """Write that a compaction finished; all running sums begin anew.

        Args:
            turns: assistant turns of the session so far: a count, not an index.
            ts: when it finished; now, if None.
        """
        self._sums.clear()
        self._write("system", turns, (0, 0, 0), ts, {COMPACTION_FIELD: True})

    def _write(self, *said: Any) -> None:
        self._file.write(self._line(*said))  # unbuffered, at the end: one line whole or a torn tail

    def _line(
        self,
        agent: str,
        turn: int,
        counts: tuple[int, int, int],
        ts: datetime | pd.Timestamp | str | None,
        more: Mapping[str, Any],
    ) -> bytes:
        fields = [self._now() if ts is None else ts, self.session, agent, turn, *counts]
        text = encode_snapshot({**dict(zip(SNAPSHOT_FIELDS, fields, strict=False)), **more})
        return text.encode() + b"\n"

    def close(self) -> None:
        """Close the file; nothing is pending."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_snapshots(log: pd.DataFrame, path: str | Path) -> None:
    """Write a frame of `read_snapshots` as one log, replacing what was there.

    Raises:
        BadArguments: the frame lacks a column, or a row lacks what every line must have.
        StoreError: the file cannot be written.
    """
    lacking = [name for name in REQUIRED_FIELDS if name not in log.columns]
    if lacking:
        raise BadArguments(
            f"Give a frame with the columns of a snapshot log: {', '.join(lacking)} not there."
        )
    names = [name for name in SNAPSHOT_FIELDS if name in log.columns]
    rows = zip(*(log[name].astype(object) for name in names), strict=True)
    content = "".join(encode_snapshot(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    write_file(Path(path), (content.encode(),), 0o666)
