"""Fields that take what a person writes and keep what the engine asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ctxkit.errors import BadArguments, in_words
from ctxkit.policies.policy import Guard, Wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

Given = TypeVar("Given")
Kept = TypeVar("Kept")


class Hinge(Generic[Given, Kept]):
    """A field of a frozen dataclass that is given as one type and kept as another.

    What is kept stands in the instance like any other value, so reading it costs no call.

    Args:
        made: makes what is kept from what is given.
        default: what is given where nothing is.
    """

    def __init__(self, made: Callable[[Given], Kept], default: Any = None) -> None:
        self._made, self._default = made, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, instance: object, given: Given) -> None:
        default = self._default
        value = default if given is self else given  # a dataclass gives what stands in the class
        instance.__dict__[self._name] = self._made(value)

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Kept: ...

    def __repr__(self) -> str:
        return repr(self._default)


def guards(given: object) -> tuple[Guard, ...]:
    """Return one guard, or several, as a tuple.

    Raises:
        BadArguments: one is none.
    """
    several = several_of(given)
    for guard in several:
        if not isinstance(guard, Guard):
            raise BadArguments(
                f"{in_words(guard)} is no guard: a guard has `first` and `refuses` (see"
                " policies.guards)."
            )
    return several


def several_of(given: object) -> tuple[Any, ...]:
    """Return a tuple or a list as a tuple, anything else as a tuple of one: also a named tuple
    that is itself a part or a guard.
    """
    one = callable(given) or isinstance(given, Guard)
    return tuple(given) if isinstance(given, (list, tuple)) and not one else (given,)


def written(part: object) -> Any:
    """Return a part as the person wrote it: the function, where one was wrapped."""
    return part.function if isinstance(part, Wrapped) else part
