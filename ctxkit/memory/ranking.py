"""Which entries come first, and the block of a prompt that they fill (`MemoryRanker.cs`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.memory.entry import MemoryEntry

Order = Literal["newest", "oldest"]
HEADS: dict[Order, str] = {
    "newest": "## MEMORY: facts recalled from prior sessions",
    "oldest": "MEMORY — facts recalled from prior sessions:",
}
MOST_CHARS = 8_000
"""Characters of the entries of a block, without its header and line breaks."""
_BONUS = {"feedback": 4, "preference": 4, "project": 3, "fact": 3, "user": 2, "procedure": 2,
          "reference": 1}  # fmt: skip
"""By type: fuseraft's four; those of Tyrum weigh as what is most like them."""
_WORD = re.compile(r"\w{3,}")
_EMPTY = frozenset(
    (
        "the",
        "and",
        "for",
        "are",
        "was",
        "but",
        "not",
        "you",
        "all",
        "can",
        "has",
        "its",
        "now",
        "that",
        "this",
        "with",
        "from",
    )
)
"""Words that say nothing of what is asked for."""


def oldest(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """Return entries by type, then by name (fuseraft's older order, as in its document)."""
    return sorted(entries, key=lambda e: (e.type, e.name))


def newest(entries: Iterable[MemoryEntry], query: str = "") -> list[MemoryEntry]:
    """Return entries by score, the best first, then by name (fuseraft's newer order)."""
    words = terms(query)
    return sorted(entries, key=lambda e: (-score(e, words), e.name))


def terms(query: str) -> frozenset[str]:
    """Return the distinct words of a query, of three letters or more that say something."""
    return frozenset(_WORD.findall(query[:20_000].lower())) - _EMPTY


def hits(kept: MemoryEntry, words: frozenset[str]) -> int:
    """Return 2 for each word in the name or the description, 1 for each in the body alone."""
    head, body = _lowered(kept)
    return sum(_points(word, head, body) for word in words)


def _lowered(kept: MemoryEntry) -> tuple[str, str]:
    return f"{kept.name} {kept.description}".lower(), kept.body.lower()


def _points(word: str, head: str, body: str) -> int:
    return 2 if word in head else 1 if word in body else 0


def score(kept: MemoryEntry, words: frozenset[str]) -> int:
    """Return what an entry scores for the words of a query."""
    return _BONUS.get(kept.type, 0) + hits(kept, words)


class RankedEntries:
    """Entries that only become more, ranked for one query after another.

    Each entry is looked through once for a word, however many queries have it.
    """

    def __init__(self) -> None:
        self.entries: list[MemoryEntry] = []
        self._texts: list[tuple[str, str]] = []
        self._bonus: list[int] = []
        self._of_word: dict[str, tuple[int, dict[int, int]]] = {}
        """For each word how many entries were looked through, and what it gives to which."""

    def add(self, entry: MemoryEntry) -> int:
        """Take an entry; return its number."""
        self.entries.append(entry)
        self._texts.append(_lowered(entry))
        self._bonus.append(_BONUS.get(entry.type, 0))
        return len(self.entries) - 1

    def ranked(self, numbers: Sequence[int], words: frozenset[str]) -> list[MemoryEntry]:
        """Return some entries by score (`score`), the best first; of equals the first given."""
        scores = self._bonus.copy()
        for word in words:
            for number, points in self._points_of(word).items():
                scores[number] += points
        best_first = sorted(numbers, key=scores.__getitem__, reverse=True)
        return [self.entries[number] for number in best_first]

    def _points_of(self, word: str) -> dict[int, int]:
        begin, known = self._of_word.get(word, (0, {}))
        for number, (head, body) in enumerate(self._texts[begin:], begin):
            if points := _points(word, head, body):
                known[number] = points
        self._of_word[word] = len(self._texts), known
        return known


def memory_block(
    entries: Iterable[MemoryEntry], query: str = "", *, order: Order = "newest"
) -> str:
    """Return the block of a prompt; empty where nothing is remembered.

    An entry goes in full if it fits into what is left of `MOST_CHARS`, else its first line
    alone; where that does not fit, the block ends.
    """
    ranked = oldest(entries) if order == "oldest" else newest(entries, query)
    left, said = MOST_CHARS, []
    for kept in ranked:
        body = [f"  {row}" for row in kept.body.split("\n")] if kept.body else []
        whole = "\n".join([kept.head, *body])
        text = whole if len(whole) <= left else kept.head
        if len(text) > left:
            break
        said.append(text)
        left -= len(text)
    return "\n".join([HEADS[order], *said]) if said else ""
