"""Where the kept part begins: each system's own rule, on plain columns of kinds and sizes."""

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


def pi(kinds: Sequence[str], sizes: Sequence[int], keep: int, start: int = 0, stop: int | None = None) -> Cut:
    """Return Pi's cut: the first row that may be cut at or after the row where `keep` tokens are reached, walking back.

    Where no such row lies after it, such as behind a large last tool result, nothing is cut: the first row stays.

    Args:
        kinds: `user`, `assistant`, `tool`, `bash`, `custom`, `branch`; anything else is an entry without a message.
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


def fitting(sizes: Sequence[int], budget: int) -> int:
    """Return the first row of the longest tail within the budget; the newest row is kept whatever its size."""
    total = 0
    for i in range(len(sizes) - 1, -1, -1):
        total += sizes[i]
        if total > budget:
            return min(i + 1, len(sizes) - 1)
    return 0


def reaching(sizes: Sequence[int], keep: int) -> int:
    """Return the row at which the tail first reaches `keep` tokens, walking back (the crossing row is in); else 0."""
    total = 0
    for i in range(len(sizes) - 1, -1, -1):
        total += sizes[i]
        if total >= keep:
            return i
    return 0


def back_to_user(kinds: Sequence[str], row: int, start: int = 0) -> int:
    """Return the nearest user or branch summary row at or before `row`, -1 where there is none."""
    return next((i for i in range(row, start - 1, -1) if kinds[i] in ("user", "branch")), -1)


def last_turns(kinds: Sequence[str], turns: int) -> int:
    """Return the row of the `turns`-th user message from the end; 0 where there are not more than that many."""
    users = [i for i, k in enumerate(kinds) if k == "user"]
    return users[-turns] if 0 < turns < len(users) else 0


def last_messages(n: int, keep: int) -> int:
    """Return the row at which the last `keep` of `n` messages begin (never the first row where there are two)."""
    return n - min(max(keep, 1), max(n - 1, 1))
