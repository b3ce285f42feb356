"""Prompts of coming calls under a pruning, and what each shares with prompts before it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.engine.prefixes import PastPrompts, PromptPrefixes, common_length, content_hashes
from ctxkit.engine.segments import PrunedHistory
from ctxkit.policies.base import flatten_chain
from ctxkit.policies.forecast import UnprunedForecast
from ctxkit.policies.history.history import History
from ctxkit.policies.rules import unwrap_function
from ctxkit.policies.schedules.layers import SUM_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.forecast import BilledSizes
    from ctxkit.policies.history.log import CacheClock, MessageLog
    from ctxkit.policies.schedules.layers import Layer
    from ctxkit.policies.schedules.rows import HistoryRows
    from ctxkit.tokens.counters import ContextBudget


_FIRST_CALLS = 16
"""Calls that are worked out at once, ahead of what is asked; later half of those that are."""
_MAX_FORECASTS = 16
"""Prunings of which a log remembers what they made of it."""
_PLAIN_TYPES = (str, int, float, bool, type(None))
"""Types of settings that hold no more than their equality tells, as do tuples of them."""


class PrunedForecast(UnprunedForecast):
    """Prompts and what of each was sent before, read off the schedules of the parts.

    Parts that say no schedule, and all parts behind such a one, are asked call by call.

    Args:
        history: what is in force before any pruning.
        room: the limit, the reserve and the counter.
        pruning: a part, or a chain of parts.
        clock: tells at which calls no cache is left.
        start: the first call that is asked about.
        sent: what was billed for the calls before, from the last kept edit on.
        past: the prompts before the first one; None: there are none, or they are not known.
    """

    __slots__ = ("_bill", "_prompts", "_shared", "_sound", "called", "pruned", "start")

    def __init__(
        self,
        history: History,
        room: ContextBudget,
        pruning: BasePolicy,
        clock: CacheClock,
        start: int,
        *,
        sent: BilledSizes | None = None,
        past: PastPrompts | None = None,
    ) -> None:
        super().__init__(history, room, sent)
        self.pruned = PrunedHistory(history.at(start), pruning, room)
        self.called = bool(self.pruned.rest)
        """True where each call is asked by itself."""
        bill = _CalledBill if self.called else ScheduledBill
        self._bill: _CalledBill | ScheduledBill = bill(self.pruned, start, clock, past)
        self.start, self._sound = start, True
        self._prompts: list[int] = []
        self._shared: list[int] = []

    @property
    def end(self) -> int:
        """One past the last call that is worked out."""
        return self.start + len(self._prompts)

    def _reach(self, call: int, stop: int) -> None:
        """Work out all before a call; where schedules say it some more, but none from `stop`."""
        while self.end < call:
            ahead = min(self.end + max(len(self._prompts) // 2, _FIRST_CALLS), stop)
            self._sound = False
            prompts, shared = self._bill.extend(call, max(ahead, call))
            self._sound = True
            self._prompts += prompts
            self._shared += shared

    # -- searches of triggers ----------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are not pruned."""
        if estimated:
            return super().above(limit, start, stop, estimated=True)
        for call in range(start, stop):
            if call >= self.end:
                self._reach(call + 1, stop)
            if self._prompts[call - self.start] > limit:
                return call
        return stop

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent was sent so much since the last kept edit."""
        since, log, tokens = self.history.since, self.log, self.log.tokens
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self.start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self.start, stop):
            most = max(sums.values(), default=0) if agent is None else sums.get(agent, 0)
            if call >= start and most >= limit:
                return call
            owed = tokens.Q[call + 1] - tokens.Q[call] - tokens.C[call]
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call) + owed
        return stop

    # -- billing -----------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._reach(call + 1, call + 1)
        return self._prompts[call - self.start]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop; of those before its own, as billed."""
        self._reach(stop, stop)
        before = min(stop, self.start)
        past = list(self.sent(start, before)) if self.sent and start < before else []
        own = self._prompts[max(start - self.start, 0) : max(stop - self.start, 0)]
        return np.array([*past, *own], np.int64)

    def shared(self, start: int, stop: int) -> NDArray[Any]:
        """Return the tokens that each of these calls shares at its front with prompts before it."""
        self._reach(stop, stop)
        return np.array(self._shared[start - self.start : stop - self.start], np.int64)

    # -- what was sent -----------------------------------------------------------------------------

    def past(self, call: int) -> PastPrompts:
        """Return the prompts before a call, for what comes after an edit there."""
        return PastPrompts(self._bill.prefixes.upto(call), self._bill.sequence(call - 1))

    def looks_at(self, history: History) -> bool:
        """Return True where it tells of the coming calls of a history, nothing edited since."""
        own = self.history
        same = own.log is history.log and own.head is history.head and own.lo == history.lo
        return same and self.sound

    @property
    def sound(self) -> bool:
        """False where an error or an interrupt left it half worked out: it must be made anew."""
        return self._sound and self.pruned.schedule.sound


