"""Token counters by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.tokens.estimated_counters import SYSTEM_ESTIMATES, estimated_counter
from ctxkit.tokens.tiktoken_counters import anthropic_counter, can_count_exactly, exact_counter
from ctxkit.tokens.vocabularies import ENCODINGS

if TYPE_CHECKING:
    from ctxkit.tokens.counter_protocol import TokenCounter
    from ctxkit.tokens.estimated_counters import LengthUnit

_UNITS: dict[str, LengthUnit] = {"chars": "characters", "bytes": "bytes", "utf16": "utf16"}
_BY_LENGTH = re.compile(r"(chars|bytes|utf16)/(\d+(?:\.\d+)?)")


def counter_names() -> list[str]:
    """Return the names for `get_counter`, which also takes any `chars/N`, `bytes/N`, `utf16/N`."""
    return ["exact", *ENCODINGS, "anthropic", "chars/4", *SYSTEM_ESTIMATES]


def get_counter(name: str) -> TokenCounter:
    """Return a token counter by its name.

    Args:
        name: `exact`, an encoding (`o200k_base`), `anthropic`, an estimate by length (`chars/4`,
            `bytes/3`, `utf16/4`), or a system's estimate (`pi`); see `counter_names`.

    Raises:
        BadArguments: there is no such counter.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.get_counter("chars/4")("Hello, world")
        3
    """
    word = name.strip().lower()
    if word == "exact":
        return exact_counter()
    if word in ENCODINGS:
        return exact_counter(word)
    if word == "anthropic":
        return anthropic_counter()
    system = SYSTEM_ESTIMATES.get(word) or SYSTEM_ESTIMATES.get(word.replace("-", "_"))
    if system is not None:
        return system
    by_length = _BY_LENGTH.fullmatch(word)
    if by_length and float(by_length[2]) > 0:
        return estimated_counter(float(by_length[2]), unit=_UNITS[by_length[1]])
    raise BadArguments(
        f"No counter is called {name!r}; there are"
        f" {', '.join(counter_names())}.{did_you_mean(word, counter_names())}"
    )


def default_counter() -> TokenCounter:
    """Return the exact counter of o200k_base, or `chars/4` where its vocabulary is missing."""
    return exact_counter() if can_count_exactly() else estimated_counter()
