"""When a compaction is due: size, counts, spending, pauses, errors, by hand; joins: `dues`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Literal

from ctxkit.faces import listed
from ctxkit.history.clock import Clock
from ctxkit.history.view import role_code
from ctxkit.policies.dues import Always, Both, Due, Either, Never, Not
from ctxkit.policies.setting import Typed, at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import Log
    from ctxkit.messages import Message
    from ctxkit.policies.policy import Forecast
    from ctxkit.policies.setting import AboveZero, Positive, PositiveShare
    from ctxkit.tokens.counters import Room

__all__ = [
    "Above",
    "Always",
    "AtCalls",
    "Both",
    "Count",
    "CutShort",
    "Due",
    "Either",
    "Idle",
    "NearCap",
    "Never",
    "Not",
    "Overflow",
    "Recorded",
    "Share",
    "Spent",
    "TurnSpent",
    "Turns",
    "after_replies",
    "next_of",
]
__dir__ = listed(__all__)


@dataclass(frozen=True)
class Above(Due):
    """Due where the prompt is larger than a number of tokens."""

    word = "window_size"

    limit: float
    """Tokens."""
    or_equal: bool = False
    """Due at exactly that many, too (``>=``)."""
    estimated: bool = False
    """Compare the messages in the system's own measure instead of the prompt's tokens."""

    def __post_init__(self) -> None:
        at_least(self, 0, "limit")

    def tokens(self, room: Room) -> float:  # noqa: ARG002
        """Return the limit."""
        return self.limit

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = ceil(self.limit) - 1 if self.or_equal else self.limit
        return forecast.above(limit, start, stop, self.estimated)


@dataclass(frozen=True)
class Share(Typed, Due):
    """Due where the prompt is larger than a share of the window."""

    word = "window_size"

    share: PositiveShare = 1.0
    """Of what `of` says."""
    of: Literal["limit", "budget"] = "limit"
    """The window (`limit`), or the window less the reserve (`budget`)."""
    or_equal: bool = False
    """Due at exactly that share, too (``>=``)."""
    estimated: bool = False
    """Compare the messages in the system's own measure instead of the prompt's tokens."""

    def tokens(self, room: Room) -> float:
        """Return the limit in tokens."""
        return self.share * (room.limit if self.of == "limit" else room.budget)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = self.tokens(forecast.room)
        return forecast.above(
            ceil(limit) - 1 if self.or_equal else floor(limit), start, stop, self.estimated
        )


@dataclass(frozen=True)
class Count(Typed, Due):
    """Due where at least so many messages are shown."""

    word = "message_count"

    n: Positive
    roles: tuple[str, ...] = ()
    """Only these roles count; none named: all messages."""

    def __post_init__(self) -> None:
        for role in self.roles:
            role_code(role)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call that shows as many."""
        return forecast.count(self.n, self.roles, start, stop)


@dataclass(frozen=True)
class NearCap(Count):
    """Due where more than a share of the messages that may be shown are there (fuseraft's
    `ContextCapFraction`): a warning, before older ones are left out.
    """

    word = "message_cap"


@dataclass(frozen=True)
class Turns(Typed, Due):
    """Due where at least so many turns have begun since the last compaction."""

    word = "turn_count"

    n: Positive

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call so many turns later."""
        return forecast.turns(self.n, start, stop)


@dataclass(frozen=True)
class Spent(Typed, Due):
    """Due where one agent was sent so many tokens since the last compaction (a cut-over)."""

    word = "cumulative_budget"

    limit: AboveZero
    """Tokens; due at exactly that many, too."""
    agent: str | None = None
    """Only this agent's prompts; None: each agent's by themselves."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call before which as much was sent."""
        return forecast.spent(self.limit, start, stop, agent=self.agent)


@dataclass(frozen=True)
class Idle(Due):
    """Due where the session slept so long since the call before that the cache is gone."""

    word = "idle"

    seconds: float = 300.0

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call after such a pause; the first call of a session is none."""
        return next_of(Clock.of(forecast.log, self.seconds).calls, max(start, 1), stop)


@dataclass(frozen=True)
class AtCalls(Due):
    """Due before the calls named: by hand."""

    word = "manual"

    calls: tuple[int, ...]

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first of the calls."""
        return next_of(sorted(self.calls), start, stop)


@dataclass(frozen=True)
class Recorded(Due):
    """Due where the log recorded a compaction."""

    word = "recorded"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a recorded compaction before it."""
        return next_of([call for call, _ in forecast.log.recorded], start, stop)


@dataclass(frozen=True)
class Overflow(Due):
    """Due where the prompt does not fit, or (`recorded`) where the call before failed so."""

    word = "overflow"

    recorded: bool = False

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first such call."""
        if not self.recorded:
            return forecast.above(forecast.room.limit, start, stop)
        return next_of(after_replies(forecast.log, "overflow", _overflowed), start, stop)


@dataclass(frozen=True)
class CutShort(Due):
    """Due where the reply before was cut off by its length."""

    word = "cut_short"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call after such a reply."""
        return next_of(after_replies(forecast.log, "length", _cut_short), start, stop)


@dataclass(frozen=True)
class TurnSpent(Typed, Due):
    """Due where the prompts of a turn, going on or just ended, are more than so many tokens."""

    word = "single_turn_limit"

    limit: AboveZero

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call before which one turn was sent more since the last compaction."""
        return forecast.turn_spent(self.limit, start, stop)


def after_replies(log: Log, key: str, test: Callable[[Message], bool]) -> list[int]:
    """Return the calls behind replies that pass a test, growing with the log; not to be changed."""
    known = log.memo.setdefault(("after", key), [1, []])
    found: list[int] = known[1]
    for call in range(known[0], len(log.upto)):
        reply = log.replies[call - 1]
        if reply is not None and test(reply):
            found.append(call)
        known[0] = call + 1
    return found


def _cut_short(message: Message) -> bool:
    return message.stop == "length"


def _overflowed(message: Message) -> bool:
    from ctxkit.models.overflow import is_overflow

    return bool(message.error) and is_overflow(message.error or "")


def next_of(calls: list[int], start: int, stop: int) -> int:
    """Return the first of some rising calls in start..stop, or `stop`."""
    at = bisect_left(calls, start)
    return min(calls[at], stop) if at < len(calls) else stop
