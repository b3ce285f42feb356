"""The base of the kit's own policies: frozen settings whose repr is a short label."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from numbers import Real
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Part

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True, repr=False)
class Setting(Part):
    """A policy made of settings; `repr` shows those that are not at their default.

    A single name, or a list, where several names are meant becomes a tuple: ``deny="bash"`` is
    ``deny=("bash",)``. Values of a wrong type are refused.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @wraps(own)
            def checked(self: Any) -> None:
                _typed(self)
                own(self)

            cls.__post_init__ = checked  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _typed(self)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in changed(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _typed(part: Any) -> None:
    """Refuse values of a wrong type; several names become a tuple, whole numbers of any kind plain
    ones.

    Raises:
        BadArguments: a value is of a wrong type; the sentence names it.
    """
    for f in fields(part):
        value, kind = getattr(part, f.name), str(f.type).removesuffix(" | None")
        if kind not in _KINDS or (value is None and kind != str(f.type)):
            continue
        words, as_kind = _KINDS[kind]
        made = as_kind(value)
        if made is None:
            raise BadArguments(f"{type(part).__name__} needs {words} for {f.name}, not {value!r}.")
        if made is not value:
            object.__setattr__(part, f.name, made)


def _names(value: Any) -> tuple[str, ...] | None:
    several = (
        (value,)
        if isinstance(value, str)
        else tuple(value)
        if isinstance(value, (tuple, list, set))
        else None
    )
    return (
        several if several is not None and all(isinstance(name, str) for name in several) else None
    )


def _whole(value: Any) -> int | None:
    return (
        int(value) if _number(value) and value == value // 1 else None
    )  # infinity and NaN are not whole


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "tuple[str, ...]": ("names", _names),
    "int": ("a whole number", _whole),
    "float": (
        "a number",
        lambda value: value if _number(value) and not math.isnan(value) else None,
    ),
    "str": ("text", lambda value: value if isinstance(value, str) else None),
    "bool": ("True or False", lambda value: value if isinstance(value, bool) else None),
}
"""What a setting of each type must be, in words, and the value that it becomes (None: refused)."""


def changed(part: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not at their default."""
    out = {}
    for f in fields(part):
        default = (
            f.default
            if f.default is not MISSING
            else None
            if f.default_factory is MISSING
            else f.default_factory()
        )
        if f.repr and getattr(part, f.name) != default:
            out[f.name] = getattr(part, f.name)
    return out


def at_least(part: Any, low: float, *names: str) -> None:
    """Refuse settings below a limit.

    Raises:
        BadArguments: one is; the sentence names it.
    """
    for name in names:
        value = getattr(part, name)
        if value is not None and not (_number(value) and value >= low):  # NaN fails too
            raise BadArguments(
                f"{type(part).__name__} needs {name} of at least {low}, not {value!r}."
            )


def share(part: Any, *names: str) -> None:
    """Refuse settings that are no share of something.

    Raises:
        BadArguments: one is not between 0 and 1; the sentence names it.
    """
    for name in names:
        value = getattr(part, name)
        if value is not None and not (_number(value) and 0 <= value <= 1):
            raise BadArguments(
                f"{type(part).__name__} needs {name} between 0 and 1, not {value!r}."
            )


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
