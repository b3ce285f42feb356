"""What the coming calls will be like if nothing is edited: straight from running sums, or sampled from a pruning."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.history.columns import ROLES
from ctxkit.history.view import role_code
from ctxkit.policies.chain import applied
from ctxkit.policies.contents import is_empty
from ctxkit.policies.policy import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History, Log
    from ctxkit.history.clock import Clock
    from ctxkit.tokens.counters import Room

    Sent = Callable[[int, int], list[int]]
    """The prompt tokens that were billed for the calls a..b."""


class Straight:
    """No pruning: a call's size is an offset plus a running sum, so crossings are found by halves."""

    __slots__ = ("history", "log", "off", "room", "sent")

    def __init__(self, history: History, room: Room, sent: Sent | None = None) -> None:
        self.history, self.room, self.sent = history, room, sent
        self.log: Log = history.log
        tokens = self.log.tokens
        self.off = history.head.tokens - tokens.P[history.lo]

    def after(self, history: History) -> None:
        """Turn to another history of the same log."""
        self.history = history
        self.off = history.head.tokens - self.log.tokens.P[history.lo]

    # -- searches of triggers ------------------------------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, *, estimated: bool = False) -> int:
        """Return the first call whose prompt is larger than `limit` tokens (messages, in the system's own measure)."""
        if estimated:
            off = self.history.head.estimate - self.log.estimates.P[self.history.lo]
            return self.log.estimates.above(limit - off, start, stop)
        tokens = self.log.tokens
        if tokens.rising:
            return bisect_right(tokens.C, limit - self.off, start, stop)
        return tokens.above(limit - self.off, start, stop)

    def count(self, n: int, roles: tuple[str, ...], start: int, stop: int) -> int:
        """Return the first call that shows `n` messages of these roles (none: of any)."""
        h, log = self.history, self.log
        if not roles:
            return bisect_left(log.upto, n - h.head.size + h.lo, start, stop)
        codes = [role_code(r) for r in roles]
        left = n - sum(h.head.count(log, c) - log.counts[c][h.lo] for c in codes)
        if len(codes) == 1:
            return bisect_left(log.upto, bisect_left(log.counts[codes[0]], left), start, stop)
        return _halve(lambda call: sum(log.counts[c][log.upto[call]] for c in codes) >= left, start, stop)

    def turns(self, n: int, start: int, stop: int) -> int:
        """Return the first call at which `n` turns have begun since the last kept edit."""
        log = self.log
        aim = turn_at(log, self.history.since) + n
        return _halve(lambda call: turn_at(log, call) >= aim, start, stop)

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent was sent `limit` tokens or more since the last kept edit."""
        log, since, off = self.log, self.history.since, self.off
        if agent is None and log.one_agent:
            sums = log.tokens.Q
            aim = limit + sums[since]
            return _halve(lambda call: off * (call - since) + sums[call] >= aim, start, stop)
        for name in log.spending() if agent is None else [agent]:
            own = log.spending().get(name)
            if own is not None:
                stop = _spent_by(own, off, limit, since, start, stop)
        return stop

    def turn_spent(self, limit: float, start: int, stop: int) -> int:
        """Return the first call before which the turn so far, or the one just ended, was sent more than `limit`."""
        return _turn_spent(self, limit, start, stop)

    # -- billing -----------------------------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        return self.off + self.log.tokens.C[call]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop."""
        return self.log.tokens.calls(start, stop) + self.off

    def fresh(self, start: int, stop: int, clock: Clock) -> NDArray[Any]:
        """Return the tokens of these calls that are no cached prefix, if this history was sent at start - 1 as well."""
        sizes = self.log.tokens.calls(start, stop)
        before = np.array(clock.before[start:stop], np.int64)
        return np.where(clock.cold[start:stop], sizes + self.off, np.maximum(sizes - before, 0))


