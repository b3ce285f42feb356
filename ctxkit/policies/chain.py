"""Parts of rules: their base, plain functions as parts, and parts one after the other: all of them
(`Chain`), or one after another until one has done enough (`Ladder`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ctxkit.errors import BadArguments, ModelError, in_words
from ctxkit.history import History
from ctxkit.messages import Message
from ctxkit.policies.policy import WithName, Wrapped, call_alone, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.policies.policy import Forecast, Policy
    from ctxkit.tokens.counters import Room


class Part(WithName):
    """The base of policies and prunings: what one may say besides its call, and ``a | b``."""

    if TYPE_CHECKING:  # as in `WithName`

        @property
        def keeps(self) -> int | None:
            """Tokens left at least, which a trigger must lie above; None: no such number."""

        def __call__(self, history: History, room: Room, /) -> History | Sequence[Message]:
            """Return the history as it shall be shown; see `Policy`."""
    else:
        keeps = None

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call in start..stop at which it can do anything, or `stop`."""
        return start

    def using(self, summariser: Any) -> Part:  # noqa: ARG002
        """Return itself with a summariser, ``(passage) -> text``, where it lacks one."""
        return self

    def focused(self, focus: str) -> Part:  # noqa: ARG002
        """Return itself with what the user wants a summary to look at, where it writes one."""
        return self

    def __or__(self, other: Policy) -> Chain:
        return Chain.of(self, other)

    def __ror__(self, other: Policy) -> Chain:
        return Chain.of(other, self)


class Called(Wrapped, Part):
    """A plain function, or any callable that is no part: it says nothing but its call."""

    def __call__(self, history: History, room: Room) -> Any:
        """Return what the function returns."""
        return self.function(history, room)


@runtime_checkable
class _Lent(Protocol):
    def using(self, summariser: Any, /) -> object: ...


def as_part(given: object, what: str = "policy") -> Part:
    """Return a policy or a pruning as a part; a function is wrapped.

    Raises:
        BadArguments: it cannot be called, or wants to be lent a summariser, which only parts are.
    """
    if not callable(given):
        raise BadArguments(
            f"The {what} {in_words(given)} cannot be called with a history and a room."
        )
    if isinstance(given, Part):
        return given
    if isinstance(given, _Lent) and not isinstance(given, type):
        raise BadArguments(
            f"The {what} {name_of(given)} has a method `using`, for which only parts are asked: "
            "derive its class from ctxkit.policies.Part."
        )
    return Called(given)


def applied(policy: Policy, history: History, room: Room) -> History:
    """Return what a policy makes of a history; a list of messages that it gives back is taken for
    what shall be shown.

    Raises:
        BadArguments: it gave back something else, or a history of another session or call.
        UnsoundHistory: a tool call lost its result, or a message that stays is gone.
    """
    new = policy(history, room)
    return history if new is history else as_history(new, history, policy)


def as_history(new: object, history: History, policy: Policy) -> History:
    """Return what a policy gave back for a history as a history of the same call; see `applied`."""
    if isinstance(new, History):
        if new.log is not history.log or new.call != history.call:
            raise BadArguments(
                f"Policy {name_of(policy)} returned a history of another session or call."
            )
        return new
    if isinstance(new, (list, tuple)) and all(isinstance(m, Message) for m in new):
        return history.become(new, name_of(policy), method=name_of(policy))
    what = "None" if new is None else type(new).__name__
    raise BadArguments(
        f"Policy {name_of(policy)} returned {what}; it must return a history, such as the one it"
        " was given."
    )


@dataclass(frozen=True)
class Joined(Part):
    """The base of what is joined from several policies."""

    parts: tuple[Part, ...]

    def __init__(self, parts: Sequence[Policy]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_part, parts)))

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which any part can do anything."""
        able = (
            start if call_alone(p, "first") else p.first(forecast, start, stop) for p in self.parts
        )
        return min(able, default=stop)

    def using(self, summariser: Any) -> Self:
        """Return it with a summariser for parts that have none."""
        return replace(self, parts=tuple(p.using(summariser) for p in self.parts))

    def focused(self, focus: str) -> Self:
        """Return it with what the user wants a summary to look at, for parts that write one."""
        return replace(self, parts=tuple(p.focused(focus) for p in self.parts))


class Chain(Joined):
    """Each policy works on what the one before left."""

    @classmethod
    def of(cls, *parts: Policy) -> Self:
        """Return one flat chain of parts and chains."""
        return cls(tuple(p for part in parts for p in in_a_row(as_part(part))))

    @property
    def name(self) -> str:
        """The names of its parts."""
        return " | ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, room: Room) -> History:
        """Return what the last part leaves."""
        for part in self.parts:
            history = applied(part, history, room)
        return history


def in_a_row(part: Part) -> tuple[Part, ...]:
    """Return the parts of a chain; any other part, or a chain with its own call, by itself."""
    if isinstance(part, Chain) and type(part).__call__ is Chain.__call__:
        return part.parts
    return (part,)


@dataclass(frozen=True, init=False)
class Ladder(Joined):
    """The first policy that helps; the next one where it did nothing, failed, or left too much."""

    fits: bool = False
    """Go on, each stage on the history as it was, until the prompt is within the room's limit."""

    def __init__(self, parts: Sequence[Policy], fits: bool = False) -> None:
        if not parts:
            raise BadArguments("A ladder needs at least one policy.")
        super().__init__(parts)
        object.__setattr__(self, "fits", fits)

    @property
    def name(self) -> str:
        """The names of its parts."""
        return " else ".join(name_of(p) for p in self.parts)

    def __call__(self, history: History, room: Room) -> History:
        """Return what the first part that helps leaves; with `fits` the last where none fits."""
        new, failed = history, None
        for part in self.parts:
            try:
                tried = applied(part, history, room)
            except ModelError as error:
                failed = error
                continue
            if tried is not history:
                new = tried.instead_of("" if failed is None else str(failed))
                if not self.fits or new.tokens <= room.limit:
                    return new
        if new is history and failed is not None:
            raise failed
        return new
