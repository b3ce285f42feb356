"""What is put together from files for an agent: a hand-off's block, a declared context's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.teams.rosters import ARTIFACT_CHARS, HISTORY_CHARS, ContextSource
from ctxkit.texts import trims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.teams.config_fields import Fields
    from ctxkit.teams.deeds import Deed

KINDS = ("session_context", "changes_recent", "brief_field", "file", "own_history")
RECENT = 3
"""Changes that `changes_recent` gives where it says no number (fuseraft's program)."""
SUMMARY_FILE = "context_summary.md"
"""What `session_context` reads, and the tool `session_context_write` writes."""
_CUT = "\n[...{n} chars truncated — use file tool to read in full]"
_READ = 1_000_000


def sources(rows: Sequence[Fields], where: str, *, own: bool) -> tuple[ContextSource, ...]:
    """Return declared sources; `own`: one's own history may be among them.

    Raises:
        BadArguments: there is no such source, or it does not belong there.
    """
    return tuple(_source(f, where, own=own) for f in rows)


def _source(f: Fields, where: str, *, own: bool) -> ContextSource:
    kind, _, argument = f.text("Source").strip().partition(":")
    if kind not in KINDS:
        raise BadArguments(
            f"{where}: there is no source {plain(kind, 40)!r}; there are {', '.join(KINDS)}."
            f"{did_you_mean(kind, KINDS)}"
        )
    if kind == "own_history" and not own:
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
            f"{where}: {kind} takes a number above 0 behind its colon, not {plain(argument, 40)!r}."
        )
    usual = HISTORY_CHARS if kind == "own_history" else ARTIFACT_CHARS
    return ContextSource(
        kind=kind, argument=argument, max_chars=f.number("MaxChars") or usual, label=f.text("Label")
    )


class Readable(Protocol):
    """A folder, or the record of one."""

    def read(self, name: str, most: int, /) -> bytes:
        """Return a file's bytes; StoreError where there is none."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """Where sources are read."""

    root: Readable
    brief: str
    changes: Sequence[Deed]


def handed(shelf: Shelf, declared: Sequence[ContextSource], agent: str) -> str:
    """Return the block of a hand-off; empty where its sources hold nothing."""
    return _block(f"[HANDOFF CONTEXT — assembled for {agent}]", shelf, declared)


def artifacts(shelf: Shelf, declared: Sequence[ContextSource]) -> str:
    """Return the block of a declared context; empty where its sources hold nothing."""
    files = [s for s in declared if s.kind != "own_history"]
    return _block("[AGENT CONTEXT — assembled from artifacts]", shelf, files)


def empty(shelf: Shelf, declared: Sequence[ContextSource]) -> tuple[str, ...]:
    """Return the sources that hold nothing, as they are written."""
    return tuple(s.name for s in declared if s.kind != "own_history" and not _text(shelf, s))


def _block(head: str, shelf: Shelf, declared: Sequence[ContextSource]) -> str:
    parts = []
    for source in declared:
        text = _text(shelf, source)
        if text:
            text = trims.cut(text, source.max_chars, _CUT)
            parts.append(f"\n\n## {source.label or _label(source)}\n{text}")
    return head + "".join(parts) if parts else ""


def _label(source: ContextSource) -> str:
    if source.kind == "file":
        return source.argument.replace("\\", "/").rsplit("/", 1)[-1]
    if source.kind == "brief_field":
        return f"Task: {source.argument}"
    return {"session_context": "Session Context", "changes_recent": "Recent Changes"}[source.kind]


def _text(shelf: Shelf, source: ContextSource) -> str:
    """Return what a source holds now, without keys; empty where it is not there."""
    if source.kind == "changes_recent":
        return "\n".join(c.text for c in list(shelf.changes)[-int(source.argument or RECENT) :])
    if source.kind == "brief_field":
        return _field(brief(shelf.root, shelf.brief), source.argument)
    path = SUMMARY_FILE if source.kind == "session_context" else source.argument
    return read_text(shelf.root, path).strip()


def _field(found: dict[str, Any], name: str) -> str:
    value = found.get(name, found.get(name.lower()))
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value, ensure_ascii=False)


def brief(root: Readable, path: str) -> dict[str, Any]:
    """Return the brief, a JSON object that an agent writes; empty where there is none."""
    return read_json(root, path) or {}


def read_json(root: Readable, path: str) -> dict[str, Any] | None:
    """Return a JSON object of the team's folder; None where there is no such one."""
    try:
        value = json.loads(read_text(root, path))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_text(root: Readable, path: str) -> str:
    """Return a text of the team's folder, at most a million bytes; empty where unreadable."""
    try:
        return root.read(path, _READ).decode("utf-8", "replace")
    except StoreError:
        return ""
