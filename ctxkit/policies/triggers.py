"""Triggers: when a compaction is due, by size, counts, tokens spent, pauses, errors, or by hand."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, short_repr
from ctxkit.policies.base import Validated, at_least
from ctxkit.policies.history.history import is_new_request
from ctxkit.policies.history.log import CacheClock
from ctxkit.policies.history.view import role_code
from ctxkit.policies.protocols import FunctionWrapper, Named, is_call_overridden, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.base import AboveZero, Positive, PositiveShare
    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.policies.protocols import Forecast, Trigger
    from ctxkit.session.messages import Message
    from ctxkit.tokens.counters import ContextBudget


__all__ = [
    "Above",
    "Always",
    "AtCalls",
    "BaseTrigger",
    "Both",
    "Count",
    "CutShort",
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
    "calls_after_replies",
    "first_call_in",
]
__dir__ = public_dir(__all__)


class BaseTrigger(Named):
    """The foot of the triggers: the plain question follows from `first`.

    ``a | b``, ``a & b``, ``~a`` join them.
    """

    if TYPE_CHECKING:  # as in `WithName`

        @property
        def parts(self) -> tuple[BaseTrigger, ...]:
            """What it is joined from."""

    else:
        parts = ()

    def tokens(self, room: ContextBudget) -> float | None:  # noqa: ARG002
        """Return the prompt size, in tokens, above which it is due; None: not due by size."""
        return None

    word = ""
    """Why it fires, in the field's words (`window_size`, `turn_count`, ...); empty: its name."""

    def why(self, forecast: Forecast, call: int) -> str:  # noqa: ARG002  what is joined asks its parts
        """Return why it is due at a call at which it is."""
        return self.name or self.word or name_of(self)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call in start..stop at which it is due, or `stop`."""
        raise NotImplementedError

    def __call__(self, history: History, room: ContextBudget) -> bool:
        """Return True where it is due before the history's call."""
        from ctxkit.policies.forecast import UnprunedForecast

        return (
            self.first(UnprunedForecast(history, room), history.call, history.call + 1)
            == history.call
        )

    def __or__(self, other: Trigger) -> Either:
        return Either((self, other))

    def __ror__(self, other: Trigger) -> Either:
        return Either((other, self))

    def __and__(self, other: Trigger) -> Both:
        return Both((self, other))

    def __rand__(self, other: Trigger) -> Both:
        return Both((other, self))

    def __invert__(self) -> Not:
        return Not(self)


class FunctionTrigger(FunctionWrapper, BaseTrigger):
    """A plain function, or any callable that is no `Due`, as a trigger: asked at each call."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which the function says so."""
        history, room = forecast.history, forecast.room
        return next((call for call in range(start, stop) if self(history.at(call), room)), stop)

    def __call__(self, history: History, room: ContextBudget) -> bool:
        """Return what the function says.

        Raises:
            BadArguments: that is neither True nor False.
        """
        due = self.function(history, room)
        if due not in (True, False):
            raise BadArguments(
                f"Trigger {self.name} returned {short_repr(due)}; it must return True or False."
            )
        return bool(due)


@runtime_checkable
class _HasFirst(Protocol):
    def first(self, forecast: Forecast, start: int, stop: int, /) -> int: ...


def as_trigger(given: object, what: str = "trigger") -> BaseTrigger:
    """Return a trigger as one that says when it is due; a function, or a call redefined, is
    wrapped.

    Raises:
        BadArguments: it cannot be called.
    """
    if isinstance(given, BaseTrigger) and not is_call_overridden(given, "first"):
        return given
    if callable(given):
        return FunctionTrigger(given)
    if isinstance(given, _HasFirst):
        raise BadArguments(
            f"The {what} {short_repr(given)} has `first` and no call: derive its class from "
            "ctxkit.policies.triggers.BaseTrigger, which makes the call."
        )
    raise BadArguments(
        f"The {what} {short_repr(given)} cannot be called with a history and a room."
    )


