"""The reader's own vocabulary: words of its task, numbers in pieces of two digits, and single characters for the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.course.pair.histories import CLEARED
from ctxkit.course.pair.task import INSTRUCTIONS, KEYS, NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

ROLES = ("system", "user", "assistant", "tool", "summary")
PAD, END, OTHER = "<pad>", "<end>", "<?>"
_PHRASES = ("Question ", ": what are ", " and ", " = ", ", ", 'read_file("etc/', '.toml")')
_WORDS = sorted(set(re.findall(r" ?[A-Za-z]+", " ".join([INSTRUCTIONS, *CLEARED]))))
VOCABULARY = tuple(
    dict.fromkeys(
        [
            *(PAD, END, OTHER, *(f"<{role}>" for role in ROLES)),
            *("\n", *map(chr, range(32, 127))),
            *(f"{n:02}" for n in range(100)),
            *NAMES,
            *(f"_{key}" for key in KEYS),
            *_PHRASES,
            *_WORDS,
        ]
    )
)
NUMBER = {piece: n for n, piece in enumerate(VOCABULARY)}
_LONGEST = re.compile(
    "|".join(map(re.escape, sorted(VOCABULARY[3 + len(ROLES) :], key=len, reverse=True))) + "|.",
    re.DOTALL,
)


def encoded(text: str) -> list[int]:
    """Return the numbers of a text's pieces, the longest first; `<?>` for a character that it has not."""
    return [NUMBER.get(piece, NUMBER[OTHER]) for piece in _LONGEST.findall(text)]


def decoded(numbers: Iterable[int]) -> str:
    """Return the text of pieces."""
    return "".join(VOCABULARY[n] for n in numbers)


def message(role: str, text: str) -> list[int]:
    """Return a message in pieces: its role, its text, and its end."""
    return [NUMBER[f"<{role}>"], *encoded(text), NUMBER[END]]
