"""Hand-offs between agents: context blocks made of files, tools to hand on, and ends of turns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit._internal.redaction import redact
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.texts import message_content
from ctxkit.session.messages import get_plain_text
from ctxkit.teams.contract_checks import ReadableFolder, read_json, read_text
from ctxkit.teams.plan import OWN_HISTORY_CHARS, SOURCE_CHARS, ContextSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.presets.config_schema import ConfigSection
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session
    from ctxkit.teams.contract_checks import TurnChanges


SOURCE_KINDS = ("session_context", "changes_recent", "brief_field", "file", "own_history")
SUMMARY_FILE = "context_summary.md"
"""File that the source `session_context` reads and the tool `session_context_write` writes."""
_TRUNCATED_SOURCE = "\n[...{n} chars truncated — use file tool to read in full]"


def parse_context_sources(
    rows: Sequence[ConfigSection], where: str, *, allow_own: bool
) -> tuple[ContextSource, ...]:
    """Return declared sources; `allow_own`: the agent's own history may be among them.

    Args:
        rows: of `Context`, `HandoffContext` or a view.
        where: what they belong to, for the error's sentence.
        allow_own: the agent's own history may be among them.

    Returns:
        The sources in the order of the config, with their limits in characters.

    Raises:
        BadArguments: there is no such source, or it is not allowed there.
    """
    return tuple(_parse_source(f, where, allow_own=allow_own) for f in rows)


def _parse_source(f: ConfigSection, where: str, *, allow_own: bool) -> ContextSource:
    kind, _, argument = f.text("Source").strip().partition(":")
    if kind not in SOURCE_KINDS:
        raise BadArguments(
            f"{where}: there is no source {sanitize_text(kind, 40)!r}; there are "
            f"{', '.join(SOURCE_KINDS)}."
            f"{did_you_mean(kind, SOURCE_KINDS)}"
        )
    if kind == "own_history" and not allow_own:
        raise BadArguments(
            f"{where}: own_history is no part of a hand-off, as its reader is not its author: "
            "put it into the Context of the agent that receives."
        )
    if kind in ("brief_field", "file") and not argument:
        raise BadArguments(f"{where}: {kind} needs a name behind a colon, such as {kind}:NAME.")
    if (
        kind in ("changes_recent", "own_history")
        and argument
        and not re.fullmatch(r"[1-9]\d{0,5}", argument)
    ):
        raise BadArguments(
            f"{where}: {kind} takes a number above 0 behind its colon, not "
            f"{sanitize_text(argument, 40)!r}."
        )
    default_chars = OWN_HISTORY_CHARS if kind == "own_history" else SOURCE_CHARS
    return ContextSource(
        kind=kind,
        argument=argument,
        max_chars=f.number("MaxChars") or default_chars,
        label=f.text("Label"),
    )


@dataclass(frozen=True, kw_only=True)
class SourceFilesAndChanges:
    """Files and changes from which sources are read."""

    root: ReadableFolder
    brief: str
    changes: Sequence[TurnChanges]


def format_handoff(
    files: SourceFilesAndChanges, sources: Sequence[ContextSource], agent: str
) -> str:
    """Return the block of a hand-off; empty if its sources are.

    Args:
        files: the team's folder, its brief and its changes so far.
        sources: of the hand-off, as declared.
        agent: that gets it.

    Returns:
        A heading, and a part for each source that is not empty, cut to its characters.
    """
    return _format_block(f"[HANDOFF CONTEXT — assembled for {agent}]", files, sources)


def format_declared_context(
    source_files: SourceFilesAndChanges, sources: Sequence[ContextSource]
) -> str:
    """Return the block of a declared context; empty if its sources are.

    Args:
        source_files: the team's folder, its brief and its changes so far.
        sources: as declared; `own_history` is no part of the block.

    Returns:
        A heading, and a part for each source that is not empty, cut to its characters.
    """
    files = [s for s in sources if s.kind != "own_history"]
    return _format_block("[AGENT CONTEXT — assembled from artifacts]", source_files, files)


def list_empty_sources(
    files: SourceFilesAndChanges, sources: Sequence[ContextSource]
) -> tuple[str, ...]:
    """Return the names of the empty sources, as in the config.

    Args:
        files: the team's folder, its brief and its changes so far.
        sources: as declared; own history is not looked at.

    Returns:
        Names such as `brief_field:goal`.
    """
    return tuple(s.name for s in sources if s.kind != "own_history" and not _read_source(files, s))


def _format_block(head: str, files: SourceFilesAndChanges, sources: Sequence[ContextSource]) -> str:
    parts = []
    for source in sources:
        text = _read_source(files, source)
        if text:
            text = message_content.truncate_end(text, source.max_chars, _TRUNCATED_SOURCE)
            parts.append(f"\n\n## {source.label or _source_label(source)}\n{text}")
    return head + "".join(parts) if parts else ""


def _source_label(source: ContextSource) -> str:
    if source.kind == "file":
        return source.argument.replace("\\", "/").rsplit("/", 1)[-1]
    if source.kind == "brief_field":
        return f"Task: {source.argument}"
    return {"session_context": "Session Context", "changes_recent": "Recent Changes"}[source.kind]


def _read_source(files: SourceFilesAndChanges, source: ContextSource) -> str:
    """Return the current text of a source, redacted; empty if it does not exist."""
    if source.kind == "changes_recent":
        # without a number all, as fuseraft documents it (its program takes three)
        return "\n".join(c.text for c in list(files.changes)[-int(source.argument or 0) :])
    if source.kind == "brief_field":
        return _brief_field(read_brief(files.root, files.brief), source.argument)
    path = SUMMARY_FILE if source.kind == "session_context" else source.argument
    return read_text(files.root, path).strip()


def _brief_field(brief: dict[str, Any], name: str) -> str:
    value = brief.get(name, brief.get(name.lower()))
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value, ensure_ascii=False)


def read_brief(root: ReadableFolder, path: str) -> dict[str, Any]:
    """Return the brief, a JSON object that an agent writes; empty if there is none."""
    return read_json(root, path) or {}


HANDOFF_TOOL = "handoff"


def handoff(route_keyword: str) -> str:
    """Hand the work on with one of the signals that were named; end your turn after it."""
    return f"Noted: {route_keyword}. End your turn now."


NO_CHANGES = "Nobody has written a file or run a command yet."
_MAX_CHANGES = 200
"""Turns of the change log that are returned at once, the newest."""


def make_team_tools(
    root: RootFolder,
    *,
    by_call: bool,
    summary: bool,
    changes: Callable[[], Sequence[TurnChanges]] | None = None,
) -> list[Tool]:
    """Return the tools of one agent.

    Args:
        root: the team's folder.
        by_call: the agent may hand off by a tool call.
        summary: the team's sources read the summary.
        changes: returns the team's changes so far; None: the agent has no tool to read them.

    Returns:
        Tools besides those of the agent's plugins; none write outside of the summary's file.
    """

    def session_context_write(text: str) -> str:
        """Write the summary that the next agent is handed, in place of the last one."""
        root.write(SUMMARY_FILE, text.encode())
        return "Written."

    def changes_read_latest(count: int = 1) -> str:
        """Read the newest entries of the change log: what each turn wrote and ran, and how it
        ended.
        """
        return _format_changes(changes, count)

    def changes_read() -> str:
        """Read the change log: what each turn wrote and ran, and how it ended."""
        return _format_changes(changes, _MAX_CHANGES)

    tools = [tool(handoff)] if by_call else []
    tools += [tool(session_context_write)] if summary else []
    return [*tools, tool(changes_read_latest), tool(changes_read)] if changes else tools


def _format_changes(changes: Callable[[], Sequence[TurnChanges]] | None, count: int) -> str:
    entries = list(changes() if changes is not None else ())[-min(max(count, 1), _MAX_CHANGES) :]
    return redact("\n".join(entry.text for entry in entries)) or NO_CHANGES


def is_turn_finished(session: Session, turn: int) -> bool:
    """Return True if a turn of an agent's session was finished.

    Args:
        session: of one agent.
        turn: number of the turn in it.

    Returns:
        False for a turn that was interrupted, has open calls, or ended at the length limit.
    """
    messages = [m for m in session.messages if m.turn == turn and m.visible]
    return (
        bool(messages)
        and messages[-1].role == "assistant"
        and not messages[-1].tool_calls
        and messages[-1].stop != "length"
    )


def get_last_reply(messages: Sequence[Message]) -> str:
    """Return the text of the last reply.

    Args:
        messages: of an agent's session.

    Returns:
        The newest visible text of role `assistant`, without its thinking; empty if there is none.
    """
    return next(
        (get_plain_text(m) for m in reversed(messages) if m.role == "assistant" and m.visible), ""
    )


def find_called_signals(messages: Sequence[Message]) -> list[str]:
    """Return the signals that were given by tool calls.

    Args:
        messages: of one turn.

    Returns:
        The signal of the last call of the hand-off tool; empty without such a call.
    """
    calls = [c for m in messages for c in m.tool_calls if c.name == HANDOFF_TOOL]
    return [str(c.arguments.get("route_keyword", "")) for c in calls[-1:]]
