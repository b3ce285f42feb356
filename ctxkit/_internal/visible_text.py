"""A text as a terminal shows it, for matching: without escape sequences and invisible characters.

A program that colours its output puts escape sequences before, behind and into keys. Rules match
the visible text; `VisibleText.origin` gives the place in the text as it was.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

Span = tuple[int, int]
"""Start and end of a secret, in characters."""
_INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef"
)
"""Characters of no width: soft hyphens, joiners, marks of direction, variation selectors, tags."""
_CONTROLS = "\x01-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f"
_ASCII_CONTROLS = "".join(map(chr, [*range(1, 9), *range(14, 32), 127]))
_WRITTEN = (
    r"\\{1,8}+(?:(?:u001[bB]|x1[bB]|0?33|e)\[[0-9;:]{0,32}+[A-Za-z]"
    r"|u(?:200[b-fB-F]|2060|[fF][eE][fF][fF]|00[aA][dD]))"
    r"|\^\[\[[0-9;:]{0,32}+[A-Za-z]"
)
"""Escape sequences and invisible characters as JSON, shells and `cat -v` write them in ASCII."""
_ESCAPES = (
    r"(?:\x1b\[|\x9b)[0-?]*+(?: q|[!-/]*+[@-~]?+)"  # CSI: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}+(?:\x07|\x1b\\)"  # strings: titles, links
    r"|\x1b\](?:\d++;)?+|\x1b[PX^_\\]"  # a string without an end, or its end
    r"|\x1b[!-/]++[0-~]?+|\x1b[78=>]?+"  # character sets, others; a letter is left to what follows
)
_HIDDEN = re.compile(f"(?:{_ESCAPES}|[{_INVISIBLE}{_CONTROLS}]|{_WRITTEN})++")
_FIRST = re.compile(f"[{_INVISIBLE}{_CONTROLS}\x1b]")
_FIRST_OF_ANY = re.compile(f"[{_INVISIBLE}{_CONTROLS}\x1b\\\\^]")
_FIRST_WRITTEN = re.compile(r"\\(?:u(?:00|20|[fF][eE])|x1|0?33|e\[)")
"""How what is written in ASCII begins: a pattern that is fast to look for."""
_STRING = re.compile(r"\x1b[\]PX^_]([^\x07\x1b]*+)")
_ESCAPED = re.compile(r"\\[nrt]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}")
"""The escape of a character, as JSON and URLs write it: what follows is not part of its word."""
_MAX_BREAKS = 4
"""Breaks at which a match that fails without them may end."""


class VisibleText:
    """A text without what is not seen, and where something was taken out.

    Args:
        text: as it came.
    """

    __slots__ = ("_breaks", "_shifts", "low", "strings", "text")

    def __init__(self, text: str) -> None:
        self._breaks: list[int] = []
        """Places in the visible text at which something was taken out; words may begin and end."""
        self._shifts: list[int] = []
        """For each break, how far the original text is ahead of the visible one from there on."""
        self.strings: list[Span] = []
        """Where in the original text an escape sequence holds text, such as the address of a link.
        """
        self.text = self._cleaned(text) if _has_hidden(text) else text
        self.low = lower_keeping_length(self.text)
        """The visible text in lower case, each character at its place."""

    def _cleaned(self, text: str) -> str:
        pieces, at, gone = [], 0, 0
        for first in _FIRST_OF_ANY.finditer(text):
            hidden = _HIDDEN.match(text, first.start()) if first.start() >= at else None
            if hidden is None:
                continue
            start, end = hidden.span()
            pieces.append(text[at:start])
            self.strings += (s.span(1) for s in _STRING.finditer(text, start, end))
            gone += end - start
            self._add_break(end - gone, gone)
            if text[end - 1] == "\x1b":  # it may take the next character with it
                self._add_break(end - gone + 1, gone)
            at = end
        return "".join([*pieces, text[at:]])

    def _add_break(self, at: int, gone: int) -> None:
        if self._breaks and self._breaks[-1] == at:
            self._shifts[-1] = gone
        else:
            self._breaks.append(at)
            self._shifts.append(gone)

    @property
    def is_changed(self) -> bool:
        """True where something was taken out."""
        return bool(self._breaks)

    def is_break(self, at: int) -> bool:
        """Return True where an escape sequence or an invisible character stood at a place."""
        i = bisect_left(self._breaks, at)
        return i < len(self._breaks) and self._breaks[i] == at

    def is_cut(self, at: int) -> bool:
        """Return True at a break, and behind the escape of a character."""
        return self.is_break(at) or any(
            hit.end() == at for hit in _ESCAPED.finditer(self.text, max(at - 6, 0), at)
        )

    def is_edge(self, at: int) -> bool:
        """Return True where no word goes on from the character before a place to that at it."""
        return self.is_cut(at) or not (
            _is_word(self.text[at - 1 : at]) and _is_word(self.text[at : at + 1])
        )

    def origin(self, at: int) -> int:
        """Return where the character at a place stands in the original text."""
        i = bisect_right(self._breaks, at) - 1
        return at + self._shifts[i] if i >= 0 else at

    def original_span(self, span: Span) -> Span:
        """Return the span of the original text that is seen as a span of the visible one."""
        start, end = span
        return self.origin(start), self.origin(end - 1) + 1

    def match(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """Match at a place; where that fails, up to one of the next breaks, as if the text ended
        there.
        """
        hit = pattern.match(self.text, at)
        if hit is None and self._breaks:
            next_break = bisect_right(self._breaks, at)
            for end in self._breaks[next_break : next_break + _MAX_BREAKS]:
                hit = hit or pattern.match(self.text, at, end)
        return hit

    def match_before(self, pattern: re.Pattern[str], at: int, room: int) -> int | None:
        """Return where a match begins that ends at a place, at most `room` characters before it;
        the pattern ends with `$`.
        """
        begin = max(at - room, 0)
        hit = pattern.search(self.text, begin, at)
        if hit:
            return hit.start()
        starts = self._breaks[bisect_left(self._breaks, begin) : bisect_left(self._breaks, at)]
        starts += [escaped.end() for escaped in _ESCAPED.finditer(self.text, begin, at)]
        for start in starts:
            hit = pattern.search(self.text[start:at])
            if hit:
                return start + hit.start()
        return None


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _has_hidden(text: str) -> bool:
    """Return True for a text that needs a second look: each test is one pass in C."""
    if text.isascii():
        if any(c in text for c in _ASCII_CONTROLS):
            return True
    elif _FIRST.search(text):
        return True
    return ("\\" in text and bool(_FIRST_WRITTEN.search(text))) or "^[[" in text


def lower_keeping_length(text: str) -> str:
    """Return text in lower case, each character at its place."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()
