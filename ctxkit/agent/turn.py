"""A turn under way: what it may use, what it has used, and where it stands."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit.agent.limits import Limits, SpentInTurn
from ctxkit.messages import Message, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ctxkit.models.model import Model


class LimitReached(Exception):
    """The next call would pass a limit; its text names which."""


class OutOfTime(asyncio.CancelledError):
    """The time of a turn is over, and nothing had let the loop run that would have ended it."""


@dataclass(slots=True)
class Turn:
    """One turn of an agent."""

    limits: Limits = field(default_factory=Limits)
    spent: SpentInTurn = field(default_factory=SpentInTurn)
    began: float = 0.0
    """Seconds since 1970."""
    last: Message = field(default_factory=lambda: Message(role="assistant"))
    """The last reply, as it was kept."""
    asked: tuple[ToolCall, ...] = ()
    """Its tool calls as the model made them, in the same order: what the tools run on."""
    steps: int = 0
    """Replies so far: failed calls do not count, so a retry asks for the same step."""
    attempts: int = 0
    """Compactions and trims that answered overflows and cut replies."""
    sent: int = 0
    """Tokens of the last prompt."""
    dollars: float = 0.0
    """What an agent of another program had cost when the turn began."""
    deadline: asyncio.Timeout | None = None
    task: asyncio.Task[Any] | None = None
    """What takes the turn."""
    ran_out: bool = False
    """True where `hold` ended the turn, and not the deadline itself."""

    def check(self, model: Model, tokens: int, now: float) -> None:
        """Let a call with a prompt of so many tokens pass.

        Raises:
            LimitReached: it would pass a limit.
            BadArguments: there is a limit in dollars and no price for the model.
        """
        self.spent.seconds = now - self.began
        reason = self.spent.exceeded(self.limits, model.name, tokens)
        if reason:
            raise LimitReached(reason)

    def hold(self) -> None:
        """Go on, unless the time is over: a flood that never waits keeps the loop from saying so.

        Asked from elsewhere than the turn's own task (a callback, a thread) it goes on: the loop is
        free to run then.

        Raises:
            OutOfTime: it is.
        """
        if self.deadline is None or self.task is None or _running_task() is not self.task:
            return
        when = self.deadline.when()
        if when is not None and asyncio.get_running_loop().time() >= when:
            self.deadline.reschedule(None)
            self.ran_out = True
            raise OutOfTime

    @asynccontextmanager
    async def paused(self, clock: Callable[[], float]) -> AsyncIterator[None]:
        """Let time pass that does not count: a person thinks about a question."""
        loop, before = asyncio.get_running_loop(), clock()
        deadline = None if self.late else self.deadline
        left = None if deadline is None else deadline.when()
        if deadline is not None and left is not None:
            left -= loop.time()
            deadline.reschedule(None)
        try:
            yield
        finally:
            self.began += clock() - before
            if deadline is not None and left is not None:
                deadline.reschedule(loop.time() + left)

    def attempt(self) -> bool:
        """Begin one more attempt to recover; False where none is left."""
        if self.attempts >= self.limits.attempts:
            return False
        self.attempts += 1
        return True

    @property
    def late(self) -> bool:
        """True where the time is over."""
        return self.ran_out or (self.deadline is not None and self.deadline.expired())

    @property
    def over(self) -> str:
        """What is said where the time is over."""
        return f"stopped at the limit of {self.limits.seconds or 0:g} seconds"


def _running_task() -> asyncio.Task[Any] | None:
    """Return the task that runs in this thread; None where there is none."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None
