"""The class of redaction rules, and the text that they search, without hidden characters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RedactionRule:
    """One kind of secret.

    In an example the secret is between `«` and `»`, and `{a20}` means 20 random characters of
    an alphabet: `a` letters and digits, `l` letters, `p` small letters, `s` small letters
    and digits, `u` capitals and digits, `h` hexadecimal, `d` digits, `t` base32, `c` base58,
    `b` base64, `w` base64 for URLs.

    Args:
        name: unique name of the kind.
        find: yields the spans of such secrets in a text.
        examples: texts with one secret each; the tests vary them in many ways.
        hint: a substring of every text with such a secret; in lower case where `is_caseless`.
        is_caseless: True where the text beside the secret may be in upper case, too.
        is_whole_line: True where the lines of the secret hold nothing else.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[TextWithoutHiddenCharacters], Iterator[Span]],
        *examples: str,
        hint: str = "",
        is_caseless: bool = False,
        is_whole_line: bool = False,
    ) -> None:
        self.name, self.find, self.examples, self.hint = name, find, examples, hint
        self.is_caseless, self.is_whole_line = is_caseless, is_whole_line


@lru_cache(512)
def compile_once(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern; it is compiled at the first use of its rule."""
    return re.compile(pattern)


Span = tuple[int, int]
"""Start and end of a secret, in characters."""
_INVISIBLE = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef"
)
"""Zero-width characters: soft hyphens, joiners, direction marks, variation selectors, tags."""
_CONTROLS = "\x01-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f"
_ASCII_CONTROLS = "".join(map(chr, [*range(1, 9), *range(14, 32), 127]))
_ASCII_ESCAPES = (
    r"\\{1,8}+(?:(?:u001[bB]|x1[bB]|0?33|e)\[[0-9;:]{0,32}+[A-Za-z]"
    r"|u(?:200[b-fB-F]|2060|[fF][eE][fF][fF]|00[aA][dD]))"
    r"|\^\[\[[0-9;:]{0,32}+[A-Za-z]"
)
"""Escape sequences and invisible characters in the ASCII forms of JSON, shells and `cat -v`."""
_ESCAPES = (
    r"(?:\x1b\[|\x9b)[0-?]*+(?: q|[!-/]*+[@-~]?+)"  # CSI: colours, cursor, erasing
    r"|\x1b[\]PX^_][^\x07\x1b]{0,4096}+(?:\x07|\x1b\\)"  # strings: titles, links
    r"|\x1b\](?:\d++;)?|\x1b[PX^_\\]"  # a string without an end, or its end
    r"|\x1b[!-/]++[0-~]?+|\x1b[78=>]?+"  # character sets, others; a letter stays text
)
_HIDDEN = re.compile(f"(?:{_ESCAPES}|[{_INVISIBLE}{_CONTROLS}]|{_ASCII_ESCAPES})+")
_FIRST_HIDDEN = re.compile(f"[{_INVISIBLE}{_CONTROLS}\x1b]")
_FIRST_HIDDEN_OR_ASCII = re.compile(f"[{_INVISIBLE}{_CONTROLS}\x1b\\\\^]")
"""Characters with which `_HIDDEN` may begin; its `_ASCII_ESCAPES` begin with a backslash or `^`."""
_FIRST_ASCII_ESCAPE = re.compile(r"\\(?:u(?:00|20|[fF][eE])|x1|0?33|e\[)")
"""The first characters of `_ASCII_ESCAPES`, a pattern that is fast to search."""
_STRING_SEQUENCE = re.compile(r"\x1b[\]PX^_]([^\x07\x1b]*+)")
_ESCAPED_CHAR = re.compile(r"\\[nrt]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}")
"""The escape of a character in JSON and URLs; the text after it begins a new word."""
_MAX_BREAKS = 4
"""Breaks that are tried as ends of a match."""


# A program that colours its output puts escape sequences before, after and into keys. Redaction
# rules match the text without them; `origin` gives the position in the original text.
class TextWithoutHiddenCharacters:
    """The visible characters of a text, and the positions (breaks) where others were removed.

    Args:
        text: the original text.
    """

    __slots__ = ("_breaks", "_shifts", "low", "strings", "text")

    def __init__(self, text: str) -> None:
        self._breaks: list[int] = []
        """Visible positions where characters were removed; words may begin or end there."""
        self._shifts: list[int] = []
        """For each break, how many characters were removed up to there."""
        self.strings: list[Span] = []
        """Spans in the original text of the strings in escape sequences, such as link addresses."""
        self.text = self._remove_hidden(text) if _has_hidden(text) else text
        self.low = _lower_keeping_length(self.text)
        """The visible text in lower case, with the same length."""

    def _remove_hidden(self, text: str) -> str:
        """Return the visible text; note the breaks, and the strings in what is removed."""
        pieces, at, removed = [], 0, 0
        for first in _FIRST_HIDDEN_OR_ASCII.finditer(text):
            hidden = _HIDDEN.match(text, first.start()) if first.start() >= at else None
            if hidden is None:
                continue
            start, end = hidden.span()
            pieces.append(text[at:start])
            self.strings += (s.span(1) for s in _STRING_SEQUENCE.finditer(text, start, end))
            removed += end - start
            self._add_break(end - removed, removed)
            # After a bare escape a terminal may hide the next character, too: a word may also begin
            # behind that.
            if text[end - 1] == "\x1b":
                self._add_break(end - removed + 1, removed)
            at = end
        return "".join([*pieces, text[at:]])

    def _add_break(self, at: int, removed: int) -> None:
        if self._breaks and self._breaks[-1] == at:
            self._shifts[-1] = removed
        else:
            self._breaks.append(at)
            self._shifts.append(removed)

    @property
    def is_changed(self) -> bool:
        """True where characters were removed."""
        return bool(self._breaks)

    def is_break(self, at: int) -> bool:
        """Return whether characters were removed at a position."""
        i = bisect_left(self._breaks, at)
        return i < len(self._breaks) and self._breaks[i] == at

    def is_boundary(self, at: int) -> bool:
        """Return whether a position is a break or the end of an escaped character."""
        return self.is_break(at) or any(
            escape.end() == at for escape in _ESCAPED_CHAR.finditer(self.text, max(at - 6, 0), at)
        )

    def is_edge(self, at: int) -> bool:
        """Return whether no word continues across a position."""
        return self.is_boundary(at) or not (
            _is_word(self.text[at - 1 : at]) and _is_word(self.text[at : at + 1])
        )

    def origin(self, at: int) -> int:
        """Return the position in the original text of the character at a visible position."""
        i = bisect_right(self._breaks, at) - 1
        return at + self._shifts[i] if i >= 0 else at

    def original_span(self, span: Span) -> Span:
        """Return the span in the original text of a visible span."""
        start, end = span
        return self.origin(start), self.origin(end - 1) + 1

    def match(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """Match a pattern at a position, in the whole text or up to one of the next breaks.

        Args:
            pattern: compiled pattern.
            at: character at which the match begins.
        """
        match = pattern.match(self.text, at)
        if match is None and self._breaks:
            next_break = bisect_right(self._breaks, at)
            for end in self._breaks[next_break : next_break + _MAX_BREAKS]:
                match = match or pattern.match(self.text, at, end)
        return match

    def match_before(self, pattern: re.Pattern[str], at: int, max_chars: int) -> int | None:
        """Return the start of a match that ends at a position; None where there is none.

        Args:
            pattern: a pattern that ends with `$`.
            at: the end of the match.
            max_chars: largest length of the match, in characters.
        """
        begin = max(at - max_chars, 0)
        match = pattern.search(self.text, begin, at)
        if match:
            return match.start()
        # a word may begin at a break or after an escaped character
        starts = self._breaks[bisect_left(self._breaks, begin) : bisect_left(self._breaks, at)]
        starts += [escape.end() for escape in _ESCAPED_CHAR.finditer(self.text, begin, at)]
        for start in starts:
            match = pattern.search(self.text[start:at])
            if match:
                return start + match.start()
        return None


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _has_hidden(text: str) -> bool:
    """Return whether a text may have hidden characters; each test is one fast pass."""
    if text.isascii():
        if not text.isprintable() and any(c in text for c in _ASCII_CONTROLS):
            return True
    elif _FIRST_HIDDEN.search(text):
        return True
    return ("\\" in text and bool(_FIRST_ASCII_ESCAPE.search(text))) or "^[[" in text


def _lower_keeping_length(text: str) -> str:
    """Return text in lower case with the same length."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()
