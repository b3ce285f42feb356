"""Settings: values of the types that they name, and the base of the kit's own policies."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial, wraps
from math import inf, isfinite
from numbers import Real
from typing import Any, TypeAlias

from ctxkit.errors import BadArguments, in_words
from ctxkit.policies.chain import Part

Natural: TypeAlias = int
"""A whole number of 0 or more."""
Positive: TypeAlias = int
"""A whole number of 1 or more."""
Proportion: TypeAlias = float
"""A number between 0 and 1."""
PositiveShare: TypeAlias = float
"""A number above 0 and up to 1."""
AboveZero: TypeAlias = float
"""A number above 0, infinity too."""
Kind: TypeAlias = tuple[str, Callable[[Any], Any]]
"""What a value must be, in words, and the value that it becomes; None: it is refused."""


class Typed:
    """The base of dataclasses that refuse values of another type than they name.

    A single name, or a list, where several names are meant becomes a tuple: ``deny="bash"`` is
    ``deny=("bash",)``; whole numbers of any kind become plain ones.
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Setting(Typed, Part):
    """A policy made of settings; `repr` shows those that are not at their default."""

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in changed(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _typed(part: Any) -> None:
    need = f"{type(part).__name__} needs {{words}} for "
    for f in fields(part):
        value = getattr(part, f.name)
        made = in_kind(value, str(f.type), need + f.name)
        if made is not value:
            object.__setattr__(part, f.name, made)


def in_kind(value: Any, annotation: str, need: str) -> Any:
    """Return a setting's value in the type that its annotation says.

    Args:
        value: what was given.
        annotation: the type as it is written; of one that is not known here any value will do.
        need: the sentence of a refusal, with `{words}` for what is needed.

    Raises:
        BadArguments: it is none of that type.
    """
    kinds, optional = _kinds(annotation)
    if not kinds or (value is None and optional):
        return value
    for _, taken in kinds:
        made = taken(value)
        if made is not None:
            return made
    words = " or ".join(words for words, _ in kinds)
    raise BadArguments(f"{need.format(words=words)}, not {in_words(value)}.")


@cache
def _kinds(annotation: str) -> tuple[tuple[Kind, ...], bool]:
    """Return the kinds of value that an annotation names, and whether None will do too.

    There are none where one of them is not known.
    """
    found: list[Kind] = []
    optional = annotation.endswith(" | None")
    for kind in annotation.removesuffix(" | None").split(" | "):
        if kind.startswith("Literal["):
            found.append(_one_of(literal_eval(kind.removeprefix("Literal"))))
        elif kind in _KINDS:
            found.append(_KINDS[kind])
        else:
            return (), optional
    return tuple(found), optional


def _one_of(known: list[str]) -> Kind:
    *others, last = known
    words = f"{', '.join(others)} or {last}" if others else last
    return words, lambda value: value if value in known else None


def _names(value: Any) -> tuple[str, ...] | None:
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, (tuple, list, set)):
        return None
    return tuple(several) if all(isinstance(name, str) for name in several) else None


def _whole(value: Any, least: float = -inf) -> int | None:
    whole = _number(value) and value == value // 1  # infinity and NaN are not whole
    return int(value) if whole and value >= least else None


def _real(fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    return lambda value: value if _number(value) and fits(value) else None


def _is(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


_KINDS: dict[str, Kind] = {
    "tuple[str, ...]": ("names", _names),
    "int": ("a whole number", _whole),
    "Natural": ("a whole number of 0 or more", partial(_whole, least=0)),
    "Positive": ("a whole number of 1 or more", partial(_whole, least=1)),
    "Proportion": ("a number between 0 and 1", _real(lambda x: 0 <= x <= 1)),
    "PositiveShare": ("a number above 0 and up to 1", _real(lambda x: 0 < x <= 1)),
    "AboveZero": ("a number above 0", _real(lambda x: x > 0)),
    "float": ("a number", _real(isfinite)),
    "str": ("text", _is(str)),
    "bool": ("True or False", _is(bool)),
}


def changed(part: Any) -> dict[str, Any]:
    """Return the settings of a dataclass that are not at their default."""
    out = {}
    for f in fields(part):
        made = f.default if f.default_factory is MISSING else f.default_factory()
        default = None if made is MISSING else made
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
                f"{type(part).__name__} needs {name} of at least {low}, not {in_words(value)}."
            )


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
