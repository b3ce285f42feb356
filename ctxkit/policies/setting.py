"""The base of the kit's own policies: frozen settings whose repr is a short label."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.policies.policy import Part


@dataclass(frozen=True, kw_only=True, repr=False)
class Setting(Part):
    """A policy made of settings; `repr` shows those that are not at their default."""

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in changed(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


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
    return isinstance(value, (int, float)) and not isinstance(value, bool)
