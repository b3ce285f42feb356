"""What every preset refuses before it makes rules."""

from __future__ import annotations

from inspect import signature
from numbers import Real
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def room_to_cut(window: int | None, reserve: int, keep: int) -> None:
    """Refuse a window in which a compaction frees nothing.

    Raises:
        BadArguments: the reserve leaves no room, or what is kept fills what is left.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call would be over it. "
            "Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= keep:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {keep:,} frees nothing: "
            "the trigger must lie above what is kept."
        )


def typed(make: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    """Refuse a setting of another kind than its default; one whose default is None may be anything.

    Raises:
        BadArguments: a number, text or True/False was expected; the sentence names the setting.
    """
    for name, parameter in signature(make).parameters.items():
        kind, value = type(parameter.default), parameters[name]
        if kind in (int, float) and (isinstance(value, bool) or not isinstance(value, Real)):
            raise BadArguments(f"{name} of preset {make.__name__!r} must be a number, not {value!r}.")
        if kind in (bool, str) and not isinstance(value, kind):
            expected = "True or False" if kind is bool else "text"
            raise BadArguments(f"{name} of preset {make.__name__!r} must be {expected}, not {value!r}.")
