"""Omit the results of all but the last pairs of call and result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME, OldFirst

if TYPE_CHECKING:
    from ctxkit.policies.setting import Natural, Positive
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

WINDOW = "[result omitted — sliding window]"


@dataclass(frozen=True, kw_only=True, repr=False)
class ToolPairs(Scheduled):
    """Keep the last pairs whole; older results become a placeholder (fuseraft's in-turn window)."""

    counts = False
    keep_pairs: Natural = 12
    """Replies with tool calls at the end whose results stay whole."""
    step: Positive = 1
    """The window grows by `step - 1` pairs before it shrinks: the prefix stays in between."""
    from_chars: Natural = 0
    """Do nothing while all messages together have fewer characters."""
    placeholder: str = WINDOW
    """What an omitted result says; its call keeps its id."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Omit the results of each pair as soon as enough newer ones are there."""
        if self.from_chars:
            stages = (None, replace(self, from_chars=0))
            view.stages(stages, lambda call, _: view.chars(call) >= self.from_chars)
            return
        window: OldFirst = view.memory.setdefault("window", OldFirst())
        shown: dict[int, list[int]] = view.memory.setdefault("results of each pair", {})
        for call, came, went, _ in view.news("tool"):
            for p in went:
                pair = view.rows.group(p)
                shown[pair].remove(p)
                if window.is_old(pair):
                    view.change(p, AS_IT_CAME, since=call)
                if not shown[pair]:
                    window.out(pair)
            for p in came:
                pair = view.rows.group(p)
                results = shown.setdefault(pair, [])
                results.append(p)
                if window.put(pair) if len(results) == 1 else window.is_old(pair):
                    view.change(p, self.placeholder, since=call)
            n = len(window.found)
            for pair, old in window.settle(n - window_size(n, self.keep_pairs, self.step)):
                for p in shown[pair]:
                    view.change(p, self.placeholder if old else AS_IT_CAME, since=call)


def window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window: `least`, and what has come beyond it modulo `step`."""
    return least if groups <= least else least + (groups - least) % step
