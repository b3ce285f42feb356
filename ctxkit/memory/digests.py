"""A digest of memory within budgets for each kind (Tyrum's `memory-digest.ts`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.memory.entry import short_name
from ctxkit.memory.ranking import hits, newest, terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ctxkit.memory.entry import MemoryEntry

NOTHING = "No matching durable memory found."
KINDS = ("fact", "note", "procedure", "episode")
_KIND = {"user": "fact", "feedback": "fact", "preference": "fact", "fact": "fact",
         "procedure": "procedure", "episode": "episode"}  # fmt: skip
"""Tyrum's kind of a type; any other is a note."""
_SNIPPET = 600


@dataclass(frozen=True, kw_only=True)
class Budgets:
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
        if any(not isinstance(n, int) or n < 0 for n in numbers) or set(self.kinds) - set(KINDS):
            raise BadArguments(f"Budgets are whole numbers from 0 on, for {', '.join(KINDS)}.")


def kind_of(kept: MemoryEntry) -> str:
    """Return Tyrum's kind of an entry."""
    return _KIND.get(kept.type, "note")


def digest(entries: Iterable[MemoryEntry], query: str = "", budgets: Budgets | None = None) -> str:
    """Return the digest for what is asked: a line an entry, the best first.

    Args:
        entries: what is remembered.
        query: entries that have none of its words are left out; empty: none is.
        budgets: what it may take.
    """
    words = terms(query)
    found = [kept for kept in newest(entries, query) if not words or hits(kept, words)]
    return "\n".join(_row(kept) for kept in fitted(found, budgets)) or NOTHING


def digest_of(entries: Iterable[MemoryEntry]) -> str:
    """Return the digest of entries that fit, as they come."""
    return "\n".join(map(_row, entries))


def fitted(
    ranked: Iterable[MemoryEntry],
    budgets: Budgets | None = None,
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
    limits = budgets or Budgets()
    out: list[MemoryEntry] = []
    left = {kind: list(limits.kinds.get(kind, (0, 0))) for kind in KINDS}
    total = [limits.items, limits.chars]
    for kept in ranked:
        kind = left[kind_of(kept)]
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
    return len(_row(kept))


def _row(kept: MemoryEntry) -> str:
    about = line(" ".join(t for t in (kept.description, kept.body) if t), _SNIPPET)
    said = [kept.name] if short_name(about) != kept.name else []
    head = f"- [{kind_of(kept)}] {kept.guid[:8]} (private) "
    return head + " — ".join([*said, *([about] if about else [])])
