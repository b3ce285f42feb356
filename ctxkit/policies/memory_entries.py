"""Memory entries and their files: ranking, prompt blocks and digests within budgets.

A file is front matter between lines of three hyphens (`guid`, `name`, `description`, `type`), then
the body. It may come with a folder from anybody: what it says is data, cleaned and bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import msgspec

from ctxkit._internal.formatting import sanitize_line, sanitize_text
from ctxkit._internal.redaction import environment_secrets, redact_json
from ctxkit._internal.value_kinds import NATURAL
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


MEMORY_TYPES = ("user", "feedback", "project", "reference", "preference", "fact", "procedure")
"""fuseraft's four, then Tyrum's; fuseraft takes any word."""
MAX_ENTRY_BYTES = 64_000
"""Of a file; a larger one is not used."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_NAME_WORD, _NAME_WORDS = re.compile(r"\w{3,}"), 6
_GUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_FRONT_MATTER_END = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is remembered."""

    name: str
    description: str = ""
    type: str = "project"
    body: str = ""
    guid: str = ""

    @property
    def head(self) -> str:
        """Its line in a prompt."""
        return f"[{self.type}] {self.name}: {self.description}"


def make_entry(
    name: str,
    description: str = "",
    type: str = "project",  # noqa: A002
    body: str = "",
    guid: str = "",
    *,
    known: Sequence[str] | None = None,
) -> MemoryEntry:
    """Return an entry of texts that are cleaned: without keys and controls, in one line but the
    body.

    Args:
        name: what it is called.
        description: what it says, in a line.
        type: a word, such as one of `TYPES`.
        body: more of what it says.
        guid: its id; empty: a new one.
        known: what `_internal.redaction.environment_secrets()` gave, where many entries are made
            one after the other.

    Raises:
        BadArguments: it has no name, or the type is no word.
    """
    known = environment_secrets() if known is None else known
    short = sanitize_line(redact_json(name, known), 120).strip()
    if not short:
        raise BadArguments("An entry of memory needs a name.")
    if not _TYPE.fullmatch(type):
        known = ", ".join(MEMORY_TYPES)
        raise BadArguments(f"{sanitize_line(type, 60)!r} is no type of memory: use one of {known}.")
    return MemoryEntry(
        name=short,
        description=sanitize_line(redact_json(description, known), 300).strip(),
        type=type.lower(),
        body=redact_json(sanitize_text(body), known)[: MAX_ENTRY_BYTES // 8].strip()
        if body
        else "",
        guid=guid or str(uuid4()),
    )


def decode_entry(data: bytes) -> MemoryEntry | None:
    """Return the entry of a file; None where it is none. A missing type is `project`."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if len(data) > MAX_ENTRY_BYTES or not text.startswith("---\n"):
        return None
    end = _FRONT_MATTER_END.search(text, 4)
    if end is None:
        return None
    told = dict(_split_row(row) for row in text[4 : end.start()].split("\n") if ":" in row)
    guid, kind = told.get("guid", ""), told.get("type", "")
    if not _GUID.fullmatch(guid):
        return None
    try:
        return make_entry(
            told.get("name", ""),
            told.get("description", ""),
            kind if _TYPE.fullmatch(kind) else "project",
            text[end.end() :],
            guid,
        )
    except BadArguments:
        return None


def encode_entry(kept: MemoryEntry) -> bytes:
    """Return an entry as the bytes of its file."""
    keys = ("guid", "name", "description", "type")
    head = "\n".join(f"{key}: {getattr(kept, key)}" for key in keys)
    body = f"{kept.body}\n" if kept.body else ""
    return f"---\n{head}\n---\n{body}".encode("utf-8", "replace")


def memory_folder_name(agent: str) -> str:
    """Return the folder of an agent's memory (fuseraft's `SafeFileName`).

    Raises:
        BadArguments: nothing of the name is left.
    """
    kept = re.sub(r"[^a-z0-9_-]", "", agent.lower().replace(" ", "_"))[:100]
    if not kept:
        raise BadArguments(
            f"{sanitize_line(agent, 60)!r} has no letter or digit to name a folder by."
        )
    return kept


def make_entry_name(text: str) -> str:
    """Return a name for what a sentence says: its first words of three letters or more."""
    return "-".join(_NAME_WORD.findall(text[:400].lower())[:_NAME_WORDS])[:80]


def _split_row(row: str) -> tuple[str, str]:
    key, _, value = row.partition(":")
    return key.strip().lower(), value.strip()


RankingOrder = Literal["newest", "oldest"]
BLOCK_HEADINGS: dict[RankingOrder, str] = {
    "newest": "## MEMORY: facts recalled from prior sessions",
    "oldest": "MEMORY — facts recalled from prior sessions:",
}
MAX_BLOCK_CHARS = 8_000
"""Characters of the entries of a block, without its header and line breaks."""
_TYPE_BONUS = {"feedback": 4, "preference": 4, "project": 3, "fact": 3, "user": 2, "procedure": 2,
          "reference": 1}  # fmt: skip
"""By type: fuseraft's four; those of Tyrum weigh as what is most like them."""
_QUERY_WORD = re.compile(r"\w{3,}")
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
"""Words that say nothing of what is asked for."""


def sort_by_type(entries: Iterable[MemoryEntry]) -> list[MemoryEntry]:
    """Return entries by type, then by name (fuseraft's older order, as in its document)."""
    return sorted(entries, key=lambda e: (e.type, e.name))


def rank_by_score(entries: Iterable[MemoryEntry], query: str = "") -> list[MemoryEntry]:
    """Return entries by score, the best first, then by name (fuseraft's newer order)."""
    words = query_terms(query)
    return sorted(entries, key=lambda e: (-score_entry(e, words), e.name))


