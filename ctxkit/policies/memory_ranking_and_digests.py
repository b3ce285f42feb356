"""Memory entries ranked by a query, and written as blocks and digests within a budget."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ctxkit._internal.formatting_and_sanitizing import (
    sanitize_line,
)
from ctxkit._internal.setting_value_validation import NATURAL
from ctxkit.errors import BadArguments
from ctxkit.policies.memory_entries import MemoryEntry, make_entry_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


RankingOrder = Literal["newest", "oldest"]
BLOCK_HEADINGS: dict[RankingOrder, str] = {
    "newest": "## MEMORY: facts recalled from prior sessions",
    "oldest": "MEMORY — facts recalled from prior sessions:",
}
MAX_BLOCK_CHARS = 8_000
"""Maximum characters of a block, with its heading and line breaks."""
_MISSING_CHARS = 80
"""Characters kept free for the line that says how many entries are missing."""
_TYPE_BONUS = {"feedback": 4, "preference": 4, "project": 3, "fact": 3, "user": 2, "procedure": 2,
          "reference": 1}  # fmt: skip
"""Score of a type: fuseraft's four; Tyrum's have the score of the most similar one."""
_QUERY_WORD = re.compile(r"\w{3,}|(?<!\w)\d{1,2}(?!\w)")
_STOP_WORDS = frozenset(
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
"""Words of a query that are ignored."""


def sort_by_type(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """Return entries sorted by type, then by name (fuseraft's older order, as documented)."""
    return sorted(entries, key=lambda e: (e.type, e.name))


def rank_by_score(entries: Iterable[MemoryEntry], query: str = "") -> list[MemoryEntry]:
    """Return entries sorted by score, the best first, then by name (fuseraft's newer order).

    Args:
        entries: the stored entries.
        query: the text whose words raise the score of an entry.
    """
    words = extract_query_terms(query)
    return sorted(entries, key=lambda e: (-score_entry(e, words), e.name))


def extract_query_terms(query: str) -> frozenset[str]:
    """Return the distinct words of three letters or more of a query, without stop words, and its
    numbers.
    """
    return frozenset(_QUERY_WORD.findall(query[:20_000].lower())) - _STOP_WORDS


def score_matches(entry: MemoryEntry, words: frozenset[str]) -> int:
    """Return 2 for each word in the name or the description, 1 for each in the body alone.

    Args:
        entry: the stored entry.
        words: words of the query in lower case, as `extract_query_terms` returns them.
    """
    head, body = _lower_texts(entry)
    return sum(_word_points(word, head, body) for word in words)


def _lower_texts(entry: MemoryEntry) -> tuple[str, str]:
    return f"{entry.name} {entry.description}".lower(), entry.body.lower()


def _word_points(word: str, head: str, body: str) -> int:
    if len(word) < 3 and word.isdigit():  # `7` is no part of `17`
        number = re.compile(rf"(?<!\d){word}(?!\d)")
        return 2 if number.search(head) else 1 if number.search(body) else 0
    return 2 if word in head else 1 if word in body else 0


def score_entry(entry: MemoryEntry, words: frozenset[str]) -> int:
    """Return the score of an entry for a query: `score_matches`, and a bonus for its type.

    Args:
        entry: the stored entry.
        words: words of the query in lower case, as `extract_query_terms` returns them.
    """
    return _TYPE_BONUS.get(entry.type, 0) + score_matches(entry, words)


class MemoryEntryRanker:
    """A growing list of entries, ranked for one query after another.

    Each entry is searched once per word, however many queries have the word.
    """

    def __init__(self) -> None:
        self.entries: list[MemoryEntry] = []
        self._texts: list[tuple[str, str]] = []
        self._bonus: list[int] = []
        self._of_word: dict[str, tuple[int, dict[int, int]]] = {}
        """For each word how many entries were searched, and the points by entry number."""

    def add(self, entry: MemoryEntry) -> int:
        """Add an entry; return its number."""
        self.entries.append(entry)
        self._texts.append(_lower_texts(entry))
        self._bonus.append(_TYPE_BONUS.get(entry.type, 0))
        return len(self.entries) - 1

    def ranked(self, numbers: Sequence[int], words: frozenset[str]) -> list[MemoryEntry]:
        """Return some entries by score, the best first; equal scores keep their order.

        Args:
            numbers: numbers of the entries.
            words: words of the query, each of which raises the score of entries that have it.
        """
        scores = self._bonus.copy()
        for word in words:
            for number, points in self._points_of(word).items():
                scores[number] += points
        best_first = sorted(numbers, key=scores.__getitem__, reverse=True)
        return [self.entries[number] for number in best_first]

    def _points_of(self, word: str) -> dict[int, int]:
        begin, points_by_number = self._of_word.get(word, (0, {}))
        for number, (head, body) in enumerate(self._texts[begin:], begin):
            if points := _word_points(word, head, body):
                points_by_number[number] = points
        self._of_word[word] = len(self._texts), points_by_number
        return points_by_number


def format_memory_block(
    entries: Iterable[MemoryEntry], query: str = "", *, fuseraft_version: RankingOrder = "newest"
) -> str:
    """Return the memory block of a prompt; empty where there are no entries.

    An entry is included with its body if that and the first lines of all entries behind it fit the
    rest of `MAX_BLOCK_CHARS`, else with its first line. Where even the first lines do not fit, the
    last line says how many entries are missing.

    Args:
        entries: the stored entries.
        query: the text whose words raise the score of an entry, in the order "newest".
        fuseraft_version: "oldest" sorts by type instead of score.
    """
    ranked = (
        sort_by_type(entries) if fuseraft_version == "oldest" else rank_by_score(entries, query)
    )
    heading, lines = BLOCK_HEADINGS[fuseraft_version], list[str]()
    heads = sum(len(entry.head) + 1 for entry in ranked)  # each line has its line break
    left = MAX_BLOCK_CHARS - len(heading)
    if heads > left:
        left -= _MISSING_CHARS
    for entry in ranked:
        heads -= len(entry.head) + 1
        body = [f"  {row}" for row in entry.body.split("\n")] if entry.body else []
        whole = "\n".join([entry.head, *body])
        text = whole if len(whole) + 1 + heads <= left else entry.head
        if len(text) + 1 > left:
            missing = len(ranked) - len(lines)
            lines.append(f"({missing:,} more not shown: over {MAX_BLOCK_CHARS:,} characters)")
            break
        lines.append(text)
        left -= len(text) + 1
    return "\n".join([heading, *lines]) if lines else ""


NO_MATCH = "No matching durable memory found."
MEMORY_KINDS = ("fact", "note", "procedure", "episode")
_KIND_OF_TYPE = {"user": "fact", "feedback": "fact", "preference": "fact", "fact": "fact",
         "procedure": "procedure", "episode": "episode"}  # fmt: skip
"""Tyrum's kind of each type; any other type is a note."""
_SNIPPET_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class MemoryDigestLimits:
    """Limits of a digest, in all and for each kind of entry (Tyrum's defaults).

    Raises:
        BadArguments: a limit is no whole number from 0 on, or a kind is unknown.

    Example:
        >>> MemoryDigestLimits(items=3).kinds["fact"]
        (6, 800)
    """

    items: int = 12
    """Maximum number of entries."""
    chars: int = 2_400
    """Maximum characters of all entries."""
    kinds: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {
            "fact": (6, 800),
            "note": (4, 1200),
            "procedure": (3, 1200),
            "episode": (2, 800),
        }
    )
    """For each kind the most items and characters."""

    def __post_init__(self) -> None:
        numbers = [self.items, self.chars, *(n for pair in self.kinds.values() for n in pair)]
        if any(NATURAL.convert(n) is None for n in numbers) or set(self.kinds) - set(MEMORY_KINDS):
            raise BadArguments(
                f"Budgets are whole numbers from 0 on, for {', '.join(MEMORY_KINDS)}."
            )