class Sampled(Straight):
    """With pruning: what the coming calls are sent is worked out as far as is asked; crossings are scans.

    A pruning with a `curve` is asked in pieces that double; a plain one makes the view of each call, so none too many.

    `warm`: the same history was already sent at start - 1, so the first call's freshness needs no view to be made.
    """

    __slots__ = ("_clock", "_end", "_fresh", "_piece", "_prompts", "_pruning", "_start", "_stop", "_view", "_warm")

    def __init__(
        self,
        history: History,
        room: Room,
        pruning: Any,
        clock: Clock,
        span: tuple[int, int],
        *,
        warm: bool,
        sent: Sent | None = None,
    ) -> None:
        super().__init__(history, room, sent)
        self._pruning, self._clock, self._warm = pruning, clock, warm
        self._start = self._end = span[0]
        self._stop = span[1]
        self._prompts = self._fresh = np.zeros(0, np.int64)
        self._piece = 0 if getattr(pruning, "curve", None) is None else 256
        self._view: History | None = None
        """What a plain pruning made of the call before `_end`."""

    def _reach(self, call: int) -> None:
        while self._end < min(call, self._stop):
            end = min(self._end + self._piece if self._piece else call, self._stop)
            begin = self._end - (self._view is None and (self._end > self._start or self._warm))
            if self._piece:
                self._piece *= 2
                prompts, fresh = curve(self._pruning, self.history, begin, end, self._clock, self.room)
            else:
                span = (begin, end)
                prompts, fresh, self._view = fold(self._pruning, self.history, span, self._clock, self.room, self._view)
            skip = self._end - begin
            self._prompts = np.concatenate((self._prompts, prompts[skip:]))
            self._fresh = np.concatenate((self._fresh, fresh[skip:]))
            self._end = begin + len(prompts)

    def above(self, limit: float, start: int, stop: int, *, estimated: bool = False) -> int:
        """Return the first call whose pruned prompt is larger; estimates are those of the history before pruning."""
        if estimated:
            return super().above(limit, start, stop, estimated=True)
        call = start
        while call < stop:
            self._reach(call + 1)
            end = min(self._end, stop)
            over = self._prompts[call - self._start : end - self._start] > limit
            at = int(over.argmax())
            if over[at]:
                return call + at
            call = end
        return stop

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call before which an agent was sent `limit` tokens or more since the last kept edit."""
        since, log = self.history.since, self.log
        sums: dict[str, int] = {}
        for call, size in enumerate(self.sent(since, self._start) if self.sent else (), since):
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + size
        for call in range(self._start, stop):
            if call >= start and (max(sums.values(), default=0) if agent is None else sums.get(agent, 0)) >= limit:
                return call
            sums[log.agents[call]] = sums.get(log.agents[call], 0) + self.size(call)
        return stop

    def leaves(self, before: int, *, removes: bool = True) -> bool:
        """Return True where the pruning says that it changes none of the messages before a position, at any call.

        `removes`: it may leave others out; where it does, one that says nothing may go too, whatever its role.
        """
        changes = getattr(self._pruning, "changes", None)
        if changes is None or before > self.history.head.size or before > 8:
            return False
        items = [self.history.item(p) for p in range(before)]
        if getattr(self._pruning, "removes", False) and (
            not removes or any(is_empty(i.message(self.log)) for i in items)
        ):
            return False
        return not any(ROLES[i.role(self.log)] in changes for i in items)

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        self._reach(call + 1)
        return int(self._prompts[call - self._start])

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop."""
        self._reach(stop)
        return self._prompts[start - self._start : stop - self._start]

    def fresh(self, start: int, stop: int, clock: Clock) -> NDArray[Any]:  # noqa: ARG002
        """Return the tokens of these calls that are no cached prefix."""
        self._reach(stop)
        return self._fresh[start - self._start : stop - self._start]