def query_terms(query: str) -> frozenset[str]:
    """Return the distinct words of a query, of three letters or more that say something."""
    return frozenset(_QUERY_WORD.findall(query[:20_000].lower())) - _STOP_WORDS


def count_matches(kept: MemoryEntry, words: frozenset[str]) -> int:
    """Return 2 for each word in the name or the description, 1 for each in the body alone."""
    head, body = _lowered(kept)
    return sum(_points(word, head, body) for word in words)


def _lowered(kept: MemoryEntry) -> tuple[str, str]:
    return f"{kept.name} {kept.description}".lower(), kept.body.lower()


def _points(word: str, head: str, body: str) -> int:
    return 2 if word in head else 1 if word in body else 0


def score_entry(kept: MemoryEntry, words: frozenset[str]) -> int:
    """Return what an entry scores for the words of a query."""
    return _TYPE_BONUS.get(kept.type, 0) + count_matches(kept, words)


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
        self._bonus.append(_TYPE_BONUS.get(entry.type, 0))
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


def format_memory_block(
    entries: Iterable[MemoryEntry], query: str = "", *, order: RankingOrder = "newest"
) -> str:
    """Return the block of a prompt; empty where nothing is remembered.

    An entry goes in full if it fits into what is left of `MOST_CHARS`, else its first line
    alone; where that does not fit, the block ends.
    """
    ranked = sort_by_type(entries) if order == "oldest" else rank_by_score(entries, query)
    left, said = MAX_BLOCK_CHARS, []
    for kept in ranked:
        body = [f"  {row}" for row in kept.body.split("\n")] if kept.body else []
        whole = "\n".join([kept.head, *body])
        text = whole if len(whole) <= left else kept.head
        if len(text) > left:
            break
        said.append(text)
        left -= len(text)
    return "\n".join([BLOCK_HEADINGS[order], *said]) if said else ""


NO_MATCH = "No matching durable memory found."
MEMORY_KINDS = ("fact", "note", "procedure", "episode")
_KIND_OF_TYPE = {"user": "fact", "feedback": "fact", "preference": "fact", "fact": "fact",
         "procedure": "procedure", "episode": "episode"}  # fmt: skip
"""Tyrum's kind of a type; any other is a note."""
_SNIPPET_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class MemoryBudgets:
    """What a digest may take in all, and of each kind (Tyrum's defaults)."""

    items: int = 12
    chars: int = 2_400
    kinds: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: {
            "fact": (6, 800),
            "note": (4, 1200),
            "procedure": (3, 1200),
            "episode": (2, 800),
        }
    )
    """For each kind items and characters."""

    def __post_init__(self) -> None:
        numbers = [self.items, self.chars, *(n for pair in self.kinds.values() for n in pair)]
        if any(NATURAL.convert(n) is None for n in numbers) or set(self.kinds) - set(MEMORY_KINDS):
            raise BadArguments(
                f"Budgets are whole numbers from 0 on, for {', '.join(MEMORY_KINDS)}."
            )


def memory_kind(kept: MemoryEntry) -> str:
    """Return Tyrum's kind of an entry."""
    return _KIND_OF_TYPE.get(kept.type, "note")


def format_digest(
    entries: Iterable[MemoryEntry], query: str = "", budgets: MemoryBudgets | None = None
) -> str:
    """Return the digest for what is asked: a line an entry, the best first.

    Args:
        entries: what is remembered.
        query: entries that have none of its words are left out; empty: none is.
        budgets: what it may take.
    """
    words = query_terms(query)
    found = [
        kept for kept in rank_by_score(entries, query) if not words or count_matches(kept, words)
    ]
    return "\n".join(_format_row(kept) for kept in fit_to_budgets(found, budgets)) or NO_MATCH


def format_entries(entries: Iterable[MemoryEntry]) -> str:
    """Return the digest of entries that fit, as they come."""
    return "\n".join(map(_format_row, entries))


def fit_to_budgets(
    ranked: Iterable[MemoryEntry],
    budgets: MemoryBudgets | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[MemoryEntry]:
    """Return the entries that budgets have room for, the first ones first.

    One that does not fit into its kind's, or into what is left of all, is left out.

    Args:
        ranked: entries in the order in which they are taken.
        budgets: what they may take; None: Tyrum's.
        sizes: for each entry, by its guid, the characters of its line (`row_size`); None: they are
            worked out.
    """
    limits = budgets or MemoryBudgets()
    out: list[MemoryEntry] = []
    left = {kind: list(limits.kinds.get(kind, (0, 0))) for kind in MEMORY_KINDS}
    total = [limits.items, limits.chars]
    for kept in ranked:
        kind = left[memory_kind(kept)]
        if min(total[0], kind[0]) < 1:
            continue
        size = row_size(kept) if sizes is None else sizes[kept.guid]
        if size > min(total[1], kind[1]):
            continue
        for of in (total, kind):
            of[0] -= 1
            of[1] -= size
        out.append(kept)
    return out


def row_size(kept: MemoryEntry) -> int:
    """Return the characters of an entry's line in a digest."""
    return len(_format_row(kept))


def _format_row(kept: MemoryEntry) -> str:
    about = sanitize_line(" ".join(t for t in (kept.description, kept.body) if t), _SNIPPET_CHARS)
    said = [kept.name] if make_entry_name(about) != kept.name else []
    head = f"- [{memory_kind(kept)}] {kept.guid[:8]} (private) "
    return head + " — ".join([*said, *([about] if about else [])])
