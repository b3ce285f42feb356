"""Guards: hold back a compaction that is due, or refuse its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.policies.base import Validated
from ctxkit.policies.forecast import turn_of_call
from ctxkit.policies.history.log import CacheClock
from ctxkit.policies.protocols import Named, name_of
from ctxkit.policies.triggers import first_call_in

if TYPE_CHECKING:
    from ctxkit.policies.base import Natural, Positive, Proportion
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Forecast, Guard, RunState

__all__ = [
    "AntiThrash",
    "Attempts",
    "BaseGuard",
    "Cooldown",
    "Grace",
    "Hysteresis",
    "MinProgress",
    "Smaller",
    "UntilCold",
]
__dir__ = public_dir(__all__)


class BaseGuard(Named):
    """The foot of the guards: holds nothing back and refuses nothing."""

    word = ""
    """What it is called in notes, in the field's words (`anti-thrash`, ...); empty: its name."""

    def why(self, past: RunState) -> str:  # noqa: ARG002  who counts says what
        """Return why it holds a compaction back, after its name."""
        return self.word or name_of(self)

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call at which a due compaction may happen."""
        return start

    def refuses(self, past: RunState, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return why a result is not to be taken, or None."""
        return None


def guard_label(guard: Guard) -> str:
    """Return what a guard is called in notes."""
    return (guard.word if isinstance(guard, BaseGuard) else "") or name_of(guard)


def blocking_reason(guard: Guard, past: RunState) -> str:
    """Return why a guard holds a compaction back: what it says itself, else its name."""
    return guard.why(past) if isinstance(guard, BaseGuard) else name_of(guard)


@dataclass(frozen=True)
class AntiThrash(Validated, BaseGuard):
    """No more compactions once the last ones all saved too little (fuseraft's program: in messages,
    and nothing resets it).
    """

    min_savings: Proportion = 0.10
    """Share that a compaction has to save; 0 turns the guard off."""
    window: Natural = 10
    """So many compactions in a row must fall short; 0 turns the guard off."""
    by: Literal["messages", "tokens"] = "tokens"
    """What the share is of: messages, as fuseraft counts, or tokens, as the bill does."""
    reset: Natural = 0
    """Calls without a compaction after which those before them are forgotten; 0: never."""

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop` once it has closed, or the call at which it opens again."""
        if not self.window or not self.min_savings or len(past.cuts) < self.window:
            return start
        if self._short(past) < self.window:
            return start
        return min(max(start, past.cuts[-1].call + self.reset), stop) if self.reset else stop

    def _short(self, past: RunState) -> int:
        """Return how many of the last compactions saved too little, back to the last reset."""
        last = past.cuts[-self.window :]
        for i in range(len(last) - 1, 0, -1):
            if self.reset and last[i].call - last[i - 1].call >= self.reset:
                last = last[i:]
                break
        if self.by == "tokens":
            sizes = [(c.before, c.after) for c in last]
        else:
            sizes = [(c.messages_before, c.messages_after) for c in last]
        return sum(not was or 1 - now / was < self.min_savings for was, now in sizes)

    word = "anti-thrash"

    def why(self, past: RunState) -> str:
        """Return how many compactions fell short."""
        return f"anti-thrash: {self._short(past)} of {self.window} below {self.min_savings:.0%}"


@dataclass(frozen=True)
class MinProgress(BaseGuard):
    """Refuses a result that saves too little."""

    word = "minimum progress"

    share: float = 0.0
    """Share of the prompt's tokens that it must save at least."""
    tokens: int = 0
    """Tokens that it must save at least."""

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1 or self.tokens < 0:
            raise BadArguments(
                f"Minimum progress is a share from 0 up to 1 and 0 tokens or more; got {self}."
            )

    def refuses(self, past: RunState, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return why, or None."""
        saved, least = was.tokens - new.tokens, max(self.tokens, self.share * was.tokens)
        if saved >= least:
            return None
        return f"it saves {saved:,} tokens, and {least:,.0f} are asked for"


@dataclass(frozen=True)
class Smaller(BaseGuard):
    """Refuses a result that is not smaller than what it was made from."""

    word = "not smaller"

    def refuses(self, past: RunState, was: History, new: History) -> str | None:  # noqa: ARG002
        """Return why, or None."""
        if new.tokens < was.tokens:
            return None
        return f"{new.tokens:,} tokens are not fewer than {was.tokens:,}"


@dataclass(frozen=True)
class Grace(Validated, BaseGuard):
    """Some calls, or turns, of peace after each compaction (fuseraft: one turn)."""

    word = "grace"

    calls: Natural = 0
    """So many calls after the one that was compacted are let pass."""
    turns: Natural = 0
    """So many turns after the one that was compacted are let pass."""

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call after the grace."""
        if not past.cuts:
            return start
        last = past.cuts[-1].call
        call = max(start, last + self.calls + 1)
        if self.turns:
            until = turn_of_call(past.log, last) + self.turns
            while call < stop and turn_of_call(past.log, call) <= until:
                call += 1
        return min(call, stop)


@dataclass(frozen=True)
class Attempts(Validated, BaseGuard):
    """At most so many compactions, in the whole run or in one turn (pulse-coder: two)."""

    word = "attempts"

    n: Positive
    per: Literal["run", "turn"] = "turn"

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call with an attempt left."""
        if len(past.cuts) < self.n:
            return start
        if self.per == "run":
            return stop
        full = turn_of_call(past.log, past.cuts[-self.n].call)
        while start < stop and turn_of_call(past.log, start) == full:
            start += 1
        return start


@dataclass(frozen=True)
class Hysteresis(BaseGuard):
    """After a compaction, none until the prompt has grown anew: no row of them, call by call."""

    word = "hysteresis"

    tokens: int = 0
    """Growth since what the last compaction left, in tokens."""
    share: float = 0.0
    """The same as a share of what it left."""

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.share < 0 or not self.tokens + self.share:
            raise BadArguments(f"Hysteresis needs tokens or a share above 0; got {self}.")

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call whose prompt has grown by more."""
        if not past.cuts:
            return start
        left = past.cuts[-1].after
        return forecast.above(left + max(self.tokens, self.share * left), start, stop)


@dataclass(frozen=True)
class UntilCold(BaseGuard):
    """Waits until the provider's cache is gone anyway, or a hard limit is passed (Boise)."""

    word = "until cold"

    hard_limit: float
    """Tokens of the prompt above which it waits no longer."""
    life: float = 300.0
    """Seconds that the cache lives."""

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first cold call, or the first one above the hard limit."""
        cold = first_call_in(CacheClock.of(past.log, self.life).calls, start, stop)
        return forecast.above(self.hard_limit, start, cold)


@dataclass(frozen=True)
class Cooldown(BaseGuard):
    """Waits so many seconds after each compaction; without times it holds nothing back."""

    word = "cooldown"

    seconds: float

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call so much later."""
        if not past.cuts:
            return start
        sent = past.log.sent
        until = sent[past.cuts[-1].call] + self.seconds
        while start < stop and sent[start] < until:
            start += 1
        return start
