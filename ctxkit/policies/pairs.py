"""Omit the results of all but the last pairs of call and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

WINDOW = "[result omitted — sliding window]"


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
        course.need_calls()
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


def window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window: `least`, and what has come beyond it modulo `step`."""
    return least if groups <= least else least + (groups - least) % step
