"""The prompts of a schedule as arrays of contents and sizes, and what of each was sent before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import Prefixes, alike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history.clock import Clock
    from ctxkit.schedules import Layer, Rows, Schedule

_TOKENS = 0


class Track:
    """What one layer leaves at a call: the contents and sizes of all positions; 0: hidden."""

    def __init__(self, layer: Layer, rows: Rows) -> None:
        self._layer, self._rows = layer, rows
        self._contents: NDArray[Any] = np.zeros(64, np.int64)
        self._sizes: NDArray[Any] = np.zeros(64, np.int64)
        self.n = 0
        """How many positions are there."""
        self._next = 0

    def begin(self) -> None:
        """Stand before the calls of a new extension of the layer."""
        self._next = 0

    def step(self, call: int) -> list[tuple[int, int]]:
        """Go on to the next call; return positions and contents that are there no more."""
        was, n, events = self.n, self._rows.shown(call), self._layer.events
        if n > was:
            self._grow(was, n)
        gone = []
        while self._next < len(events) and events[self._next].call == call:
            _, p, old, new = events[self._next]
            self._next += 1
            if p < was:
                gone.append((p, old.content))
            self._contents[p], self._sizes[p] = new.content, new.tokens
        return gone

    def _grow(self, was: int, n: int) -> None:
        rows = self._rows
        if n > len(self._contents):
            more = max(n, 2 * len(self._contents)) - len(self._contents)
            self._contents = np.concatenate((self._contents, np.zeros(more, np.int64)))
            self._sizes = np.concatenate((self._sizes, np.zeros(more, np.int64)))
        for p in range(was, min(n, rows.head)):
            said = rows.said(p)
            self._contents[p], self._sizes[p] = said.content, said.tokens
        a = max(was, rows.head)
        if n > a:
            row, end = rows.row(a), rows.row(n - 1) + 1
            self._contents[a:n] = np.arange(-row - 1, -end - 1, -1)
            self._sizes[a:n] = rows.log.tokens.sizes[row:end]
        self.n = n

    @property
    def contents(self) -> NDArray[Any]:
        """Contents of all positions."""
        return self._contents[: self.n]

    def before(self, p: int) -> int:
        """Return the tokens of all positions before one."""
        return int(self._sizes[:p].sum())

    def behind(self, p: int) -> int:
        """Return the tokens of all positions from one on."""
        return int(self._sizes[p : self.n].sum())


class Tracks:
    """The bill of a schedule: one track for each layer of which a call may be given one."""

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule, self._clock = schedule, clock
        self._prefixes = Prefixes(clock)
        self._tracks: list[Track] = []
        self._call = schedule.rows.begin

    def extend(self) -> tuple[list[int], list[int]]:
        """Return prompts, and what of each no cache held, of the calls of the last extension."""
        top, rows, log = self._schedule.top, self._schedule.rows, self._schedule.rows.log
        if not self._tracks:
            self._tracks = [Track(layer, rows) for layer in top.branches()]
        for track in self._tracks:
            track.begin()
        prompts, fresh = list[int](), list[int]()
        for call in range(self._call, top.stop):
            size = top.total(call, _TOKENS) + log.fixed_at[call]
            shared = self._shared(call, size)
            prompts.append(size)
            fresh.append(size - shared)
        self._call = top.stop
        return prompts, fresh

    def _shared(self, call: int, size: int) -> int:
        """Return the tokens of a prompt that a living one before it has at its front, too."""
        top, n = self._schedule.top, self._tracks[0].n
        was, now = top.taken(call - 1), top.taken(call)
        old, new = self._tracks[was], self._tracks[now]
        cold = call == self._schedule.rows.begin or self._clock.cold[call]
        gone: list[tuple[int, int]] | None = new.step(call)
        if cold:
            self._rest(new, call)
            self._prefixes.forget()
            return 0
        if was != now:
            same, gone = alike(old.contents[:n], new.contents), None
        else:
            same = gone[0][0] if gone else n
        last, here = self._with_added(call - 1, old, n), None
        if same == n == len(last):
            self._rest(new, call)
            return size - self._new_tokens(call, new, n)
        here = self._with_added(call, new, new.n)
        if same == n:
            same += int(n < len(here) and here[n] == last[n])
            gone = gone if gone is None else [*gone, (n, int(last[n]))]
        if was == now and gone:
            last = last.copy()
            for p, content in gone:
                last[p] = content
        if same < len(last):
            same = self._prefixes.shared(call, same, last, here, gone)
        self._rest(new, call)
        return size - self._new_tokens(call, new, same)

    def _rest(self, done: Track, call: int) -> None:
        """Let the other tracks go on to a call."""
        for track in self._tracks:
            if track is not done:
                track.step(call)

    def _with_added(self, call: int, track: Track, n: int) -> NDArray[Any]:
        """Return the contents of a call's prompt, what stands at its end alone among them."""
        added = self._schedule.top.added(call)
        found = track.contents[:n]
        return found if added is None else np.append(found, added.content)

    def _new_tokens(self, call: int, track: Track, same: int) -> int:
        """Return the tokens of a prompt from a position on."""
        added = self._schedule.top.added(call)
        if same > track.n:
            return 0
        return track.behind(same) + (added.tokens if added else 0)
