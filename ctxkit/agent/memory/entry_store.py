"""Store of memory entries: folders with an index, an audit log, project scope and consolidation."""

# The folders may come from anybody: no link is followed, nothing outside is read or written, and
# what is read is bounded. A project's list only selects entries of the user's own memory, so a
# foreign folder can hide entries and never add one.

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact_json
from ctxkit._internal.safe_files import SafeFolder
from ctxkit.agent.ctxkit_folder_and_session_trust import get_user_state_folder
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.policies.memory_entries import (
    MAX_ENTRY_BYTES,
    MemoryEntry,
    decode_entry,
    encode_entry,
    make_entry,
)
from ctxkit.policies.memory_ranking_and_digests import (
    MEMORY_KINDS,
    MemoryDigestLimits,
    get_entry_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


STORE_BUDGETS = MemoryDigestLimits(
    items=120,
    chars=24_000,
    kinds={
        "fact": (60, 8_000),
        "note": (40, 12_000),
        "procedure": (30, 12_000),
        "episode": (20, 8_000),
    },
)
"""Ten times the budgets of a digest; Tyrum bounds the store by the digest's own budgets."""
_REMOVAL_ORDER = ("episode", "note", "procedure", "fact")
"""Kinds of entries in the order in which they are removed."""


# Consolidation removes only entries that were extracted automatically, never those of a person or a
# model.
def find_surplus_entries(
    entries: Iterable[MemoryEntry],
    latest_audit_rows: Mapping[str, Mapping[str, Any]],
    author: str,
    budgets: MemoryDigestLimits = STORE_BUDGETS,
) -> list[tuple[MemoryEntry, str]]:
    """Return the entries to remove, each with the reason.

    Args:
        entries: all entries.
        latest_audit_rows: the latest audit row of each guid (lower case).
        author: author of the entries that may be removed.
        budgets: items and characters of the store, in total and per kind.
    """
    # Removable entries from the oldest to the newest. Two passes: first all but the newest of
    # entries with one kind and name, then, kind by kind, the oldest while a budget is exceeded.
    # The sums are counted again after each removal: quadratic, for at most MAX_ENTRIES entries.
    stored = list(entries)
    last_rows = {e.guid: latest_audit_rows.get(e.guid.casefold(), {}) for e in stored}
    removable = [e for e in stored if last_rows[e.guid].get("by") == author]
    removable.sort(key=lambda e: (str(last_rows[e.guid].get("time", "")), e.guid))
    surplus: dict[str, tuple[MemoryEntry, str]] = {}
    newest: dict[tuple[str, str], MemoryEntry] = {}
    for entry in removable:
        older = newest.get(key := (get_entry_kind(entry), entry.name.casefold()))
        if older is not None:
            surplus[older.guid] = (older, "a newer one has its name")
        newest[key] = entry
    remaining = [e for e in stored if e.guid not in surplus]
    for kind in _REMOVAL_ORDER:
        for entry in (e for e in removable if get_entry_kind(e) == kind and e.guid not in surplus):
            if why := _exceeded_budget(remaining, kind, budgets):
                surplus[entry.guid] = (entry, why)
                remaining = [e for e in remaining if e is not entry]
    return list(surplus.values())


def _exceeded_budget(entries: Iterable[MemoryEntry], kind: str, budgets: MemoryDigestLimits) -> str:
    """Return the exceeded budget, of the kind or of all entries, as a phrase; empty if none is."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        for group in (get_entry_kind(entry), ""):
            sums[group][0] += 1
            sums[group][1] += len(entry.head) + len(entry.body)
    limits = {
        **{k: budgets.kinds.get(k, (0, 0)) for k in MEMORY_KINDS},
        "": (budgets.items, budgets.chars),
    }
    for group in (kind, ""):
        for used, limit, unit in zip(
            sums[group], limits[group], ("entries", "characters"), strict=True
        ):
            if used > limit:
                return f"{used:,} {unit} of {group or 'all'} are more than {limit:,}"
    return ""


class MemoryStore:
    """Memory folders, as seen from a working folder.

    Args:
        folders: folders with entries; new ones go into the first
            (`agent.memory.entry_store.get_ctxkit_and_fuseraft_memory_folders` returns the user's).
        base: the working folder, which limits the entries to its scope; None: the current one.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent.memory import MemoryStore
        >>> store = MemoryStore([tempfile.mkdtemp()], tempfile.mkdtemp())
        >>> store.entries()
        []
    """

    def __init__(self, folders: Sequence[str | Path], base: str | Path | None = None) -> None:
        if not folders:
            raise BadArguments("A memory needs a folder.")
        self.folders, self.scope = [MemoryFolder(h) for h in folders], WorkingFolderEntryIds(base)

    def entries(self, *, everywhere: bool = False) -> list[MemoryEntry]:
        """Return the entries in scope, or all with `everywhere`, by name."""
        return [entry for _, entry in self._scoped_entries(everywhere=everywhere)]

    def faults(self) -> list[str]:
        """Return sentences on files in the folders that are not used."""
        unused = [(f.path, f.read()[1]) for f in self.folders]
        return [
            f"{n} file{' is' if n == 1 else 's are'} not used of "
            f"{sanitize_line(str(path), 200)}: no entries"
            " of memory, too large, or too many."
            for path, n in unused
            if n
        ]

    def find_entry(self, name: str, *, everywhere: bool = True) -> tuple[MemoryFolder, MemoryEntry]:
        """Return the folder and the entry of a name, guid, or beginning of a guid (4 characters).

        Args:
            name: compared without case.
            everywhere: look outside the scope, too; an entry in scope goes first.

        Raises:
            BadArguments: there is no such entry, or several.
        """
        entries, key = self._scoped_entries(everywhere=everywhere), name.strip().casefold()
        matches = [h for h in entries if key in (h[1].name.casefold(), h[1].guid.casefold())]
        if not matches and len(key) >= 4:
            matches = [h for h in entries if h[1].guid.casefold().startswith(key)]
        if len(matches) == 1:
            return matches[0]
        local_matches = [h for h in self._scoped_entries() if h in matches]
        if len(local_matches) == 1:
            return local_matches[0]
        if matches:
            guids = ", ".join(entry.guid[:8] for _, entry in matches)
            raise BadArguments(f"Several entries have that name: choose one by its guid, {guids}.")
        near = did_you_mean(name, [entry.name for _, entry in entries])
        raise BadArguments(f"Nothing is remembered as {sanitize_line(name, 80)!r}.{near}")

    def add(
        self, entry: MemoryEntry, *, session: str = "", by: str = "user", home: int = 0, **why: Any
    ) -> MemoryEntry:
        """Store an entry in the scope of the working folder; return it as stored.

        An entry of the same name that was stored here is replaced and its guid stays.

        Args:
            entry: the entry.
            session: id of the session that stores it; empty: a person does.
            by: author: `user`, `extract`, or the name of a model.
            home: index of the folder for a new entry.
            why: more fields of the audit row: `messages` it is based on, `why` it was stored.

        Raises:
            StoreError: it cannot be written.
        """
        namesakes = [
            h
            for h in self._scoped_entries(saved_here=True)
            if h[1].name.casefold() == entry.name.casefold()
        ]
        folder, stored = self.folders[home], entry
        if namesakes:
            folder, stored = (
                namesakes[0][0],
                msgspec.structs.replace(entry, guid=namesakes[0][1].guid),
            )
        folder.put(stored)
        self.scope.note(session or "by-hand", stored.guid)
        self._add_audit_row(
            folder, "changed" if namesakes else "added", stored, session=session, by=by, **why
        )
        return stored

    def edit(self, name: str, /, *, by: str = "user", **changes: str) -> MemoryEntry:
        """Change fields of an entry; return the changed entry.

        Args:
            name: its name, or the beginning of its guid.
            by: author of the change, for the audit.
            changes: new values of `name`, `description`, `type` or `body`.

        Raises:
            BadArguments: there is no such entry, a value is not valid, or another entry has the
                name.
            StoreError: it cannot be written.
        """
        folder, old = self.find_entry(name)
        fields = {key: getattr(old, key) for key in ("name", "description", "type", "body")}
        edited = make_entry(**{**fields, **changes}, guid=old.guid)
        namesakes = [
            h for _, h in self._scoped_entries() if h.name.casefold() == edited.name.casefold()
        ]
        if "name" in changes and any(h.guid != old.guid for h in namesakes):
            raise BadArguments(
                f"Another entry is called {sanitize_line(edited.name, 80)!r}: choose another "
                "name, or forget that entry first."
            )
        folder.put(edited)
        self._add_audit_row(folder, "changed", edited, by=by, fields=sorted(changes))
        return edited

    def forget(self, name: str, by: str = "user") -> MemoryEntry:
        """Remove an entry and return it; the audit has its name and the time, not its text.

        Args:
            name: name of the entry.
            by: name of who removes it, for the audit.

        Raises:
            BadArguments: there is no such entry.
            StoreError: it cannot be removed.
        """
        folder, entry = self.find_entry(name)
        folder.remove(entry)
        self._add_audit_row(folder, "forgotten", entry, by=by)
        return entry

    def consolidate(
        self, by: str, budgets: MemoryDigestLimits = STORE_BUDGETS
    ) -> list[tuple[MemoryEntry, str]]:
        """Remove surplus entries (see `find_surplus_entries`); return them with the reasons.

        Args:
            by: author whose entries may be removed.
            budgets: items and characters of the store, in total and per kind.

        Raises:
            StoreError: an entry cannot be removed.
        """
        surplus = find_surplus_entries(self.entries(), self.newest_rows(), by, budgets)
        for surplus_entry, why in surplus:
            folder, entry = self.find_entry(surplus_entry.guid)
            folder.remove(entry)
            self._add_audit_row(folder, "forgotten", entry, by="consolidation", why=why)
        return surplus

    def forgotten(self) -> frozenset[str]:
        """Return guids and names (lower case) of entries that were removed and not stored again.

        Names too, as the same lesson may get another guid when it is extracted again.
        """
        return frozenset(
            k for k, row in self.newest_rows().items() if row.get("what") == "forgotten"
        )

    def newest_rows(self) -> dict[str, dict[str, Any]]:
        """Return the latest audit row of each guid and of each name, both in lower case."""
        rows = [row for folder in self.folders for row in folder.audit()]
        rows.sort(key=lambda row: str(row.get("time", "")))
        return {str(row.get(key, "")).casefold(): row for row in rows for key in ("guid", "name")}

    def get_audit_rows(self, name: str) -> tuple[MemoryEntry, list[dict[str, Any]]]:
        """Return an entry and its audit rows: author, time, and the messages it is based on.

        Raises:
            BadArguments: there is no such entry.
        """
        folder, entry = self.find_entry(name)
        return entry, folder.audit(entry.guid)

    # -- inside ------------------------------------------------------------------------------------

    def _scoped_entries(
        self, *, everywhere: bool = False, saved_here: bool = False
    ) -> list[tuple[MemoryFolder, MemoryEntry]]:
        """Return entries with their folders; `saved_here`: those saved in this working folder."""
        guids, seen = None if everywhere else self.scope.guids(), set[str]()
        guids = frozenset() if saved_here and guids is None else guids
        out = []
        for folder in self.folders:
            for entry in folder.read()[0]:
                if entry.guid not in seen and (guids is None or entry.guid in guids):
                    seen.add(entry.guid)
                    out.append((folder, entry))
        return out

    def _add_audit_row(
        self, folder: MemoryFolder, event: str, entry: MemoryEntry, **why: Any
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = {
            "time": now,
            "what": event,
            "guid": entry.guid,
            "name": entry.name,
            "type": entry.type,
        }
        folder.note(**row, **{k: v for k, v in why.items() if v})


INDEX_FILE, AUDIT_FILE = "MEMORY.md", "audit.jsonl"
MAX_ENTRIES = 500
"""Files that are read: the ones written last."""
MAX_AUDIT_BYTES = 2_000_000
"""Bytes of the audit that are read: its end."""


class MemoryFolder:
    """A folder with entries, one file each; it is created with the first entry.

    Args:
        path: the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> tuple[list[MemoryEntry], int]:
        """Return the entries in order of their names, and the number of files that are not used."""
        if not self.path.is_dir():
            return [], 0
        entries_by_guid, unused = dict[str, MemoryEntry](), 0
        try:
            with self._open_folder() as here:
                names, unread = _entry_names(here)
                for name in names:
                    entry = decode_entry(_read_bytes(here, name))
                    if entry is None or entry.guid in entries_by_guid:
                        unused += 1
                    else:
                        entries_by_guid[entry.guid] = entry
        except (OSError, StoreError):
            return [], 1
        entries = sorted(entries_by_guid.values(), key=lambda e: e.name.casefold())
        return entries, unused + unread

    def put(self, entry: MemoryEntry) -> None:
        """Write an entry, replacing the one with its guid.

        Raises:
            StoreError: it cannot be written.
        """
        with self._open_folder(make=True) as here, here.lock():
            here.write(_entry_file(here, entry.guid), (encode_entry(entry),))
            self._write_index(here)

    def remove(self, entry: MemoryEntry) -> None:
        """Remove an entry.

        Raises:
            StoreError: it cannot be removed.
        """
        with self._open_folder() as here, here.lock():
            here.remove(_entry_file(here, entry.guid))
            self._write_index(here)

    def note(self, **row: Any) -> None:
        """Add a row to the audit.

        Raises:
            StoreError: it cannot be written.
        """
        line = json.dumps(redact_json(row), ensure_ascii=False, default=str)
        with self._open_folder(make=True) as here:
            here.append(AUDIT_FILE, f"{line}\n".encode("utf-8", "replace"))

    def audit(self, guid: str | None = None) -> list[dict[str, Any]]:
        """Return the audit rows of an entry, or all rows, the oldest first."""
        if not self.path.is_dir():
            return []
        with suppress(OSError, StoreError), self._open_folder() as here:
            rows = (
                _parse_row(line)
                for line in _read_bytes(here, AUDIT_FILE, MAX_AUDIT_BYTES, newest=True).split(b"\n")
            )
            return [row for row in rows if row and guid in (None, row.get("guid"))]
        return []

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _open_folder(self, *, make: bool = False) -> Iterator[SafeFolder]:
        try:
            if make:
                self.path.parent.resolve().mkdir(parents=True, exist_ok=True, mode=0o700)
            top = SafeFolder(self.path.parent.resolve())
            with top.open_subfolder((self.path.name,), create_mode=0o700 if make else None) as here:
                yield here
        except OSError as e:
            why = f"{e.strerror or type(e).__name__}; links are not followed there"
            raise StoreError(
                f"{sanitize_line(str(self.path), 300)} cannot be used ({why})."
            ) from None

    def _write_index(self, here: SafeFolder) -> None:
        """Rewrite the index from the files in the folder."""
        rows = ["# Memory Index", ""]
        for name in _entry_names(here)[0]:
            entry = decode_entry(_read_bytes(here, name))
            if entry is not None:
                rows.append(f"- [{entry.name.replace(']', ')')}]({name}) — {entry.description}")
        here.write(INDEX_FILE, ("\n".join([*rows, ""]).encode("utf-8", "replace"),))


def _entry_names(here: SafeFolder) -> tuple[list[str], int]:
    """Return the file names of entries, sorted, and how many more there are than are read."""
    names = [n for n, is_file in here.entries() if is_file and _is_entry(n)]
    if len(names) <= MAX_ENTRIES:
        return names, 0

    def modified_time(name: str) -> int:
        stat = here.stat(name)
        return stat.st_mtime_ns if stat is not None else 0

    last = sorted(names, key=modified_time, reverse=True)[:MAX_ENTRIES]
    return sorted(last), len(names) - MAX_ENTRIES


def _is_entry(name: str) -> bool:
    return name.endswith(".md") and name != INDEX_FILE and not name.startswith(".")


def _entry_file(here: SafeFolder, guid: str) -> str:
    """Return the file name of an entry; a person may have given its file another name."""
    default_name = f"memory_{guid}.md"
    if here.stat(default_name) is not None:
        return default_name
    for name, is_file in here.entries():
        if is_file and _is_entry(name):
            entry = decode_entry(_read_bytes(here, name))
            if entry is not None and entry.guid == guid:
                return name
    return default_name


def _read_bytes(
    here: SafeFolder, name: str, max_bytes: int = MAX_ENTRY_BYTES + 1, *, newest: bool = False
) -> bytes:
    """Return up to `max_bytes` of a file, its end if `newest`; empty if it cannot be opened."""
    try:
        handle = here.open(name, os.O_RDONLY)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        if newest:
            file.seek(max(os.fstat(file.fileno()).st_size - max_bytes, 0))
        return file.read(max_bytes)


def _parse_row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


PROJECT_FOLDERS = (".ctxkit", ".fuseraft")
"""Folders of a project with lists of entries: ctxkit's and fuseraft's."""
REFS_FILE = "memory_refs.json"
MAX_LISTS = 1_000
MAX_REFS = 5_000
_MAX_REFS_BYTES = 256_000
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class WorkingFolderEntryIds:
    """The entries that belong to a working folder, as lists of guids per session.

    Args:
        base: the working folder; None: the current one.
    """

    def __init__(self, base: str | Path | None = None) -> None:
        self.base = Path(base or Path.cwd())

    def guids(self) -> frozenset[str] | None:
        """Return the guids in scope; None: the folder has no scope, so every entry counts.

        A folder has a scope once an entry was stored from it, or if it has a folder `.fuseraft`
        (fuseraft's rule).
        """
        if not self.base.is_dir():
            return None
        root, refs, has_scope = (
            RootFolder(self.base),
            set[str](),
            self.base.joinpath(PROJECT_FOLDERS[1]).is_dir(),
        )
        for parts in _iter_ref_files(root):
            if root.is_file(parts):
                has_scope = True
                refs.update(_read_refs(root, parts))
        return frozenset(sorted(refs)[:MAX_REFS]) if has_scope else None

    def note(self, session: str, guid: str) -> None:
        """Add an entry to the list of a session here.

        Args:
            session: id of the session.
            guid: id of the entry.

        Raises:
            BadArguments: the session's id is not valid.
            StoreError: the list cannot be written.
        """
        if not _SESSION_ID.fullmatch(session):
            raise BadArguments(f"{sanitize_line(session, 80)!r} is no id of a session.")
        root, parts = (
            RootFolder(self.base),
            (PROJECT_FOLDERS[0], "memory", "sessions", session, REFS_FILE),
        )
        with root.open_parent(parts, make=0o700) as folder, folder.lock():
            refs = _read_refs(root, parts) if root.is_file(parts) else []
            if guid not in refs:
                text = json.dumps([*refs, guid][-MAX_REFS:], indent=2)
                folder.write(REFS_FILE, (text.encode(),))


def _iter_ref_files(root: RootFolder) -> Iterator[tuple[str, ...]]:
    """Yield the possible paths of lists: one per session, and fuseraft's older one for all."""
    yield PROJECT_FOLDERS[1], REFS_FILE
    for home in PROJECT_FOLDERS:
        try:
            with root.open_subfolder((home, "memory", "sessions")) as folder:
                names = [n for n, is_file in folder.entries() if not is_file]
        except (OSError, StoreError):
            continue
        yield from ((home, "memory", "sessions", n, REFS_FILE) for n in names[:MAX_LISTS])


def _read_refs(root: RootFolder, parts: tuple[str, ...]) -> list[str]:
    try:
        with root.open_at(parts) as file:
            refs = json.loads(file.read(_MAX_REFS_BYTES))
    except (StoreError, ValueError, RecursionError):
        return []
    return [g for g in refs[:MAX_REFS] if isinstance(g, str)] if isinstance(refs, list) else []


def get_ctxkit_and_fuseraft_memory_folders() -> tuple[Path, Path]:
    """Return the user's memory folders: ctxkit's and fuseraft's.

    Returns:
        Two folders below the user's home, which may not exist yet; the first is written to.
    """
    return get_user_state_folder() / "memory" / "repl", Path("~/.fuseraft/memory/repl").expanduser()
