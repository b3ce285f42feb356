"""The context store of a project: import files and documents, index, list, search and remove them.

A store may come with a folder from anybody: names, paths and texts in it are data, and invalid
entries are left out.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import expand_home
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.file_search import FolderWalk, abbreviate_names, search_files
from ctxkit.agent.tools.file_tools_and_pdf_office_text import is_document, read_document
from ctxkit.errors import BadArguments, StoreError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ctxkit._internal.safe_files import SafeFolder


__all__ = [
    "STORE_FOLDERS",
    "ContextStore",
    "ImportedFileOrFolder",
    "StoreFile",
    "format_index_block",
    "import_files",
]
__dir__ = make_dunder_dir(__all__)


STORE_FOLDERS = (".ctxkit", ".fuseraft")
"""Folders whose `context/` is a context store: ctxkit's and fuseraft's."""
CONTEXT_FOLDER = "context"
MAX_LISTED = 500
"""Files that are listed at once."""
MAX_CHECKED_FILES = 20
"""Files of an item that are checked for their existence before it is used."""


# Layout and updates
#
# A store is `HOME/context/`: one folder per item, and `index.json`, which lists the items and their
# files. An item is replaced in three steps under a lock: write the new folder under a temporary
# name, swap it with the old one, write the index. A failure up to the swap leaves the store as it
# was. Entries of an index are checked one by one; an entry whose files are missing is counted as a
# fault and left out.


class ContextStore:
    """The context store of a working folder: ctxkit's and fuseraft's together.

    It is created with the first item.

    Args:
        base: the working folder; None: the current one.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent.document_store import ContextStore
        >>> store = ContextStore(tempfile.mkdtemp())
        >>> store.items()
        {}
    """

    def __init__(self, base: str | Path | None = None) -> None:
        self.base = Path(base or Path.cwd())

    @cached_property
    def _root(self) -> RootFolder:
        return RootFolder(self.base)

    # -- what is there -----------------------------------------------------------------------------

    def items(self) -> dict[str, ImportedFileOrFolder]:
        """Return the items by their path `HOME/context/NAME`, ctxkit's before fuseraft's."""
        return self._items_and_faults[0]

    def faults(self) -> list[str]:
        """Return sentences on entries of the stores that are not used."""
        return self._items_and_faults[1]

    @property
    def _items_and_faults(self) -> tuple[dict[str, ImportedFileOrFolder], list[str]]:
        items: dict[str, ImportedFileOrFolder] = {}
        faults: list[str] = []
        for home in STORE_FOLDERS:
            indexed, unsound = self._load_index(home)
            for name, item in indexed.items():
                checked = item.files[:MAX_CHECKED_FILES]
                if checked and all(self._has_file(home, name, f) for f in checked):
                    items[f"{home}/{CONTEXT_FOLDER}/{name}"] = item
                else:
                    unsound += 1
            if unsound:
                are = "entry is" if unsound == 1 else "entries are"
                faults.append(
                    f"{unsound} {are} not used of {home}/{CONTEXT_FOLDER}: damaged, or files "
                    "are not there."
                )
        return items, faults

    def of(self, name: str) -> tuple[str, ImportedFileOrFolder]:
        """Return the path and the item of a name.

        Raises:
            BadArguments: there is no such item.
        """
        items_by_name = {
            path.rsplit("/", 1)[1]: (path, i) for path, i in reversed(self.items().items())
        }
        if name not in items_by_name:
            names = ", ".join(items_by_name) or "none"
            near = did_you_mean(name, items_by_name)
            raise BadArguments(
                f"The context store has no {sanitize_line(name, 80)!r}.{near} It has: {names}."
            )
        return items_by_name[name]

    # -- reading, by the paths that an agent is shown ----------------------------------------------

    def contains(self, path: str) -> bool:
        """Return whether a path belongs to the store, whether or not it exists."""
        return _split_store_path(path) is not None

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Yield a file of the store, open for reading.

        Args:
            path: path of the file as the agent sees it.

        Raises:
            StoreError: it is no regular file, is missing, or a part of the path is a link.
        """
        parts = _split_store_path(path)
        if parts is None or len(parts) < 4:
            raise StoreError(f"There is no file {sanitize_line(path, 200)!r} in the context store.")
        with self._root.open_at(parts) as file:
            yield file

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the files below a folder of the store, at most `MAX_LISTED`.

        Args:
            path: path of the folder, or of one file, as the agent sees it.

        Raises:
            StoreError: there is no such folder.
        """
        parts = _split_store_path(path)
        if parts is None:
            raise StoreError(
                f"There is no folder {sanitize_line(path, 200)!r} in the context store."
            )
        folder = "/".join(parts)
        paths = [f"{base}/{f.relative_path}" for base, i in self.items().items() for f in i.files]
        below = [p for p in paths if p == folder or p.startswith(f"{folder}/")]
        if not below:
            raise StoreError(
                f"There is nothing at {sanitize_line(path, 200)!r} in the context store."
            )
        return below[:MAX_LISTED]

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in the files of an item, or of a folder in it.

        Args:
            pattern: the regular expression.
            path: an item, or a folder in it.
            files: glob that file names match.

        Raises:
            BadArguments: the pattern is no regular expression.
            StoreError: there is no such folder.
        """
        self.list_files(path)  # raises for a folder that the index does not name
        return search_files(self._root, pattern, "/".join(_split_store_path(path) or ()), files)

    def text(self, path: str, limit: int = 10_000_000) -> str:
        """Return the text of all files of an item, at most `limit` bytes of each.

        Args:
            path: an item, or a folder or file in it.
            limit: bytes that are read of each file.

        Raises:
            StoreError: a file cannot be read.
        """
        out = []
        for each in self.list_files(path):
            with self.open_file(each) as file:
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
        home: str = STORE_FOLDERS[0],
    ) -> ImportedFileOrFolder:
        """Store files under a name, replacing the item of that name in this store.

        Args:
            name: letters, digits, `-` and `_`.
            files: for each relative path its content, and the size of the file it was taken from.
            source: where it came from.
            description: one line for the index.
            info: how its text was extracted.
            home: one of `STORE_FOLDERS`.

        Returns:
            The stored item.

        Raises:
            BadArguments: the name is not valid, there are no files, or no such store.
            StoreError: it cannot be written; the store is unchanged.
        """
        check_item_name(name)
        if home not in STORE_FOLDERS or not files:
            raise BadArguments(
                f"Name a store of {', '.join(STORE_FOLDERS)}, and at least one file."
            )
        store_files = tuple(StoreFile(path, len(data), raw if raw != len(data) else None)
                     for path, (data, raw) in sorted(files.items()))  # fmt: skip
        now = datetime.now(UTC).isoformat(timespec="seconds")
        item = ImportedFileOrFolder(
            name, sanitize_line(description, 300) or None, source, now, store_files, info or None
        )
        new_folder = f".new-{secrets.token_hex(4)}"
        # Raises for a damaged index before anything is written.
        self._encode_update(home, name, item)
        with self._open_store(home, make=0o700) as store, store.lock():
            index = self._encode_update(home, name, item)
            try:
                for path, (data, _) in files.items():
                    *folders, last = (new_folder, *path.split("/"))
                    with store.open_folder(".").open_subfolder(
                        folders, create_mode=0o700
                    ) as folder:
                        folder.write(last, (data,))
                _swap_folder(store, new_folder, name)
            except OSError as e:
                with suppress(OSError):
                    _remove_tree(store, new_folder)
                raise StoreError(f"{name!r} could not be kept ({e.strerror}).") from None
            store.write(INDEX_FILE, (index,))
        return item

    def remove(self, name: str) -> ImportedFileOrFolder:
        """Remove an item and its files; return the item.

        Raises:
            BadArguments: there is no such item.
            StoreError: it cannot be removed.
        """
        indexed = {home: self._load_index(home)[0] for home in STORE_FOLDERS}
        home = next((h for h in STORE_FOLDERS if name in indexed[h]), None)
        if home is None:
            self.of(name)
            raise StoreError(f"{name!r} cannot be removed.")
        with self._open_store(home) as store, suppress(FileNotFoundError), store.lock():
            store.write(INDEX_FILE, (self._encode_update(home, name, None),))
            _remove_tree(store, name)
        return indexed[home][name]

    # -- inside ------------------------------------------------------------------------------------

    def _load_index(self, home: str) -> tuple[dict[str, ImportedFileOrFolder], int]:
        try:
            data = self._read_index(home)
        except StoreError:
            return {}, 1
        return decode_valid_index_items(data)

    def _read_index(self, home: str) -> bytes:
        """Return the bytes of an index; of an empty one if there is none.

        Raises:
            StoreError: it cannot be read, or is too large.
        """
        parts = (home, CONTEXT_FOLDER, INDEX_FILE)
        if not self.base.is_dir() or not self._root.exists(parts):
            return b"{}"
        with self._root.open_at(parts) as file:
            data = file.read(MAX_INDEX_BYTES + 1)
        if len(data) > MAX_INDEX_BYTES:
            raise StoreError(f"{'/'.join(parts)} has more than {MAX_INDEX_BYTES:,} bytes.")
        return data

    def _encode_update(self, home: str, name: str, item: ImportedFileOrFolder | None) -> bytes:
        """Return the bytes of an index with an item added or removed.

        Raises:
            StoreError: the index is damaged; it stays as it is.
        """
        try:
            return update_index(self._read_index(home), name, item)
        except ValueError:
            raise StoreError(
                f"{home}/{CONTEXT_FOLDER}/{INDEX_FILE} is damaged, and writing it would "
                "lose its content: repair it, or move it away."
            ) from None

    def _has_file(self, home: str, name: str, file: StoreFile) -> bool:
        inside = split_relative_path(file.relative_path)
        return inside is not None and self._root.is_file((home, CONTEXT_FOLDER, name, *inside))

    @contextmanager
    def _open_store(self, home: str, make: int | None = None) -> Iterator[SafeFolder]:
        """Yield the folder of a store, held open; operating-system errors become sentences."""
        with self._root.open_parent((home, CONTEXT_FOLDER, INDEX_FILE), make=make) as store:
            yield store


