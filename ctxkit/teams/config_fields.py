"""The fields of a section of a config, by kind; names in any case, as fuseraft takes them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_NUMBER = 10**12


class Fields:
    """One section.

    Args:
        values: what it says.

    Raises:
        BadArguments: it names one key twice, in other letters.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self.values = {str(k): v for k, v in values.items()}
        twice = [k for k, n in Counter(map(str.casefold, self.values)).items() if n > 1]
        if twice:
            names = [k for k in self.values if k.casefold() == twice[0]]
            raise BadArguments(
                f"The config names {listed(names)} beside each other: keep one of them."
            )
        self._fold = {k.casefold(): v for k, v in self.values.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def get(self, name: str) -> Any:
        """Return a value as it stands, or None."""
        return self._fold.get(name.casefold())

    def text(self, name: str) -> str:
        """Return a text; empty where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, (str, int, float)):
            raise BadArguments(f"{name} must be a text.")
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return true or false; false where it says nothing."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise BadArguments(f"{name} must be true or false, not {plain(repr(value), 40)}.")
        return bool(value)

    def number(self, name: str) -> int:
        """Return a whole number; 0 where it says nothing."""
        value = self.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER
        if value is not None and not whole:
            raise BadArguments(
                f"{name} must be a whole number of 0 or more, not {plain(repr(value), 40)}."
            )
        return value or 0

    def share(self, name: str) -> float:
        """Return a number from 0 to 1; 0 where it says nothing."""
        value = self.get(name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= 1):
            raise BadArguments(
                f"{name} must be a number from 0 to 1, not {plain(repr(value), 40)}."
            )
        return float(value or 0)

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; one text is a list of one."""
        value = self.get(name)
        values = [value] if isinstance(value, str) else value or []
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise BadArguments(f"{name} must be a list of texts.")
        return values

    def section(self, name: str) -> Fields | None:
        """Return a section; None where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise BadArguments(f"{name} must be a section of keys and values.")
        return Fields(value) if value is not None else None

    def rows(self, name: str) -> list[Fields]:
        """Return a list of sections."""
        value = self.get(name)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(v, dict) for v in value)
        ):
            raise BadArguments(f"{name} must be a list of sections with keys and values.")
        return [Fields(v) for v in value or ()]


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence, at most twelve of them."""
    known = [plain(n, 60) for n in names]
    return (
        ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
        or "none"
    )
