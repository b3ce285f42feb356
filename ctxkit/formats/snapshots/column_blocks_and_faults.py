"""Fields, blocks of column arrays and faults of snapshot logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


SNAPSHOT_FIELDS = (
    "ts",
    "session",
    "agent",
    "turn",
    "turn_input_tokens",
    "turn_output_tokens",
    "cumulative_input_tokens",
    "warn_at",
    "cutover_at",
    "compaction_occurred",
)
"""The ten fields in the order in which fuseraft writes them."""
SESSION_NAMES = ("session_id", "sessionId", "conversation_id")
"""Other names of the field `session`, as programs that copy fuseraft's lines write it."""
TEXT_FIELDS = ("session", "agent")
COUNT_FIELDS = SNAPSHOT_FIELDS[3:9]
REQUIRED_FIELDS = ("ts", "agent", *SNAPSHOT_FIELDS[3:7])
"""Fields that every line of fuseraft has."""
COMPACTION_FIELD = "compaction_occurred"
_INT8_MAX, _INT16_MAX = np.iinfo(np.int8).max, np.iinfo(np.int16).max
MISSING_TIME = np.iinfo(np.int64).min

ARRAY_DTYPES: dict[str, np.dtype[Any]] = {
    "ts": np.dtype(np.int64),
    **{name: np.dtype(np.int32) for name in TEXT_FIELDS},
    **{name: np.dtype(np.int64) for name in COUNT_FIELDS},
    **{f"{name}.missing": np.dtype(np.bool_) for name in COUNT_FIELDS},
    COMPACTION_FIELD: np.dtype(np.bool_),
}
"""Array types: nanoseconds since 1970 (UTC), codes of texts (-1: missing), counts and masks."""

ColumnBlock = dict[str, "np.ndarray[Any, Any]"]
TextCodes = dict[str, dict[str, int]]


def new_text_codes() -> TextCodes:
    """Return an empty table of codes by text, in order of appearance, for each text column."""
    return {name: {} for name in TEXT_FIELDS}


def encode_texts(codes: dict[str, int], texts: Iterable[str | None]) -> list[int]:
    """Return the code of each text; -1 for None.

    Args:
        codes: code by text; new texts are added.
        texts: the values of a column.
    """
    return [-1 if text is None else codes.setdefault(text, len(codes)) for text in texts]


def recode_block(
    block: ColumnBlock, old_texts: Mapping[str, Sequence[str]], codes: TextCodes
) -> ColumnBlock:
    """Return a block with its text codes translated.

    Args:
        block: the block.
        old_texts: for each text column, the texts of the block's codes.
        codes: codes by text of the result; new texts are added.
    """
    recoded = dict(block)
    for name in TEXT_FIELDS:
        old_codes = pd.unique(block[name])
        new_codes = np.full(len(old_texts[name]) + 1, -1, np.int32)  # the last item is for code -1
        new_codes[old_codes] = encode_texts(
            codes[name], [None if code < 0 else old_texts[name][code] for code in old_codes]
        )
        recoded[name] = new_codes[block[name]]
    return recoded


def get_disk_dtype(name: str, n_texts: int) -> np.dtype[Any]:
    """Return the type of a column's array on disk.

    Args:
        name: name of the column.
        n_texts: number of different texts in a text column; its codes have the width that pandas
            gives them, so that none is copied.
    """
    if name not in TEXT_FIELDS:
        return ARRAY_DTYPES[name]
    return np.dtype(
        np.int8 if n_texts < _INT8_MAX else np.int16 if n_texts < _INT16_MAX else np.int32
    )


def count_rows(block: ColumnBlock) -> int:
    """Return the number of rows of a block."""
    return len(block["ts"])


def concat_blocks(blocks: Sequence[ColumnBlock]) -> ColumnBlock:
    """Concatenate blocks; a single block is returned without a copy."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return {name: np.empty(0, dtype) for name, dtype in ARRAY_DTYPES.items()}
    return {name: np.concatenate([b[name] for b in blocks]) for name in ARRAY_DTYPES}


def block_to_frame(
    block: ColumnBlock, texts: Mapping[str, Iterable[str]], columns: Sequence[str] = SNAPSHOT_FIELDS
) -> pd.DataFrame:
    """Return a frame over the arrays of a block, without a copy.

    Args:
        block: the arrays of a log's records.
        texts: for each text column, its texts in order of their codes.
        columns: columns of the frame, in order.
    """
    return pd.DataFrame({name: _make_column(block, texts, name) for name in columns}, copy=False)


def _make_column(block: ColumnBlock, words: Mapping[str, Iterable[str]], name: str) -> Any:
    values = block[name]
    if name == "ts":
        return pd.DatetimeIndex(values, dtype=pd.DatetimeTZDtype("ns", "UTC"), copy=False).array
    if name in TEXT_FIELDS:
        categories = list(words[name])
        return pd.Categorical.from_codes(
            values,
            pd.Index(categories) if categories else pd.Index([], dtype="str"),
            validate=False,
        )
    if name == COMPACTION_FIELD:
        return pd.arrays.BooleanArray(values, np.zeros(len(values), np.bool_))
    return pd.arrays.IntegerArray(values, block[f"{name}.missing"])


class SnapshotFault(NamedTuple):
    """A place of a log that could not be read, wholly or in part.

    Example:
        >>> from ctxkit.formats.snapshots import SnapshotFault
        >>> SnapshotFault("a.jsonl", 3, "no JSON", kept=False).line
        3
    """

    file: str
    """Path of the log."""
    line: int
    """Counted from 1; 0 for the whole file."""
    why: str
    """One sentence that says what was expected."""
    kept: bool
    """True if the line is a row of the frame nevertheless, as far as it could be read."""


class SnapshotFaults(tuple[SnapshotFault, ...]):
    """The faults of a frame, in order of files and lines, for `frame.attrs`.

    pandas deep-copies `attrs` with every operation and writes them as JSON; a tuple of tuples
    allows both at no cost.

    Example:
        >>> from ctxkit.formats.snapshots import SnapshotFault, SnapshotFaults
        >>> faults = SnapshotFaults([SnapshotFault("a.jsonl", 3, "no JSON", kept=False)])
        >>> list(faults.frame.columns)
        ['file', 'line', 'why', 'kept']
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """The faults as a frame with the columns file, line, why, kept."""
        return pd.DataFrame([tuple(f) for f in self], columns=list(SnapshotFault._fields))


class FaultCollector:
    """Collector of faults; a fault of many lines of a file is reported once."""

    def __init__(self) -> None:
        self.faults: list[SnapshotFault] = []
        self._reported: set[tuple[str, str]] = set()

    def add(self, file: str | Path, line: int, why: str, *, row_retained: bool = False) -> None:
        """Add a fault.

        Args:
            file: path of the log.
            line: line of the damage, from 1.
            why: what is wrong, as a sentence.
            row_retained: the row was read in spite of it.
        """
        self.faults.append(SnapshotFault(str(file), line, why, row_retained))

    def add_once(self, file: str | Path, line: int, why: str) -> None:
        """Add a fault of a file at its first line only.

        Args:
            file: path of the log.
            line: line of the damage, from 1.
            why: what is wrong; further lines with the same fault are not reported.
        """
        if (str(file), why) not in self._reported:
            self._reported.add((str(file), why))
            self.add(file, line, why, row_retained=True)

    def add_all(self, faults: list[SnapshotFault]) -> None:
        """Add the faults of an earlier reading."""
        self.faults.extend(faults)
        self._reported.update((f.file, f.why) for f in faults if f.kept)
