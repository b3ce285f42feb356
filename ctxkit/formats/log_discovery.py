"""Discovery of the session logs of known tools on this machine, with each tool's retention."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_text
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


__all__ = ["DISCOVERY_COLUMNS", "LOG_LOCATIONS", "LogLocation", "discover"]
__dir__ = make_dunder_dir(__all__)


# Every location is a folder with known suffixes and prefixes of file names. It is walked without
# following links, to a bounded depth; of each file only the first _PEEK_BYTES are read, which hold
# a small log whole (exact counts) or allow an extrapolation from the size (estimates). The
# retention of a tool is read once per location from its settings.
_PEEK_BYTES = 64 << 10
"""Bytes read from the start of each file."""
_MAX_FILES = 100_000
"""Largest number of files listed; the frame's `attrs` say if there are more."""
_SKIPPED_FILES = {
    "index.json",
    "changes.json",
    "intents.json",
    "evidence.json",
    "brief.json",
    "read_cache.json",
}
_FOLDER_MARKERS = {"base_state.json", "api_conversation_history.json"}
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
"""The columns of `discover`.

`messages` is the number of lines: counted in files of at most 64 KiB (`messages_source` is
recorded), extrapolated from the first 64 KiB in larger ones (estimated), missing for files that are
not lines. `compactions` is known only for files that were read whole. `keeps_days` is the number of
days after its last change for which the tool keeps a session, from the tool's settings or its
default; missing if it keeps sessions for good or its policy is unknown. `goes` is the time at which
the session becomes due for deletion."""


