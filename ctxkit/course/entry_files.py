"""Files of the contest: one for a reader's own table, one for each entry of a shared folder."""

from __future__ import annotations

import getpass
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ctxkit._internal.safe_fs import SafeFolder
from ctxkit.errors import BadArguments

__all__ = ["StoredEntry", "read_entries", "store_entry", "working_folder"]

MOST_FILE_BYTES = 1_000_000
"""Bytes of a file that is read."""
MOST_ENTRIES = 200
"""Entries of one file that are read."""
MOST_FILES = 1_000
"""Files of a folder that are read."""
_SHARED_MODE = 0o644
"""A file of a shared folder is read by the others and written by its owner alone."""


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as a file has it: rules, and no figures."""

    name: str
    rules: dict[str, Any]
    by: str = ""
    """The user of a shared folder."""


def read_entries(path: Path) -> tuple[StoredEntry, ...]:
    """Return the entries of a file, or of all files of a shared folder.

    Raises:
        OSError: the file cannot be read; of a folder such a file is left out.
        msgspec.MsgspecError: it holds something else; of a folder such a file is left out.
    """
    if not path.is_dir():
        return _read_file(path)
    found: list[StoredEntry] = []
    for file in sorted(path.glob("*.json"))[:MOST_FILES]:
        try:
            found += _read_file(file)
        except (OSError, msgspec.MsgspecError):
            continue
    return tuple(found)


def store_entry(path: Path, entry: StoredEntry) -> None:
    """Write an entry, in the place of one of the same name by the same user.

    Raises:
        BadArguments: it cannot be written.
    """
    try:
        if path.is_dir():
            _store_in_folder(path, entry)
        else:
            _store_in_file(path, entry)
    except OSError as error:
        raise BadArguments(
            f"The table cannot be kept in {str(path)!r} ({error.strerror}): name another place, "
            "as in ck.contest('contest.json')."
        ) from None


def user_name() -> str:
    """Return the name of the system's user, as it may stand in the name of a file."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return re.sub(r"[^\w.-]", "_", name)[:40] or "user"


def working_folder() -> Path:
    """Return the folder in which the notebook was opened, also where a cell has left it."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return Path(getattr(shell, "starting_dir", "") or Path.cwd())


def _read_file(path: Path) -> tuple[StoredEntry, ...]:
    if path.is_symlink() or path.stat().st_size > MOST_FILE_BYTES:
        raise OSError(0, "it is a link, or too large")
    entries = msgspec.json.decode(path.read_bytes(), type=list[StoredEntry])
    return tuple(entries[:MOST_ENTRIES])


def _store_in_file(path: Path, entry: StoredEntry) -> None:
    with SafeFolder.own(path.parent) as folder, folder.locked():
        try:
            entries = list(_read_file(path))
        except FileNotFoundError:
            entries = []
        except (OSError, msgspec.MsgspecError):
            # what cannot be read is kept beside the new table
            folder.rename(path.name, f"{path.stem}.damaged.json")
            entries = []
        others = [each for each in entries if each.name != entry.name]
        folder.write(path.name, (_encode([*others, entry]),))


def _store_in_folder(path: Path, entry: StoredEntry) -> None:
    """Write a file of its own, so that users need no right to each other's files."""
    name = f"{entry.by}-{sha256(entry.name.encode()).hexdigest()[:12]}.json"
    with SafeFolder(path.resolve()) as folder:
        folder.write(name, (_encode([entry]),), _SHARED_MODE)
        # a umask that hides new files would hide the entry from the class
        handle = folder.open(name, os.O_RDONLY)
        try:
            if hasattr(os, "fchmod"):
                os.fchmod(handle, _SHARED_MODE)
        finally:
            os.close(handle)


def _encode(entries: list[StoredEntry]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(entries), indent=1)