def _split_store_path(path: str) -> tuple[str, ...] | None:
    """Return the parts of a path that an agent gave, or None if it is not in a store."""
    parts = split_relative_path(path.strip().removeprefix("./").rstrip("/"))
    is_store_path = (
        parts is not None and parts[0] in STORE_FOLDERS and parts[1:2] == (CONTEXT_FOLDER,)
    )
    return parts if is_store_path else None


def _swap_folder(store: SafeFolder, new: str, name: str) -> None:
    """Rename a new folder to a name; the old one is restored if that fails, else removed."""
    old = f".old-{new}"
    with suppress(FileNotFoundError):
        store.rename(name, old)
    try:
        store.rename(new, name)
    except OSError:
        with suppress(FileNotFoundError):
            store.rename(old, name)
        raise
    with suppress(OSError):
        _remove_tree(store, old)


def _remove_tree(folder: SafeFolder, name: str) -> None:
    """Remove a file or folder with all below it; links are removed, not followed."""
    status = folder.stat(name)
    if status is None or not stat.S_ISDIR(status.st_mode):
        folder.remove(name)
        return
    path, where = folder.at(name)
    shutil.rmtree(path, dir_fd=where.get("dir_fd"))


MAX_FILES = 2_000
"""Files that are imported of a folder."""
MAX_FILE_BYTES = 20_000_000
"""Bytes of a text file."""
MAX_TOTAL_BYTES = 200_000_000
_PROBE_BYTES = 8192


