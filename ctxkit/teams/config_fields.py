"""Typed access to config sections, and regular expressions with a time limit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_NUMBER = 10**12


class ConfigSection:
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
                f"The config names {join_names(names)} beside each other: keep one of them."
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
            raise BadArguments(
                f"{name} must be true or false, not {sanitize_text(repr(value), 40)}."
            )
        return bool(value)

    def number(self, name: str) -> int:
        """Return a whole number; 0 where it says nothing."""
        value = self.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER
        if value is not None and not whole:
            raise BadArguments(
                f"{name} must be a whole number of 0 or more, not {sanitize_text(repr(value), 40)}."
            )
        return value or 0

    def share(self, name: str) -> float:
        """Return a number from 0 to 1; 0 where it says nothing."""
        value = self.get(name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= 1):
            raise BadArguments(
                f"{name} must be a number from 0 to 1, not {sanitize_text(repr(value), 40)}."
            )
        return float(value or 0)

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; one text is a list of one."""
        value = self.get(name)
        values = [value] if isinstance(value, str) else value or []
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise BadArguments(f"{name} must be a list of texts.")
        return values

    def section(self, name: str) -> ConfigSection | None:
        """Return a section; None where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise BadArguments(f"{name} must be a section of keys and values.")
        return ConfigSection(value) if value is not None else None

    def rows(self, name: str) -> list[ConfigSection]:
        """Return a list of sections."""
        value = self.get(name)
        if value is not None and not (
            isinstance(value, list) and all(isinstance(v, dict) for v in value)
        ):
            raise BadArguments(f"{name} must be a list of sections with keys and values.")
        return [ConfigSection(v) for v in value or ()]


def join_names(names: Iterable[str]) -> str:
    """Return names for a sentence, at most twelve of them."""
    known = [sanitize_text(n, 60) for n in names]
    return (
        ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
        or "none"
    )


PATTERN_SECONDS = 1.0
"""How long one may take in one text: some take for ever, and the text is a model's."""


def check_pattern(text: str, where: str) -> str:
    """Return a regular expression that can be searched for.

    Raises:
        BadArguments: it is none; the sentence says where it stands.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    try:
        regex.compile(text)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as e:
        why = sanitize_text(str(e), 120)
        raise BadArguments(
            f"{where}: {sanitize_text(text, 60)!r} is no regular expression ({why})."
        ) from None
    return text


def matches_any(patterns: Iterable[str], text: str) -> bool:
    """Say whether one of some regular expressions is found in a text.

    Raises:
        BadArguments: looking for one takes longer than a second.
    """
    import regex

    for pattern in patterns:
        try:
            found: Any = regex.search(pattern, text, timeout=PATTERN_SECONDS)
        except TimeoutError:
            raise BadArguments(
                f"The config's regular expression {sanitize_text(pattern, 60)!r} takes longer than "
                f"{PATTERN_SECONDS:g} s in a text: write it simpler, and let the team go on."
            ) from None
        if found:
            return True
    return False
