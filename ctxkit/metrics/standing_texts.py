"""Which of many texts stand in another text, found by words that few of them have in common."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ctxkit.metrics.items import stands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    Sign = str | tuple[str, str, str]

_WORDS = re.compile(r"(\w+)")


class StandingTexts:
    """Some numbered texts, to be found in others: they cost little more than what stands there.

    What stands in a text does not begin or end inside of a word, so each of its words is one of the
    text's, and each two in a row, with what is between them, stand there in a row. A text with
    white space may go over a line's end, so it is known by a single word.
    """

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = texts
        signs = {at: tuple(_signs(text)) for at, text in texts.items()}
        often = Counter(sign for of in signs.values() for sign in of)
        self._by_sign: dict[Sign, list[int]] = {}
        for at, of in signs.items():
            self._by_sign.setdefault(min(of, key=often.__getitem__, default=""), []).append(at)
        self._spaced = {at for at, text in texts.items() if text.split() != [text]}

    def near(self, line: str) -> set[int]:
        """Return the numbers of the texts that may stand in a text of which this is a line."""
        words = _WORDS.split(line)
        told = {"", *words[1::2], *_pairs(words)}
        return {at for sign in self._by_sign.keys() & told for at in self._by_sign[sign]}

    def in_line(self, line: str) -> tuple[set[int], set[int]]:
        """Return the numbers of the texts that stand in a line, and of those with white space
        that may stand in a text of which it is a line.
        """
        near = self.near(line)
        spaced = near & self._spaced
        near -= spaced
        return {at for at in near if stands(self._texts[at], line)}, spaced

    def in_text(self, near: AbstractSet[int], text: str) -> set[int]:
        """Return those of some texts that stand in a text with single spaces alone."""
        plain = " ".join(text.split()) if near else ""
        return {at for at in near if stands(self._texts[at], plain)}


def _signs(text: str) -> Iterable[Sign]:
    """Return each two words of a text in a row, or, where it has white space, each word."""
    words = _WORDS.split(text)
    return words[1::2] if len(words) <= 3 or text.split() != [text] else _pairs(words)


def _pairs(words: list[str]) -> Iterable[tuple[str, str, str]]:
    return zip(words[1:-2:2], words[2:-1:2], words[3::2], strict=True)
