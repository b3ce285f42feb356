"""`index.json` of a context store, as fuseraft writes it (`ContextModels.cs`): items by name.

A store may come with a folder from anybody: names, paths and texts in it are data. What is not
sound is left out.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments

INDEX = "index.json"
MOST_BYTES = 4_000_000
"""Of an index; a larger one is none."""
MOST_ITEMS = 500
"""Items that are used of an index, in the order of their names."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,200}")
_DEEP = 32


class StoreFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file of an item."""

    relative_path: str
    size_bytes: int
    """Of the text that is kept."""
    raw_bytes: int | None = None
    """Of the file that it was taken from, where that is another one; fuseraft has no such key."""


class StoreItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Something that was imported: one file, or the files of a folder."""

    name: str
    description: str | None = None
    source_path: str = ""
    imported_at: str = ""
    """ISO 8601."""
    files: tuple[StoreFile, ...] = ()
    extraction_info: Any = None
    """What was said of how its text was taken: a sentence, from us."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all its text."""
        return sum(f.size_bytes for f in self.files)

    @property
    def raw_bytes(self) -> int:
        """Bytes of the files that it was taken from."""
        return sum(f.size_bytes if f.raw_bytes is None else f.raw_bytes for f in self.files)


_Told = dict[str, msgspec.Raw]
_NONE = msgspec.Raw(b"{}")


class _Index(msgspec.Struct, frozen=True):
    items: dict[str, msgspec.Raw] = {}


def checked(name: str) -> str:
    """Return the name of an item.

    Raises:
        BadArguments: it is none.
    """
    if not _NAME.fullmatch(name):
        raise BadArguments(
            f"{line(name, 80)!r} is no name for the context store: use letters, digits, '-' and "
            "'_', at most 64."
        )
    return name


def parts_of(path: str) -> tuple[str, ...] | None:
    """Return a relative path as its parts, or None where it is none: it leads up, or out."""
    parts = tuple(path.split("/"))
    sound = all(_PART.fullmatch(p) and p not in (".", "..") for p in parts)
    return parts if sound and len(parts) <= _DEEP else None


def decoded(data: bytes) -> tuple[dict[str, StoreItem], int]:
    """Return the items of an index by name, sorted, and how many were not sound."""
    try:
        told = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=_Index).items
    except (msgspec.DecodeError, RecursionError):
        return {}, 1
    found = {n: _item(n, raw) for n, raw in sorted(told.items())[:MOST_ITEMS]}
    sound = {name: item for name, item in found.items() if item is not None}
    return sound, len(told) - len(sound)


def _item(name: str, raw: msgspec.Raw) -> StoreItem | None:
    try:
        item = msgspec.json.decode(raw, type=StoreItem)
    except (msgspec.DecodeError, RecursionError):
        return None
    sound = _NAME.fullmatch(name) and item.name == name
    return item if sound and all(parts_of(f.relative_path) for f in item.files) else None


def changed(data: bytes, name: str, item: StoreItem | None) -> bytes:
    """Return an index with an item put in, or taken out: indented, in the order of the names.

    Whatever else it holds stays, also what is not sound or not known here: it may be fuseraft's.

    Args:
        data: the index as it is; a file without a byte is an empty one.
        name: of the item.
        item: None: it is taken out.

    Raises:
        ValueError: it is no index.
    """
    try:
        whole = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf") or b"{}", type=_Told)
        held = msgspec.json.decode(whole.get("items", _NONE), type=_Told)
    except RecursionError:
        raise ValueError("It is nested too deeply.") from None
    held.pop(name, None)
    if item is not None:
        held[name] = msgspec.Raw(msgspec.json.encode(item))
    told = {**whole, "items": dict(sorted(held.items()))}
    return msgspec.json.format(msgspec.json.encode(told), indent=2)
