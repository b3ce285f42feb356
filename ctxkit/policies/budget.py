"""Elide the oldest results and replies while all messages together are over a budget of characters."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.policies import contents, trims
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

ELIDED = (
    "[RESULT ELIDED — not the real output, do not reuse this as data. Re-run the tool if you need this result again.]"
)
HERE = (
    "\n[TRUNCATED HERE — everything after this point was cut for context budget; this is not the complete output. "
    "Re-run the tool if you need the rest.]"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget(Traced, Setting):
    """While all messages have more characters than the budget, elide the oldest results and pure replies (fuseraft)."""

    max_chars: int = 200_000
    """Characters that all messages together may have."""
    step: int = 8
    """The number of elided messages is rounded up to a multiple of this: the prefix stays the same in between."""
    min_chars: int = 200
    """Characters that a result keeps at least when even this is not enough and the rest is cut."""
    placeholder: str = ELIDED
    """What an elided message says."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_chars", "step")
        at_least(self, 0, "min_chars")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history within the budget, as far as results and replies allow."""
        chars = history.chars
        over = int(chars.sum()) - self.max_chars
        if over <= 0:
            return history
        maybe = np.flatnonzero(self._elidable(history)[:-1])  # the newest message stays
        n = min(int(self._needed(chars[maybe], over)), len(maybe))
        new = history.shorten(maybe[:n], self.placeholder, reason="the oldest are elided to fit the budget")
        return self._cut_rest(new)

    changes = ("assistant", "tool")

    @property
    def alone(self) -> bool:
        """False: it counts all messages."""
        return False

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each message is elided; not known from the first call on at which even that is not enough."""
        if course.states:
            raise Untraceable
        shown, small = course.shown, course.shown.placeholder_size(self.placeholder)
        over = np.concatenate(([0], np.cumsum(shown.chars)))[course.count] - self.max_chars
        maybe = np.flatnonzero(self._elidable(shown))
        chars = shown.chars[maybe]
        there = np.searchsorted(maybe, course.count - 1)  # how many of them stand before the newest message of a call
        n = np.where(over > 0, np.minimum(self._needed(chars, over), there), 0)
        saves = np.where(shown.sizes[maybe] > small, chars - len(self.placeholder), 0)
        short = np.concatenate(([0], np.cumsum(saves)))[n] < over
        if short.any():
            course.until = int(short.argmax())
        when = np.searchsorted(n, np.arange(len(maybe)), side="right")
        for p, call in zip(maybe.tolist(), when.tolist(), strict=True):
            course.text(p, call if call < len(n) else inf, self.placeholder)

    def _needed(self, chars: NDArray[Any], over: Any) -> Any:
        """Return how many of the messages of these sizes must be elided to save so many characters, in whole steps."""
        saved = np.cumsum(chars - len(self.placeholder))
        return -(-(np.searchsorted(saved, over) + 1) // self.step) * self.step

    def _elidable(self, history: History) -> NDArray[Any]:
        long = history.chars > len(self.placeholder)
        mask: NDArray[Any] = history.role("tool") & long
        for p in np.flatnonzero(history.role("assistant") & long).tolist():
            mask[p] = contents.only_text(history[p])
        return np.asarray(mask & ~history.stays)

    def _cut_rest(self, history: History) -> History:
        """Cut what results are left to equal shares of what the budget leaves for them."""
        chars = history.chars
        if int(chars.sum()) <= self.max_chars:
            return history
        results = history.role("tool") & ~history.stays & (chars > len(self.placeholder))
        n = int(results.sum())
        if not n:
            return history
        protected = int(chars[~results].sum())
        share = max((self.max_chars - protected) // n - len(HERE), self.min_chars)
        changes: dict[int, Message | str] = {
            p: contents.with_text(history[p], trims.cut(contents.texts(history[p]), share, HERE))
            for p in np.flatnonzero(results & (chars > share + len(HERE))).tolist()
        }
        return history.shorten(changes, reason="results are cut to fit the budget") if changes else history
