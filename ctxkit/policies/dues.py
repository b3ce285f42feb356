"""The foot of the triggers, and how they are joined: `&`, `|`, `~`, always, never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ctxkit.errors import BadArguments, in_words
from ctxkit.policies.policy import WithName, Wrapped, call_alone, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history import History
    from ctxkit.policies.policy import Forecast, Trigger
    from ctxkit.tokens.counters import Room


class Due(WithName):
    """The foot of the triggers: the plain question follows from `first`.

    ``a | b``, ``a & b``, ``~a`` join them.
    """

    if TYPE_CHECKING:  # as in `WithName`

        @property
        def parts(self) -> tuple[Due, ...]:
            """What it is joined from."""

    else:
        parts = ()

    def tokens(self, room: Room) -> float | None:  # noqa: ARG002
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

    def __call__(self, history: History, room: Room) -> bool:
        """Return True where it is due before the history's call."""
        from ctxkit.policies.forecasts import Straight

        return self.first(Straight(history, room), history.call, history.call + 1) == history.call

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


class Asked(Wrapped, Due):
    """A plain function, or any callable that is no `Due`, as a trigger: asked at each call."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which the function says so."""
        history, room = forecast.history, forecast.room
        return next((call for call in range(start, stop) if self(history.at(call), room)), stop)

    def __call__(self, history: History, room: Room) -> bool:
        """Return what the function says.

        Raises:
            BadArguments: that is neither True nor False.
        """
        due = self.function(history, room)
        if due not in (True, False):
            raise BadArguments(
                f"Trigger {self.name} returned {in_words(due)}; it must return True or False."
            )
        return bool(due)


@runtime_checkable
class _Jumps(Protocol):
    def first(self, forecast: Forecast, start: int, stop: int, /) -> int: ...


def as_due(given: object, what: str = "trigger") -> Due:
    """Return a trigger as one that says when it is due; a function, or a call redefined, is
    wrapped.

    Raises:
        BadArguments: it cannot be called.
    """
    if isinstance(given, Due) and not call_alone(given, "first"):
        return given
    if callable(given):
        return Asked(given)
    if isinstance(given, _Jumps):
        raise BadArguments(
            f"The {what} {in_words(given)} has `first` and no call: derive its class from "
            "ctxkit.policies.triggers.Due, which makes the call."
        )
    raise BadArguments(f"The {what} {in_words(given)} cannot be called with a history and a room.")


@dataclass(frozen=True)
class Combined(Due):
    """The foot of what is joined from several triggers."""

    parts: tuple[Due, ...]

    def __init__(self, parts: Sequence[Trigger]) -> None:
        object.__setattr__(self, "parts", tuple(map(as_due, parts)))


class Either(Combined):
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


class Both(Combined):
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
class Not(Due):
    """Due where another trigger is not."""

    part: Due

    def __init__(self, part: Trigger) -> None:
        object.__setattr__(self, "part", as_due(part))

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call at which the other is not due."""
        while start < stop and self.part.first(forecast, start, start + 1) == start:
            start += 1
        return start


@dataclass(frozen=True)
class Always(Due):
    """Due before each call."""

    word = "every_call"

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call."""
        return start


@dataclass(frozen=True)
class Never(Due):
    """Never due."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop`."""
        return stop
