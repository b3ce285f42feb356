"""Which of many texts stand in another text: all of them are looked for at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahocorasick_rs import AhoCorasick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Places:
    """Where each of many texts stands in another, in whatever words it stands there (Aho and
    Corasick 1975: one walk over the text, however many are looked for).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._find = AhoCorasick(list(map(_encodable, texts))).find_matches_as_indexes

    def of(self, text: str) -> list[tuple[int, int, int]]:
        """Return the number of each text that stands in a text, where it begins, where it ends."""
        return self._find(_encodable(text), overlapping=True)

    def lines(self, text: str) -> Iterator[tuple[str, set[int]]]:
        """Yield the lines of a text in which any stand, in whatever case, with the numbers of
        those; the texts are to be casefolded, and so is the line where that makes it longer.
        """
        folded = text.casefold()
        told = text if len(text) == len(folded) else folded
        found: dict[tuple[int, int], set[int]] = {}
        begin = end = -1
        for which, start, _ in self.of(folded):
            if not begin <= start < end:  # they come in order, so a line is looked for once
                begin, end = folded.rfind("\n", 0, start) + 1, folded.find("\n", start)
                end = end if end >= 0 else len(folded)
                standing = found.setdefault((begin, end), set())
            standing.add(which)
        yield from ((told[begin:end], of) for (begin, end), of in found.items())


class StandingTexts:
    """Some numbered texts, to be found in others; one may be written in several ways.

    What stands in a text does not begin or end inside of a word: `fin-import-1` does not stand in
    `fin-import-10`.

    Args:
        texts: each with its number, none of them empty.
        cut_at: longer texts may have been cut there, so that they end inside of a word.
    """

    def __init__(self, texts: Iterable[tuple[str, int]], cut_at: int) -> None:
        numbers: dict[str, set[int]] = {}
        for text, number in texts:
            numbers.setdefault(text, set()).add(number)
        self._numbers, self._cut_at = list(numbers.values()), cut_at
        self._places = Places(numbers)

    def in_text(self, text: str) -> set[int]:
        """Return the numbers of the texts that stand in a text."""
        out: set[int] = set()
        for which, start, end in self._places.of(text):
            whole = end - start >= self._cut_at or not _inside(text, end)
            if whole and not _inside(text, start):
                out |= self._numbers[which]
        return out


def _inside(text: str, at: int) -> bool:
    """Say whether a place lies inside of a word."""
    return 0 < at < len(text) and _in_word(text[at - 1]) and _in_word(text[at])


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _encodable(text: str) -> str:
    """Return a text, as long as it was, without halves of surrogate pairs, which UTF-8 has not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