class ExtractedFileTexts(NamedTuple):
    """Files to be stored."""

    files: dict[str, tuple[bytes, int]]
    """For each relative path its text, and the size in bytes of the file it was taken from."""
    info: str
    """How the text of documents was extracted; empty if there were none."""
    skipped: list[str]
    """What was not imported, each with the reason."""


def import_files(source: str | Path) -> ExtractedFileTexts:
    """Return the text of a file or folder; links, hidden and binary files in a folder are skipped.

    Args:
        source: path of a file or a folder.

    Returns:
        Text and original size in bytes of each file, by its path below the folder; a note on how
        the text of documents was extracted; and the files that were skipped, with the reason.

    Raises:
        BadArguments: it does not exist, is no text, or there is too much of it.
        StoreError: it cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from ctxkit.agent import import_files
        >>> size = Path("notes.md").write_text("Deploy on Friday.")
        >>> import_files("notes.md").files
        {'notes.md': (b'Deploy on Friday.', 17)}
    """
    place = expand_home(source)
    if not os.path.exists(place):  # noqa: PTH110  a name too long is no error here
        raise BadArguments(f"There is no file or folder {sanitize_line(str(source), 200)!r}.")
    place = place.resolve()
    if place.is_dir():
        return _import_folder(place)
    if split_relative_path(place.name) is None:
        raise BadArguments(
            f"{sanitize_line(place.name, 200)!r} cannot be the name of a file in the store."
        )
    with RootFolder(place.parent).open_at((place.name,)) as file:
        imported = ExtractedFileTexts({}, "", [])
        why = _import_file(imported, place.name, file)
    if isinstance(why, str) and why:
        raise BadArguments(f"{sanitize_line(place.name, 200)!r} is not taken: {why}.")
    return _with_extraction_note(imported)


