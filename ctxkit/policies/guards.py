"""Guards: postpone a compaction that is due, or refuse a result that is not smaller."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.policies.history.message_log import ColdCacheCalls
from ctxkit.policies.protocols import HasName, name_of
from ctxkit.policies.triggers import first_call_in
from ctxkit.policies.unpruned_prompt_forecast import get_turn_of_call
from ctxkit.policies.validated_settings_and_scheduled_prunings import ValidatedSettings
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Guard, PastCompactions, PromptForecast
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Natural,
        Positive,
        Proportion,
    )


__all__ = [
    "AntiThrash",
    "BaseGuard",
    "CompactionCountLimit",
    "Cooldown",
    "GraceAfterCompaction",
    "MinGrowthSinceCompaction",
    "MinProgress",
    "Smaller",
    "UntilCold",
]
__dir__ = make_dunder_dir(__all__)


# The engine asks guards in two places. When a trigger is due, each guard may postpone the
# compaction: `first` returns the earliest call that it allows, and the trigger must be due there,
# too. After the policy ran, each guard may refuse the result: `refuses` returns a reason, and the
# history stays as it was. Both are recorded as blocked compactions, with their reason.
# Guards have no state: they read the past from the run (its compactions) and the log.


class BaseGuard(HasName):
    """Base class of guards: define `first` to postpone, or `refuses` to reject a result.

    Example:
        >>> import ctxkit as ck
        >>> class KeepHalf(ck.policies.guards.BaseGuard):
        ...     def refuses(self, past, was, new):
        ...         return "less than half is left" if 2 * new.tokens < was.tokens else None
        >>> trigger = ck.policies.triggers.Above(8_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=1000", trigger, guards=KeepHalf())
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        0
    """

    word = ""
    """The name of the guard in notes (`anti-thrash`, ...); empty: the name of the class."""

    def why(self, past: PastCompactions) -> str:  # noqa: ARG002  guards that count use it
        """Return why a compaction is postponed."""
        return self.word or name_of(self)

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call at which a due compaction may happen, or `stop`.

        Args:
            past: the log and the compactions so far.
            forecast: the prompts of coming calls if nothing is compacted.
            start: the call at which the trigger is due, from 0.
            stop: one past the last call that may be returned.
        """
        return start

    def refuses(self, past: PastCompactions, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return why a result is refused, or None.

        Args:
            past: the log and the compactions so far.
            was: the history before the compaction.
            new: its result.

        Returns:
            One sentence on why the result is refused, or None.
        """
        return None


def get_guard_label(guard: Guard) -> str:
    """Return the name of a guard in notes."""
    return (guard.word if isinstance(guard, BaseGuard) else "") or name_of(guard)


def get_blocking_reason(guard: Guard, past: PastCompactions) -> str:
    """Return why a guard postpones a compaction: its own reason, else its name.

    Args:
        guard: the guard that blocks.
        past: the log and the compactions so far.
    """
    return guard.why(past) if isinstance(guard, BaseGuard) else name_of(guard)


@dataclass(frozen=True)
class AntiThrash(ValidatedSettings, BaseGuard):
    """No more compactions once the last ones all saved too little.

    fuseraft's program counts messages and never resets the guard.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=AntiThrash(window=3))
        >>> len(ck.replay(session, rules).edits)
        11
    """

    min_savings: Proportion = 0.10
    """Share that a compaction has to save; 0 turns the guard off."""
    window: Natural = 10
    """Number of compactions in a row that must save too little; 0 turns the guard off."""
    by: Literal["messages", "tokens"] = "tokens"
    """Unit of the savings: messages, as fuseraft counts, or tokens, as they are billed."""
    reset: Natural = 0
    """Calls without a compaction after which earlier compactions do not count; 0: never."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop` while the guard blocks, or the call at which it resets."""
        if not self.window or not self.min_savings or len(past.compactions) < self.window:
            return start
        if self._count_small_savings(past) < self.window:
            return start
        return min(max(start, past.compactions[-1].call + self.reset), stop) if self.reset else stop

    def _count_small_savings(self, past: PastCompactions) -> int:
        """Return how many of the last compactions since the last reset saved too little."""
        # The last `window` compactions, but only those after the last long pause between two.
        last = past.compactions[-self.window :]
        for i in range(len(last) - 1, 0, -1):
            if self.reset and last[i].call - last[i - 1].call >= self.reset:
                last = last[i:]
                break
        if self.by == "tokens":
            sizes = [(c.before, c.after) for c in last]
        else:
            sizes = [(c.messages_before, c.messages_after) for c in last]
        return sum(not before or 1 - after / before < self.min_savings for before, after in sizes)

    word = "anti-thrash"

    def why(self, past: PastCompactions) -> str:
        """Return how many compactions saved too little."""
        small = self._count_small_savings(past)
        return f"anti-thrash: {small} of {self.window} below {self.min_savings:.0%}"


@dataclass(frozen=True)
class MinProgress(BaseGuard):
    """Refuse a result that saves too little.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=MinProgress(share=0.2))
        >>> len(ck.replay(session, rules).edits)
        9
    """

    word = "minimum progress"

    share: float = 0.0
    """Minimum share of the prompt's tokens that it must save."""
    tokens: int = 0
    """Minimum number of tokens that it must save."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or self.tokens < 0:
            raise BadArguments(
                f"Minimum progress is a share from 0 up to 1 and 0 tokens or more; got {self}."
            )

    def refuses(self, past: PastCompactions, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return how much it saves where that is too little, else None."""
        saved, least = was.tokens - new.tokens, max(self.tokens, self.share * was.tokens)
        if saved >= least:
            return None
        return f"it saves {saved:,} tokens, and {least:,.0f} are asked for"


@dataclass(frozen=True)
class Smaller(BaseGuard):
    """Refuse a result that is not smaller than the prompt before.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=Smaller())
        >>> len(ck.replay(session, rules).edits)
        11
    """

    word = "not smaller"

    def refuses(self, past: PastCompactions, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return both sizes where the result is not smaller, else None."""
        return None if new.tokens < was.tokens else describe_not_smaller(was, new)


@dataclass(frozen=True)
class GraceAfterCompaction(ValidatedSettings, BaseGuard):
    """No compaction for some calls, or turns, after each compaction (fuseraft: one turn).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=GraceAfterCompaction(calls=5))
        >>> len(ck.replay(session, rules).edits)
        5
    """

    word = "grace"

    calls: Natural = 0
    """Number of calls after a compaction without another one."""
    turns: Natural = 0
    """Number of turns after the turn of a compaction without another one."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call after the grace period."""
        if not past.compactions:
            return start
        last = past.compactions[-1].call
        call = max(start, last + self.calls + 1)
        if self.turns:
            until = get_turn_of_call(past.log, last) + self.turns
            while call < stop and get_turn_of_call(past.log, call) <= until:
                call += 1
        return min(call, stop)


@dataclass(frozen=True)
class CompactionCountLimit(ValidatedSettings, BaseGuard):
    """At most `n` compactions in the whole run, or in one turn (pulse-coder: two).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=CompactionCountLimit(n=3, per="run"))
        >>> len(ck.replay(session, rules).edits)
        3
    """

    word = "attempts"

    n: Positive
    """Number of compactions."""
    per: Literal["run", "turn"] = "turn"
    """Scope of the number."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call with an attempt left."""
        if len(past.compactions) < self.n:
            return start
        if self.per == "run":
            return stop
        used_up = get_turn_of_call(past.log, past.compactions[-self.n].call)
        while start < stop and get_turn_of_call(past.log, start) == used_up:
            start += 1
        return start


@dataclass(frozen=True)
class MinGrowthSinceCompaction(BaseGuard):
    """After a compaction, block further ones until the prompt has grown.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=MinGrowthSinceCompaction(tokens=1_500))
        >>> len(ck.replay(session, rules).edits)
        6
    """

    word = "hysteresis"

    tokens: int = 0
    """Growth since the end of the last compaction, in tokens."""
    share: float = 0.0
    """Growth as a share of the prompt after the last compaction."""

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.share < 0 or not self.tokens + self.share:
            raise BadArguments(
                f"MinGrowthSinceCompaction needs tokens or a share above 0; got {self}."
            )

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call whose prompt has grown by more than the minimum."""
        if not past.compactions:
            return start
        after = past.compactions[-1].after
        return forecast.above(after + max(self.tokens, self.share * after), start, stop)


@dataclass(frozen=True)
class UntilCold(BaseGuard):
    """Wait until the provider's cache has expired, or the prompt passes a hard limit (Boise).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=UntilCold(6_000, life=60))
        >>> len(ck.replay(session, rules).edits)
        10
    """

    word = "until cold"

    hard_limit: float
    """Prompt size in tokens above which it does not wait."""
    life: float = DEFAULT_CACHE_LIFE
    """Lifetime of the cache, in seconds."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call without a cache, or the first one above the hard limit."""
        cold = first_call_in(ColdCacheCalls.of(past.log, self.life).calls, start, stop)
        return forecast.above(self.hard_limit, start, cold)


@dataclass(frozen=True)
class Cooldown(BaseGuard):
    """Wait some seconds after each compaction; a log without times is not held back.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> window, above = "window:keep_tokens=3500", ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(window, above, guards=Cooldown(600))
        >>> len(ck.replay(session, rules).edits)
        9
    """

    word = "cooldown"

    seconds: float
    """Minimum time between two compactions, in seconds."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call after the wait."""
        if not past.compactions:
            return start
        sent = past.log.sent
        wait_end = sent[past.compactions[-1].call] + self.seconds
        while start < stop and sent[start] < wait_end:
            start += 1
        return start


_REFUSALS: ContextVar[list[str] | None] = ContextVar("ctxkit_refusals", default=None)


class collect_refusals:  # noqa: N801  used like a function
    """Collect the reasons for which policies refuse a result inside a `with` block, in order.

    The value of the block is a list that grows while it runs.
    """

    # Every run of a sweep enters it once: a class is entered faster than a generator.
    __slots__ = ("_token",)

    def __enter__(self) -> list[str]:
        refusals: list[str] = []
        self._token = _REFUSALS.set(refusals)
        return refusals

    def __exit__(self, *_: object) -> None:
        _REFUSALS.reset(self._token)


def describe_not_smaller(was: History, new: History) -> str:
    """Return the reason for refusing a result that is not smaller, with both sizes as counted.

    Args:
        was: the history before the compaction.
        new: its result.
    """
    return (
        f"after it the prompt would have {new.tokens:,} tokens, before it {was.tokens:,} (both as"
        " counted here)"
    )


def keep_if_smaller(was: History, new: History) -> History:
    """Return the result of a compaction if it has fewer tokens, else the history before it.

    A refusal is recorded for the caller of the policy.

    Args:
        was: the history before.
        new: the result of the compaction.
    """
    if new.tokens < was.tokens:
        return new
    refusals = _REFUSALS.get()
    if refusals is not None and new is not was:
        refusals.append(describe_not_smaller(was, new))
    return was