def discover(home: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """List the session logs of known tools below a home directory, the newest first.

    At most the first 64 KiB of a file are read; links are not followed.

    Args:
        home: the home directory; None: this user's, with the environment variables that move a
            tool's folder (`CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `XDG_DATA_HOME`).

    Returns:
        One row per file, with the columns of `DISCOVERY_COLUMNS`; `.attrs["truncated"]` is True if
        there are more than 100,000. `ck.discover().sort_values("goes")` shows what is deleted next;
        `ck.keep(folder)` copies sessions before that.

    Raises:
        BadArguments: `home` is no path.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as home:
        ...     log = Path(home, ".claude/projects/app/session.jsonl")
        ...     log.parent.mkdir(parents=True)
        ...     _ = log.write_text('{"type": "user"}' + chr(10))
        ...     frame = discover(home)
        >>> frame[["tool", "project", "messages", "keeps_days"]].values.tolist()
        [['claude-code', 'app', 1, 30.0]]
    """
    import pandas as pd

    from ctxkit._internal.data_frame_display import (
        DisplayColumn,
        FramePreviewRenderer,
        with_display,
    )

    if home is not None and "\0" in os.fspath(home):
        raise BadArguments("A home directory is a path, without NUL characters.")
    rows = list(islice(_iter_rows(home), _MAX_FILES))
    values_by_column: dict[str, Any] = {
        name: [row[name] for row in rows] for name in DISCOVERY_COLUMNS
    }
    for name in ("modified", "goes"):
        times = pd.to_datetime(values_by_column[name], unit="s", utc=True, errors="coerce")
        values_by_column[name] = times.as_unit("ns")
    frame = pd.DataFrame(values_by_column).astype(DISCOVERY_COLUMNS)
    frame = frame.sort_values("modified", ascending=False, ignore_index=True, kind="stable")
    frame.attrs["truncated"] = len(rows) >= _MAX_FILES
    columns = tuple(DisplayColumn(*column) for column in _SHOWN_COLUMNS)
    return with_display(frame, FramePreviewRenderer(columns, _describe_discovery))


_SHOWN_COLUMNS = (
    ("modified", "changed", "when"),
    ("tool", "tool"),
    ("project", "project"),
    ("size_bytes", "bytes", "count"),
    ("messages", "messages", "count", "lines of the file; of a large one an estimate"),
    ("compactions", "compactions", "count", "known of files that were read whole", True),
    ("goes", "deleted", "when", "when its tool deletes it; empty: never, or unknown"),
    ("path", "file"),
)
_SOON_DAYS = 7
"""Number of days before a deletion from which it is announced."""


def _describe_discovery(frame: pd.DataFrame) -> str:
    """Return in a sentence how many sessions there are, and how many go soon."""
    import pandas as pd

    if frame.empty:
        return "No session of a known tool is on this machine."
    days = (frame["goes"] - pd.Timestamp.now(tz="UTC")).dt.total_seconds() / 86_400
    soon = int((days < _SOON_DAYS).sum())
    tools = frame["tool"].value_counts()
    by_tool = ", ".join(f"{n:,} of {tool}" for tool, n in tools.items())
    going = (
        f" {soon:,} will be deleted within {_SOON_DAYS} days: ck.keep(folder) copies them before."
        if soon
        else ""
    )
    return f"{pluralize(len(frame), 'session')}: {by_tool}.{going}"


def _iter_rows(home: str | os.PathLike[str] | None) -> Iterator[dict[str, Any]]:
    for location, entry, folders, retention_days in _iter_files_with_retention(home):
        row = _make_row(location, entry, folders)
        if row is not None:
            expires = None if retention_days is None else row["modified"] + retention_days * 86_400
            yield {**row, "keeps_days": retention_days, "goes": expires}


def iter_session_files(
    home: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[LogLocation, os.DirEntry[str], tuple[str, ...]]]:
    """Yield (location, file, names of the folders between) for known tools; no file is opened."""
    return (
        (location, entry, folders)
        for location, entry, folders, _ in _iter_files_with_retention(home)
    )


def _iter_files_with_retention(
    home: str | os.PathLike[str] | None,
) -> Iterator[tuple[LogLocation, os.DirEntry[str], tuple[str, ...], float | None]]:
    """Yield (location, file, folders between, days of retention)."""
    for location, folder in iter_location_folders(home):
        retention_days = _get_retention_days(location.tool, folder)
        for entry, folders in _iter_files(folder, location):
            yield location, entry, folders, retention_days


def iter_location_folders(
    home: str | os.PathLike[str] | None,
) -> Iterator[tuple[LogLocation, Path]]:
    """Yield each known location with its folder, whether that exists or not."""
    for location in LOG_LOCATIONS:
        for folder in _location_folders(location, home):
            yield location, folder


def get_location_project(location: LogLocation, folders: tuple[str, ...]) -> str | None:
    """Return a project's name from a log's path; None where the location has no folder for it.

    Args:
        location: a place of logs; it says which folder below it names the project.
        folders: the folders between the location and the file.
    """
    name = folders[location.project_level] if 0 <= location.project_level < len(folders) else None
    return sanitize_text(name, 200) if name else None


def _location_folders(location: LogLocation, home: str | os.PathLike[str] | None) -> list[Path]:
    base_folder = os.environ.get(location.variable) if location.variable and home is None else None
    if base_folder:
        return [Path(base_folder).expanduser() / location.below_variable]
    home_folder = Path(home) if home is not None else Path.home()
    if location.tool in ("aider", "crush", "ctxkit") and home is None:
        return list(dict.fromkeys([home_folder / location.below, Path.cwd() / location.below]))
    return [home_folder / location.below]


def _iter_files(
    top: Path, location: LogLocation
) -> Iterator[tuple[os.DirEntry[str], tuple[str, ...]]]:
    """Yield the session files of a location with the folders between; links are not followed."""
    pending: list[tuple[str, tuple[str, ...]]] = [(str(top), ())]
    while pending:
        folder, subfolders = pending.pop()
        try:
            with os.scandir(folder) as entries:
                folder_entries = list(entries)
        except OSError:
            continue  # missing or not readable: nothing to list
        for entry in folder_entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if location.below and len(subfolders) < location.max_depth:
                        pending.append((entry.path, (*subfolders, entry.name)))
                elif entry.is_file(follow_symlinks=False) and _is_session_file(
                    entry.name, location
                ):
                    yield entry, subfolders
            except OSError:
                continue


def _is_session_file(name: str, location: LogLocation) -> bool:
    if not name.endswith(location.suffixes) or name in _SKIPPED_FILES:
        return False
    return not location.prefixes or name.startswith(location.prefixes)


def _make_row(
    location: LogLocation, entry: os.DirEntry[str], folders: tuple[str, ...]
) -> dict[str, Any] | None:
    try:
        stat = entry.stat(follow_symlinks=False)
        with open(entry.path, "rb") as file:  # noqa: PTH123  a Path apiece costs as much as the reading
            start = file.read(_PEEK_BYTES)
    except OSError:
        return None
    is_whole = len(start) >= stat.st_size
    has_lines = entry.name.endswith((".jsonl", ".md"))
    counts_compactions = is_whole and has_lines and bool(location.compaction_markers)
    messages, source = (
        _count_messages(start, stat.st_size, is_whole=is_whole) if has_lines else (None, None)
    )
    path = os.path.dirname(entry.path) if entry.name in _FOLDER_MARKERS else entry.path  # noqa: PTH120  as above
    return {
        "tool": location.tool,
        "project": get_location_project(location, folders),
        "path": sanitize_text(path),
        "modified": stat.st_mtime,
        "size_bytes": stat.st_size,
        "messages": messages,
        "messages_source": source,
        "compactions": sum(map(start.count, location.compaction_markers))
        if counts_compactions
        else None,
    }


def _count_messages(start: bytes, size: int, *, is_whole: bool) -> tuple[int | None, str | None]:
    n_lines = start.count(b"\n")
    if is_whole:
        return n_lines + (not start.endswith(b"\n") and bool(start)), "recorded"
    return (round(n_lines * size / len(start)), "estimated") if n_lines else (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLocation:
    """A folder in which a tool stores its sessions."""

    tool: str
    below: str
    """The folder, relative to the home directory."""
    suffixes: tuple[str, ...] = (".jsonl",)
    """Suffixes of session files."""
    variable: str = ""
    """The environment variable that replaces the home directory."""
    below_variable: str = ""
    """The folder, relative to the variable's value."""
    compaction_markers: tuple[bytes, ...] = ()
    """Byte strings that occur once per compaction; empty if compactions cannot be counted so."""
    prefixes: tuple[str, ...] = ()
    """Prefixes of session files; empty: any name."""
    project_level: int = 0
    """Index of the project's folder among those below the location; -1: none."""
    max_depth: int = 8
    """How many levels of folders are searched."""
    archived_folder: str = ""
    """Name of the ancestor folder to archive, for tools that store text beside the session file."""


LOG_LOCATIONS = (
    LogLocation(
        tool="claude-code",
        below=".claude/projects",
        variable="CLAUDE_CONFIG_DIR",
        below_variable="projects",
        compaction_markers=(b'"subtype":"compact_boundary"',),
    ),
    *(
        LogLocation(
            tool="codex",
            below=f".codex/{folder}",
            variable="CODEX_HOME",
            below_variable=folder,
            compaction_markers=(b'"type":"compacted"',),
            prefixes=("rollout-",),
            suffixes=(".jsonl", ".jsonl.zst"),
            project_level=-1,
        )
        for folder in ("sessions", "archived_sessions")
    ),
    LogLocation(
        tool="gemini-cli",
        below=".gemini/tmp",
        suffixes=(".json", ".jsonl"),
        prefixes=("session-",),
    ),
    LogLocation(
        tool="opencode",
        below=".local/share/opencode/storage/session",
        suffixes=(".json",),
        variable="XDG_DATA_HOME",
        below_variable="opencode/storage/session",
        prefixes=("ses_",),
        archived_folder="storage",
    ),
    LogLocation(
        tool="opencode",
        below=".local/share/opencode",
        suffixes=(".db",),
        variable="XDG_DATA_HOME",
        below_variable="opencode",
        prefixes=("opencode",),
        project_level=-1,
        max_depth=0,
    ),
    LogLocation(
        tool="pi", below=".pi/agent/sessions", compaction_markers=(b'"type":"compaction"',)
    ),
    LogLocation(
        tool="openclaw", below=".openclaw/agents", compaction_markers=(b'"type":"compaction"',)
    ),
    LogLocation(tool="fased", below=".fased/agents", compaction_markers=(b'"type":"compaction"',)),
    LogLocation(tool="ai", below=".ai/sessions", compaction_markers=(b'"type":"compaction"',)),
    LogLocation(
        tool="fuseraft",
        below=".fuseraft/logs",
        compaction_markers=(b'"compaction_occurred":true', b'"event_type":"compaction"'),
    ),
    LogLocation(tool="fuseraft", below=".fuseraft/sessions", suffixes=(".json", ".jsonl")),
    LogLocation(
        tool="fuseraft",
        below=".fuseraft/repl-sessions",
        suffixes=(".json",),
        prefixes=("repl-",),
        project_level=-1,
    ),
    LogLocation(tool="fuseraft", below=".fuseraft/snapshots", prefixes=("turns",)),
    LogLocation(tool="openhands", below=".openhands/sessions", suffixes=(".json", ".jsonl")),
    LogLocation(
        tool="openhands",
        below=".openhands/conversations",
        suffixes=(".json",),
        prefixes=("base_state",),
    ),
    LogLocation(
        tool="kimi-cli",
        below=".kimi/sessions",
        compaction_markers=(b'"type":"context.apply_compaction"',),
    ),
    *(
        LogLocation(
            tool=tool,
            below=f"{folder}/User/globalStorage/{extension}/tasks",
            suffixes=(".json",),
            prefixes=("api_conversation_history",),
            project_level=-1,
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
        suffixes=(".json",),
        prefixes=("api_conversation_history",),
        project_level=-1,
    ),
    LogLocation(
        tool="cline",
        below=".cline/data/sessions",
        suffixes=(".messages.json",),
        variable="CLINE_DATA_DIR",
        below_variable="sessions",
        project_level=-1,
    ),
    LogLocation(
        tool="qwen-code",
        below=".qwen/projects",
        compaction_markers=(b'"subtype":"chat_compression"',),
    ),
    LogLocation(
        tool="crush",
        below=".crush",
        suffixes=(".db",),
        prefixes=("crush",),
        project_level=-1,
        max_depth=0,
    ),
    LogLocation(tool="hermes", below=".hermes/sessions", suffixes=(".json",), project_level=-1),
    LogLocation(
        tool="copilot-cli",
        below=".copilot/session-state",
        compaction_markers=(b'"type":"session.compaction_complete"',),
        project_level=-1,
    ),
    LogLocation(
        tool="goose",
        below=".local/share/goose/sessions",
        suffixes=(".db", ".jsonl"),
        variable="XDG_DATA_HOME",
        below_variable="goose/sessions",
        project_level=-1,
    ),
    LogLocation(tool="ctxkit", below=".ctxkit/sessions", project_level=-1),
    LogLocation(
        tool="aider",
        below="",
        suffixes=(".md",),
        prefixes=(".aider.chat.history",),
        project_level=-1,
    ),
)
"""Locations of the tools that store sessions on disk. Aider's is the home folder, whose subfolders
are not searched."""

_MAX_SETTINGS_BYTES = 1 << 20
_AGE_PATTERN = re.compile(r"(\d{1,6})([hdwm])")
_DAYS_PER_UNIT = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}
_CLAUDE_CODE_DAYS = 30.0
"""Claude Code's default of `cleanupPeriodDays`: days without a change before deletion."""


def _get_retention_days(tool: str, folder: Path) -> float | None:
    """Return for how many days after its last change a tool keeps a session.

    Args:
        tool: the tool's name, as in `LogLocation`.
        folder: the folder of its sessions, whose parent has the settings.

    Returns:
        Days; None if the tool keeps sessions for good or its policy is unknown.
    """
    if tool == "claude-code":
        setting = _read_settings(folder.parent / "settings.json").get("cleanupPeriodDays")
        return (
            float(setting)
            if isinstance(setting, (int, float)) and 0 <= setting < 1e6
            else _CLAUDE_CODE_DAYS
        )
    if tool == "gemini-cli":
        general = _read_settings(folder.parent / "settings.json").get("general")
        retention = general.get("sessionRetention") if isinstance(general, dict) else None
        return _parse_gemini_retention(retention if isinstance(retention, dict) else {})
    return None


def _parse_gemini_retention(retention: dict[str, Any]) -> float | None:
    """Return the days of Gemini CLI's `sessionRetention`, which is off unless `enabled` is true."""
    if retention.get("enabled") is not True:
        return None
    age = retention.get("maxAge")
    match = _AGE_PATTERN.fullmatch(age) if isinstance(age, str) else None
    return int(match[1]) * _DAYS_PER_UNIT[match[2]] if match else None


def _read_settings(file: Path) -> dict[str, Any]:
    """Read a settings file (JSON with comments); an unreadable one is empty."""
    import json5

    try:
        if file.stat().st_size > _MAX_SETTINGS_BYTES:
            return {}
        settings = json5.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}
