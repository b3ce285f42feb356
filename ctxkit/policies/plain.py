"""Plain functions as parts, so that whatever asks a policy or a pruning sees parts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from ctxkit.errors import BadArguments
from ctxkit.policies.policy import Part, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.policy import Policy
    from ctxkit.tokens.counters import Room


@dataclass(frozen=True, repr=False)
class Called(Part):
    """A plain function, or any callable that is no part: it says nothing but its call.

    Equal for equal functions.
    """

    function: Policy

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.function)

    def __call__(self, history: History, room: Room) -> History | Sequence[Message]:
        """Return what the function returns."""
        return self.function(history, room)

    def __repr__(self) -> str:
        return repr(self.function)


@runtime_checkable
class _Lent(Protocol):
    def using(self, summariser: Any, /) -> object: ...


def as_part(given: object, what: str = "policy") -> Part:
    """Return a policy or a pruning as a part; a function is wrapped.

    Raises:
        BadArguments: it cannot be called, or wants to be lent a summariser, which only parts are.
    """
    if not callable(given):
        raise BadArguments(f"The {what} {given!r} cannot be called with a history and a room.")
    if isinstance(given, Part):
        return given
    if isinstance(given, _Lent) and not isinstance(given, type):
        raise BadArguments(
            f"The {what} {name_of(given)} has a method `using`, for which only parts are asked: "
            "derive its class from ctxkit.policies.Part."
        )
    return Called(cast("Policy", given))
