"""What there is to keep: files of tools' sessions as they are, databases session by session."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import ReadError
from ctxkit.readers.source import SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.discoveries import Place

_ENDINGS = (".json", ".jsonl", ".jsonl.zst", ".md", ".db", ".ndjson", ".txt", ".yaml")
_DEPTH = 10
_MOST = 16 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A file to keep, and the name that it gets in the archive."""

    tool: str
    path: Path
    name: str
    """Relative to the archive; its parts are names of folders as found, never a file's content."""

    @property
    def key(self) -> str:
        """The path as the index has it: where it is no UTF-8, readable, and with its hash."""
        path, raw = str(self.path), os.fsencode(self.path)
        readable = _readable(path)
        return path if readable == path else f"{readable}#{sha256(raw).hexdigest()[:16]}"

    @property
    def is_database(self) -> bool:
        """True for an SQLite database."""
        with _Opened(self.path) as fd, os.fdopen(os.dup(fd), "rb") as file:
            return file.read(len(SQLITE)) == SQLITE


class _Opened:
    """A regular file, opened without following a link and without waiting for a pipe."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        self.fd = os.open(path, flags | getattr(os, "O_BINARY", 0))

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


def whole(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file as long as it was when it was opened; what is appended meanwhile is
    for the next time.

    Raises:
        OSError: it is gone, forbidden, or a link.
        ReadError: it is no file, or too large.
    """
    with _Opened(path) as fd:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST:
            raise ReadError("not kept: no plain file, or larger than 16 GB.", path)
        left = about.st_size
        while left and (chunk := os.read(fd, min(left, 1 << 20))):
            left -= len(chunk)
            yield chunk


def originals(place: Place, top: Path) -> Iterator[Original]:
    """Yield the files of a place: all that may belong to its sessions, links left alone."""
    root = top
    if place.copied:
        root = next((p for p in (top, *top.parents) if p.name == place.copied), top)
    base = f"{place.tool}/{_word(root)}"
    depth = _DEPTH if place.below and place.depth else 0
    for path, between in _below(root, depth):
        name = path.name
        if depth == 0 and not (
            name.endswith(place.endings) and name.startswith(place.starts or ("",))
        ):
            continue
        kept = _readable("/".join((base, *between, name)))
        yield Original(tool=place.tool, path=path, name=kept)


def _readable(path: str) -> str:
    """Return a path as UTF-8: bytes of names that are none become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def _word(root: Path) -> str:
    """A place's name in the archive: its own, with those above where it says little."""
    above, own = root.parent.name.lstrip("."), root.name.lstrip(".")
    return f"{above}-{own}" if above and own in _COMMON else own or "home"


_COMMON = {"sessions", "tasks", "storage", "tmp", "projects", "agents", "logs"}


def _below(root: Path, depth: int) -> Iterator[tuple[Path, tuple[str, ...]]]:
    waiting: list[tuple[Path, tuple[str, ...]]] = [(root, ())]
    while waiting:
        folder, between = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda e: e.name)
        except OSError:
            continue  # not there, or not ours to read
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if len(between) < depth:
                        waiting.append((Path(entry.path), (*between, entry.name)))
                elif entry.is_file(follow_symlinks=False) and entry.name.endswith(_ENDINGS):
                    yield Path(entry.path), between
            except OSError:
                continue