@dataclass(frozen=True)
class CompositeTrigger(BaseTrigger):
    """The foot of what is joined from several triggers."""

    parts: tuple[BaseTrigger, ...]

    def __init__(self, parts: Sequence[Trigger]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_trigger, parts)))


class Either(CompositeTrigger):
    """Due where any part is."""

    def why(self, forecast: Forecast, call: int) -> str:
        """Return why the first of its parts is due that is."""
        for part in self.parts:
            if part.first(forecast, call, call + 1) == call:
                return part.why(forecast, call)
        return super().why(forecast, call)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the earliest of its parts."""
        for part in self.parts:
            stop = part.first(forecast, start, stop)
        return stop


class Both(CompositeTrigger):
    """Due where all parts are at once."""

    def why(self, forecast: Forecast, call: int) -> str:
        """Return why its parts are due."""
        return " and ".join(part.why(forecast, call) for part in self.parts)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which all parts are due."""
        agreed, call = 0, start
        while agreed < len(self.parts) and call < stop:
            agreed = 0
            for part in self.parts:
                later = part.first(forecast, call, stop)
                agreed = agreed + 1 if later == call else 0
                call = later
                if call >= stop:
                    return stop
        return call


@dataclass(frozen=True)
class Not(BaseTrigger):
    """Due where another trigger is not."""

    part: BaseTrigger

    def __init__(self, part: Trigger) -> None:
        object.__setattr__(self, "part", as_trigger(part))

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which the other is not due."""
        while start < stop and self.part.first(forecast, start, start + 1) == start:
            start += 1
        return start


@dataclass(frozen=True)
class Always(BaseTrigger):
    """Due before each call."""

    word = "every_call"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call."""
        return start


@dataclass(frozen=True)
class Never(BaseTrigger):
    """Never due."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop`."""
        return stop


@dataclass(frozen=True)
class Above(BaseTrigger):
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

    def tokens(self, room: ContextBudget) -> float:  # noqa: ARG002
        """Return the limit."""
        return self.limit

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = ceil(self.limit) - 1 if self.or_equal else self.limit
        return forecast.above(limit, start, stop, self.estimated)


@dataclass(frozen=True)
class Share(Validated, BaseTrigger):
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

    def tokens(self, room: ContextBudget) -> float:
        """Return the limit in tokens."""
        return self.share * (room.limit if self.of == "limit" else room.budget)

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = self.tokens(forecast.room)
        return forecast.above(
            ceil(limit) - 1 if self.or_equal else floor(limit), start, stop, self.estimated
        )


@dataclass(frozen=True)
class Count(Validated, BaseTrigger):
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
class Turns(Validated, BaseTrigger):
    """Due where at least so many turns have begun since the last compaction."""

    word = "turn_count"

    n: Positive

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call so many turns later."""
        return forecast.turns(self.n, start, stop)


@dataclass(frozen=True)
class Spent(Validated, BaseTrigger):
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
class Idle(BaseTrigger):
    """Due where the session slept so long since the call before that the cache is gone."""

    word = "idle"

    seconds: float = 300.0

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call after such a pause; the first call of a session is none."""
        return first_call_in(CacheClock.of(forecast.log, self.seconds).calls, max(start, 1), stop)


@dataclass(frozen=True)
class AtCalls(BaseTrigger):
    """Due before the calls named: by hand."""

    word = "manual"

    calls: tuple[int, ...]

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first of the calls."""
        return first_call_in(sorted(self.calls), start, stop)


@dataclass(frozen=True)
class Recorded(BaseTrigger):
    """Due where the log recorded a compaction."""

    word = "recorded"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a recorded compaction before it."""
        return first_call_in([call for call, _ in forecast.log.recorded], start, stop)


