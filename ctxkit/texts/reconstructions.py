"""Texts that stand for old messages without a model: intents, evidence, a marker of failure
(fuseraft's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.texts import contents, records, standings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.texts.records import Action

NOTE = (
    "RESUMPTION NOTE: made from the record of tool calls, not by a model.\n"
    "Do not run operations marked ✓ again.\n"
    "Operations marked ✗ failed: try them again where the task needs them."
)
EVIDENCE_LIMIT = 20
"""Items of evidence that are listed, newest first."""
SNIPPET = 400
"""Characters of a failed command's output that are shown."""


def covers(name: str, turns: Sequence[int]) -> str:
    """Return a heading with the turns it covers, counted from 1."""
    first, last = (min(turns) + 1, max(turns) + 1) if turns else (1, 1)
    return f"[{name} — covers turns {first}–{last}]"


def intents(
    messages: Sequence[Message], turns: Sequence[int], agent: str = "main", *, quirks: bool = False
) -> str:
    """Return a line for each tool call: what was asked, of what, and how it ended."""
    acts = records.actions(messages, turns, agent)
    rows = [covers("INTENT-DERIVED RECONSTRUCTION", turns), "", "OPERATIONS (chronological):"]
    rows += [records.intent(a, quirks=quirks) for a in acts] or [
        "  (no tracked tool calls recorded in this range)"
    ]
    rows += [
        f"WARNING: {a.tool} has no recorded outcome; look before you repeat it."
        for a in acts
        if a.outcome == "pending"
    ]
    return "\n".join([*rows, "", NOTE])


def evidence_before(history: History, before: int) -> str:
    """Return the evidence of all that was done before a position, whatever was compacted since."""
    return evidence(records.done_before(history, before), standings.newest(history.said))


def evidence(acts: Sequence[Action], standing: Mapping[str, Any] | None = None) -> str:
    """Return what the record proves: where a state machine stands and which contracts hold, files
    written, commands with their exit status, failures still open.

    Args:
        acts: what was done.
        standing: of the team that the agent belongs to (see `standings`); None: of no team.
    """
    blocks = ["[CONTEXT RECONSTRUCTION — derived from durable evidence, not summarised by LLM]"]
    blocks += standings.blocks(standing or {})
    written = records.files_written(acts)
    if written:
        blocks.append("\n".join(["FILES WRITTEN", *(f"  {p}" for p in written)]))
    recent = [a for a in reversed(acts) if a.outcome != "pending"]
    if recent:
        lines = [row for a in recent[:EVIDENCE_LIMIT] for row in _evidence(a)]
        more = (
            [f"  ... and {len(recent) - EVIDENCE_LIMIT} older"]
            if len(recent) > EVIDENCE_LIMIT
            else []
        )
        blocks.append("\n".join(["RECENT EVIDENCE", *lines, *more]))
    failures = records.open_failures(acts)
    if failures:
        blocks.append("\n".join(["OPEN FAILURES", *(records.intent(a) for a in failures)]))
    return "\n\n".join([*blocks, NOTE])


def _evidence(action: Action) -> list[str]:
    name = contents.one_line(action.target, 120)
    status = "" if action.exit is None else f" [exit {action.exit}]"
    head = (
        f"  {records.MARKS[action.outcome]} {action.tool}{f' {name}' if name else ''}{status} (turn"
        f" {action.turn + 1})"
    )
    shown = action.outcome == "failed" and records.SHELLS.search(action.tool) and action.output
    return [head, f"    {contents.one_line(action.output, SNIPPET)}"] if shown else [head]


def failure(turns: Sequence[int], why: str) -> str:
    """Return the marker that stands where a summary should have been."""
    return "\n".join(
        [
            covers("COMPACTION FAILED", turns),
            f"Summary generation failed: {contents.one_line(why, 500)}",
            "- Read the files again before you rely on what they held.",
            "- Look at the change log for what was done.",
            "- Take the next step from what is on disk, not from memory.",
        ]
    )
