"""The context store of a folder: what is in it, read part by part without following links."""

from __future__ import annotations

import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.library.index import (
    INDEX,
    MOST_BYTES,
    StoreFile,
    StoreItem,
    changed,
    checked,
    decoded,
    parts_of,
)
from ctxkit.tools.root import Root
from ctxkit.tools.text_search import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ctxkit.held_folders import Folder

HOMES = (".ctxkit", ".fuseraft")
"""Folders whose `context/` is a context store: our own, and fuseraft's."""
CONTEXT = "context"
LISTED = 500
"""Files that are listed at once."""
LOOKED_AT = 20
"""Files of an item that must be there for it to be used: those that an index names."""


class Library:
    """The context store of a working folder: our own and fuseraft's together.

    Nothing is made before something is kept.

    Args:
        base: the working folder; None: the current one.
    """

    def __init__(self, base: str | Path | None = None) -> None:
        self.base = Path(base or Path.cwd())

    @cached_property
    def _root(self) -> Root:
        return Root(self.base)

    # -- what is there -----------------------------------------------------------------------------

    def items(self) -> dict[str, StoreItem]:
        """Return what is there, by its path `HOME/context/NAME`, ours before fuseraft's."""
        return self._found[0]

    def faults(self) -> list[str]:
        """Return in sentences what in a store is not used."""
        return self._found[1]

    @property
    def _found(self) -> tuple[dict[str, StoreItem], list[str]]:
        items: dict[str, StoreItem] = {}
        said: list[str] = []
        for home in HOMES:
            known, unsound = self._index(home)
            for name, item in known.items():
                shown = item.files[:LOOKED_AT]
                if shown and all(self._is_there(home, name, f) for f in shown):
                    items[f"{home}/{CONTEXT}/{name}"] = item
                else:
                    unsound += 1
            if unsound:
                are = "entry is" if unsound == 1 else "entries are"
                said.append(f"{unsound} {are} not used of {home}/{CONTEXT}: damaged, or files "
                            "are not there.")  # fmt: skip
        return items, said

    def of(self, name: str) -> tuple[str, StoreItem]:
        """Return the path and the item of a name.

        Raises:
            BadArguments: there is none.
        """
        found = {path.rsplit("/", 1)[1]: (path, i) for path, i in reversed(self.items().items())}
        if name not in found:
            known = ", ".join(found) or "none"
            near = did_you_mean(name, found)
            raise BadArguments(
                f"The context store has no {line(name, 80)!r}.{near} It has: {known}."
            )
        return found[name]

    # -- reading, by the paths that an agent is shown ----------------------------------------------

    def holds(self, path: str) -> bool:
        """Say whether a path is one of the store, whatever there is."""
        return _parts(path) is not None

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """Yield a file of the store, open for reading.

        Raises:
            StoreError: it is no regular file, is missing, or a part of the path is a link.
        """
        parts = _parts(path)
        if parts is None or len(parts) < 4:
            raise StoreError(f"There is no file {line(path, 200)!r} in the context store.")
        with self._root.opened_at(parts) as file:
            yield file

    def listed(self, path: str) -> list[str]:
        """Return the paths of the files below a folder of the store, at most `LISTED` of them.

        Raises:
            StoreError: there is no such folder.
        """
        parts = _parts(path)
        if parts is None:
            raise StoreError(f"There is no folder {line(path, 200)!r} in the context store.")
        at = "/".join(parts)
        found = [f"{base}/{f.relative_path}" for base, i in self.items().items() for f in i.files]
        below = [p for p in found if p == at or p.startswith(f"{at}/")]
        if not below:
            raise StoreError(f"There is nothing at {line(path, 200)!r} in the context store.")
        return below[:LISTED]

    def searched(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in the files of an item, or of a folder of it.

        Raises:
            BadArguments: the pattern is no regular expression.
            StoreError: there is no such folder.
        """
        self.listed(path)  # of a store, nothing is read but what its index names
        return search(self._root, pattern, "/".join(_parts(path) or ()), files)

    def text(self, path: str, limit: int = 10_000_000) -> str:
        """Return the text of all files of an item, at most so many bytes of each.

        Raises:
            StoreError: one cannot be read.
        """
        out = []
        for each in self.listed(path):
            with self.opened(each) as file:
                out.append(file.read(limit).decode("utf-8", "replace"))
        return "\n\n".join(out)

    # -- changing ----------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        files: Mapping[str, tuple[bytes, int]],
        *,
        source: str = "",
        description: str = "",
        info: str = "",
        home: str = HOMES[0],
    ) -> StoreItem:
        """Keep files under a name, in the place of what had that name in this store.

        Args:
            name: letters, digits, `-` and `_`.
            files: for each relative path its bytes, and the bytes of what it was taken from.
            source: where it came from.
            description: one line for the index.
            info: how its text was taken.
            home: one of `HOMES`.

        Raises:
            BadArguments: the name is none, there are no files, or no such store.
            StoreError: it cannot be written; what was there is as it was.
        """
        checked(name)
        if home not in HOMES or not files:
            raise BadArguments(f"Name a store of {', '.join(HOMES)}, and at least one file.")
        kept = tuple(StoreFile(path, len(data), raw if raw != len(data) else None)
                     for path, (data, raw) in sorted(files.items()))  # fmt: skip
        now = datetime.now(UTC).isoformat(timespec="seconds")
        item = StoreItem(name, line(description, 300) or None, source, now, kept, info or None)
        fresh = f".new-{secrets.token_hex(4)}"
        self._changed(home, name, item)  # a damaged index is refused before anything is made
        with self._shelf(home, make=0o700) as shelf, shelf.locked():
            index = self._changed(home, name, item)
            try:
                for path, (data, _) in files.items():
                    *folders, last = (fresh, *path.split("/"))
                    with shelf.enter(".").below(folders, make=0o700) as folder:
                        folder.write(last, (data,))
                _replace(shelf, fresh, name)
            except OSError as e:
                with suppress(OSError):
                    _remove(shelf, fresh)
                raise StoreError(f"{name!r} could not be kept ({e.strerror}).") from None
            shelf.write(INDEX, (index,))
        return item

    def remove(self, name: str) -> StoreItem:
        """Take an item out of the store, with its files.

        Raises:
            BadArguments: there is none.
            StoreError: it cannot be removed.
        """
        known = {home: self._index(home)[0] for home in HOMES}
        home = next((h for h in HOMES if name in known[h]), None)
        if home is None:
            self.of(name)
            raise StoreError(f"{name!r} cannot be removed.")
        with self._shelf(home) as shelf, suppress(FileNotFoundError), shelf.locked():
            shelf.write(INDEX, (self._changed(home, name, None),))
            _remove(shelf, name)
        return known[home][name]

    # -- inside ------------------------------------------------------------------------------------

    def _index(self, home: str) -> tuple[dict[str, StoreItem], int]:
        try:
            data = self._data(home)
        except StoreError:
            return {}, 1
        return decoded(data)

    def _data(self, home: str) -> bytes:
        """Return the bytes of an index; an empty one where there is none.

        Raises:
            StoreError: it cannot be read, or is too large.
        """
        parts = (home, CONTEXT, INDEX)
        if not self.base.is_dir() or not self._root.is_there(parts):
            return b"{}"
        with self._root.opened_at(parts) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise StoreError(f"{'/'.join(parts)} has more than {MOST_BYTES:,} bytes.")
        return data

    def _changed(self, home: str, name: str, item: StoreItem | None) -> bytes:
        """Return the bytes of an index with an item put in, or taken out.

        Raises:
            StoreError: what is there is no index; it stays as it is.
        """
        try:
            return changed(self._data(home), name, item)
        except ValueError:
            raise StoreError(
                f"{home}/{CONTEXT}/{INDEX} is damaged: mend it, or move it away; what is there "
                "would be lost."
            ) from None

    def _is_there(self, home: str, name: str, file: StoreFile) -> bool:
        inside = parts_of(file.relative_path)
        return inside is not None and self._root.is_file((home, CONTEXT, name, *inside))

    @contextmanager
    def _shelf(self, home: str, make: int | None = None) -> Iterator[Folder]:
        """Yield the folder of a store, held open; errors in it become sentences."""
        with self._root.folder_of((home, CONTEXT, INDEX), make=make) as shelf:
            yield shelf


def _parts(path: str) -> tuple[str, ...] | None:
    """Return a path as an agent gives it as its parts, where it is one of a store."""
    found = parts_of(path.strip().removeprefix("./").rstrip("/"))
    named = found is not None and found[0] in HOMES and found[1:2] == (CONTEXT,)
    return found if named else None


def _replace(shelf: Folder, fresh: str, name: str) -> None:
    """Give a folder a name; what has that name already goes then, and stays where that fails."""
    old = f".old-{fresh}"
    with suppress(FileNotFoundError):
        shelf.rename(name, old)
    try:
        shelf.rename(fresh, name)
    except OSError:
        with suppress(FileNotFoundError):
            shelf.rename(old, name)
        raise
    with suppress(OSError):
        _remove(shelf, old)


def _remove(shelf: Folder, name: str) -> None:
    """Remove what has a name in a folder, with all below it; links are removed, not followed."""
    found = shelf.stat(name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        shelf.remove(name)
        return
    path, where = shelf.at(name)
    shutil.rmtree(path, dir_fd=where.get("dir_fd"))