def _import_folder(place: Path) -> ExtractedFileTexts:
    root, imported, size = RootFolder(place), ExtractedFileTexts({}, "", []), 0
    walk, hidden = FolderWalk(root, ".", "*"), 0
    for each in islice(walk, MAX_FILES):
        if any(part.startswith(".") for part in each.path.split("/")):
            hidden += 1  # hidden files often hold keys and caches
            continue
        if split_relative_path(each.path) is None:
            imported.skipped.append(f"{sanitize_line(each.path, 80)} (its name)")
            continue
        try:
            with os.fdopen(each.folder.open(each.name, os.O_RDONLY), "rb") as file:
                why = _import_file(imported, each.path, file)
        except (OSError, StoreError, BadArguments) as e:
            why = sanitize_line(str(e), 120)
        if why:
            imported.skipped.append(f"{sanitize_line(each.path, 80)} ({why})")
        size = sum(len(data) for data, _ in imported.files.values())
        if size > MAX_TOTAL_BYTES:
            problem = (
                f"{sanitize_line(str(place), 200)!r} holds more than {MAX_TOTAL_BYTES:,} "
                "bytes of text"
            )
            raise BadArguments(f"{problem}: add less.")
    imported.skipped.extend(
        [f"{hidden:,} hidden files (add one by its own path)"] if hidden else []
    )
    imported.skipped.extend(f"{sanitize_line(p, 80)} (not looked into)" for p in walk.missed)
    if next(iter(_has_more(walk, len(imported.files) + len(imported.skipped) + hidden)), None):
        imported.skipped.append(f"all after {MAX_FILES:,} files")
    if not imported.files:
        raise BadArguments(f"{sanitize_line(str(place), 200)!r} holds no text that can be taken.")
    return _with_extraction_note(imported)


def _has_more(walk: FolderWalk, seen: int) -> Iterator[bool]:
    if seen >= MAX_FILES:
        yield from (True for _ in islice(walk, MAX_FILES, MAX_FILES + 1))


def _import_file(imported: ExtractedFileTexts, path: str, file: BinaryIO) -> str:
    """Import a file; return the reason if it is not, else an empty text."""
    size = os.fstat(file.fileno()).st_size
    if is_document(path):
        read = read_document(file, path)
        name = path.rsplit(".", 1)[0] + ".txt"
        name = f"{path}.txt" if name in imported.files else name
        imported.files[name] = read.text.encode(), size
        imported.skipped.extend([f"{sanitize_line(path, 80)} ({read.note})"] if read.note else [])
        if read.text.strip():
            return ""
        del imported.files[name]
        return "it holds no text; pictures of pages are not read"
    if size > MAX_FILE_BYTES:
        return f"it has more than {MAX_FILE_BYTES:,} bytes"
    data = file.read(MAX_FILE_BYTES + 1)
    if b"\0" in data[:_PROBE_BYTES]:
        return "it is no text"
    imported.files[path] = data, len(data)
    return ""


def _with_extraction_note(imported: ExtractedFileTexts) -> ExtractedFileTexts:
    """Return the files with a sentence on the text that was extracted from documents."""
    documents = [
        (len(data), raw) for path, (data, raw) in imported.files.items() if len(data) != raw
    ]
    if not documents:
        return imported
    size, raw = (sum(column) for column in zip(*documents, strict=True))
    many = f"{len(documents)} documents" if len(documents) > 1 else "a document"
    return imported._replace(info=f"{size:,} bytes of text out of {many} of {raw:,} bytes")


def describe_skipped_files(skipped: list[str]) -> str:
    """Return a line on the files that were not imported; empty if all were."""
    return f"Not taken: {abbreviate_names(skipped)}." if skipped else ""


INDEX_HEADING = "CONTEXT — reference material imported for this session (use read_file to access):"
MAX_INDEX_CHARS = 8_000
"""Characters of the block; its last line counts the items that do not fit."""
MAX_NAMED_FILES = 20
"""Files of an item that the block lists."""


def format_index_block(items: Mapping[str, ImportedFileOrFolder]) -> str:
    """Return the prompt block that lists the store; empty if the store is.

    Args:
        items: the items by path, as `ContextStore.items` returns them.

    Returns:
        At most `MAX_INDEX_CHARS` characters: a heading, and lines with name, size and description.
    """
    if not items:
        return ""
    lines, size, n = [INDEX_HEADING], len(INDEX_HEADING), 0
    for path, item in sorted(items.items(), key=lambda each: each[1].name):
        item_lines = _format_item(path, item)
        if size + sum(map(len, item_lines)) + len(item_lines) > MAX_INDEX_CHARS:
            lines.append(f"  ({len(items) - n} more are not named here: use list_files)")
            break
        lines += item_lines
        size, n = size + sum(map(len, item_lines)) + len(item_lines), n + 1
    return "\n".join(lines)


