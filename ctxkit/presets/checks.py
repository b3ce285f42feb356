"""What every preset refuses before it makes rules."""

from __future__ import annotations

from copy import copy
from functools import wraps
from inspect import signature
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, ParamSpec

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.rules import Rules

P = ParamSpec("P")


def room_to_cut(window: int | None, reserve: int, keep: int) -> None:
    """Refuse a window in which a compaction frees nothing.

    Raises:
        BadArguments: the reserve leaves no room, or what is kept fills what is left.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call"
            " would be over it. Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= keep:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {keep:,} frees nothing: "
            "the trigger must lie above what is kept."
        )


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a word that is none of those known.

    Raises:
        BadArguments: it is none; the sentence says which there are.
    """
    if value not in known:
        raise BadArguments(f"{name} is {', '.join(known[:-1])} or {known[-1]}, not {value!r}.")


def typed(make: Callable[P, Rules]) -> Callable[P, Rules]:
    """Return a preset that first refuses settings of another kind than its signature says, and
    whose rules bear its name and, as `parameters`, all its settings.
    """
    known = signature(make).parameters
    defaults = {name: parameter.default for name, parameter in known.items()}

    @wraps(make)
    def made(*args: P.args, **settings: P.kwargs) -> Rules:
        for name in settings.keys() & known.keys():
            _check(make.__name__, name, str(known[name].annotation), settings[name])
        rules = copy(make(*args, **settings))
        given = dict(zip(known, args, strict=False)) | settings
        object.__setattr__(rules, "name", rules.name or make.__name__)
        object.__setattr__(rules, "parameters", defaults | given)
        return rules

    return made


def _check(preset: str, name: str, annotation: str, value: Any) -> None:
    kinds = set(annotation.split(" | "))
    if kinds - _KINDS.keys() - {"None"} or (value is None and "None" in kinds):
        return  # of a kind that the preset itself looks at
    if not any(_KINDS[kind][1](value) for kind in kinds - {"None"}):
        words = " or ".join(_KINDS[kind][0] for kind in _KINDS if kind in kinds)
        raise BadArguments(f"{name} of preset {preset!r} must be {words}, not {value!r}.")


def _number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def _texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "int": ("a whole number", lambda v: _number(v) and v == int(v)),
    "float": ("a number", _number),
    "str": ("text", lambda v: isinstance(v, str)),
    "tuple[str, ...]": ("a list of texts", _texts),
}
"""Kinds of setting as signatures write them: how a sentence names them, and what is one."""
