"""Clear old tool results in place: all but the last, a window of pairs, what is over a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.policies import contents, trims
from ctxkit.policies.courses import Traced, Untraceable
from ctxkit.policies.curves import last_results
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.log import Clock
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

CLEARED = "[Old tool result content cleared]"
WINDOW = "[result omitted — sliding window]"
ELIDED = (
    "[RESULT ELIDED — not the real output, do not reuse this as data. Re-run the tool if you need this result again.]"
)
HERE = (
    "\n[TRUNCATED HERE — everything after this point was cut for context budget; this is not the complete output. "
    "Re-run the tool if you need the rest.]"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Clear(Setting):
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
        if self.min_chars:
            which &= history.chars >= self.min_chars
        if not which.any():
            return history
        why = f"older than the last {self.keep_last} tool results"
        if "{lines}" in self.placeholder:
            new = history.shorten(self._texts(history, which), reason=why)
        else:
            new = history.shorten(which, self.placeholder, reason=why)
        return new if history.tokens - new.tokens >= self.at_least else history

    changes = ("tool",)

    @property
    def curve(self) -> Callable[..., tuple[NDArray[Any], NDArray[Any]]]:
        """What all coming calls are sent at once; not there with `polling` or `at_least`."""
        if self.polling > 1 or self.at_least:
            raise AttributeError("curve")
        return self._curve

    def _curve(
        self, history: History, start: int, stop: int, clock: Clock, _room: Room
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        whole = history.at(stop - 1)
        eligible = self._eligible(whole)
        if self.min_chars:
            eligible &= whole.chars >= self.min_chars
        text = self._sizes(whole) if "{lines}" in self.placeholder else self.placeholder
        return last_results(history, (start, stop), clock, self.keep_last, text, eligible=eligible)

    def _sizes(self, history: History) -> NDArray[Any]:
        """Return the tokens of each result's own placeholder; those of untouched rows are worked out once a log."""
        log, head = history.log, history.head.size
        known: dict[int, int] = log.memo.setdefault(("cleared", self.placeholder), {})
        out = np.zeros(len(history), np.int64)
        for p in np.flatnonzero(history.role("tool")).tolist():
            row = history.row(p)
            size = known.get(row) if p >= head else None
            if size is None:
                message = history[p]
                size = log.measure(contents.with_text(message, self._text(contents.texts(message))), row)
                if p >= head:
                    known[row] = size
            out[p] = size
        return out

    def _text(self, text: str) -> str:
        """Return what stands for a text, which is itself where it stands for another one already."""
        if text.startswith(self.placeholder.split("{lines}", maxsplit=1)[0]):
            return text
        return self.placeholder.replace("{lines}", str(len(text.splitlines())))

    def _eligible(self, history: History) -> NDArray[Any]:
        mask = history.role("tool") if self.allow == ("*",) else history.tool(*self.allow)
        return mask & ~history.tool(*self.deny) if self.deny else mask

    def _texts(self, history: History, which: NDArray[Any]) -> dict[int, Message | str]:
        out: dict[int, Message | str] = {}
        for p in np.flatnonzero(which).tolist():
            message = history[p]
            out[p] = contents.with_text(message, self._text(contents.texts(message)))
        return out


@dataclass(frozen=True, kw_only=True, repr=False)
class ToolPairs(Traced, Setting):
    """Keep the last pairs of call and result whole; older results become a placeholder (fuseraft's in-turn window)."""

    keep_pairs: int = 12
    """Replies with tool calls at the end whose results stay whole."""
    step: int = 1
    """Let the window grow by up to `step - 1` pairs before it shrinks again: the prefix stays the same in between."""
    from_chars: int = 0
    """Do nothing while all messages together have fewer characters."""
    placeholder: str = WINDOW
    """What an omitted result says; its call keeps its id."""

    def __post_init__(self) -> None:
        at_least(self, 0, "keep_pairs", "from_chars")
        at_least(self, 1, "step")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with the results of older pairs omitted."""
        if self.from_chars and int(history.chars.sum()) < self.from_chars:
            return history
        results = history.role("tool")
        pairs = np.unique(history.groups[results])
        keep = window_size(len(pairs), self.keep_pairs, self.step)
        if len(pairs) <= keep:
            return history
        old = results & np.isin(history.groups, pairs[: len(pairs) - keep])
        return history.shorten(old, self.placeholder, reason=f"older than the last {keep} tool pairs")

    changes = ("tool",)

    @property
    def alone(self) -> bool:
        """Whether only what comes after a pair matters: not where all messages or pairs are counted."""
        return self.step == 1 and not self.from_chars

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each pair leaves the window: at the first call that has enough newer ones."""
        if self.from_chars and course.states:
            raise Untraceable
        shown = course.shown
        at = np.flatnonzero(shown.role("tool"))
        pairs, firsts, which = np.unique(shown.groups[at], return_index=True, return_inverse=True)
        come = course.arrive[at[firsts]]
        if (np.diff(come) < 0).any() or (len(pairs) and pairs[0] < 0):
            raise Untraceable
        begin = int(np.searchsorted(np.cumsum(shown.chars), self.from_chars)) if self.from_chars else 0
        if begin == len(shown):
            return
        least = float(course.arrive[begin]) if self.from_chars else 0
        for p, n in zip(at.tolist(), which.tolist(), strict=True):
            newest = self.keep_pairs + (n // self.step + 1) * self.step - 1
            if newest < len(pairs):
                course.text(p, max(least, float(come[newest]), float(course.arrive[p])), self.placeholder)


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget(Setting):
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
        newest = len(history) - 1
        maybe = [p for p in np.flatnonzero(self._elidable(history)).tolist() if p != newest]
        saved = np.cumsum([int(chars[p]) - len(self.placeholder) for p in maybe])
        n = int(np.searchsorted(saved, over)) + 1 if len(saved) else 0
        n = min(-(-n // self.step) * self.step, len(maybe))
        new = history.shorten(maybe[:n], self.placeholder, reason="the oldest are elided to fit the budget")
        return self._cut_rest(new)

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


def window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window: `least`, and what has come beyond it modulo `step`."""
    return least if groups <= least else least + (groups - least) % step


def _first(mask: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the first n of a mask."""
    return mask & (np.cumsum(mask) <= n)
