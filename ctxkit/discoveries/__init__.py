"""Sessions of known tools on this machine: where they lie, how large and how old; no file is read
whole.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.discoveries.homes import PLACES, Place
from ctxkit.discoveries.retentions import kept_days
from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.faces import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_PEEK = 64 << 10
"""Bytes read of a file, from its start."""
_MOST = 100_000
"""Files listed; a home with more is cut, and the frame says so in `attrs`."""
__all__ = ["COLUMNS", "PLACES", "Place", "discover"]
__dir__ = listed(__all__)
_SKIPPED = {
    "index.json",
    "changes.json",
    "intents.json",
    "evidence.json",
    "brief.json",
    "read_cache.json",
}
_FOLDERS = {"base_state.json", "api_conversation_history.json"}
"""Files that mark a folder as one session."""

COLUMNS = {
    "tool": "string",
    "project": "string",
    "path": "string",
    "modified": "datetime64[ns, UTC]",
    "size_bytes": "Int64",
    "messages": "Int64",
    "messages_source": "string",
    "compactions": "Int64",
    "keeps_days": "Float64",
    "goes": "datetime64[ns, UTC]",
}
"""The columns of `discover`. `messages` is the number of lines: counted in small files (recorded),
else worked out from the first 64 KiB (estimated), missing for files that are not lines.
`compactions` only where the whole file was seen. `keeps_days`: for how long the tool keeps a
session after its last change, as its settings or else its own default say; missing where it keeps
them for good, or says nothing. `goes`: when this one is due."""


def discover(home: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Return the sessions of known tools below a home directory, the newest first.

    Reads at most the first 64 KiB of a file; links are not followed. Environment variables that
    move a tool's folder (`CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `XDG_DATA_HOME`) count where `home` is
    not given.

    Returns:
        One row a file (columns: `COLUMNS`); `.attrs["truncated"]` is True where more than 100,000
        were found. What is
        deleted next: `ck.discover().sort_values("goes")`; `ck.keep(folder)` copies it before.

    Raises:
        BadArguments: `home` is no path.
    """
    import pandas as pd

    if home is not None and "\0" in os.fspath(home):
        raise BadArguments("A home directory is a path, without NUL characters.")
    rows = list(islice(_rows(home), _MOST))
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in COLUMNS}
    for name in ("modified", "goes"):
        times = pd.to_datetime(columns[name], unit="s", utc=True, errors="coerce")
        columns[name] = times.as_unit("ns")
    frame = pd.DataFrame(columns).astype(COLUMNS)
    frame = frame.sort_values("modified", ascending=False, ignore_index=True, kind="stable")
    frame.attrs["truncated"] = len(rows) >= _MOST
    return frame


def _rows(home: str | os.PathLike[str] | None) -> Iterator[dict[str, Any]]:
    for place, entry, folders, days in _dated(home):
        row = _row(place, entry, folders)
        if row is not None:
            goes = None if days is None else row["modified"] + days * 86_400
            yield {**row, "keeps_days": days, "goes": goes}


def found(
    home: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[Place, os.DirEntry[str], tuple[str, ...]]]:
    """Yield the files of known tools, with their place and the folders between; none is opened."""
    return ((place, entry, folders) for place, entry, folders, _ in _dated(home))


def _dated(
    home: str | os.PathLike[str] | None,
) -> Iterator[tuple[Place, os.DirEntry[str], tuple[str, ...], float | None]]:
    """Yield the files with how many days their tool keeps them."""
    for place, top in tops(home):
        days = kept_days(place.tool, top)
        for entry, folders in _files(top, place):
            yield place, entry, folders, days


def tops(home: str | os.PathLike[str] | None) -> Iterator[tuple[Place, Path]]:
    """Yield each place with its folder, whether it is there or not."""
    for place in PLACES:
        for top in _tops(place, home):
            yield place, top


def project_of(place: Place, folders: tuple[str, ...]) -> str | None:
    """Return the name of the project that a session belongs to, where its folders tell."""
    name = folders[place.project] if 0 <= place.project < len(folders) else None
    return plain(name, 200) if name else None


def _tops(place: Place, home: str | os.PathLike[str] | None) -> list[Path]:
    moved = os.environ.get(place.variable) if place.variable and home is None else None
    if moved:
        return [Path(moved).expanduser() / place.moved]
    base = Path(home) if home is not None else Path.home()
    if place.tool in ("aider", "crush", "ctxkit") and home is None:
        return list(dict.fromkeys([base / place.below, Path.cwd() / place.below]))
    return [base / place.below]


def _files(top: Path, place: Place) -> Iterator[tuple[os.DirEntry[str], tuple[str, ...]]]:
    """Yield the files of a place with the folders between; not too deep, no link is followed."""
    waiting: list[tuple[str, tuple[str, ...]]] = [(str(top), ())]
    while waiting:
        folder, between = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError:
            continue  # not there, or not ours to read: nothing to list
        for entry in found:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if place.below and len(between) < place.depth:
                        waiting.append((entry.path, (*between, entry.name)))
                elif entry.is_file(follow_symlinks=False) and _is_session(entry.name, place):
                    yield entry, between
            except OSError:
                continue


def _is_session(name: str, place: Place) -> bool:
    if not name.endswith(place.endings) or name in _SKIPPED:
        return False
    return not place.starts or name.startswith(place.starts)


def _row(place: Place, entry: os.DirEntry[str], folders: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        stat = entry.stat(follow_symlinks=False)
        with open(entry.path, "rb") as file:  # noqa: PTH123  a Path apiece costs as much as the reading
            start = file.read(_PEEK)
    except OSError:
        return None
    whole = len(start) >= stat.st_size
    lines = entry.name.endswith((".jsonl", ".md"))
    seen = whole and lines and bool(place.marks)
    messages, source = _messages(start, stat.st_size, whole=whole) if lines else (None, None)
    path = os.path.dirname(entry.path) if entry.name in _FOLDERS else entry.path  # noqa: PTH120  as above
    return {
        "tool": place.tool,
        "project": project_of(place, folders),
        "path": plain(path),
        "modified": stat.st_mtime,
        "size_bytes": stat.st_size,
        "messages": messages,
        "messages_source": source,
        "compactions": sum(map(start.count, place.marks)) if seen else None,
    }


def _messages(start: bytes, size: int, *, whole: bool) -> tuple[int | None, str | None]:
    lines = start.count(b"\n")
    if whole:
        return lines + (not start.endswith(b"\n") and bool(start)), "recorded"
    return (round(lines * size / len(start)), "estimated") if lines else (None, None)
