"""Writer of snapshot logs as fuseraft writes them, line by line or from a frame."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pandas as pd

from ctxkit._internal.safe_files import write_file_atomically
from ctxkit.errors import BadArguments, StoreError
from ctxkit.formats.snapshots.column_blocks_and_faults import (
    COMPACTION_FIELD,
    REQUIRED_FIELDS,
    SNAPSHOT_FIELDS,
    TEXT_FIELDS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_ESCAPED_CHARS = re.compile("[^ !#-%(-*,-;=?-\\[\\]-_a-~]")
_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\"}


def encode_snapshot(record: Mapping[str, Any]) -> str:
    """Return one line without its newline: the fields in fuseraft's order, without missing ones.

    Args:
        record: fields by name. `ts` is a datetime, a pandas Timestamp, or a text with a time.

    Raises:
        BadArguments: a field does not exist, or a required one is missing.
    """
    unknown = [name for name in record if name not in SNAPSHOT_FIELDS]
    if unknown:
        raise BadArguments(
            f"A snapshot has no field {unknown[0]!r}: it has {', '.join(SNAPSHOT_FIELDS)}."
        )
    fields = {
        name: record[name]
        for name in SNAPSHOT_FIELDS
        if name in record and not pd.isna(record[name])
    }
    missing = [name for name in REQUIRED_FIELDS if name not in fields]
    if missing:
        raise BadArguments(f"A snapshot needs {', '.join(missing)}.")
    if not fields.get(COMPACTION_FIELD, True):
        del fields[COMPACTION_FIELD]  # only markers have it
    return (
        "{"
        + ",".join(f'"{name}":{_encode_value(name, value)}' for name, value in fields.items())
        + "}"
    )


def _encode_value(name: str, value: Any) -> str:
    if name == "ts":
        return f'"{_escape_text(format_dotnet_time(value))}"'
    if name in TEXT_FIELDS:
        return f'"{_escape_text(str(value))}"'
    return "true" if name == COMPACTION_FIELD else str(int(value))


def format_dotnet_time(time_: datetime | pd.Timestamp | str) -> str:
    """Return a time in .NET's "O" format: UTC, seven digits of a second, offset ``+00:00``."""
    utc = pd.Timestamp(time_)
    utc = utc.tz_localize("UTC") if utc.tzinfo is None else utc.tz_convert("UTC")
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond:06d}{utc.nanosecond // 100}+00:00"


def _escape_text(text: str) -> str:
    r"""Escape as .NET's default JSON encoder: ``\uXXXX`` beyond ASCII and for ``"&'+<>` ``."""
    return _ESCAPED_CHARS.sub(
        _escape_char, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def _escape_char(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char in "\"'&+<>`\x7f":
        return f"\\u{ord(char):04X}"
    escaped = json.dumps(char)[1:-1]  # lower case, with surrogate pairs
    return escaped.upper().replace("\\U", "\\u")


class _Step(NamedTuple):
    """One line to be written: a turn or a marker."""

    agent: str
    turn: int
    counts: tuple[int, int, int]
    ts: Any
    other_fields: Mapping[str, Any]

    @property
    def identity(self) -> tuple[Any, ...] | None:
        """The values by which a turn's line is recognized; None for a marker."""
        timestamp = None if self.ts is None else format_dotnet_time(self.ts)
        return (
            None
            if COMPACTION_FIELD in self.other_fields
            else (timestamp, self.agent, self.turn, *self.counts)
        )


def _iter_steps(rows: pd.DataFrame) -> Iterator[_Step]:
    """Yield a step per turn, and a marker after each turn that a compaction followed."""
    count_columns = ("turn_input_tokens", "turn_output_tokens", "cumulative_input_tokens")
    for row in rows.astype(object).to_dict("records"):
        token_counts = tuple(0 if pd.isna(row[name]) else int(row[name]) for name in count_columns)
        thresholds = {
            threshold: None if pd.isna(row[threshold]) else int(row[threshold])
            for threshold in ("warn_at", "cutover_at")
        }
        turn, ts = int(row["turn"]), None if pd.isna(row["ts"]) else row["ts"]
        yield _Step(row["agent"], turn, token_counts, ts, thresholds)  # type: ignore[arg-type]
        if not pd.isna(row["compaction_occurred"]) and row["compaction_occurred"]:
            yield _Step("system", turn + 1, (0, 0, 0), ts, {COMPACTION_FIELD: True})


def _parse_identity(raw: bytes) -> tuple[Any, ...] | None:
    """Return the identity of a line, as `_Step` has it; an empty one if it is no object."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(record, dict):
        return ()
    return (
        None
        if record.get(COMPACTION_FIELD)
        else tuple(record.get(name) for name in REQUIRED_FIELDS)
    )


# Lines are appended unbuffered, so that a crash leaves whole lines and at most one torn tail, which
# the next writer ends. Running sums are kept per agent name without regard to case, as fuseraft
# does, and reset by a marker.


class SnapshotWriter:
    """Append to one snapshot log, with the running sum of each agent, as fuseraft does.

    A torn last line of another process is ended first. A new writer on an existing log begins its
    sums at zero and writes no marker, as a resumed session of fuseraft does.

    Args:
        path: the log; its folder is created.
        session: id written on every line; fuseraft's have eight lower-case hex digits.
        warn_at: threshold in tokens, written on every turn; None or 0 leaves it out.
        cutover_at: threshold in tokens, likewise.
        now: returns the present time.
        opener: opens the file (path, flags, mode) and returns a descriptor; None: `os.open`.

    Raises:
        StoreError: the file cannot be opened for writing.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import read_snapshots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...     read_snapshots(folder, cache=False)["turn_input_tokens"].tolist()
        [1200]
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

    def replace_turns(self, rows: pd.DataFrame) -> None:
        """Make the log contain exactly these turns, for instance after a branch or a restore.

        Lines that agree are not touched; from the first difference on, lines are replaced. The
        running sums continue from the last turn (fuseraft itself begins them at zero on resume).

        Args:
            rows: turns, as ``ctxkit.frame(per="turn")`` or `turns` of a log returns them.
        """
        steps = list(_iter_steps(rows))
        n_same, size = self._count_same([step.identity for step in steps])
        self._replace_tail(size, b"".join(self._encode_line(*step) for step in steps[n_same:]))
        self._sums.clear()
        for step in steps:
            if COMPACTION_FIELD in step.other_fields:
                self._sums.clear()
            else:
                self._sums[step.agent.lower()] = step.counts[2]

    def _replace_tail(self, size: int, tail: bytes) -> None:
        """Replace everything after the first bytes; if that fails, restore it."""
        self._file.seek(size)
        old_tail = self._file.read()
        if old_tail == tail:
            return
        self._file.truncate(size)
        try:
            self._file.write(tail)
        except OSError:
            self._file.truncate(size)
            self._file.write(old_tail)
            raise

    def _count_same(self, identities: list[tuple[Any, ...] | None]) -> tuple[int, int]:
        """Return how many steps the log has already, and the size of their lines in bytes."""
        self._file.seek(0)
        n_same = size = n_read = 0
        for raw in self._file.read().splitlines(keepends=True):
            identity, n_read = _parse_identity(raw), n_read + len(raw)
            is_repeated_marker = (identity is None and not identities[:n_same]) or (
                n_same and identity is None is identities[n_same - 1]
            )
            if not is_repeated_marker:
                if n_same == len(identities) or identity != identities[n_same]:
                    break
                n_same += 1
            size = n_read
        return n_same, size

    def turn(
        self,
        agent: str | None,
        turn: int,
        input_tokens: int,
        output_tokens: int,
        ts: datetime | pd.Timestamp | str | None = None,
    ) -> None:
        """Write the row of one turn; as with fuseraft, nothing is written without input tokens.

        Args:
            agent: the agent's name; None is "Unknown".
            turn: index of the turn, from 0.
            input_tokens: prompt tokens of all calls of the turn.
            output_tokens: output tokens of all calls of the turn.
            ts: end of the turn; None: now.
        """
        if input_tokens <= 0:
            return
        agent_name = agent or "Unknown"
        total = self._sums[agent_name.lower()] = (
            self._sums.get(agent_name.lower(), 0) + input_tokens
        )
        self._write(agent_name, turn, (input_tokens, output_tokens, total), ts, self._thresholds)

    def marker(self, turns: int, ts: datetime | pd.Timestamp | str | None = None) -> None:
        """Write the marker of a compaction, and reset all running sums.

        Args:
            turns: number of assistant turns of the session so far (a count, not an index).
            ts: end of the compaction; None: now.
        """
        self._sums.clear()
        self._write("system", turns, (0, 0, 0), ts, {COMPACTION_FIELD: True})

    def _write(self, *fields: Any) -> None:
        # Unbuffered append: after a crash the line is either whole or a torn tail.
        self._file.write(self._encode_line(*fields))

    def _encode_line(
        self,
        agent: str,
        turn: int,
        counts: tuple[int, int, int],
        ts: datetime | pd.Timestamp | str | None,
        other_fields: Mapping[str, Any],
    ) -> bytes:
        fields = [self._now() if ts is None else ts, self.session, agent, turn, *counts]
        text = encode_snapshot({**dict(zip(SNAPSHOT_FIELDS, fields, strict=False)), **other_fields})
        return text.encode() + b"\n"

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_snapshots(log: pd.DataFrame, path: str | Path) -> None:
    """Write a frame of `read_snapshots` as one log, replacing an existing file.

    Args:
        log: the frame.
        path: the file.

    Raises:
        BadArguments: a required column is missing, or a value in it.
        StoreError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import read_snapshots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...     write_snapshots(read_snapshots(folder, cache=False), f"{folder}/copy.jsonl")
        ...     len(read_snapshots(f"{folder}/copy.jsonl", cache=False))
        1
    """
    missing = [name for name in REQUIRED_FIELDS if name not in log.columns]
    if missing:
        raise BadArguments(
            f"Give a frame with the columns of a snapshot log: {', '.join(missing)} not there."
        )
    names = [name for name in SNAPSHOT_FIELDS if name in log.columns]
    rows = zip(*(log[name].astype(object) for name in names), strict=True)
    content = "".join(encode_snapshot(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    write_file_atomically(Path(path), (content.encode(),), 0o666)