def get_entry_kind(entry: MemoryEntry) -> str:
    """Return Tyrum's kind of an entry."""
    return _KIND_OF_TYPE.get(entry.type, "note")


def format_digest(
    entries: Iterable[MemoryEntry], query: str = "", budgets: MemoryDigestLimits | None = None
) -> str:
    """Return the digest for a query: one line per entry, the best first.

    Args:
        entries: the entries.
        query: entries without any of its words are left out; empty: all are included.
        budgets: limits of the digest.
    """
    words = extract_query_terms(query)
    matching = [
        entry for entry in rank_by_score(entries, query) if not words or score_matches(entry, words)
    ]
    return "\n".join(_format_row(entry) for entry in fit_to_budgets(matching, budgets)) or NO_MATCH


def format_digest_lines(entries: Iterable[MemoryEntry]) -> str:
    """Return the digest of entries, in their order, without limits."""
    return "\n".join(map(_format_row, entries))


def fit_to_budgets(
    ranked: Iterable[MemoryEntry],
    budgets: MemoryDigestLimits | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[MemoryEntry]:
    """Return the entries that fit the budgets, in order.

    An entry that does not fit the rest of its kind's budget, or of the whole, is left out.

    Args:
        ranked: entries, the preferred ones first.
        budgets: the limits; None: Tyrum's.
        sizes: characters of each entry's line (`count_line_chars`) by guid; None: they are
        computed.
    """
    limits = budgets or MemoryDigestLimits()
    out: list[MemoryEntry] = []
    # Remaining [items, characters] of each kind, and of the whole.
    left = {kind: list(limits.kinds.get(kind, (0, 0))) for kind in MEMORY_KINDS}
    total = [limits.items, limits.chars]
    for entry in ranked:
        kind = left[get_entry_kind(entry)]
        if min(total[0], kind[0]) < 1:
            continue
        size = count_line_chars(entry) if sizes is None else sizes[entry.guid]
        if size > min(total[1], kind[1]):
            continue
        for of in (total, kind):
            of[0] -= 1
            of[1] -= size
        out.append(entry)
    return out


def count_line_chars(entry: MemoryEntry) -> int:
    """Return the characters of an entry's line in a digest."""
    return len(_format_row(entry))


def _format_row(entry: MemoryEntry) -> str:
    about = sanitize_line(" ".join(t for t in (entry.description, entry.body) if t), _SNIPPET_CHARS)
    name_part = [entry.name] if make_entry_name(about) != entry.name else []
    head = f"- [{get_entry_kind(entry)}] {entry.guid[:8]} (private) "
    return head + " — ".join([*name_part, *([about] if about else [])])
