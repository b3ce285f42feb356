"""Protocols of policies, prunings, triggers and guards, and what guards and triggers may ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.messages import Message
    from ctxkit.tokens.counters import ContextBudget


@runtime_checkable
class Policy(Protocol):
    """History in, history out.

    It keeps nothing between calls: all that it may know of the past is in the history (`since`, the
    columns, `log`), so that a replay, which jumps, and a live session ask the same. One that
    derives from `chain.Part` may say more.
    """

    def __call__(self, history: History, room: ContextBudget, /) -> History | Sequence[Message]:
        """Return what is shown from this call on; the same object where nothing is to be done."""


@runtime_checkable
class Pruning(Protocol):
    """History in, history out, for one call. `scheduled.Scheduled` is billed without calls."""

    def __call__(self, history: History, room: ContextBudget, /) -> History | Sequence[Message]:
        """Return what this call is sent."""


@runtime_checkable
class Trigger(Protocol):
    """When a compaction is due. One that derives from `triggers.BaseTrigger` says it of many
    calls.
    """

    def __call__(self, history: History, room: ContextBudget, /) -> bool:
        """Return True where a compaction is due before this call."""


class Forecast(Protocol):
    """What the calls start..stop will be like unedited. A search gives the first one, or `stop`."""

    history: History
    room: ContextBudget

    @property
    def log(self) -> MessageLog:
        """The log: its call columns (`upto sent done agents`) may be read up to that call."""

    def above(self, limit: float, start: int, stop: int, /, estimated: bool = False) -> int:
        """The prompt is above `limit` tokens (estimated: the messages, in the system's measure)."""

    def count(self, n: int, roles: tuple[str, ...], start: int, stop: int, /) -> int:
        """At least `n` messages of these roles are shown (no roles: of any)."""

    def turns(self, n: int, start: int, stop: int, /) -> int:
        """At least `n` turns have begun since the last edit that was kept."""

    def spent(self, limit: float, start: int, stop: int, /, *, agent: str | None = None) -> int:
        """The prompts of one agent, or any one, since the last kept edit add up to `limit`."""

    def turn_spent(self, limit: float, start: int, stop: int, /) -> int:
        """The prompts of the turn so far, or the one just ended, add up to more than `limit`."""

    def prompts(self, start: int, stop: int, /) -> NDArray[Any]:
        """Prompt tokens of each call start..stop."""


@runtime_checkable
class Guard(Protocol):
    """Holds back a due compaction (`first`) or refuses a result; derive from `guards.Open`."""

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int, /) -> int:
        """Return the first call in start..stop at which a due compaction may happen, or `stop`."""

    def refuses(self, past: RunState, was: History, new: History, /) -> str | None:
        """Return why a result is not to be taken, or None."""


class RunState(Protocol):
    """What a guard knows of the run so far."""

    log: MessageLog
    begin: int
    """The first call of the run."""

    @property
    def cuts(self) -> Sequence[PastCompaction]:
        """The compactions that were kept, in order."""


class PastCompaction(Protocol):
    """One compaction that was kept."""

    @property
    def call(self) -> int:
        """The call before which it was made."""

    @property
    def before(self) -> int:
        """Tokens of the prompt before."""

    @property
    def after(self) -> int:
        """Tokens of the prompt after."""

    @property
    def messages_before(self) -> int:
        """Messages shown before."""

    @property
    def messages_after(self) -> int:
        """Messages shown after."""


class Named:
    """The foot of parts, triggers and guards: what tables, plots and notes call one."""

    if TYPE_CHECKING:  # read-only for checkers: an attribute, a field or a property may say it

        @property
        def name(self) -> str:
            """Its name; empty: that of its class."""
    else:
        name = ""


@dataclass(frozen=True, repr=False)
class FunctionWrapper:
    """A plain function in the place of a part or a trigger; equal for equal functions."""

    function: Any

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.function)

    def __repr__(self) -> str:
        return repr(self.function)


def is_call_overridden(part: object, method: str) -> bool:
    """Return True where a class redefines a call below the inherited method that says it too.

    Then the call alone counts: the method speaks for a call that is no more. A method that was
    inherited from a base without a call, as that of chains, speaks for the first one defined.
    """
    kinds = type(part).__mro__
    calls = [n for n, kind in enumerate(kinds) if "__call__" in vars(kind)]
    says = next((n for n, kind in enumerate(kinds) if method in vars(kind)), len(kinds))
    return len(calls) > 1 and calls[0] < says


def name_of(part: object) -> str:
    """Return what anything calls itself: its `name`, a function's, else the name of its class."""
    name = getattr(part, "name", None) or getattr(part, "__name__", None)
    return name if isinstance(name, str) else type(part).__name__
