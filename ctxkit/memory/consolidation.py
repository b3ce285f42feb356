"""What goes when a store of memory is over its budget (Tyrum's `memory-dal-consolidation.ts`).

Only what was found by itself may go: what a person or a model wrote stays.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ctxkit.memory.digests import KINDS, Budgets, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ctxkit.memory.entry import MemoryEntry

STORE = Budgets(
    items=120,
    chars=24_000,
    kinds={
        "fact": (60, 8_000),
        "note": (40, 12_000),
        "procedure": (30, 12_000),
        "episode": (20, 8_000),
    },
)
"""Ten times what a digest may take; Tyrum bounds the store by the digest's own budgets."""
_FIRST = ("episode", "note", "procedure", "fact")
"""Kinds in the order in which they go."""


def surplus(
    entries: Iterable[MemoryEntry],
    rows: Mapping[str, Mapping[str, Any]],
    by: str,
    budgets: Budgets = STORE,
) -> list[tuple[MemoryEntry, str]]:
    """Return what is to go, and why: entries of one name, then the oldest of what is too much.

    Args:
        entries: what is remembered.
        rows: the newest row of the audit on each guid, in lower case.
        by: who saved what may go.
        budgets: items and characters of the store, in all and of each kind.
    """
    held = list(entries)
    said = {e.guid: rows.get(e.guid.casefold(), {}) for e in held}
    loose = [e for e in held if said[e.guid].get("by") == by]
    loose.sort(key=lambda e: (str(said[e.guid].get("time", "")), e.guid))
    gone: dict[str, tuple[MemoryEntry, str]] = {}
    newest: dict[tuple[str, str], MemoryEntry] = {}
    for entry in loose:
        older = newest.get(key := (kind_of(entry), entry.name.casefold()))
        if older is not None:
            gone[older.guid] = (older, "a newer one has its name")
        newest[key] = entry
    kept = [e for e in held if e.guid not in gone]
    for kind in _FIRST:
        for entry in (e for e in loose if kind_of(e) == kind and e.guid not in gone):
            if why := _over(kept, kind, budgets):
                gone[entry.guid] = (entry, why)
                kept = [e for e in kept if e is not entry]
    return list(gone.values())


def _over(kept: Iterable[MemoryEntry], kind: str, budgets: Budgets) -> str:
    """Return which budget is passed, in words: of a kind, or of all; empty where none is."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in kept:
        for of in (kind_of(each), ""):
            sums[of][0] += 1
            sums[of][1] += len(each.head) + len(each.body)
    limits = {
        **{k: budgets.kinds.get(k, (0, 0)) for k in KINDS},
        "": (budgets.items, budgets.chars),
    }
    for of in (kind, ""):
        for used, most, unit in zip(sums[of], limits[of], ("entries", "characters"), strict=True):
            if used > most:
                return f"{used:,} {unit} of {of or 'all'} are more than {most:,}"
    return ""
