"""Numbers of entries that were decoded whole, under the bounds of numbers that readers take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ctxkit.formats.fields import count_or_none, float_or_none, seconds_since_1970
from ctxkit.session.messages import Edit, Message, SizeOnly, Thinking, ToolSchema, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_NESTED = ("parts", "inserted")
"""Fields that hold several structs, some with numbers."""


def _bounds(kind: type[msgspec.Struct]) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Return for each number of a struct what bounds it, and its default."""
    bounds = dict[str, tuple[Any, Any]]()
    for field in msgspec.structs.fields(kind):
        default = None if field.default is msgspec.NODEFAULT else field.default
        if field.type in (int, int | None):
            bounds[field.name] = (count_or_none, default)
        elif field.type in (float, float | None):
            bounds[field.name] = (
                seconds_since_1970 if field.name == "time" else float_or_none,
                default,
            )
    return bounds


_BOUNDS: dict[Any, dict[str, tuple[Callable[[Any], Any], Any]]] = {
    kind: _bounds(kind) for kind in (Edit, Message, SizeOnly, Thinking, ToolSchema, Usage)
}


def bounded(entry: _T) -> _T:
    """Return an entry, or what stands in one, without numbers that no log can mean: they are
    missing.

    Args:
        entry: a message, an edit, a part, a tool schema or a usage.
    """
    bounds = _BOUNDS.get(type(entry))
    if bounds is None:
        return entry
    changes: dict[str, Any] = {}
    for name, (bound, default) in bounds.items():
        value = getattr(entry, name)
        if value is not None and bound(value) is None:
            changes[name] = default
    for name in _NESTED:
        inner = getattr(entry, name, None)
        if inner and (new := bounded_each(inner)) is not inner:
            changes[name] = new
    usage = getattr(entry, "usage", None)
    if usage is not None and (billed := bounded(usage)) is not usage:
        changes["usage"] = None if billed == Usage() else billed
    return msgspec.structs.replace(entry, **changes) if changes else entry  # type: ignore[type-var]


def bounded_each(entries: tuple[_T, ...]) -> tuple[_T, ...]:
    """Return the same of several; where nothing had to be left out, the tuple itself."""
    new = tuple(map(bounded, entries))
    return entries if all(a is b for a, b in zip(new, entries, strict=True)) else new
