"""What the context store takes of a file or a folder: text as it is, documents as their text."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ctxkit.display.markup import line
from ctxkit.documents import document, is_document
from ctxkit.errors import BadArguments, StoreError
from ctxkit.library.index import parts_of
from ctxkit.tools.root import Root
from ctxkit.tools.walks import Walk, some

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = 2_000
"""Files of a folder."""
FILE_BYTES = 20_000_000
"""Bytes of a file that is kept as it is."""
ALL_BYTES = 200_000_000
_LOOKED_AT = 8192


class TakenFile(NamedTuple):
    """What is to be kept."""

    files: dict[str, tuple[bytes, int]]
    """For each relative path its text, and the bytes of the file that it was taken from."""
    info: str
    """How the text of documents was taken; empty where there were none."""
    left: list[str]
    """What was not taken, in words."""


def taken(source: str | Path) -> TakenFile:
    """Return what is taken of a file or a folder; links, hidden and binary files in it are passed
    over.

    Raises:
        BadArguments: there is no such file or folder, it is no text, or there is too much of it.
        StoreError: it cannot be read.
    """
    place = Path(source).expanduser()
    if not os.path.exists(place):  # noqa: PTH110  a name too long is no error here
        raise BadArguments(f"There is no file or folder {line(str(source), 200)!r}.")
    place = place.resolve()
    if place.is_dir():
        return _folder(place)
    if parts_of(place.name) is None:
        raise BadArguments(f"{line(place.name, 200)!r} cannot be the name of a file in the store.")
    with Root(place.parent).opened_at((place.name,)) as file:
        found = TakenFile({}, "", [])
        why = _take(found, place.name, file)
    if isinstance(why, str) and why:
        raise BadArguments(f"{line(place.name, 200)!r} is not taken: {why}.")
    return _told(found)


def _folder(place: Path) -> TakenFile:
    root, found, size = Root(place), TakenFile({}, "", []), 0
    walk, hidden = Walk(root, ".", "*"), 0
    for each in islice(walk, FILES):
        if any(part.startswith(".") for part in each.path.split("/")):
            hidden += 1  # keys and caches lie there
            continue
        if parts_of(each.path) is None:
            found.left.append(f"{line(each.path, 80)} (its name)")
            continue
        try:
            with os.fdopen(each.folder.open(each.name, os.O_RDONLY), "rb") as file:
                why = _take(found, each.path, file)
        except (OSError, StoreError, BadArguments) as e:
            why = line(str(e), 120)
        if why:
            found.left.append(f"{line(each.path, 80)} ({why})")
        size = sum(len(data) for data, _ in found.files.values())
        if size > ALL_BYTES:
            said = f"{line(str(place), 200)!r} holds more than {ALL_BYTES:,} bytes of text"
            raise BadArguments(f"{said}: add less.")
    found.left.extend([f"{hidden:,} hidden files (add one by its own path)"] if hidden else [])
    found.left.extend(f"{line(p, 80)} (not looked into)" for p in walk.missed)
    if next(iter(_more(walk, len(found.files) + len(found.left) + hidden)), None):
        found.left.append(f"all after {FILES:,} files")
    if not found.files:
        raise BadArguments(f"{line(str(place), 200)!r} holds no text that can be taken.")
    return _told(found)


def _more(walk: Walk, seen: int) -> Iterator[bool]:
    if seen >= FILES:
        yield from (True for _ in islice(walk, FILES, FILES + 1))


def _take(found: TakenFile, path: str, file: BinaryIO) -> str:
    """Take a file; return why it is not, or nothing."""
    size = os.fstat(file.fileno()).st_size
    if is_document(path):
        read = document(file, path)
        name = path.rsplit(".", 1)[0] + ".txt"
        name = f"{path}.txt" if name in found.files else name
        found.files[name] = read.text.encode(), size
        found.left.extend([f"{line(path, 80)} ({read.note})"] if read.note else [])
        return "" if read.text.strip() else _unread(found, name)
    if size > FILE_BYTES:
        return f"it has more than {FILE_BYTES:,} bytes"
    data = file.read(FILE_BYTES + 1)
    if b"\0" in data[:_LOOKED_AT]:
        return "it is no text"
    found.files[path] = data, len(data)
    return ""


def _unread(found: TakenFile, name: str) -> str:
    del found.files[name]
    return "it holds no text; pictures of pages are not read"


def _told(found: TakenFile) -> TakenFile:
    """Return what was taken with a sentence on what was extracted."""
    documents = [(len(data), raw) for path, (data, raw) in found.files.items() if len(data) != raw]
    if not documents:
        return found
    size, raw = (sum(column) for column in zip(*documents, strict=True))
    many = f"{len(documents)} documents" if len(documents) > 1 else "a document"
    return found._replace(info=f"{size:,} bytes of text out of {many} of {raw:,} bytes")


def told(left: list[str]) -> str:
    """Return in a line what was not taken; empty where all was."""
    return f"Not taken: {some(left)}." if left else ""
