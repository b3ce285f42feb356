"""Tools by which an agent keeps its brief and a session summary as files, as fuseraft's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, StoreError
from ctxkit.redaction import redact, redacted
from ctxkit.tools.tool import Tool, kit_tool

if TYPE_CHECKING:
    from collections.abc import Callable

BRIEF, SUMMARY = "brief.json", "context_summary.md"
MOST_READ = 8_000
"""Characters of the summary that are read (fuseraft's `SessionContextPlugin.cs`)."""
MOST_KEPT = 200_000


def described() -> tuple[Tool, ...]:
    """Return the tools as a model is told of them; they keep nothing."""
    return work_tools(lambda _, __: None, lambda _: "")


def work_tools(keep: Callable[[str, str], None], held: Callable[[str], str]) -> tuple[Tool, ...]:
    """Return the tools.

    Args:
        keep: writes a file of the session's work, by name and text.
        held: returns the text of one; empty where there is none.
    """

    def session_context_write(text: str) -> str:
        """Write what whoever goes on must know; it takes the place of what was written before."""
        if len(text) > MOST_KEPT:
            raise BadArguments(f"Write at most {MOST_KEPT:,} characters.")
        keep(SUMMARY, redact(text))
        return f"Kept {len(text):,} characters."

    def session_context_read() -> str:
        """Read what was written by session_context_write."""
        text = held(SUMMARY)
        more = len(text) - MOST_READ
        return (
            text if more <= 0 else f"{text[:MOST_READ]}\n[{more:,} characters more]"
        ) or "(nothing)"

    def brief_write(brief: str) -> str:
        """Write the brief of the task as a JSON object: goal, files_to_change, verify_command,
        execution_checklist, acceptance_criteria, constraints, and what else is needed.
        """
        if len(brief) > MOST_KEPT:
            raise BadArguments(f"Write at most {MOST_KEPT:,} characters.")
        try:
            told = redacted(json.loads(brief))
            text = json.dumps(told, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError) as e:
            raise BadArguments(f"The brief is no JSON that can be kept: {str(e)[:120]}.") from None
        if not isinstance(told, dict):
            raise BadArguments("The brief is a JSON object: name its fields.")
        keep(BRIEF, text)
        return f"Kept {', '.join(map(str, told))[:300]}."

    def brief_read(field: str = "") -> str:
        """Read the brief, or one field of it."""
        text = held(BRIEF)
        if not text:
            return "(nothing)"
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            raise StoreError("The brief on disk is no JSON: write it anew.") from None
        return brief_field(told, field) if field else text[:MOST_KEPT]

    made = (session_context_write, session_context_read, brief_write, brief_read)
    return tuple(kit_tool(each) for each in made)


def brief_field(brief: object, field: str) -> str:
    """Return a field of a brief: under its name, else in lower case; what is no text as JSON.

    Raises:
        BadArguments: it has none of that name.
    """
    held = brief if isinstance(brief, dict) else {}
    for name in (field, field.lower()):
        if name in held:
            value = held[name]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    raise BadArguments(
        f"The brief has no field {field[:80]!r}; it has {', '.join(map(str, held))[:300]}."
    )
