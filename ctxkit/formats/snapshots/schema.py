"""Fields, column arrays and faults of snapshot logs."""

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
TEXT_FIELDS = ("session", "agent")
COUNT_FIELDS = SNAPSHOT_FIELDS[3:9]
REQUIRED_FIELDS = ("ts", "agent", *SNAPSHOT_FIELDS[3:7])
"""Fields that every line of fuseraft's carries."""
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
"""Nanoseconds since 1970 (UTC), codes of texts (-1: missing), counts beside their masks."""

ColumnBlock = dict[str, "np.ndarray[Any, Any]"]
TextCodes = dict[str, dict[str, int]]


def new_text_codes() -> TextCodes:
    """Return empty tables of texts: for each text column, text to code in order of appearance."""
    return {name: {} for name in TEXT_FIELDS}


def encode_texts(words: dict[str, int], texts: Iterable[str | None]) -> list[int]:
    """Return the code of each text, giving new texts the next ones; None is -1."""
    return [-1 if text is None else words.setdefault(text, len(words)) for text in texts]


def recode_block(
    block: ColumnBlock, old: Mapping[str, Sequence[str]], words: TextCodes
) -> ColumnBlock:
    """Return the block with codes of `old` texts as those of `words`, which grow in order."""
    out = dict(block)
    for name in TEXT_FIELDS:
        seen = pd.unique(block[name])
        table = np.full(len(old[name]) + 1, -1, np.int32)  # its last place is that of -1
        table[seen] = encode_texts(
            words[name], [None if code < 0 else old[name][code] for code in seen]
        )
        out[name] = table[block[name]]
    return out


def disk_dtype(name: str, words: int) -> np.dtype[Any]:
    """The type of an array on disk; codes are as narrow as pandas', which would copy others."""
    if name not in TEXT_FIELDS:
        return ARRAY_DTYPES[name]
    return np.dtype(np.int8 if words < _INT8_MAX else np.int16 if words < _INT16_MAX else np.int32)


def row_count(block: ColumnBlock) -> int:
    """The number of rows of a block."""
    return len(block["ts"])


def concat_blocks(blocks: Sequence[ColumnBlock]) -> ColumnBlock:
    """Return blocks one after the other as one; no copy where there is only one."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return {name: np.empty(0, dtype) for name, dtype in ARRAY_DTYPES.items()}
    return {name: np.concatenate([b[name] for b in blocks]) for name in ARRAY_DTYPES}


def block_to_frame(
    block: ColumnBlock, words: Mapping[str, Iterable[str]], names: Sequence[str] = SNAPSHOT_FIELDS
) -> pd.DataFrame:
    """Return a frame over the arrays of a block: they are not copied."""
    return pd.DataFrame({name: _series(block, words, name) for name in names}, copy=False)


def _series(block: ColumnBlock, words: Mapping[str, Iterable[str]], name: str) -> Any:
    values = block[name]
    if name == "ts":
        return pd.DatetimeIndex(values, dtype=pd.DatetimeTZDtype("ns", "UTC"), copy=False).array
    if name in TEXT_FIELDS:
        texts = list(words[name])
        return pd.Categorical.from_codes(
            values, pd.Index(texts) if texts else pd.Index([], dtype="str"), validate=False
        )
    if name == COMPACTION_FIELD:
        return pd.arrays.BooleanArray(values, np.zeros(len(values), np.bool_))
    return pd.arrays.IntegerArray(values, block[f"{name}.missing"])


class SnapshotFault(NamedTuple):
    """One place of a log."""

    file: str
    line: int
    """Counted from 1; 0 is the whole file."""
    why: str
    kept: bool
    """True where the line is a row of the frame all the same, as far as it could be read."""


class Faults(tuple[SnapshotFault, ...]):
    """The faults of one reading, in order of files and lines; small enough to live in
    `frame.attrs`.

    pandas copies `attrs` deeply with every operation and writes them as JSON: a tuple of tuples
    bears both.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def frame(self) -> pd.DataFrame:
        """The faults as a frame: file, line, why, kept."""
        return pd.DataFrame([tuple(f) for f in self], columns=list(SnapshotFault._fields))


class FaultCollector:
    """Collects faults while reading; what holds for many lines of a file is told once."""

    def __init__(self) -> None:
        self.faults: list[SnapshotFault] = []
        self._told: set[tuple[str, str]] = set()

    def add(self, file: str | Path, line: int, why: str, *, kept: bool = False) -> None:
        """Note one place."""
        self.faults.append(SnapshotFault(str(file), line, why, kept))

    def once(self, file: str | Path, line: int, why: str) -> None:
        """Note something that holds for many lines of a file at its first line only."""
        if (str(file), why) not in self._told:
            self._told.add((str(file), why))
            self.add(file, line, why, kept=True)

    def remember(self, faults: list[SnapshotFault]) -> None:
        """Take over the faults of an earlier reading."""
        self.faults.extend(faults)
        self._told.update((f.file, f.why) for f in faults if f.kept)
