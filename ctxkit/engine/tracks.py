"""The prompts of a schedule as arrays of contents and sizes, and what of each was sent before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import Prefixes, alike
from ctxkit.schedules.sums import TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine.prefixes import PastPrompts
    from ctxkit.engine.stretches import PrunedHistory
    from ctxkit.history.clock import Clock
    from ctxkit.schedules import Layer, Rows


class Track:
    """What one layer leaves at a call: the contents and sizes of all positions; 0: hidden."""

    def __init__(self, layer: Layer, rows: Rows) -> None:
        self._layer, self._rows = layer, rows
        self._contents: NDArray[Any] = np.zeros(64, np.int64)
        self._sizes: list[int] = []
        self._known = 0
        """How many positions they hold."""
        self.n = 0
        """How many positions are there."""
        self.hides = False
        """True where a position was hidden at some call."""
        self._next = 0
        """How much of what changes is done."""

    def step(self, call: int) -> list[tuple[int, int]]:
        """Go on to a call; return positions and contents that are there no more."""
        was, events, i = self.n, self._layer.events, self._next
        self.n = self._rows.shown(call)
        if self.n > self._known:
            self._grow(self._known, self._rows.shown(self._layer.stop - 1))
        gone: list[tuple[int, int]] = []
        while i < len(events) and events[i].call <= call:
            _, p, old, new = events[i]
            i += 1
            if p < was:
                gone.append((p, old.content))
            self._contents[p], self._sizes[p] = new.content, new.tokens
            self.hides = self.hides or new.content == 0
        self._next = i
        return gone

    def _grow(self, was: int, n: int) -> None:
        """Take in positions as they were said."""
        rows = self._rows
        if n > len(self._contents):
            more = np.zeros(max(n, 2 * len(self._contents)) - len(self._contents), np.int64)
            self._contents = np.concatenate((self._contents, more))
        self._contents[was:n] = rows.contents(was, n)
        self._sizes += rows.sizes(was, n)
        self._known = n

    @property
    def contents(self) -> NDArray[Any]:
        """Contents of all positions."""
        return self._contents[: self.n]

    @property
    def shown(self) -> NDArray[Any]:
        """Contents of what is not hidden, in order."""
        found = self.contents
        shown: NDArray[Any] = found[found != 0]
        return shown

    def count(self, p: int) -> int:
        """Return how many positions before one are not hidden."""
        return int(np.count_nonzero(self._contents[:p]))

    def behind(self, p: int) -> int:
        """Return the tokens of all positions from one on."""
        return sum(self._sizes[p : self.n])

    def past(self, p: int, n: int, gone: Sequence[tuple[int, int]]) -> NDArray[Any]:
        """Return the contents of what was shown from a position to the n-th, before some went."""
        found: NDArray[Any] = self._contents[p:n].copy()
        for q, content in gone:
            found[q - p] = content
        return found[found != 0] if self.hides else found


class Tracks:
    """The bill of a schedule: one track for each layer of which a call may be given one."""

    def __init__(
        self, pruned: PrunedHistory, start: int, clock: Clock, past: PastPrompts | None
    ) -> None:
        self._schedule, self._past = pruned.schedule, past
        self.prefixes = past.prefixes if past else Prefixes(clock)
        self._tracks: list[Track] = []
        self._last: Track
        self._start = self._call = start
        self._adds = False

    def extend(self, _stop: int, ahead: int) -> tuple[list[int], list[int]]:
        """Return the prompts of the calls up to `ahead`, and what each shares with others.

        That is the longest prefix of a living prompt before it; where no cache is left, what it
        has in common with the prompt before.
        """
        schedule = self._schedule.extend(ahead)
        top, rows, log = schedule.top, schedule.rows, schedule.rows.log
        self._adds = top.adds
        if not self._tracks:
            self._tracks = [Track(layer, rows) for layer in top.branches()]
        prompts, shared = list[int](), list[int]()
        was = log.fixed_at[max(self._call - 1, 0)]
        for call in range(self._call, top.stop):
            fixed = log.fixed_at[call]
            size = top.total(call, TOKENS) + fixed
            prompts.append(size)
            new = self._new(call) if call > self._start else self._first(call, size)
            shared.append(max(size - new - max(fixed - was, 0), 0))
            was = fixed
        self._call = top.stop
        return prompts, shared

    def sequence(self, call: int) -> NDArray[Any]:
        """Return the contents of what a call was sent, in order."""
        top, n = self._schedule.top, self._schedule.rows.shown(call)
        contents = self._schedule.rows.contents(0, n)
        for p in top.touched():
            if p < n:
                contents[p] = top.state(p, call).content
        return self._with_added(call, contents[contents != 0])

    def _first(self, call: int, size: int) -> int:
        """Return the tokens of the first prompt that are new beside what came before."""
        self._last = new = self._tracks[self._schedule.top.taken(call)]
        new.step(call)
        if self._past is None:
            return size
        now = self._with_added(call, new.shown)
        return self._behind(call, new, self.prefixes.shared(call, self._past.last, now))

    def _new(self, call: int) -> int:
        """Return the tokens of a prompt behind what it shares with others."""
        top, old = self._schedule.top, self._last
        self._last = new = self._tracks[top.taken(call)]
        n, gone = old.n, new.step(call)
        changed = gone[0][0] if gone else n
        place = changed if old is new else alike(old.contents, new.contents)
        last = old.past(place, n, gone if old is new else ())
        if self._adds:
            last = self._with_added(call - 1, last)
        return self._parted(call, place, last) if len(last) else self._behind(call, new, 0, place)

    def _parted(self, call: int, place: int, last: NDArray[Any]) -> int:
        """Return the tokens behind what is shared, where a prompt may part from the last one.

        Args:
            call: its call.
            place: the first position at which it says something else than the last one did.
            last: what that one said from there on.
        """
        new = self._last
        here = new.contents[place:]
        if new.hides:
            here = here[here != 0]
        if self._adds:
            here = self._with_added(call, here)
        same = alike(last, here)
        if same < len(last):
            before = same + (new.count(place) if new.hides else place)
            says = int(here[same]) if same < len(here) else 0
            if self.prefixes.part(call, before, last[same:], says):
                now = self._with_added(call, new.shown)
                return self._behind(call, new, self.prefixes.longest(call, before, now))
        return self._behind(call, new, same, place)

    def _behind(self, call: int, track: Track, same: int, place: int = 0) -> int:
        """Return the tokens of a prompt behind so many messages from a position on."""
        there = track.n - place
        if track.hides:
            at = np.flatnonzero(track.contents[place:])
            there, place = len(at), place + (int(at[same]) - same if same < len(at) else track.n)
        added = self._schedule.top.added(call) if self._adds and same <= there else None
        return track.behind(place + same) + (0 if added is None else added.tokens)

    def _with_added(self, call: int, found: NDArray[Any]) -> NDArray[Any]:
        """Return contents with what stands at the end of a call alone."""
        added = self._schedule.top.added(call)
        return found if added is None else np.append(found, added.content)
