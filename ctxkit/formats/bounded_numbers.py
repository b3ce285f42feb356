"""Bounds for the numbers of entries that were decoded without a reader's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ctxkit.formats.untrusted_fields import count_or_none, float_or_none, parse_unix_seconds
from ctxkit.session.messages import Edit, Message, SizeOnly, Thinking, ToolSchema, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_NESTED_FIELDS = ("parts", "inserted")
"""Fields that hold tuples of structs, some with numbers."""


def _number_bounds(kind: type[msgspec.Struct]) -> dict[str, tuple[Callable[[Any], Any], Any]]:
    """Return for each numeric field of a struct its check and its default."""
    checks = dict[str, tuple[Any, Any]]()
    for field in msgspec.structs.fields(kind):
        default = None if field.default is msgspec.NODEFAULT else field.default
        if field.type in (int, int | None):
            checks[field.name] = (count_or_none, default)
        elif field.type in (float, float | None):
            checks[field.name] = (
                parse_unix_seconds if field.name == "time" else float_or_none,
                default,
            )
    return checks


_BOUNDS: dict[Any, dict[str, tuple[Callable[[Any], Any], Any]]] = {
    kind: _number_bounds(kind) for kind in (Edit, Message, SizeOnly, Thinking, ToolSchema, Usage)
}


def drop_invalid_numbers(entry: _T) -> _T:
    """Return an entry with its invalid numbers replaced by the fields' defaults.

    Args:
        entry: a message, an edit, a part, a tool schema or a usage; nested ones are checked, too.
    """
    checks = _BOUNDS.get(type(entry))
    if checks is None:
        return entry
    changes: dict[str, Any] = {}
    for name, (check, default) in checks.items():
        value = getattr(entry, name)
        if value is not None and check(value) is None:
            changes[name] = default
    for name in _NESTED_FIELDS:
        items = getattr(entry, name, None)
        if items and (bounded_items := drop_invalid_numbers_each(items)) is not items:
            changes[name] = bounded_items
    usage = getattr(entry, "usage", None)
    if usage is not None and (bounded_usage := drop_invalid_numbers(usage)) is not usage:
        changes["usage"] = None if bounded_usage == Usage() else bounded_usage
    return msgspec.structs.replace(entry, **changes) if changes else entry  # type: ignore[type-var]


def drop_invalid_numbers_each(entries: tuple[_T, ...]) -> tuple[_T, ...]:
    """Apply `drop_invalid_numbers` to each entry; an unchanged tuple is returned itself."""
    bounded_entries = tuple(map(drop_invalid_numbers, entries))
    return (
        entries
        if all(a is b for a, b in zip(bounded_entries, entries, strict=True))
        else bounded_entries
    )
