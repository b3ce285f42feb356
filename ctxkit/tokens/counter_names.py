"""Counters by name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.tokens.encoders import anthropic, exact, ready
from ctxkit.tokens.estimates import SYSTEMS, estimate
from ctxkit.tokens.vocabularies import ENCODINGS

if TYPE_CHECKING:
    from ctxkit.tokens.counters import Counter
    from ctxkit.tokens.estimates import Unit

_UNITS: dict[str, Unit] = {"chars": "characters", "bytes": "bytes", "utf16": "utf16"}
_BY_LENGTH = re.compile(r"(chars|bytes|utf16)/(\d+(?:\.\d+)?)")


def names() -> list[str]:
    """Return the names that `named` knows; besides these any `chars/N`, `bytes/N` and `utf16/N`."""
    return ["exact", *ENCODINGS, "anthropic", "chars/4", *SYSTEMS]


def named(name: str) -> Counter:
    """Return a counter by its name: an encoding, `anthropic`, `chars/4` or the like, or a system's
    estimate.

    Raises:
        BadArguments: there is no such counter.
    """
    word = name.strip().lower()
    if word == "exact":
        return exact()
    if word in ENCODINGS:
        return exact(word)
    if word == "anthropic":
        return anthropic()
    system = SYSTEMS.get(word) or SYSTEMS.get(word.replace("-", "_"))
    if system is not None:
        return system
    by_length = _BY_LENGTH.fullmatch(word)
    if by_length and float(by_length[2]) > 0:
        return estimate(float(by_length[2]), unit=_UNITS[by_length[1]])
    raise BadArguments(
        f"No counter is called {name!r}; there are"
        f" {', '.join(names())}.{did_you_mean(word, names())}"
    )


def default() -> Counter:
    """Return the exact counter of o200k_base, or `chars/4` where its vocabulary is not on this
    machine.
    """
    return exact() if ready() else estimate()
