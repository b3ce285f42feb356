"""Clear old tool results in place: all but the last few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.policies import contents
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

CLEARED = "[Old tool result content cleared]"


@dataclass(frozen=True, kw_only=True, repr=False)
class Clear(Traced, Setting):
    """Put a placeholder in the place of all tool results but the last few."""

    keep_last: int = 3
    """Results at the end that stay whole."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results may be cleared."""
    deny: tuple[str, ...] = ()
    """Names or globs of the tools whose results never are; stronger than `allow`."""
    at_least: int = 0
    """Clear only where this frees at least so many tokens: a cached prefix is worth more than a small saving."""
    min_chars: int = 0
    """Results of fewer characters are left alone."""
    polling: int = 1
    """Clear only at every n-th result, so that the prefix stays the same in between (SWE-agent's `polling`)."""
    placeholder: str = CLEARED
    """What a cleared result says; `{lines}` is the number of lines it had."""

    def __post_init__(self) -> None:
        at_least(self, 0, "keep_last", "at_least", "min_chars")
        at_least(self, 1, "polling")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with old results cleared."""
        results = history.role("tool")
        n = int(results.sum())
        old = (n + 1) // self.polling * self.polling - self.keep_last - 1 if self.polling > 1 else n - self.keep_last
        if old <= 0:
            return history
        which = _first(results, old) & self._eligible(history)
        if not which.any():
            return history
        why = f"older than the last {self.keep_last} tool results"
        if "{lines}" in self.placeholder:
            new = history.shorten({p: self._cleared(history[p]) for p in np.flatnonzero(which).tolist()}, reason=why)
        else:
            new = history.shorten(which, self.placeholder, reason=why)
        return new if history.tokens - new.tokens >= self.at_least else history

    changes = ("tool",)

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each result is cleared: as soon as `keep_last` newer ones are there."""
        if self.polling > 1 or self.at_least or (self.min_chars and course.states):
            raise Untraceable
        course.need_calls()
        shown = course.shown
        results = np.flatnonzero(shown.role("tool"))
        may = self._eligible(shown)[results]
        late = course.arrive[results[self.keep_last :]].tolist()
        for p, call, able in zip(results.tolist(), late, may.tolist(), strict=False):
            if able and "{lines}" in self.placeholder:
                course.change(p, call, self._cleared)
            elif able:
                course.text(p, call, self.placeholder)

    def _text(self, text: str) -> str:
        """Return what stands for a text, which is itself where it stands for another one already."""
        if text.startswith(self.placeholder.split("{lines}", maxsplit=1)[0]):
            return text
        return self.placeholder.replace("{lines}", str(len(text.splitlines())))

    def _eligible(self, history: History) -> NDArray[Any]:
        mask = history.role("tool") if self.allow == ("*",) else history.tool(*self.allow)
        if self.deny:
            mask = mask & ~history.tool(*self.deny)
        return mask & (history.chars >= self.min_chars) if self.min_chars else mask

    def _cleared(self, message: Message) -> Message:
        return contents.with_text(message, self._text(contents.texts(message)))


def _first(mask: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the first n of a mask."""
    return mask & (np.cumsum(mask) <= n)
