"""Drop the oldest without a summary: pairs, turns, or all but a share of the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.history import ASSISTANT, USER
from ctxkit.policies.setting import Setting
from ctxkit.policies.summary_places import leading

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.setting import Natural, Positive, Proportion
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class Window(Setting):
    """Drop the oldest pairs until the rest fits a budget; leading summaries stay (fuseraft)."""

    keep_tokens: Positive = 60_000
    """Tokens that the messages may have."""
    estimated: bool = False
    """Count in the system's own measure instead of the bill's."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history within the budget; one message is kept behind the pinned ones."""
        size = history.estimated if self.estimated else history.tokens
        if size <= self.keep_tokens:
            return history
        start = leading(history)
        cut = history.fitting(self.keep_tokens, start=start, estimated=self.estimated)
        cut = pair(history, min(cut, len(history) - 1))
        return history.drop(cut, "over the budget", start=start)


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepTurns(Setting):
    """Keep the newest turns, drop the older ones, but the first of them where wanted."""

    keep_turns: Positive = 10
    """Newest turns to keep, each from its user message on."""
    keep_first: Natural = 0
    """Turns at the beginning that are kept too, such as the task."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the first and the newest turns."""
        cut = history.nth_last("user", self.keep_turns)
        start = leading(history)
        for _ in range(self.keep_first):
            following = history.next(start + 1, "user")
            start = following if following > 0 else len(history)
        cut = history.safe_before(max(cut, 0))
        return history.drop(cut, f"older than the last {self.keep_turns} turns", start=start)


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowShare(Setting):
    """Drop the oldest until the prompt fits a share of the window."""

    keep_share: Proportion = 0.5
    """Share of the window that the prompt may fill."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history within that share."""
        budget = int(room.limit * self.keep_share)
        if history.tokens <= budget:
            return history
        start = leading(history)
        cut = min(history.fitting(budget, start=start), len(history) - 1)
        cut = history.safe(cut) or history.safe_before(cut)
        return history.drop(cut, f"over {self.keep_share:.0%} of the window", start=start)


def pair(history: History, position: int) -> int:
    """Return the first safe cut from a position on that parts no question from its reply."""
    p = cut = history.safe(position)
    while p and p < len(history) and _answers(history, p):
        p = history.safe(p + 1)
    return p or cut or history.safe_before(position)


def _answers(history: History, position: int) -> bool:
    log = history.log
    if position == 0 or history.item(position).role(log) != ASSISTANT:
        return False
    return history.item(position - 1).role(log) == USER
