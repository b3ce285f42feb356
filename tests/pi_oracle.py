"""Pi's cut as its source (0.58.3) has it, on plain columns: the oracle of `PiSummary`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CUTTABLE = frozenset({"user", "assistant", "bash", "custom", "branch", "summary"})
"""Kinds of a row that may come first in what Pi keeps; a tool result never does."""
COSTED = frozenset({"user", "assistant", "bash", "custom", "tool", "summary"})
"""Kinds of a row whose size Pi counts while it walks back; entries beside the messages cost nothing."""
STARTS = frozenset({"user", "bash", "branch", "custom"})
"""Kinds of a row at which a turn begins, for Pi."""


class Cut(NamedTuple):
    """Where the kept part begins.

    `turn` is the row at which the turn of the cut began, -1 where the cut begins a turn itself.
    """

    first: int
    turn: int = -1

    @property
    def split(self) -> bool:
        """True where the cut falls inside a turn: its head needs a summary of its own."""
        return self.turn >= 0


def pi(
    kinds: Sequence[str], sizes: Sequence[int], keep: int, start: int = 0, stop: int | None = None
) -> Cut:
    """Return Pi's cut: the first row that may be one from where `keep` tokens are reached.

    Where none follows, as behind a large last tool result, nothing is cut: the first row stays.

    Args:
        kinds: `user`, `assistant`, `tool`, `bash`, `custom`, `branch`; any other has no message.
        sizes: tokens of each row.
        keep: tokens to keep.
        start: the first row that may be summarised.
        stop: one past the last row.
    """
    stop = len(kinds) if stop is None else stop
    points = [i for i in range(start, stop) if kinds[i] in CUTTABLE]
    if not points:
        return Cut(start)
    cut, total = points[0], 0
    for i in range(stop - 1, start - 1, -1):
        total += sizes[i] if kinds[i] in COSTED else 0
        if kinds[i] in COSTED and total >= keep:
            cut = next((p for p in points if p >= i), cut)
            break
    while cut > start and kinds[cut - 1] not in COSTED and kinds[cut - 1] != "compaction":
        cut -= 1
    return Cut(cut, -1 if kinds[cut] == "user" else turn_start(kinds, cut, start))


def turn_start(kinds: Sequence[str], row: int, start: int = 0) -> int:
    """Return the row at or before `row` at which its turn began, -1 where none did."""
    return next((i for i in range(row, start - 1, -1) if kinds[i] in STARTS), -1)
