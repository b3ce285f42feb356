"""The foot of the triggers, and how they are joined: `&`, `|`, `~`, always, never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.policy import name_of

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.policy import Outlook
    from ctxkit.tokens.counters import Room


class Due:
    """The foot of the triggers: the plain question follows from `first`; ``a | b``, ``a & b``, ``~a`` join them."""

    def first(self, outlook: Outlook, start: int, stop: int) -> int:
        """Return the first call in start..stop at which it is due, or `stop`."""
        raise NotImplementedError

    def __call__(self, history: History, room: Room) -> bool:
        """Return True where it is due before the history's call."""
        from ctxkit.policies.outlooks import Straight

        return self.first(Straight(history, room), history.call, history.call + 1) == history.call

    def __or__(self, other: Any) -> Either:
        return Either((self, other))

    def __ror__(self, other: Any) -> Either:
        return Either((other, self))

    def __and__(self, other: Any) -> Both:
        return Both((self, other))

    def __rand__(self, other: Any) -> Both:
        return Both((other, self))

    def __invert__(self) -> Not:
        return Not(self)


def first_due(trigger: Any, outlook: Outlook, start: int, stop: int) -> int:
    """Return the first call at which a trigger is due; a plain function is asked at each call in turn."""
    first = getattr(trigger, "first", None)
    if first is not None:
        return int(first(outlook, start, stop))
    history, room = outlook.history, outlook.room
    for call in range(start, stop):
        due = trigger(history.at(call), room)
        if due not in (True, False):
            raise BadArguments(f"Trigger {name_of(trigger)} returned {due!r}; it must return True or False.")
        if due:
            return call
    return stop


@dataclass(frozen=True)
class Either(Due):
    """Due where any part is."""

    parts: tuple[Any, ...]

    def first(self, outlook: Outlook, start: int, stop: int) -> int:
        """Return the earliest of its parts."""
        for part in self.parts:
            stop = first_due(part, outlook, start, stop)
        return stop


@dataclass(frozen=True)
class Both(Due):
    """Due where all parts are at once."""

    parts: tuple[Any, ...]

    def first(self, outlook: Outlook, start: int, stop: int) -> int:
        """Return the first call at which all parts are due."""
        agreed, call = 0, start
        while agreed < len(self.parts) and call < stop:
            agreed = 0
            for part in self.parts:
                later = first_due(part, outlook, call, stop)
                agreed = agreed + 1 if later == call else 0
                call = later
                if call >= stop:
                    return stop
        return call


@dataclass(frozen=True)
class Not(Due):
    """Due where another trigger is not."""

    part: Any

    def first(self, outlook: Outlook, start: int, stop: int) -> int:
        """Return the first call at which the other is not due."""
        while start < stop and first_due(self.part, outlook, start, start + 1) == start:
            start += 1
        return start


@dataclass(frozen=True)
class Always(Due):
    """Due before each call."""

    def first(self, outlook: Outlook, start: int, stop: int) -> int:  # noqa: ARG002
        """Return the first call."""
        return start


@dataclass(frozen=True)
class Never(Due):
    """Never due."""

    def first(self, outlook: Outlook, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop`."""
        return stop
