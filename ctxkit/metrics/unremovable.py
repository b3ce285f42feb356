"""What a compaction cannot take out of a session's context, and what one at a given size loses."""

from __future__ import annotations

from functools import cached_property
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.engine import log_of, run
from ctxkit.metrics.forgotten import Forgotten
from ctxkit.metrics.shown import shown_by
from ctxkit.policies import triggers
from ctxkit.policies.rules import Rules
from ctxkit.policies.summarisers import Fixed
from ctxkit.policies.summary import Summary

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.metrics.item_arrays import ItemArrays
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes

TURN = 20_000
"""Tokens of the last turn that stay at most: what Pi keeps (`keep_recent_tokens`), and Codex of the
user's messages.
"""
LETTERS = 4
"""Characters a token of an item's text."""
JITTER = (0.93, 1.0, 1.07)
"""A loss is the mean of those of three sizes near one another: where one item more or less goes is
chance.
"""


class Unremovable(NamedTuple):
    """What stays in the context whatever a compaction takes, in tokens."""

    fixed: int
    """System prompt and tools, in the log or not."""
    turn: int
    """The turn that is being worked on: the median turn, at most `TURN`."""
    needed: int | None
    """The items that are named again later, were they written down: more at one call of ten. None
    where the log has no text.
    """

    @property
    def total(self) -> int:
        """All of it."""
        return self.fixed + self.turn + (self.needed or 0)

    def __str__(self) -> str:
        needed = "" if self.needed is None else f", {self.needed:,} of items needed later"
        return f"{self.fixed:,} of system and tools, {self.turn:,} of the last turn{needed}"


def stays(session: Session, anchored: Sizes, memory: ItemArrays | None) -> Unremovable:
    """Return what must stay in a session's context.

    Args:
        session: a recorded session with usage.
        anchored: the sizes of its messages.
        memory: the items of its messages; None: it has no text.
    """
    prompts = [n for n in anchored.recorded if n]
    said = sum(anchored.of(m) for m in session.messages if m.role == "system" and m.visible)
    fixed = min((anchored.fixed or 0) + said, *prompts) if prompts else said
    return Unremovable(
        fixed, min(_turn(session, anchored), TURN), None if memory is None else _needed(memory)
    )


def _turn(session: Session, anchored: Sizes) -> int:
    turns = [0]
    for message in session.messages:
        if message.visible and message.role != "system":
            turns += [0] if message.role == "user" and turns[-1] else []
            turns[-1] += anchored.of(message)
    return round(median(turns))


def _needed(memory: ItemArrays) -> int:
    """Return the tokens of the items in play, at the call above which one of ten lies."""
    items, first = memory.again, np.full(memory.n, len(memory.messages))
    np.minimum.at(first, memory.held.values, memory.held.owner)
    letters = np.array([len(found.text) for found in memory.numbers], np.int64)
    change = np.zeros(memory.calls + 2, np.int64)
    np.add.at(change, memory.arrival[first[items]], letters[items])
    np.add.at(change, memory.last_use[items] + 1, -letters[items])
    in_play = np.cumsum(change)[: memory.calls]
    return int(np.percentile(in_play, 90)) // LETTERS if len(in_play) else 0


class Risk:
    """What compactions of one session at a given size would lose, if their summaries kept nothing.

    Args:
        memory: the items of its messages.
        anchored: the sizes of its messages.
        floor: what a compaction leaves.
        fixed: the part of it that no compaction touches.
    """

    def __init__(self, memory: ItemArrays, anchored: Sizes, floor: int, fixed: int) -> None:
        self._memory, self._anchored = memory, anchored
        self._floor, self._keep = floor, max(floor - fixed, 1)
        self._known: dict[int, float] = {}

    @cached_property
    def _log(self) -> Log:
        rules = self._rules(2 * self._floor)
        return log_of(self._memory.session, rules, anchored=self._anchored)

    def _rules(self, size: int) -> Rules:
        policy = Summary(keep_tokens=self._keep, summariser=Fixed(1))
        return Rules(policy=policy, trigger=triggers.Above(max(size, self._floor + 1)))

    def at(self, size: int) -> float | None:
        """Return the share of what is used again that such compactions would take before its use.

        At most so much is lost. None where nothing is used again.
        """
        again = len(self._memory.again)
        return fmean(self._lost(round(size * j)) for j in JITTER) / again if again else None

    def _lost(self, size: int) -> float:
        if size not in self._known:
            done = run(self._log, self._rules(size), None)
            found = Forgotten(self._memory, shown_by(self._memory, done))
            self._known[size] = float(len(found.staked[0]))
        return self._known[size]

    def least(self, low: int, high: int, most: float) -> int:
        """Return about the smallest size between two that loses at most a share, else
        the larger.
        """
        while high - low > max(high // 50, 1):
            middle = (low + high) // 2
            low, high = (low, middle) if (self.at(middle) or 0.0) <= most else (middle, high)
        return high