def _format_item(path: str, item: ImportedFileOrFolder) -> list[str]:
    about = sanitize_line(item.description or "", 300)
    head = f"  [{item.name}]" + (f" — {about}" if about else "")
    names = [sanitize_line(f"{path}/{f.relative_path}", 300) for f in item.files]
    if len(names) == 1:
        return [f"{head}: {names[0]}"]
    more = len(names) - MAX_NAMED_FILES
    file_lines = [f"    {name}" for name in names[:MAX_NAMED_FILES]]
    rest = [f"    ({more} more: list_files {path})"] if more > 0 else []
    return [f"{head} ({len(names)} files):", *file_lines, *rest]


INDEX_FILE = "index.json"
MAX_INDEX_BYTES = 4_000_000
"""Bytes of an index; a larger one is refused."""
MAX_ITEMS = 500
"""Items of an index that are used, the first by name."""
_ITEM_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PATH_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
_MAX_DEPTH = 32


class StoreFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file of an item."""

    relative_path: str
    size_bytes: int
    """Size of the stored text."""
    raw_bytes: int | None = None
    """Size of the file it was taken from, if different; fuseraft has no such key."""


class ImportedFileOrFolder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An imported file, or the imported files of a folder."""

    name: str
    description: str | None = None
    source_path: str = ""
    imported_at: str = ""
    """ISO 8601."""
    files: tuple[StoreFile, ...] = ()
    extraction_info: Any = None
    """How its text was extracted; ctxkit writes a sentence."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all its text."""
        return sum(f.size_bytes for f in self.files)

    @property
    def raw_bytes(self) -> int:
        """Bytes of the files it was taken from."""
        return sum(f.size_bytes if f.raw_bytes is None else f.raw_bytes for f in self.files)


_RawObject = dict[str, msgspec.Raw]
_EMPTY_OBJECT = msgspec.Raw(b"{}")


class _Index(msgspec.Struct, frozen=True):
    items: dict[str, msgspec.Raw] = {}


def check_item_name(name: str) -> str:
    """Return a valid name of an item.

    Raises:
        BadArguments: the name is not valid.
    """
    if not _ITEM_NAME.fullmatch(name):
        raise BadArguments(
            f"{sanitize_line(name, 80)!r} is no name for the context store: use letters, "
            "digits, '-' and "
            "'_', at most 64."
        )
    return name


def split_relative_path(path: str) -> tuple[str, ...] | None:
    """Return the parts of a relative path, or None if it is not valid or leads out."""
    parts = tuple(path.split("/"))
    sound = all(_PATH_PART.fullmatch(p) and p not in (".", "..") for p in parts)
    return parts if sound and len(parts) <= _MAX_DEPTH else None


def decode_valid_index_items(data: bytes) -> tuple[dict[str, ImportedFileOrFolder], int]:
    """Return the valid items of an index by name, sorted, and the number of invalid ones."""
    try:
        raw_items = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Index).items
    except (msgspec.DecodeError, RecursionError):
        return {}, 1
    decoded = {n: _decode_item(n, raw) for n, raw in sorted(raw_items.items())[:MAX_ITEMS]}
    sound = {name: item for name, item in decoded.items() if item is not None}
    return sound, len(raw_items) - len(sound)


def _decode_item(name: str, raw: msgspec.Raw) -> ImportedFileOrFolder | None:
    try:
        item = msgspec.json.decode(raw, type=ImportedFileOrFolder)
    except (msgspec.DecodeError, RecursionError):
        return None
    sound = _ITEM_NAME.fullmatch(name) and item.name == name
    return item if sound and all(split_relative_path(f.relative_path) for f in item.files) else None


def update_index(data: bytes, name: str, item: ImportedFileOrFolder | None) -> bytes:
    """Return an index with an item added or removed: indented, in order of the names.

    Everything else in it stays, invalid or unknown parts included, as it may be fuseraft's.

    Args:
        data: the current index; an empty file is an empty index.
        name: name of the item.
        item: the item; None removes it.

    Raises:
        ValueError: it is no index.
    """
    try:
        index = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf") or b"{}", type=_RawObject)
        items = msgspec.json.decode(index.get("items", _EMPTY_OBJECT), type=_RawObject)
    except RecursionError:
        raise ValueError("It is nested too deeply.") from None
    items.pop(name, None)
    if item is not None:
        items[name] = msgspec.Raw(msgspec.json.encode(item))
    updated = {**index, "items": dict(sorted(items.items()))}
    return msgspec.json.format(msgspec.json.encode(updated), indent=2)