def curve(  # noqa: PLR0917  what a pruning's own `curve` takes
    pruning: Any, history: History, start: int, stop: int, clock: Clock, room: Room
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return prompt and fresh tokens of the calls start..stop, or as far as a pruning's own curve goes.

    A plain pruning makes the view of each.
    """
    fast = getattr(pruning, "curve", None)
    if fast is not None:
        prompts, fresh = (np.asarray(sizes) for sizes in fast(history, start, stop, clock, room))
        if len(prompts) != len(fresh) or not min(stop - start, 2) <= len(prompts) <= stop - start:
            raise BadArguments(
                f"The curve of {name_of(pruning)} gave {len(prompts)} and {len(fresh)} sizes for {stop - start} calls: "
                "it must give prompt and fresh tokens of each, or of the first of them, two or more."
            )
        return prompts, fresh
    prompts, fresh, _ = fold(pruning, history, (start, stop), clock, room)
    return prompts, fresh


def fold(  # noqa: PLR0917  what `curve` takes
    pruning: Any, history: History, span: tuple[int, int], clock: Clock, room: Room, last: History | None = None
) -> tuple[NDArray[Any], NDArray[Any], History | None]:
    """Return prompt and fresh tokens of the calls of a span, and the last view; `last` is that of the call before."""
    start, stop = span
    prompts, fresh = np.zeros(stop - start, np.int64), np.zeros(stop - start, np.int64)
    for call in range(start, stop):
        view = applied(pruning, history.at(call), room)
        size = view.tokens
        prompts[call - start] = size
        fresh[call - start] = size if clock.cold[call] or last is None else size - common(last, view)
        last = view
    return prompts, fresh, last


def common(a: History, b: History) -> int:
    """Return the tokens of the prefix that two views share, the fixed part included: what a cache may still hold."""
    n = min(len(a), len(b))
    if a.head is b.head and a.lo == b.lo:
        return b.fixed + b.before(n)
    edited = min(n, max(a.head.size, b.head.size))  # behind both heads are rows as they were said
    same = edited
    for name in ("rows", "keys", "tokens"):
        differ = a.front(name, same) != b.front(name, same)
        if differ.any():
            same = int(differ.argmax())
    if same < edited:
        return b.fixed + b.before(same)
    return b.fixed + b.before(n if edited == n or a.row(edited) == b.row(edited) else edited)


def _spent_by(own: tuple[list[int], list[int]], off: int, limit: float, since: int, start: int, stop: int) -> int:  # noqa: PLR0917
    """Return the first call before which one agent was sent so much; `own` holds its running sums."""
    calls, sizes = own
    aim, before = limit + sizes[since], calls[since]
    return _halve(lambda call: off * (calls[call] - before) + sizes[call] >= aim, start, stop)


def turn_at(log: Log, call: int) -> int:
    """Return the turn in which a call is sent."""
    upto = log.upto[call] if call < len(log.upto) else len(log.turns)
    return log.turns[upto - 1] if upto else 0


def _halve(true: Callable[[int], bool], start: int, stop: int) -> int:
    """Return the first call in start..stop from which on something is true; it never becomes false again."""
    while start < stop:
        middle = (start + stop) >> 1
        if true(middle):
            stop = middle
        else:
            start = middle + 1
    return start


def _turn_spent(look: Straight, limit: float, start: int, stop: int) -> int:
    log, since = look.log, look.history.since
    begin = start
    while begin > since and turn_at(log, begin - 1) >= turn_at(log, start) - 1:
        begin -= 1
    past = look.sent(begin, start) if look.sent else [look.size(c) for c in range(begin, start)]
    sizes = [*past, *(look.size(c) for c in range(start, stop))]
    sums = [0, *accumulate(sizes)]
    first = begin
    previous = 0
    for call in range(begin, stop):
        if call > begin and turn_at(log, call) != turn_at(log, call - 1):
            previous, first = sums[call - begin] - sums[first - begin], call
        so_far = sums[call - begin] - sums[first - begin]
        if call >= start and (so_far > limit or (so_far == 0 and previous > limit)):
            return call
    return stop