@dataclass(frozen=True)
class Overflow(BaseTrigger):
    """Due where the prompt does not fit, or (`recorded`) where the call before failed so."""

    word = "overflow"

    recorded: bool = False

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first such call."""
        if not self.recorded:
            return forecast.above(forecast.room.limit, start, stop)
        return first_call_in(
            calls_after_replies(forecast.log, "overflow", _is_overflow_error), start, stop
        )


@dataclass(frozen=True)
class CutShort(BaseTrigger):
    """Due where the reply before was cut off by its length."""

    word = "cut_short"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call after such a reply."""
        return first_call_in(
            calls_after_replies(forecast.log, "length", _is_cut_short), start, stop
        )


@dataclass(frozen=True)
class TurnSpent(Validated, BaseTrigger):
    """Due where the prompts of a turn, going on or just ended, are more than so many tokens."""

    word = "single_turn_limit"

    limit: AboveZero

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call before which one turn was sent more since the last compaction."""
        return forecast.turn_spent(self.limit, start, stop)


def calls_after_replies(log: MessageLog, key: str, test: Callable[[Message], bool]) -> list[int]:
    """Return the calls behind replies that pass a test, growing with the log; not to be changed."""
    known = log.memo.setdefault(("after", key), [1, []])
    found: list[int] = known[1]
    for call in range(known[0], len(log.upto)):
        reply = log.replies[call - 1]
        if reply is not None and test(reply):
            found.append(call)
        known[0] = call + 1
    return found


def _is_cut_short(message: Message) -> bool:
    return message.stop == "length"


def _is_overflow_error(message: Message) -> bool:
    from ctxkit.session.overflow_errors import is_overflow

    return bool(message.error) and is_overflow(message.error or "")


def first_call_in(calls: list[int], start: int, stop: int) -> int:
    """Return the first of some rising calls in start..stop, or `stop`."""
    at = bisect_left(calls, start)
    return min(calls[at], stop) if at < len(calls) else stop


@dataclass(frozen=True)
class LastUsageOverBudget(BaseTrigger):
    """Due before a new request where the last reply and its prompt are over the window less the
    reserve.

    As Pi's `_checkCompaction` has it: of failed replies nothing is known, so what came behind the
    last good one is added as counted; a reply from before the last compaction says nothing.
    """

    word = "window_size"

    waits: bool = False
    """A reply broken off, and billed nothing, is taken at its word: not due (Pi before 1.5.2)."""

    def tokens(self, room: ContextBudget) -> float:
        """Return the window less the reserve."""
        return room.budget

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a new request behind such a reply."""
        log, since, limit = forecast.log, forecast.history.since, self.tokens(forecast.room)
        for call in range(max(start, 1), stop):
            request = log.upto[call] - 1
            if not is_new_request(log, request, call) or (
                self.waits and is_reply_aborted(log, call)
            ):
                continue
            last = last_successful_call(log, call)
            if last >= since and self.total(forecast, last, request) > limit:
                return call
        return stop

    @staticmethod
    def total(forecast: Forecast, last: int, request: int) -> int:
        """Return the tokens of a call with its reply, and of what came between it and a request."""
        log = forecast.log
        first = log.upto[last]
        between = log.tokens.P[max(request, first)] - log.tokens.P[first]
        reply = log.replies[last]
        usage = reply.usage if reply is not None and reply.visible else None
        if usage is not None and usage.output_tokens:
            between += usage.output_tokens - (log.tokens.sizes[first] if first < request else 0)
        return int(forecast.prompts(last, last + 1)[0]) + between


def is_reply_aborted(log: MessageLog, call: int) -> bool:
    """Say whether the reply before a call was aborted and tells no usage."""
    reply = log.replies[call - 1]
    if reply is None or reply.stop != "aborted":
        return False
    return reply.usage is None or not reply.usage.prompt_tokens


def last_successful_call(log: MessageLog, call: int) -> int:
    """Return the last call before another whose reply did not fail; -1 where there is none."""
    for before in range(call - 1, -1, -1):
        reply = log.replies[before]
        if reply is not None and not reply.is_error:
            return before
    return -1
