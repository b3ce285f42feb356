"""The longest prefix that a prompt shares with any sent before whose cache is still alive.

It is found by what the prompts say, not by how a rule came to it: the same prompts get the same
bill, whether a compaction, a mask or a function of a user's made them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.clock import Clock

    Numbers = NDArray[Any]

REMEMBERED = 256
"""Prompts, of those from which a later one parted, that are looked at again."""


class Parted(NamedTuple):
    """A prompt from which the next one parted."""

    call: int
    same: int
    """How many of its first messages the next one still has."""
    rest: Numbers
    """Contents of the others."""


class Prefixes:
    """The prompts of consecutive calls; each is told by where it parts from the one before."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._parted: list[Parted] = []
        self._seen: set[tuple[int, int]] = set()
        """Positions with contents that were there and gave way to others."""
        self._mixed = False
        """Contents gave way that are not among them."""

    def shared(
        self,
        call: int,
        same: int,
        was: Numbers,
        now: Numbers,
        gone: Iterable[tuple[int, int]] | None = None,
    ) -> int:
        """Return how many first messages of a prompt are in the cache.

        Args:
            call: its call; the one before is alive.
            same: how many of them the prompt before has, too; fewer than it has in all.
            was: contents of the prompt before.
            now: its own contents.
            gone: positions and contents of the prompt before that this one does not have; None:
                not known.
        """
        self._forget(call)
        first = int(now[same]) if same < len(now) else 0
        best = same
        if self._parted and (self._mixed or (same, first) in self._seen):
            best = self._longest(call, same, now)
        self._parted.append(Parted(call - 1, same, was[same:].copy()))
        if gone is None:
            self._mixed = True
        else:
            self._seen.update(gone)
        return best

    def forget(self) -> None:
        """Forget all prompts: no cache is left of them."""
        self._parted.clear()
        self._seen.clear()
        self._mixed = False

    def _forget(self, call: int) -> None:
        first = max(len(self._parted) - REMEMBERED, 0)
        while first < len(self._parted) and not self.clock.alive(self._parted[first].call, call):
            first += 1
        del self._parted[:first]

    def _longest(self, call: int, same: int, now: Numbers) -> int:
        """Look back from prompt to prompt; what is shared with one follows from the one after it."""
        best = shared = same
        for before in reversed(self._parted):
            if shared > before.same:
                shared = before.same
            elif shared == before.same:
                k = alike(before.rest, now[shared:])
                shared += k
                if self.clock.alive(before.call, call):
                    best = max(best, shared)
                if k == len(before.rest):
                    break  # all of it; those before it are shorter
        return best


def alike(a: Numbers, b: Numbers) -> int:
    """Return how many first values of two arrays are equal."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n


def contents(history: History) -> Numbers:
    """Return a number a message that is equal where the same is said at the same row."""
    rows, keys = history.column("rows"), history.column("keys")
    found: Numbers = -rows - 1
    makers = history.head.makers if history.head.size else {}
    for p in np.flatnonzero(keys).tolist():
        found[p] = makers[int(keys[p])].content
    return found


def common(a: History, b: History) -> int:
    """Return the tokens of the prefix that two views share, the fixed part included."""
    if a.head is b.head and a.lo == b.lo:
        return b.fixed + b.before(min(len(a), len(b)))
    return b.fixed + b.before(alike(contents(a), contents(b)))
