"""Text shown character by character, for a person who must see all of it before it runs."""

from __future__ import annotations

import unicodedata

_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)
"""Characters that count as printable and leave no mark: fillers, joiners, variation selectors."""
_OWN = frozenset("⟨⇥")
"""What `make_visible` writes itself: in the text it is escaped, so that nothing can imitate it."""
_MARKS = 4
"""Combining marks on one letter that are shown as they are; more would cover what stands beside."""


def make_visible(text: str) -> str:
    """Return text in which every character can be seen, and from which the text can be read back.

    A character that has no picture of its own (control, bidirectional, zero-width and unassigned
    ones, spaces other than the plain one, line ends) stands as ``⟨U+001B⟩``; a tab has ``⇥`` before
    it.
    """
    if text.isascii() and text.isprintable():
        return text
    out, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c)[0] == "M" else 0
        shown = c.isprintable() and c not in _BLANK and c not in _OWN and marks <= _MARKS
        out.append("⇥\t" if c == "\t" else c if shown else f"⟨U+{ord(c):04X}⟩")
    return "".join(out)
