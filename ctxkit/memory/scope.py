"""Which entries were saved in a folder: `memory_refs.json`, lists of guids (fuseraft's).

A list only chooses among what the user's own memory holds, so a folder from elsewhere can bring no
entry with it, and hide some at most.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, StoreError
from ctxkit.tools.root import Root

if TYPE_CHECKING:
    from collections.abc import Iterator

HOMES = (".ctxkit", ".fuseraft")
"""Folders of a project that hold lists: our own, and fuseraft's."""
REFS = "memory_refs.json"
MOST_LISTS = 1_000
MOST_REFS = 5_000
_BYTES = 256_000
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Scope:
    """The lists of a working folder.

    Args:
        base: the working folder; None: the current one.
    """

    def __init__(self, base: str | Path | None = None) -> None:
        self.base = Path(base or Path.cwd())

    def guids(self) -> frozenset[str] | None:
        """Return the guids that were saved here; None: the folder has no memory of its own.

        It has one where something was saved in it, and where it has a folder `.fuseraft`: then
        nothing else is recalled. Without one, all that is remembered anywhere is (fuseraft's way).
        """
        if not self.base.is_dir():
            return None
        root, found, own = Root(self.base), set[str](), self.base.joinpath(HOMES[1]).is_dir()
        for parts in _lists(root):
            if root.is_file(parts):
                own = True
                found.update(_refs(root, parts))
        return frozenset(sorted(found)[:MOST_REFS]) if own else None

    def note(self, session: str, guid: str) -> None:
        """Note that a session saved an entry here.

        Raises:
            BadArguments: the session's id is none.
            StoreError: that cannot be written.
        """
        if not _ID.fullmatch(session):
            raise BadArguments(f"{line(session, 80)!r} is no id of a session.")
        root, parts = Root(self.base), (HOMES[0], "memory", "sessions", session, REFS)
        with root.folder_of(parts, make=0o700) as folder, folder.locked():
            held = _refs(root, parts) if root.is_file(parts) else []
            if guid not in held:
                text = json.dumps([*held, guid][-MOST_REFS:], indent=2)
                folder.write(REFS, (text.encode(),))


def _lists(root: Root) -> Iterator[tuple[str, ...]]:
    """Yield where lists may lie: a session's, and fuseraft's older one for all."""
    yield HOMES[1], REFS
    for home in HOMES:
        try:
            with root.below((home, "memory", "sessions")) as folder:
                names = [n for n, is_file in folder.entries() if not is_file]
        except (OSError, StoreError):
            continue
        yield from ((home, "memory", "sessions", n, REFS) for n in names[:MOST_LISTS])


def _refs(root: Root, parts: tuple[str, ...]) -> list[str]:
    try:
        with root.opened_at(parts) as file:
            told = json.loads(file.read(_BYTES))
    except (StoreError, ValueError, RecursionError):
        return []
    return [g for g in told[:MOST_REFS] if isinstance(g, str)] if isinstance(told, list) else []