def forecast_whole_log(
    log: MessageLog, room: ContextBudget, pruning: BasePolicy, clock: CacheClock
) -> PrunedForecast:
    """Return what all calls of a log are sent without an edit; kept with the log for a while."""
    known: dict[Any, PrunedForecast] = log.memo.setdefault("pruned", {})
    parts = tuple(_part_identity(part) for part in flatten_chain(pruning))
    key = parts, room.limit, room.reserve, clock.life, len(log), log.calls
    found = known.get(key)
    if found is None or not found.sound:
        while len(known) >= _MAX_FORECASTS:
            del known[next(iter(known))]
        found = known[key] = PrunedForecast(History.start(log), room, pruning, clock, 0)
    return found


def _part_identity(part: BasePolicy) -> Any:
    """Return what is equal for parts that do the same: the kit's own are told apart by their
    settings, where these are plain values and all that an instance holds.

    Any other may hold more than its equality tells (a field that is not compared, a method of its
    own), so it equals itself alone; it is kept with what was made of it.
    """
    kind: Any = type(part)
    settings = vars(part)
    own = kind.__module__.startswith("ctxkit.") and is_dataclass(kind)
    if own and settings.keys() == {f.name for f in fields(kind)} and _plain(*settings.values()):
        return kind, tuple(settings.items())
    return id(unwrap_function(part))


def _plain(*values: object) -> bool:
    return all(type(v) in _PLAIN_TYPES or (type(v) is tuple and _plain(*v)) for v in values)


class _CalledBill:
    """The bill where a part must be asked call by call, behind those that say a schedule."""

    def __init__(
        self, pruned: PrunedHistory, start: int, clock: CacheClock, past: PastPrompts | None
    ) -> None:
        self._pruned, self._call = pruned, start
        self.prefixes = past.prefixes if past else PromptPrefixes(clock)
        self._last = past.last if past else None

    def extend(self, stop: int, ahead: int) -> tuple[list[int], list[int]]:
        self._pruned.schedule.extend(ahead)
        out: tuple[list[int], list[int]] = ([], [])
        for call in range(self._call, stop):
            view = self._pruned.left(call)
            same = self._same(call, content_hashes(view))
            out[0].append(view.tokens)
            out[1].append(0 if same is None else view.log.fixed_before(call) + view.before(same))
        self._call = max(stop, self._call)
        return out

    def _same(self, call: int, now: NDArray[Any]) -> int | None:
        """Return how many first messages a prompt shares, as `Tracks` does; None: for the first."""
        last, self._last = self._last, now
        return None if last is None else self.prefixes.shared(call, last, now)

    def sequence(self, call: int) -> NDArray[Any]:
        return content_hashes(self._pruned.left(call))


class LayerTrack:
    """What one layer leaves at a call: the contents and sizes of all positions; 0: hidden."""

    def __init__(self, layer: Layer, rows: HistoryRows) -> None:
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


class ScheduledBill:
    """The bill of a schedule: one track for each layer of which a call may be given one."""

    def __init__(
        self, pruned: PrunedHistory, start: int, clock: CacheClock, past: PastPrompts | None
    ) -> None:
        self._schedule, self._past = pruned.schedule, past
        self.prefixes = past.prefixes if past else PromptPrefixes(clock)
        self._tracks: list[LayerTrack] = []
        self._last: LayerTrack
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
            self._tracks = [LayerTrack(layer, rows) for layer in top.branches()]
        prompts, shared = list[int](), list[int]()
        was = log.fixed_at[max(self._call - 1, 0)]
        for call in range(self._call, top.stop):
            fixed = log.fixed_at[call]
            size = top.total(call, SUM_TOKENS) + fixed
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
        place = changed if old is new else common_length(old.contents, new.contents)
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
        same = common_length(last, here)
        if same < len(last):
            before = same + (new.count(place) if new.hides else place)
            says = int(here[same]) if same < len(here) else 0
            if self.prefixes.part(call, before, last[same:], says):
                now = self._with_added(call, new.shown)
                return self._behind(call, new, self.prefixes.longest(call, before, now))
        return self._behind(call, new, same, place)

    def _behind(self, call: int, track: LayerTrack, same: int, place: int = 0) -> int:
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
