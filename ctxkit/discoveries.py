"""Sessions of known tools on this machine: where they lie, how large and how old; no file is read whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.markup import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_PEEK = 64 << 10
"""Bytes read of a file, from its start."""
_MOST = 100_000
"""Files listed; a home with more is cut, and the frame says so in `attrs`."""
_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tool keeps its sessions."""

    tool: str
    below: str
    """The folder, from the home directory (or from what `variable` names)."""
    endings: tuple[str, ...] = (".jsonl",)
    variable: str = ""
    """The environment variable that moves it."""
    moved: str = ""
    """The folder below the variable's."""
    marks: tuple[bytes, ...] = ()
    """What a compaction looks like in the file, where it can be told by bytes."""
    starts: tuple[str, ...] = ()
    """Beginnings of the names of sessions; empty: any name."""
    project: int = 0
    """Which folder below the place is the project's; -1: none."""


PLACES = (
    Place(
        tool="claude-code",
        below=".claude/projects",
        variable="CLAUDE_CONFIG_DIR",
        moved="projects",
        marks=(b'"subtype":"compact_boundary"',),
    ),
    Place(
        tool="codex",
        below=".codex/sessions",
        variable="CODEX_HOME",
        moved="sessions",
        marks=(b'"type":"compacted"',),
        starts=("rollout-",),
        project=-1,
    ),
    Place(tool="gemini-cli", below=".gemini/tmp", endings=(".json", ".jsonl"), starts=("session-",)),
    Place(
        tool="opencode",
        below=".local/share/opencode/storage/session",
        endings=(".json",),
        variable="XDG_DATA_HOME",
        moved="opencode/storage/session",
        starts=("ses_",),
    ),
    Place(tool="pi", below=".pi/agent/sessions", marks=(b'"type":"compaction"',)),
    Place(tool="openclaw", below=".openclaw/agents", marks=(b'"type":"compaction"',)),
    Place(tool="fased", below=".fased/agents", marks=(b'"type":"compaction"',)),
    Place(tool="ai", below=".ai/sessions", marks=(b'"type":"compaction"',)),
    Place(tool="fuseraft", below=".fuseraft/logs", marks=(b'"compaction_occurred":true', b'"event_type":"compaction"')),
    Place(tool="fuseraft", below=".fuseraft/sessions", endings=(".json", ".jsonl")),
    Place(tool="fuseraft", below=".fuseraft/repl-sessions", endings=(".json",), starts=("repl-",), project=-1),
    Place(tool="fuseraft", below=".fuseraft/snapshots", starts=("turns",)),
    Place(tool="openhands", below=".openhands/sessions", endings=(".json", ".jsonl")),
    Place(tool="openhands", below=".openhands/conversations", endings=(".json",), starts=("base_state",)),
    Place(tool="kimi-cli", below=".kimi/sessions", marks=(b'"type":"context.apply_compaction"',)),
    Place(tool="ctxkit", below=".ctxkit/sessions", project=-1),
    Place(tool="aider", below="", endings=(".md",), starts=(".aider.chat.history",), project=-1),
)
"""The places of tools that keep their sessions on disk; aider's is the home itself and is not searched below it."""
_SKIPPED = {"index.json", "changes.json", "intents.json", "evidence.json", "brief.json", "read_cache.json"}

COLUMNS = {
    "tool": "string",
    "project": "string",
    "path": "string",
    "modified": "datetime64[ns, UTC]",
    "size_bytes": "Int64",
    "messages": "Int64",
    "messages_source": "string",
    "compactions": "Int64",
}
"""The columns of `discover`. `messages` is the number of lines: counted in small files (recorded), else worked out from
the first 64 KiB (estimated), missing for files that are not lines. `compactions` only where the whole file was seen."""


def discover(home: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Return the sessions of known tools below a home directory, the newest first.

    Reads at most the first 64 KiB of a file; links are not followed. Environment variables that move a tool's folder
    (`CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `XDG_DATA_HOME`) count where `home` is not given.

    Returns:
        One row a file (columns: `COLUMNS`); `.attrs["truncated"]` is True where more than 100,000 were found.

    Raises:
        BadArguments: `home` is no path.
    """
    import pandas as pd

    if home is not None and "\0" in os.fspath(home):
        raise BadArguments("A home directory is a path, without NUL characters.")
    rows = list(islice(_rows(home), _MOST))
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in COLUMNS}
    columns["modified"] = pd.to_datetime(columns["modified"], unit="s", utc=True).as_unit("ns")
    frame = pd.DataFrame(columns).astype(COLUMNS)
    frame = frame.sort_values("modified", ascending=False, ignore_index=True, kind="stable")
    frame.attrs["truncated"] = len(rows) >= _MOST
    return frame


def found(
    home: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[Place, os.DirEntry[str], tuple[str, ...]]]:
    """Yield the files of known tools, each with its place and the folders between; none is opened."""
    for place in PLACES:
        for top in _tops(place, home):
            for entry, folders in _files(top, place):
                yield place, entry, folders


def project_of(place: Place, folders: tuple[str, ...]) -> str | None:
    """Return the name of the project that a session belongs to, where its folders tell."""
    name = folders[place.project] if 0 <= place.project < len(folders) else None
    return plain(name, 200) if name else None


def _rows(home: str | os.PathLike[str] | None) -> Iterator[dict[str, Any]]:
    return filter(None, (_row(*each) for each in found(home)))


def _tops(place: Place, home: str | os.PathLike[str] | None) -> list[Path]:
    moved = os.environ.get(place.variable) if place.variable and home is None else None
    if moved:
        return [Path(moved).expanduser() / place.moved]
    base = Path(home) if home is not None else Path.home()
    if place.tool == "ctxkit" and home is None:
        return list(dict.fromkeys([base / place.below, Path.cwd() / place.below]))
    if place.tool == "aider" and home is None:
        return list(dict.fromkeys([base, Path.cwd()]))
    return [base / place.below]


def _files(top: Path, place: Place) -> Iterator[tuple[os.DirEntry[str], tuple[str, ...]]]:
    """Yield the files of a place with the folders between; without following links, and not too deep."""
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
                    if place.below and len(between) < _DEPTH:
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
    messages, source = _messages(start, stat.st_size, whole=whole) if not entry.name.endswith(".json") else (None, None)
    path = os.path.dirname(entry.path) if entry.name == "base_state.json" else entry.path  # noqa: PTH120  as above
    return {
        "tool": place.tool,
        "project": project_of(place, folders),
        "path": plain(path),
        "modified": stat.st_mtime,
        "size_bytes": stat.st_size,
        "messages": messages,
        "messages_source": source,
        "compactions": sum(start.count(m) for m in place.marks) if whole and place.marks else None,
    }


def _messages(start: bytes, size: int, *, whole: bool) -> tuple[int | None, str | None]:
    lines = start.count(b"\n")
    if whole:
        return lines + (not start.endswith(b"\n") and bool(start)), "recorded"
    return (round(lines * size / len(start)), "estimated") if lines else (None, None)
