"""Triggers: when a compaction is due, by size, counts, tokens spent, pauses, errors or call."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments, short_repr
from ctxkit.policies.history.history import is_new_request
from ctxkit.policies.history.history_view_and_searches import get_role_code
from ctxkit.policies.history.message_log import ColdCacheCalls
from ctxkit.policies.protocols import FunctionWrapper, HasName, is_only_call_overridden, name_of
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    ValidatedSettings,
    check_at_least,
)
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.protocols import PromptForecast, Trigger
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        AboveZero,
        Positive,
        PositiveShare,
    )
    from ctxkit.session.messages import Message
    from ctxkit.tokens.token_counters import ContextBudget


__all__ = [
    "Above",
    "Always",
    "AtCalls",
    "BaseTrigger",
    "Both",
    "Count",
    "Either",
    "Idle",
    "MessageCapWarning",
    "Never",
    "Not",
    "Overflow",
    "Recorded",
    "ReplyCutShort",
    "Share",
    "TokensSpent",
    "TurnTokensSpent",
    "Turns",
    "find_calls_after_replies",
    "first_call_in",
]
__dir__ = make_dunder_dir(__all__)


# A trigger is searched, not polled: `first(forecast, start, stop)` returns the first call at which
# it is due. The engine jumps there, compacts, and searches on from the new history, so a replay
# costs O(compactions x log calls) instead of O(calls). A trigger on sizes bisects running sums of
# the forecast; one on events (pauses, errors, recorded compactions) a sorted list of calls.
# The plain question `trigger(history, budget)` is a search over one call.


class BaseTrigger(HasName):
    """Base class of triggers: define `first`; ``a | b``, ``a & b`` and ``~a`` combine triggers.

    Example:
        >>> import ctxkit as ck
        >>> class EveryTenth(ck.policies.triggers.BaseTrigger):
        ...     def first(self, forecast, start, stop):
        ...         return min(-(-start // 10) * 10, stop)
        >>> rules = ck.policies.Rules("window:keep_tokens=500", EveryTenth())
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        4
    """

    if TYPE_CHECKING:  # as in `HasName`

        @property
        def parts(self) -> tuple[BaseTrigger, ...]:
            """The triggers that it combines."""

    else:
        parts = ()

    def tokens(self, budget: ContextBudget) -> float | None:  # noqa: ARG002
        """Return the prompt size in tokens above which it is due; None: it does not go by size."""
        return None

    word = ""
    """The reason in the log of compactions (`window_size`, `turn_count`, ...); empty: the name."""

    def why(self, forecast: PromptForecast, call: int) -> str:  # noqa: ARG002  combined triggers use them
        """Return the reason why it is due at a call.

        Args:
            forecast: the prompts of the calls since the last compaction.
            call: the call at which the trigger is due.
        """
        return self.name or self.word or name_of(self)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call in start..stop at which it is due, or `stop`.

        Args:
            forecast: the prompts of the calls start..stop if nothing is compacted.
            start: first call that is searched, from 0.
            stop: one past the last call that is searched.
        """
        raise NotImplementedError

    def __call__(self, history: History, budget: ContextBudget) -> bool:
        """Return True where it is due before the history's call."""
        from ctxkit.policies.unpruned_prompt_forecast import UnprunedForecast

        return (
            self.first(UnprunedForecast(history, budget), history.call, history.call + 1)
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
    """A plain function, or any other callable, as a trigger: it is called at each call."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call in start..stop at which the function returns True, or `stop`."""
        history, budget = forecast.history, forecast.budget
        return next((call for call in range(start, stop) if self(history.at(call), budget)), stop)

    def __call__(self, history: History, budget: ContextBudget) -> bool:
        """Return the result of the function.

        Raises:
            BadArguments: it is neither True nor False.
        """
        is_due = self.function(history, budget)
        if is_due not in (True, False):
            raise BadArguments(
                f"Trigger {self.name} returned {short_repr(is_due)}; it must return True or False."
            )
        return bool(is_due)


@runtime_checkable
class _HasFirst(Protocol):
    def first(self, forecast: PromptForecast, start: int, stop: int, /) -> int: ...


def as_trigger(candidate: object, what: str = "trigger") -> BaseTrigger:
    """Return a trigger as a `BaseTrigger`; a function, or a redefined `__call__`, is wrapped.

    Args:
        candidate: a trigger or a function ``(history, budget) -> bool``.
        what: the word for it in an error.

    Raises:
        BadArguments: it cannot be called.
    """
    if isinstance(candidate, BaseTrigger) and not is_only_call_overridden(candidate, "first"):
        return candidate
    if callable(candidate):
        return FunctionTrigger(candidate)
    if isinstance(candidate, _HasFirst):
        raise BadArguments(
            f"The {what} {short_repr(candidate)} has `first` but no `__call__`: derive its class"
            " from ctxkit.policies.triggers.BaseTrigger, which defines it."
        )
    raise BadArguments(
        f"The {what} {short_repr(candidate)} cannot be called: give a function (history, budget)."
    )


@dataclass(frozen=True)
class CompositeTrigger(BaseTrigger):
    """Base of triggers that combine others."""

    parts: tuple[BaseTrigger, ...]

    def __init__(self, parts: Sequence[Trigger]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_trigger, parts)))


def has_trigger(trigger: BaseTrigger | None, kind: type[BaseTrigger]) -> bool:
    """Return whether a trigger is of a kind, or has a part that is.

    Args:
        trigger: a trigger, which may combine others; None has no parts.
        kind: the class that is looked for.
    """
    return trigger is not None and (
        isinstance(trigger, kind) or any(has_trigger(part, kind) for part in trigger.parts)
    )


class Either(CompositeTrigger):
    """Due where any of several triggers is; written ``a | b``.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> trigger = Either([Above(8_000), Count(n=40)])
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", trigger)
        >>> len(ck.replay(session, rules).edits)
        4
    """

    def why(self, forecast: PromptForecast, call: int) -> str:
        """Return the reason of the first part that is due."""
        for part in self.parts:
            if part.first(forecast, call, call + 1) == call:
                return part.why(forecast, call)
        return super().why(forecast, call)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which any part is due."""
        for part in self.parts:
            stop = part.first(forecast, start, stop)
        return stop


class Both(CompositeTrigger):
    """Due where all of several triggers are, at the same call; written ``a & b``.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> trigger = Both([Above(4_000), Turns(n=20)])
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", trigger)
        >>> len(ck.replay(session, rules).edits)
        2
    """

    def why(self, forecast: PromptForecast, call: int) -> str:
        """Return the reasons of all parts."""
        return " and ".join(part.why(forecast, call) for part in self.parts)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which all parts are due."""
        # Each part moves the call on to its own next due call, until no part moves it any more:
        # `parts_due` counts the parts asked since the last move.
        parts_due, call = 0, start
        while parts_due < len(self.parts) and call < stop:
            for part in self.parts:
                next_due = part.first(forecast, call, stop)
                parts_due = parts_due + 1 if next_due == call else 0
                call = next_due
                if call >= stop:
                    return stop
        return call


@dataclass(frozen=True)
class Not(BaseTrigger):
    """Due where another trigger is not; written ``~a``.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> trigger = Both([Above(4_000), Not(Count(n=60))])
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", trigger)
        >>> len(ck.replay(session, rules).edits)
        28
    """

    part: BaseTrigger

    def __init__(self, part: Trigger) -> None:
        object.__setattr__(self, "part", as_trigger(part))

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which the other trigger is not due."""
        # The complement of a search has no shortcut: ask call by call.
        while start < stop and self.part.first(forecast, start, start + 1) == start:
            start += 1
        return start


@dataclass(frozen=True)
class Always(BaseTrigger):
    """Due before each call.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Always())
        >>> len(ck.replay(session, rules).edits)
        28
    """

    word = "every_call"

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `start`."""
        return start


