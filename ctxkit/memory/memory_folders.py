"""What is remembered for a working folder: entries of the user's memory in its scope."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.memory.consolidation import STORE, surplus
from ctxkit.memory.entry import MemoryEntry, entry
from ctxkit.memory.folder import MemoryFolder
from ctxkit.memory.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ctxkit.memory.digests import Budgets


class Memories:
    """Folders of memory, seen from a working folder.

    Args:
        homes: where entries lie, the first is written to (`agent.remembering.homes` names the
            user's own and fuseraft's).
        base: the working folder; None: the current one.
    """

    def __init__(self, homes: Sequence[str | Path], base: str | Path | None = None) -> None:
        if not homes:
            raise BadArguments("A memory needs a folder.")
        self.folders, self.scope = [MemoryFolder(h) for h in homes], Scope(base)

    def entries(self, *, everywhere: bool = False) -> list[MemoryEntry]:
        """Return what is remembered here; `everywhere`: whatever the scope."""
        return [kept for _, kept in self._held(everywhere=everywhere)]

    def faults(self) -> list[str]:
        """Return in sentences what of the folders is not used."""
        told = [(f.path, f.read()[1]) for f in self.folders]
        return [
            f"{n} file{' is' if n == 1 else 's are'} not used of {line(str(path), 200)}: no entries"
            " of memory, too large, or too many."
            for path, n in told
            if n
        ]

    def of(self, name: str, *, everywhere: bool = True) -> tuple[MemoryFolder, MemoryEntry]:
        """Return an entry by its name, in any case, or its guid, or the beginning of that; and its
        folder.

        Raises:
            BadArguments: there is none, or there are several.
        """
        held, asked = self._held(everywhere=everywhere), name.strip().casefold()
        named = [h for h in held if asked in (h[1].name.casefold(), h[1].guid.casefold())]
        if not named and len(asked) >= 4:
            named = [h for h in held if h[1].guid.casefold().startswith(asked)]
        if len(named) == 1:
            return named[0]
        here = [h for h in self._held() if h in named]
        if len(here) == 1:
            return here[0]
        if named:
            guids = ", ".join(kept.guid[:8] for _, kept in named)
            raise BadArguments(f"Several entries are called so: say which by {guids}.")
        near = did_you_mean(name, [kept.name for _, kept in held])
        raise BadArguments(f"Nothing is remembered as {line(name, 80)!r}.{near}")

    def add(
        self, fresh: MemoryEntry, *, session: str = "", by: str = "user", home: int = 0, **why: Any
    ) -> MemoryEntry:
        """Keep an entry in this folder's scope; one of that name here is changed.

        Args:
            fresh: the entry.
            session: id of the session that saves it; empty: a person did.
            by: who: `user`, `extract`, or the name of a model.
            home: which of the folders gets it.
            why: more for the audit: `messages` it rests on, what it was `promoted` by.

        Raises:
            StoreError: it cannot be kept.
        """
        same = [h for h in self._held(own=True) if h[1].name.casefold() == fresh.name.casefold()]
        folder, kept = self.folders[home], fresh
        if same:
            folder, kept = same[0][0], msgspec.structs.replace(fresh, guid=same[0][1].guid)
        folder.put(kept)
        self.scope.note(session or "by-hand", kept.guid)
        self._note(folder, "changed" if same else "added", kept, session=session, by=by, **why)
        return kept

    def edit(self, name: str, /, *, by: str = "user", **changes: str) -> MemoryEntry:
        """Change fields of an entry, its name as well; return it as it is then.

        Args:
            name: its name, or the beginning of its guid.
            by: who changes it, for the audit.
            changes: `name`, `description`, `type` or `body`.

        Raises:
            BadArguments: there is none, a value cannot be, or another one has the name.
            StoreError: it cannot be written.
        """
        folder, old = self.of(name)
        told = {key: getattr(old, key) for key in ("name", "description", "type", "body")}
        kept = entry(**{**told, **changes}, guid=old.guid)
        alike = [h for _, h in self._held() if h.name.casefold() == kept.name.casefold()]
        if "name" in changes and any(h.guid != old.guid for h in alike):
            raise BadArguments(
                f"Another entry is called {line(kept.name, 80)!r}: choose a name of its own, or"
                " forget that one first."
            )
        folder.put(kept)
        self._note(folder, "changed", kept, by=by, fields=sorted(changes))
        return kept

    def forget(self, name: str, by: str = "user") -> MemoryEntry:
        """Take an entry out; the audit keeps its name and when it went, not what it said.

        Raises:
            BadArguments: there is none.
            StoreError: it cannot be removed.
        """
        folder, kept = self.of(name)
        folder.remove(kept)
        self._note(folder, "forgotten", kept, by=by)
        return kept

    def consolidate(self, by: str, budgets: Budgets = STORE) -> list[tuple[MemoryEntry, str]]:
        """Take out what a budget has no room for; return it, with why; the audit has each.

        Args:
            by: who saved what may go; what anybody else saved stays.
            budgets: of what is remembered here.

        Raises:
            StoreError: one cannot be removed.
        """
        found = surplus(self.entries(), self.newest_rows(), by, budgets)
        for surplus_entry, why in found:
            folder, kept = self.of(surplus_entry.guid)
            folder.remove(kept)
            self._note(folder, "forgotten", kept, by="consolidation", why=why)
        return found

    def forgotten(self) -> frozenset[str]:
        """Return guids and names of entries that were taken out, and not kept again since.

        Names are in lower case: what is said again may get another guid.
        """
        return frozenset(
            k for k, row in self.newest_rows().items() if row.get("what") == "forgotten"
        )

    def newest_rows(self) -> dict[str, dict[str, Any]]:
        """Return the newest row of the audit on each guid, and on each name in lower case."""
        rows = [row for folder in self.folders for row in folder.audit()]
        rows.sort(key=lambda row: str(row.get("time", "")))
        return {str(row.get(key, "")).casefold(): row for row in rows for key in ("guid", "name")}

    def why(self, name: str) -> tuple[MemoryEntry, list[dict[str, Any]]]:
        """Return an entry, and what the audit says of it: who saved it, when, from which messages.

        Raises:
            BadArguments: there is none.
        """
        folder, kept = self.of(name)
        return kept, folder.audit(kept.guid)

    # -- inside ------------------------------------------------------------------------------------

    def _held(
        self, *, everywhere: bool = False, own: bool = False
    ) -> list[tuple[MemoryFolder, MemoryEntry]]:
        """Return entries with their folders; `own`: those saved in this working folder."""
        guids, seen = None if everywhere else self.scope.guids(), set[str]()
        guids = frozenset() if own and guids is None else guids
        out = []
        for folder in self.folders:
            for kept in folder.read()[0]:
                if kept.guid not in seen and (guids is None or kept.guid in guids):
                    seen.add(kept.guid)
                    out.append((folder, kept))
        return out

    def _note(self, folder: MemoryFolder, what: str, kept: MemoryEntry, **why: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        told = {"time": now, "what": what, "guid": kept.guid, "name": kept.name, "type": kept.type}
        folder.note(**told, **{k: v for k, v in why.items() if v})
