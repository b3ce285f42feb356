"""The base of the kit's own policies: frozen settings whose repr is a short label."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from functools import wraps
from numbers import Real
from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.policies.policy import Part


@dataclass(frozen=True, kw_only=True, repr=False)
class Setting(Part):
    """A policy made of settings; `repr` shows those that are not at their default.

    A single name, or a list, where several names are meant becomes a tuple: ``deny="bash"`` is ``deny=("bash",)``.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = cls.__dict__.get("__post_init__")
        if own is not None:

            @wraps(own)
            def checked(self: Any) -> None:
                _tuples(self)
                own(self)

            cls.__post_init__ = checked  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _tuples(self)

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in changed(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _tuples(part: Any) -> None:
    for f in fields(part):
        value = getattr(part, f.name)
        if str(f.type).startswith("tuple[str") and not isinstance(value, tuple):
            several = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, set)) else None
            if several is None:
                raise BadArguments(f"{type(part).__name__} needs names for {f.name}, not {value!r}.")
            object.__setattr__(part, f.name, several)


def changed(part: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not at their default."""
    out = {}
    for f in fields(part):
        default = (
            f.default if f.default is not MISSING else None if f.default_factory is MISSING else f.default_factory()
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
            raise BadArguments(f"{type(part).__name__} needs {name} of at least {low}, not {value!r}.")


def share(part: Any, *names: str) -> None:
    """Refuse settings that are no share of something.

    Raises:
        BadArguments: one is not between 0 and 1; the sentence names it.
    """
    for name in names:
        value = getattr(part, name)
        if value is not None and not (_number(value) and 0 <= value <= 1):
            raise BadArguments(f"{type(part).__name__} needs {name} between 0 and 1, not {value!r}.")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
