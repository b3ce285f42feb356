"""Cline's and Roo's older rule: the beginning stays, the older half of the rest is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ctxkit.history import ASSISTANT, TOOL
from ctxkit.policies.setting import Setting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.policies.setting import Positive
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class DropHalf(Setting):
    """Drop the older half of the messages behind the beginning; results in a row are one message,
    as in their API.
    """

    keep_first: Positive = 2
    """Messages at the beginning that stay."""
    quarter: bool = True
    """Drop three quarters where the prompt is more than twice what is allowed (Cline)."""
    pairs: Literal["rest", "all"] = "rest"
    """`rest`: half of the pairs that may go; `all`: half of all but the first, made even."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history without the older messages."""
        starts = units(history)
        count = self.removed(len(starts), history.tokens / 2 > room.budget)
        first = self.keep_first
        if count <= 0 or first + count >= len(starts):
            return history
        start, last, stop = (int(starts[i]) for i in (first, first + count - 1, first + count))
        if self.pairs == "rest" and history.item(last).role(history.log) != ASSISTANT:
            stop = last
        start, stop = history.safe(start), history.safe_before(stop)
        return history.drop(stop, "the older half", start=start) if 0 < start < stop else history

    def removed(self, n: int, far: bool) -> int:
        """Return how many of so many messages go: always an even number.

        Args:
            n: messages, those at the beginning included.
            far: the prompt is far beyond what is allowed.
        """
        if self.pairs == "all":
            return (n - 1) // 2 // 2 * 2
        rest = n - self.keep_first
        return rest * 3 // 8 * 2 if far and self.quarter else rest // 4 * 2


def units(history: History) -> NDArray[np.int64]:
    """Return where messages of the API begin: results in a row, and what follows them, are one."""
    roles = history.column("roles")
    follows = np.zeros(len(roles), bool)
    follows[1:] = (roles[:-1] == TOOL) & (roles[1:] != ASSISTANT)
    return np.flatnonzero(~follows)
