"""Find the sessions of known tools on this machine, and how long each tool keeps them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import json5

from ctxkit._internal.formatting import sanitize_text
from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


__all__ = ["DISCOVERY_COLUMNS", "LOG_LOCATIONS", "LogLocation", "discover"]
__dir__ = public_dir(__all__)


_PEEK_BYTES = 64 << 10
"""Bytes read of a file, from its start."""
_MAX_FILES = 100_000
"""Files listed; a home with more is cut, and the frame says so in `attrs`."""
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

DISCOVERY_COLUMNS = {
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
    rows = list(islice(_rows(home), _MAX_FILES))
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in DISCOVERY_COLUMNS}
    for name in ("modified", "goes"):
        times = pd.to_datetime(columns[name], unit="s", utc=True, errors="coerce")
        columns[name] = times.as_unit("ns")
    frame = pd.DataFrame(columns).astype(DISCOVERY_COLUMNS)
    frame = frame.sort_values("modified", ascending=False, ignore_index=True, kind="stable")
    frame.attrs["truncated"] = len(rows) >= _MAX_FILES
    return frame


def _rows(home: str | os.PathLike[str] | None) -> Iterator[dict[str, Any]]:
    for place, entry, folders, days in _dated(home):
        row = _row(place, entry, folders)
        if row is not None:
            goes = None if days is None else row["modified"] + days * 86_400
            yield {**row, "keeps_days": days, "goes": goes}


def iter_session_files(
    home: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[LogLocation, os.DirEntry[str], tuple[str, ...]]]:
    """Yield the files of known tools, with their place and the folders between; none is opened."""
    return ((place, entry, folders) for place, entry, folders, _ in _dated(home))


def _dated(
    home: str | os.PathLike[str] | None,
) -> Iterator[tuple[LogLocation, os.DirEntry[str], tuple[str, ...], float | None]]:
    """Yield the files with how many days their tool keeps them."""
    for place, top in iter_location_folders(home):
        days = get_retention_days(place.tool, top)
        for entry, folders in _files(top, place):
            yield place, entry, folders, days


def iter_location_folders(
    home: str | os.PathLike[str] | None,
) -> Iterator[tuple[LogLocation, Path]]:
    """Yield each place with its folder, whether it is there or not."""
    for place in LOG_LOCATIONS:
        for top in _tops(place, home):
            yield place, top


def get_location_project(place: LogLocation, folders: tuple[str, ...]) -> str | None:
    """Return the name of the project that a session belongs to, where its folders tell."""
    name = folders[place.project] if 0 <= place.project < len(folders) else None
    return sanitize_text(name, 200) if name else None


def _tops(place: LogLocation, home: str | os.PathLike[str] | None) -> list[Path]:
    moved = os.environ.get(place.variable) if place.variable and home is None else None
    if moved:
        return [Path(moved).expanduser() / place.moved]
    base = Path(home) if home is not None else Path.home()
    if place.tool in ("aider", "crush", "ctxkit") and home is None:
        return list(dict.fromkeys([base / place.below, Path.cwd() / place.below]))
    return [base / place.below]


def _files(top: Path, place: LogLocation) -> Iterator[tuple[os.DirEntry[str], tuple[str, ...]]]:
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


def _is_session(name: str, place: LogLocation) -> bool:
    if not name.endswith(place.endings) or name in _SKIPPED:
        return False
    return not place.starts or name.startswith(place.starts)


def _row(
    place: LogLocation, entry: os.DirEntry[str], folders: tuple[str, ...]
) -> dict[str, Any] | None:
    try:
        stat = entry.stat(follow_symlinks=False)
        with open(entry.path, "rb") as file:  # noqa: PTH123  a Path apiece costs as much as the reading
            start = file.read(_PEEK_BYTES)
    except OSError:
        return None
    whole = len(start) >= stat.st_size
    lines = entry.name.endswith((".jsonl", ".md"))
    seen = whole and lines and bool(place.marks)
    messages, source = _messages(start, stat.st_size, whole=whole) if lines else (None, None)
    path = os.path.dirname(entry.path) if entry.name in _FOLDERS else entry.path  # noqa: PTH120  as above
    return {
        "tool": place.tool,
        "project": get_location_project(place, folders),
        "path": sanitize_text(path),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLocation:
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
    depth: int = 8
    """How many folders below it are looked into."""
    copied: str = ""
    """The folder above it that is kept as a whole, where a session's text lies beside it."""


