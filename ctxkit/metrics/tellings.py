"""What each call is shown, as the times between which each row and each text is in sight.

The clock has two ticks a call: before call `c` all that was said since the last one is there
(`2 c`), then compactions and prunings change it, and that is what the call is sent (`2 c + 1`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.metrics.text_items import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.messages import Message
    from ctxkit.metrics.item_arrays import RowTimes

    Ints = NDArray[np.int64]

ELSEWHERE = ("offload", "artifact", "archive")
"""Words in an edit's reason or method, or in what stands for the text, that say that all of it is
kept elsewhere.
"""

_NOTHING: tuple[int | None, int] = None, 0


class Shown(NamedTuple):
    """What each call is shown. Times are ticks; a row is there from its arrival on."""

    end: int
    """One past the last tick."""
    until: Ints
    """For each row when it went, as it was said, for the first time; `end`: never."""
    again: Ints
    """Later stretches of rows that came back: columns row, start, end."""
    texts: Ints
    """Stretches of texts: columns text, start, end."""
    said: list[Ints]
    """The items that stand in each text."""
    size: Ints
    """The tokens of each text."""
    words: list[str]
    """What each text says."""
    elsewhere: Ints
    """Rows that went and are kept elsewhere: columns row, time."""
    moments: Ints
    """The calls before which something changed, rising."""
    numbers: tuple[int, ...]
    """The compaction of each moment, as ``frame(per="compaction")`` counts; without compactions as
    they come.
    """


class Telling:
    """Takes down what changes, in order.

    A *key* is a row, or below 0 a place of a text that stands for others; what stands for it is a
    row, a text as a number below 0, or None for nothing.
    """

    def __init__(self, rows: RowTimes) -> None:
        self._rows, self.end = rows, 2 * rows.calls + 2
        self._begin = (2 * rows.arrival).tolist()
        self._until = [self.end] * len(self._begin)
        self._now: dict[int, tuple[int, int]] = {}
        """What stands for a key and since when, where it is neither the row as said from its
        arrival on nor nothing.
        """
        self._again: list[tuple[int, ...]] = []
        self._spans: list[tuple[int, ...]] = []
        self._texts: dict[Any, int] = {}
        self._said: list[tuple[Ints, int, str]] = []
        self.elsewhere: list[tuple[int, ...]] = []
        self.flagged: set[int] = set()
        """Times at which all that went is kept elsewhere."""
        self.moments: dict[int, int] = {}
        self.changes = 0
        self.made: dict[tuple[int, int], int] = {}
        """The texts of what stands in a head, by row and key."""

    def text(self, message: Message) -> int:
        """Return the number below 0 of a text; equal texts have one."""
        size = self._rows.tokens(message)
        key = key_of(message), size
        if key not in self._texts:
            self._said.append((self._rows.stands_in(message), size, message.text))
            self._texts[key] = -len(self._said)
        return self._texts[key]

    def show(self, key: int, what: int | None, time: int) -> None:
        """Let something stand for a key from a time on."""
        was, since = self._now.get(key, _NOTHING)
        if was is None and key >= 0 and self._until[key] == self.end:
            was, since = key, self._begin[key]
        if was == what:
            return
        self.changes += 1
        if was is not None:
            self._ended(was, since, time)
        if what is None:
            self._now.pop(key, None)
        else:
            self._now[key] = what, time

    def hide(self, start: int, stop: int, kept: Iterable[int], time: int) -> None:
        """Let nothing stand for the rows start..stop; those that are kept are passed over."""
        odd = sorted({row for of in (kept, self._now) for row in of if start <= row < stop})
        for row in odd:
            if row in self._now and row not in kept:
                self.show(row, None, time)
        for first, end in pairwise([start - 1, *odd, stop]):
            went = self._until[first + 1 : end]  # a pruning may have hidden some before
            self._until[first + 1 : end] = [min(until, time) for until in went]
        self.changes += stop > start

    def _ended(self, was: int, since: int, time: int) -> None:
        if was >= 0 and self._until[was] == self.end and since == self._begin[was]:
            self._until[was] = time
        elif since < time:
            to, n = (self._again, was) if was >= 0 else (self._spans, -was - 1)
            to.append((n, since, time))

    def told(self) -> Shown:
        """Return all of it."""
        for what, since in self._now.values():
            self._ended(what, since, self.end)
        until, again = np.array(self._until, np.int64), _table(self._again)
        for time in self.flagged:
            rows = [
                *np.flatnonzero(until == time).tolist(),
                *again[again[:, 2] == time, 0].tolist(),
            ]
            self.elsewhere += [(row, time) for row in rows]
        calls = sorted(self.moments)
        return Shown(
            end=self.end,
            until=until,
            again=again,
            texts=_table(self._spans),
            said=[items for items, _, _ in self._said],
            size=np.array([n for _, n, _ in self._said], np.int64),
            words=[text for _, _, text in self._said],
            elsewhere=_table(self.elsewhere, 2),
            moments=np.array(calls, np.int64),
            numbers=tuple(self.moments[call] for call in calls),
        )


def _table(rows: list[tuple[int, ...]], width: int = 3) -> Ints:
    return np.array(rows, np.int64).reshape(-1, width)


def kept_elsewhere(*words: str | None) -> bool:
    """Say whether words of an edit, or of what stands for a text, say where all of it is kept."""
    told = " ".join(filter(None, words)).lower()
    return any(word in told for word in ELSEWHERE)
