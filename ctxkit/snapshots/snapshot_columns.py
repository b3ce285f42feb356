"""Snapshot logs as columns: raw arrays in memory and on disk, a frame for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NAMES = (
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
TEXTS = ("session", "agent")
COUNTS = NAMES[3:9]
ALWAYS = ("ts", "agent", *NAMES[3:7])
"""Fields that every line of fuseraft's carries."""
FLAG = "compaction_occurred"
_FEW, _MANY = np.iinfo(np.int8).max, np.iinfo(np.int16).max
NAT = np.iinfo(np.int64).min

ARRAYS: dict[str, np.dtype[Any]] = {
    "ts": np.dtype(np.int64),
    **{name: np.dtype(np.int32) for name in TEXTS},
    **{name: np.dtype(np.int64) for name in COUNTS},
    **{f"{name}.missing": np.dtype(np.bool_) for name in COUNTS},
    FLAG: np.dtype(np.bool_),
}
"""Nanoseconds since 1970 (UTC), codes of texts (-1: missing), counts beside their masks."""

Block = dict[str, "np.ndarray[Any, Any]"]
Words = dict[str, dict[str, int]]


def new_words() -> Words:
    """Return empty tables of texts: for each text column, text to code in order of appearance."""
    return {name: {} for name in TEXTS}


def codes(words: dict[str, int], texts: Iterable[str | None]) -> list[int]:
    """Return the code of each text, giving new texts the next ones; None is -1."""
    return [-1 if text is None else words.setdefault(text, len(words)) for text in texts]


def recode(block: Block, old: Mapping[str, Sequence[str]], words: Words) -> Block:
    """Return the block with codes of `old` texts as those of `words`, which grow in order."""
    out = dict(block)
    for name in TEXTS:
        seen = pd.unique(block[name])
        table = np.full(len(old[name]) + 1, -1, np.int32)  # its last place is that of -1
        table[seen] = codes(words[name], [None if code < 0 else old[name][code] for code in seen])
        out[name] = table[block[name]]
    return out


def width(name: str, words: int) -> np.dtype[Any]:
    """The type of an array on disk; codes are as narrow as pandas', which would copy others."""
    if name not in TEXTS:
        return ARRAYS[name]
    return np.dtype(np.int8 if words < _FEW else np.int16 if words < _MANY else np.int32)


def rows(block: Block) -> int:
    """The number of rows of a block."""
    return len(block["ts"])


def join(blocks: Sequence[Block]) -> Block:
    """Return blocks one after the other as one; no copy where there is only one."""
    if len(blocks) == 1:
        return blocks[0]
    if not blocks:
        return {name: np.empty(0, dtype) for name, dtype in ARRAYS.items()}
    return {name: np.concatenate([b[name] for b in blocks]) for name in ARRAYS}


def frame(
    block: Block, words: Mapping[str, Iterable[str]], names: Sequence[str] = NAMES
) -> pd.DataFrame:
    """Return a frame over the arrays of a block: they are not copied."""
    return pd.DataFrame({name: _series(block, words, name) for name in names}, copy=False)


def _series(block: Block, words: Mapping[str, Iterable[str]], name: str) -> Any:
    values = block[name]
    if name == "ts":
        return pd.DatetimeIndex(values, dtype=pd.DatetimeTZDtype("ns", "UTC"), copy=False).array
    if name in TEXTS:
        texts = list(words[name])
        return pd.Categorical.from_codes(
            values, pd.Index(texts) if texts else pd.Index([], dtype="str"), validate=False
        )
    if name == FLAG:
        return pd.arrays.BooleanArray(values, np.zeros(len(values), np.bool_))
    return pd.arrays.IntegerArray(values, block[f"{name}.missing"])