LOG_LOCATIONS = (
    LogLocation(
        tool="claude-code",
        below=".claude/projects",
        variable="CLAUDE_CONFIG_DIR",
        moved="projects",
        marks=(b'"subtype":"compact_boundary"',),
    ),
    *(
        LogLocation(
            tool="codex",
            below=f".codex/{folder}",
            variable="CODEX_HOME",
            moved=folder,
            marks=(b'"type":"compacted"',),
            starts=("rollout-",),
            endings=(".jsonl", ".jsonl.zst"),
            project=-1,
        )
        for folder in ("sessions", "archived_sessions")
    ),
    LogLocation(
        tool="gemini-cli", below=".gemini/tmp", endings=(".json", ".jsonl"), starts=("session-",)
    ),
    LogLocation(
        tool="opencode",
        below=".local/share/opencode/storage/session",
        endings=(".json",),
        variable="XDG_DATA_HOME",
        moved="opencode/storage/session",
        starts=("ses_",),
        copied="storage",
    ),
    LogLocation(
        tool="opencode",
        below=".local/share/opencode",
        endings=(".db",),
        variable="XDG_DATA_HOME",
        moved="opencode",
        starts=("opencode",),
        project=-1,
        depth=0,
    ),
    LogLocation(tool="pi", below=".pi/agent/sessions", marks=(b'"type":"compaction"',)),
    LogLocation(tool="openclaw", below=".openclaw/agents", marks=(b'"type":"compaction"',)),
    LogLocation(tool="fased", below=".fased/agents", marks=(b'"type":"compaction"',)),
    LogLocation(tool="ai", below=".ai/sessions", marks=(b'"type":"compaction"',)),
    LogLocation(
        tool="fuseraft",
        below=".fuseraft/logs",
        marks=(b'"compaction_occurred":true', b'"event_type":"compaction"'),
    ),
    LogLocation(tool="fuseraft", below=".fuseraft/sessions", endings=(".json", ".jsonl")),
    LogLocation(
        tool="fuseraft",
        below=".fuseraft/repl-sessions",
        endings=(".json",),
        starts=("repl-",),
        project=-1,
    ),
    LogLocation(tool="fuseraft", below=".fuseraft/snapshots", starts=("turns",)),
    LogLocation(tool="openhands", below=".openhands/sessions", endings=(".json", ".jsonl")),
    LogLocation(
        tool="openhands",
        below=".openhands/conversations",
        endings=(".json",),
        starts=("base_state",),
    ),
    LogLocation(
        tool="kimi-cli", below=".kimi/sessions", marks=(b'"type":"context.apply_compaction"',)
    ),
    *(
        LogLocation(
            tool=tool,
            below=f"{folder}/User/globalStorage/{extension}/tasks",
            endings=(".json",),
            starts=("api_conversation_history",),
            project=-1,
        )
        for folder in (".config/Code", "Library/Application Support/Code", "AppData/Roaming/Code")
        for tool, extension in (
            ("cline", "saoudrizwan.claude-dev"),
            ("roo", "rooveterinaryinc.roo-cline"),
        )
    ),
    LogLocation(
        tool="cline",
        below=".cline/data/tasks",
        endings=(".json",),
        starts=("api_conversation_history",),
        project=-1,
    ),
    LogLocation(
        tool="cline",
        below=".cline/data/sessions",
        endings=(".messages.json",),
        variable="CLINE_DATA_DIR",
        moved="sessions",
        project=-1,
    ),
    LogLocation(
        tool="qwen-code",
        below=".qwen/projects",
        marks=(b'"subtype":"chat_compression"',),
    ),
    LogLocation(
        tool="crush", below=".crush", endings=(".db",), starts=("crush",), project=-1, depth=0
    ),
    LogLocation(tool="hermes", below=".hermes/sessions", endings=(".json",), project=-1),
    LogLocation(
        tool="copilot-cli",
        below=".copilot/session-state",
        marks=(b'"type":"session.compaction_complete"',),
        project=-1,
    ),
    LogLocation(
        tool="goose",
        below=".local/share/goose/sessions",
        endings=(".db", ".jsonl"),
        variable="XDG_DATA_HOME",
        moved="goose/sessions",
        project=-1,
    ),
    LogLocation(tool="ctxkit", below=".ctxkit/sessions", project=-1),
    LogLocation(
        tool="aider", below="", endings=(".md",), starts=(".aider.chat.history",), project=-1
    ),
)
"""The places of tools that keep sessions on disk; below aider's, the home, nothing is searched."""

_MAX_SETTINGS_BYTES = 1 << 20
_AGE = re.compile(r"(\d{1,6})([hdwm])")
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}
_CLAUDE_CODE_DAYS = 30.0
"""Days without a change after which Claude Code deletes a session (`cleanupPeriodDays`)."""


def get_retention_days(tool: str, top: Path) -> float | None:
    """Return the days after the last change; None where the tool keeps sessions for good, or says
    nothing.

    Args:
        tool: its name, as `Place` has it.
        top: the folder of its sessions; its settings lie above.
    """
    if tool == "claude-code":
        days = _settings(top.parent / "settings.json").get("cleanupPeriodDays")
        return (
            float(days) if isinstance(days, (int, float)) and 0 <= days < 1e6 else _CLAUDE_CODE_DAYS
        )
    if tool == "gemini-cli":
        about = _settings(top.parent / "settings.json").get("general")
        kept = about.get("sessionRetention") if isinstance(about, dict) else None
        return _gemini(kept if isinstance(kept, dict) else {})
    return None


def _gemini(kept: dict[str, Any]) -> float | None:
    """Off unless `sessionRetention.enabled` is true (`docs/cli/session-management.md`)."""
    if kept.get("enabled") is not True:
        return None
    age = kept.get("maxAge")
    found = _AGE.fullmatch(age) if isinstance(age, str) else None
    return int(found[1]) * _DAYS[found[2]] if found else None


def _settings(file: Path) -> dict[str, Any]:
    """Return a settings file, which may have comments; an empty one where it cannot be read."""
    try:
        if file.stat().st_size > _MAX_SETTINGS_BYTES:
            return {}
        found = json5.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
