"""Where tools keep their sessions."""

from __future__ import annotations

from dataclasses import dataclass


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
    depth: int = 8
    """How many folders below it are looked into."""
    copied: str = ""
    """The folder above it that is kept as a whole, where a session's text lies beside it."""


PLACES = (
    Place(
        tool="claude-code",
        below=".claude/projects",
        variable="CLAUDE_CONFIG_DIR",
        moved="projects",
        marks=(b'"subtype":"compact_boundary"',),
    ),
    *(
        Place(
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
    Place(
        tool="gemini-cli", below=".gemini/tmp", endings=(".json", ".jsonl"), starts=("session-",)
    ),
    Place(
        tool="opencode",
        below=".local/share/opencode/storage/session",
        endings=(".json",),
        variable="XDG_DATA_HOME",
        moved="opencode/storage/session",
        starts=("ses_",),
        copied="storage",
    ),
    Place(
        tool="opencode",
        below=".local/share/opencode",
        endings=(".db",),
        variable="XDG_DATA_HOME",
        moved="opencode",
        starts=("opencode",),
        project=-1,
        depth=0,
    ),
    Place(tool="pi", below=".pi/agent/sessions", marks=(b'"type":"compaction"',)),
    Place(tool="openclaw", below=".openclaw/agents", marks=(b'"type":"compaction"',)),
    Place(tool="fased", below=".fased/agents", marks=(b'"type":"compaction"',)),
    Place(tool="ai", below=".ai/sessions", marks=(b'"type":"compaction"',)),
    Place(
        tool="fuseraft",
        below=".fuseraft/logs",
        marks=(b'"compaction_occurred":true', b'"event_type":"compaction"'),
    ),
    Place(tool="fuseraft", below=".fuseraft/sessions", endings=(".json", ".jsonl")),
    Place(
        tool="fuseraft",
        below=".fuseraft/repl-sessions",
        endings=(".json",),
        starts=("repl-",),
        project=-1,
    ),
    Place(tool="fuseraft", below=".fuseraft/snapshots", starts=("turns",)),
    Place(tool="openhands", below=".openhands/sessions", endings=(".json", ".jsonl")),
    Place(
        tool="openhands",
        below=".openhands/conversations",
        endings=(".json",),
        starts=("base_state",),
    ),
    Place(tool="kimi-cli", below=".kimi/sessions", marks=(b'"type":"context.apply_compaction"',)),
    *(
        Place(
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
    Place(
        tool="cline",
        below=".cline/data/tasks",
        endings=(".json",),
        starts=("api_conversation_history",),
        project=-1,
    ),
    Place(
        tool="cline",
        below=".cline/data/sessions",
        endings=(".messages.json",),
        variable="CLINE_DATA_DIR",
        moved="sessions",
        project=-1,
    ),
    Place(
        tool="qwen-code",
        below=".qwen/projects",
        marks=(b'"subtype":"chat_compression"',),
    ),
    Place(tool="crush", below=".crush", endings=(".db",), starts=("crush",), project=-1, depth=0),
    Place(tool="hermes", below=".hermes/sessions", endings=(".json",), project=-1),
    Place(
        tool="copilot-cli",
        below=".copilot/session-state",
        marks=(b'"type":"session.compaction_complete"',),
        project=-1,
    ),
    Place(
        tool="goose",
        below=".local/share/goose/sessions",
        endings=(".db", ".jsonl"),
        variable="XDG_DATA_HOME",
        moved="goose/sessions",
        project=-1,
    ),
    Place(tool="ctxkit", below=".ctxkit/sessions", project=-1),
    Place(tool="aider", below="", endings=(".md",), starts=(".aider.chat.history",), project=-1),
)
"""The places of tools that keep sessions on disk; below aider's, the home, nothing is searched."""