@dataclass(frozen=True)
class Never(BaseTrigger):
    """Never due.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Never())
        >>> len(ck.replay(session, rules).edits)
        0
    """

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop`."""
        return stop


@dataclass(frozen=True)
class Above(BaseTrigger):
    """Due where the prompt is larger than a number of tokens.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Above(8_000))
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "window_size"

    limit: float
    """Prompt size in tokens."""
    or_equal: bool = False
    """Due at exactly that size, too (``>=``)."""
    estimated: bool = False
    """Compare the messages in the system's own measure instead of the prompt's tokens."""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "limit")

    def tokens(self, budget: ContextBudget) -> float:  # noqa: ARG002
        """Return the limit in tokens."""
        return self.limit

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = ceil(self.limit) - 1 if self.or_equal else self.limit
        return forecast.above(limit, start, stop, self.estimated)


@dataclass(frozen=True)
class Share(ValidatedSettings, BaseTrigger):
    """Due where the prompt is larger than a share of the window.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Share(share=0.5), window=16_000)
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "window_size"

    share: PositiveShare = 1.0
    """Share, above 0 and up to 1."""
    of: Literal["limit", "budget"] = "limit"
    """What the share refers to: the window (`limit`), or the window less the reserve (`budget`)."""
    or_equal: bool = False
    """Due at exactly that share, too (``>=``)."""
    estimated: bool = False
    """Compare the messages in the system's own measure instead of the prompt's tokens."""

    def tokens(self, budget: ContextBudget) -> float:
        """Return the limit in tokens."""
        return self.share * (budget.limit if self.of == "limit" else budget.prompt_limit)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call whose prompt is larger."""
        limit = self.tokens(forecast.budget)
        return forecast.above(
            ceil(limit) - 1 if self.or_equal else floor(limit), start, stop, self.estimated
        )


@dataclass(frozen=True)
class Count(ValidatedSettings, BaseTrigger):
    """Due where the prompt holds at least a number of messages.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Count(n=40))
        >>> len(ck.replay(session, rules).edits)
        4
    """

    word = "message_count"

    n: Positive
    """Number of messages."""
    roles: tuple[str, ...] = ()
    """Roles that are counted; empty: all messages."""

    def __post_init__(self) -> None:
        for role in self.roles:
            get_role_code(role)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call with so many messages."""
        return forecast.count(self.n, self.roles, start, stop)


@dataclass(frozen=True)
class MessageCapWarning(Count):
    """As `Count`, reported as `message_cap`: a warning near the most messages that are shown.

    It is fuseraft's `ContextCapFraction`, which warns before older messages are left out.

    Example:
        >>> import ctxkit as ck
        >>> rules = ck.policies.Rules("window", Above(8_000), warnings=MessageCapWarning(n=50))
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> replay.details["replay"]["warned"]
        [{'call': 24, 'trigger': 'message_cap'}]
    """

    word = "message_cap"


@dataclass(frozen=True)
class Turns(ValidatedSettings, BaseTrigger):
    """Due where at least a number of turns have begun since the last compaction.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Turns(n=20))
        >>> len(ck.replay(session, rules).edits)
        2
    """

    word = "turn_count"

    n: Positive
    """Number of turns."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call so many turns after the last compaction."""
        return forecast.turns(self.n, start, stop)


@dataclass(frozen=True)
class TokensSpent(ValidatedSettings, BaseTrigger):
    """Due where the prompts of one agent since the last compaction sum up to a number of tokens.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", TokensSpent(100_000))
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "cumulative_budget"

    limit: AboveZero
    """Sum of prompt tokens; due at exactly that sum, too."""
    agent: str | None = None
    """Name of the agent; None: any agent, each with its own sum."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which the sum is reached."""
        return forecast.spent(self.limit, start, stop, agent=self.agent)


IDLE_AHEAD_WORD = "idle_ahead"
"""The reason of a compaction that was made in a pause, before the cache expired."""


@dataclass(frozen=True)
class Idle(BaseTrigger):
    """Due after a pause so long that the prompt cache has expired: no cached prefix is lost.

    With `ahead` the compaction is made during the pause, while the cache still lives: give seconds
    below its life. The summary is then billed as reading the cached prompt.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Idle(seconds=60))
        >>> len(ck.replay(session, rules).edits)
        25
    """

    word = "idle"

    seconds: float = DEFAULT_CACHE_LIFE
    """Length of the pause, in seconds."""
    ahead: bool = False
    """True: compact at that moment of the pause, before the cache expires; False: after it."""

    def why(self, forecast: PromptForecast, call: int) -> str:
        """Return `idle`, or `idle_ahead` where the cache still lives."""
        return IDLE_AHEAD_WORD if self.ahead else super().why(forecast, call)

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call after such a pause; never the first call of a session."""
        return first_call_in(
            ColdCacheCalls.of(forecast.log, self.seconds).calls, max(start, 1), stop
        )


@dataclass(frozen=True)
class AtCalls(BaseTrigger):
    """Due before given calls, for instance to replay a compaction made by hand.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", AtCalls(calls=(10, 30)))
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "manual"

    calls: tuple[int, ...]
    """Numbers of calls, from 0."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first of these calls in start..stop, or `stop`."""
        return first_call_in(sorted(self.calls), start, stop)


@dataclass(frozen=True)
class Recorded(BaseTrigger):
    """Due where the log has a recorded compaction.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("research"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Recorded())
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "recorded"

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call before which a compaction is recorded."""
        return first_call_in([call for call, _ in forecast.log.recorded], start, stop)


@dataclass(frozen=True)
class Overflow(BaseTrigger):
    """Due where the prompt does not fit the window, or where the provider said so.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", Overflow(), window=8_000)
        >>> len(ck.replay(session, rules).edits)
        1
    """

    word = "overflow"

    recorded: bool = False
    """Due where the last call failed with a context overflow, whatever the size of the prompt."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call that overflows, or follows a recorded overflow."""
        if not self.recorded:
            return forecast.above(forecast.budget.limit, start, stop)
        return first_call_in(
            find_calls_after_replies(forecast.log, "overflow", _is_overflow_error), start, stop
        )


@dataclass(frozen=True)
class ReplyCutShort(BaseTrigger):
    """Due where the last reply was cut off at the output limit (stop reason `length`).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", ReplyCutShort())
        >>> len(ck.replay(session, rules).edits)
        0
    """

    word = "cut_short"

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call after a reply that was cut off."""
        return first_call_in(
            find_calls_after_replies(forecast.log, "length", _is_cut_short), start, stop
        )


@dataclass(frozen=True)
class TurnTokensSpent(ValidatedSettings, BaseTrigger):
    """Due where the prompts of the current turn, or the last one, sum up to more than a limit.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> rules = ck.policies.Rules("window:keep_tokens=4000", TurnTokensSpent(20_000))
        >>> len(ck.replay(session, rules).edits)
        10
    """

    word = "single_turn_limit"

    limit: AboveZero
    """Sum of prompt tokens of one turn, since the last compaction."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which the sum of a turn is above the limit."""
        return forecast.turn_spent(self.limit, start, stop)


def find_calls_after_replies(
    log: MessageLog, key: str, test: Callable[[Message], bool]
) -> list[int]:
    """Return the calls that follow a reply for which `test` is true; do not change the list.

    Args:
        log: the log; the result is cached in it and grows with it.
        key: name of the test in the cache.
        test: called once for each reply.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.policies.history import MessageLog
        >>> messages = ck.read(ck.samples.path("chat")).messages
        >>> from ctxkit.tokens.token_counters import default_counter
        >>> log = MessageLog.of(messages, default_counter())
        >>> len(find_calls_after_replies(log, "done", lambda reply: reply.stop == "stop"))
        43
    """
    known: tuple[int, list[int]] | None = log.memo.get(("after", key))
    next_call, calls = known or (1, [])
    for call in range(next_call, len(log.upto)):
        reply = log.replies[call - 1]
        if reply is not None and test(reply):
            calls.append(call)
        log.memo["after", key] = call + 1, calls
    return calls


def _is_cut_short(message: Message) -> bool:
    return message.stop == "length"


def _is_overflow_error(message: Message) -> bool:
    from ctxkit.session.overflow_errors import is_overflow

    return bool(message.error) and is_overflow(message.error or "")


def first_call_in(calls: list[int], start: int, stop: int) -> int:
    """Return the first of some sorted calls that is in start..stop, or `stop`.

    Args:
        calls: numbers of calls, in rising order.
        start: first call that counts.
        stop: one past the last call that counts.

    Example:
        >>> first_call_in([3, 8, 21], 5, 30), first_call_in([3, 8, 21], 5, 7)
        (8, 7)
    """
    i = bisect_left(calls, start)
    return min(calls[i], stop) if i < len(calls) else stop


@dataclass(frozen=True)
class LastUsageOverBudget(BaseTrigger):
    """Due before a new user request where the reported usage of the last reply is over the budget.

    The budget is the window less the reserve. This is Pi's `_checkCompaction`: failed replies
    report no usage, so the messages after the last successful reply are added as counted; a reply
    from before the last compaction is ignored.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> trigger = LastUsageOverBudget()
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", trigger, window=6_000)
        >>> len(ck.replay(session, rules).edits) > 0
        True
    """

    word = "window_size"

    waits: bool = False
    """Not due after an aborted reply that reports no usage (Pi before 1.5.2)."""

    def tokens(self, budget: ContextBudget) -> float:
        """Return the window less the reserve."""
        return budget.prompt_limit

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call with a new request whose last usage is over the budget."""
        log, since, limit = forecast.log, forecast.history.since, self.tokens(forecast.budget)
        for call in range(max(start, 1), stop):
            # The last row before a call is a request, if the user spoke.
            request = log.upto[call] - 1
            if not is_new_request(log, request, call) or (
                self.waits and is_previous_reply_aborted(log, call)
            ):
                continue
            last = find_last_successful_call(log, call)
            if last >= since and self.total(forecast, last, request) > limit:
                return call
        return stop

    @staticmethod
    def total(forecast: PromptForecast, last: int, request: int) -> int:
        """Return the tokens of a call with its reply, and of the messages up to a request.

        Args:
            forecast: the prompts of the calls so far.
            last: the call whose usage counts.
            request: row of the user's request in the log.
        """
        log = forecast.log
        first = log.upto[last]
        between = log.tokens.P[max(request, first)] - log.tokens.P[first]
        reply = log.replies[last]
        usage = reply.usage if reply is not None and reply.visible else None
        if usage is not None and usage.output_tokens:
            between += usage.output_tokens - (log.tokens.sizes[first] if first < request else 0)
        return int(forecast.prompts(last, last + 1)[0]) + between


def is_previous_reply_aborted(log: MessageLog, call: int) -> bool:
    """Return True where the reply before a call was aborted and reports no usage.

    Args:
        log: the log of the run.
        call: number of the call, from 1.
    """
    reply = log.replies[call - 1]
    if reply is None or reply.stop != "aborted":
        return False
    return reply.usage is None or not reply.usage.prompt_tokens


def find_last_successful_call(log: MessageLog, call: int) -> int:
    """Return the last call before a call whose reply did not fail; -1 where there is none.

    Args:
        log: the log of the run.
        call: number of the call, from 0.
    """
    for before in range(call - 1, -1, -1):
        reply = log.replies[before]
        if reply is not None and not reply.is_error:
            return before
    return -1
