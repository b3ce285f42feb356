"""Conditions on the JSON of a reply, by which a structured selection finds the next agent."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.teams.config_fields import Fields

OPERATORS = ("Is", "IsNot", "Contains", "Exists")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
_MOST = 200_000
"""Characters of a reply that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One field of a JSON object, and what is asked of it."""

    field: str
    """Names between dots, from the outermost on."""
    operator: str
    value: str | bool

    def holds(self, found: dict[str, Any]) -> bool:
        """Say whether an object is so; upper and lower case are alike."""
        value: Any = found
        for name in self.field.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if self.operator == "Exists":
            return (value is not None) is self.value
        said = value if isinstance(value, str) else json.dumps(value)
        text, wanted = said.strip().casefold(), str(self.value).strip().casefold()
        if self.operator == "Contains":
            return value is not None and wanted in text
        return (value is not None and text == wanted) is (self.operator == "Is")


def condition_of(f: Fields | None, where: str) -> Condition:
    """Return the condition of a section `Field` and one of `Is`, `IsNot`, `Contains`, `Exists`.

    Raises:
        BadArguments: it names no field, or not just one operator.
    """
    given = [o for o in OPERATORS if f is not None and f.get(o) is not None]
    if f is None or not f.text("Field") or len(given) != 1:
        raise BadArguments(
            f"{plain(where, 80)} needs a Condition: a Field and one of {', '.join(OPERATORS)}."
        )
    (name,) = given
    value = f.get(name)
    if name == "Exists" or isinstance(value, bool):
        return Condition(field=f.text("Field"), operator=name, value=f.flag(name))
    return Condition(field=f.text("Field"), operator=name, value=f.text(name))


def object_in(reply: str) -> dict[str, Any] | None:
    """Return the JSON object of a reply: all, a fence's, or first to last brace; else None."""
    for text in _candidates(reply[:_MOST]):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _candidates(reply: str) -> Iterator[str]:
    yield reply
    yield from _FENCED.findall(reply)
    yield reply[reply.find("{") : reply.rfind("}") + 1]
