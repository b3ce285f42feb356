"""Elide the oldest results and replies while all messages are over a budget of characters."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME, OldFirst
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural, Positive
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

ELIDED = (
    "[RESULT ELIDED — not the real output, do not reuse this as data. "
    "Re-run the tool if you need this result again.]"
)
HERE = (
    "\n[TRUNCATED HERE — everything after this point was cut for context budget; "
    "this is not the complete output. Re-run the tool if you need the rest.]"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget(Scheduled):
    """While all messages have more characters than the budget, elide the oldest results and pure
    replies (fuseraft).
    """

    counts = False
    max_chars: Positive = 200_000
    """Characters that all messages together may have."""
    step: Positive = 8
    """How many are elided is a multiple of this: the prefix stays the same in between."""
    min_chars: Natural = 200
    """Characters that a result keeps at least when even this is not enough and the rest is cut."""
    placeholder: str = ELIDED
    """What an elided message says."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Elide the oldest at each call, so many that what is left fits; else cut the rest."""
        elidable: _Elidable = view.memory.setdefault("elidable", _Elidable(self.placeholder))
        news = {call: more for call, *more in view.news("assistant", "tool")}
        events = view.events("assistant", "tool")
        for call in view.calls():
            for p in sorted({*events.get(call, ()), *(p for ps in news.get(call, ()) for p in ps)}):
                elidable.look(view, p, call)
            over = view.chars(call) - self.max_chars
            n = min(self._needed(elidable, over), elidable.before(_newest(view, call)))
            for p, old in elidable.window.settle(n):
                view.change(p, self.placeholder if old else AS_IT_CAME, since=call)
            if over > elidable.taken(n):
                self._cut_rest(view, elidable, call)

    def _needed(self, elidable: _Elidable, over: int) -> int:
        """Return how many must be elided to save so many characters, in whole steps."""
        if over <= 0:
            return 0
        return -(-elidable.count(over) // self.step) * self.step

    def _cut_rest(self, view: ScheduleView, elidable: _Elidable, call: int) -> None:
        """Cut, for one call, what results are left to equal shares of what is left for them."""
        sizes = {p: elidable.sizes[p][0] for p in elidable.left() if view.role(p) == TOOL}
        if not sizes:
            return
        taken = elidable.taken(elidable.window.old)
        free = self.max_chars - (view.chars(call) - taken - sum(sizes.values()))
        share = max(free // len(sizes) - len(HERE), self.min_chars)
        for p, size in sizes.items():
            if size > share + len(HERE):
                view.change(p, partial(_shared, share=share), since=call, until=call + 1)


class _Elidable:
    """The messages that may be elided, the oldest first, and what eliding them takes away."""

    def __init__(self, placeholder: str) -> None:
        self.placeholder, self.window = placeholder, OldFirst()
        self.sizes: dict[int, tuple[int, int]] = {}
        """Characters of each, and of them those that eliding it takes away."""
        self._meant, self._taken = [0], [0]
        """Sums over the first ones, by the length of the placeholder, and as it really is."""
        self._kept: set[int] = set()
        """Those that say in no more tokens what they say than the placeholder does."""

    def look(self, view: ScheduleView, p: int, call: int) -> None:
        """Take in a message, or leave it out, as it stands at a call."""
        old = p in self.window and self.window.is_old(p)
        if p in self.window:
            del self._meant[self._place(p) :], self._taken[self._place(p) :]
            self.window.out(p)
            self._kept.discard(p)
        if self._concerns(view, p, call):
            size = view.left(p, call).chars
            saved = size - view.after(p, self.placeholder, call).chars
            self.sizes[p] = size, saved
            if not saved:
                self._kept.add(p)
            now = self.window.put(p)
            del self._meant[self._place(p) :], self._taken[self._place(p) :]
            if now and not old:
                view.change(p, self.placeholder, since=call)
            old = old and not now
        if old:
            view.change(p, AS_IT_CAME, since=call)

    def _concerns(self, view: ScheduleView, p: int, call: int) -> bool:
        state = view.left(p, call)
        if state.message is None or state.chars <= len(self.placeholder) or view.stays(p, call):
            return False
        return view.role(p) == TOOL or contents.only_text(state.message)

    def _place(self, p: int) -> int:
        return bisect_left(self.window.found, p) + 1

    def before(self, newest: int) -> int:
        """Return how many there are before a position."""
        return bisect_left(self.window.found, newest)

    def count(self, over: int) -> int:
        """Return how many must go to save so many characters; one too many: all are not enough."""
        for p in self.window.found[len(self._meant) - 1 :]:
            size, saved = self.sizes[p]
            self._meant.append(self._meant[-1] + size - len(self.placeholder))
            self._taken.append(self._taken[-1] + saved)
        return bisect_left(self._meant, over, 1)

    def taken(self, n: int) -> int:
        """Return the characters that eliding the first ones takes away."""
        return self._taken[n]

    def left(self) -> list[int]:
        """Return those that are there with all that they said."""
        window = self.window
        return [*sorted(p for p in self._kept if window.is_old(p)), *window.found[window.old :]]


def _newest(view: ScheduleView, call: int) -> int:
    """Return the position of the newest message, which is never elided."""
    p = view.shown(call)
    if view.before.added(call) is not None:
        return p
    while p and view.message(p - 1, call) is None:
        p -= 1
    return p - 1


def _shared(result: Message, share: int) -> Message:
    return contents.with_text(result, trims.cut(contents.texts(result), share, HERE))
