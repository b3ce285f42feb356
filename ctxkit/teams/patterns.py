"""A config's regular expressions: checked when it is read, given up where they take too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS = 1.0
"""How long one may take in one text: some take for ever, and the text is a model's."""


def pattern_of(text: str, where: str) -> str:
    """Return a regular expression that can be searched for.

    Raises:
        BadArguments: it is none; the sentence says where it stands.
    """
    import regex  # type: ignore[import-untyped]  # comes with tiktoken

    try:
        regex.compile(text)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as e:
        why = plain(str(e), 120)
        raise BadArguments(
            f"{where}: {plain(text, 60)!r} is no regular expression ({why})."
        ) from None
    return text


def is_in(patterns: Iterable[str], text: str) -> bool:
    """Say whether one of some regular expressions is found in a text.

    Raises:
        BadArguments: looking for one takes longer than a second.
    """
    import regex

    for pattern in patterns:
        try:
            found: Any = regex.search(pattern, text, timeout=SECONDS)
        except TimeoutError:
            raise BadArguments(
                f"The config's regular expression {plain(pattern, 60)!r} takes longer than "
                f"{SECONDS:g} s in a text: write it simpler, and let the team go on."
            ) from None
        if found:
            return True
    return False
