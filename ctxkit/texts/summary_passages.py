"""How messages are written down for a summariser: each system's own labels and limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit.messages import Text, Thinking, ToolCall
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.messages import Message

PI_SECTIONS = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
PI_TURN_SECTIONS = ("## Original Request", "## Early Progress", "## Context for Suffix")
FUSERAFT_SECTIONS = ("## Completed", "## Open Questions", "## Remaining Work", "## Key Findings")
OPENCLAW_SECTIONS = (
    "## Decisions",
    "## Open TODOs",
    "## Constraints/Rules",
    "## Pending user asks",
    "## Exact identifiers",
)
PULSE_SECTIONS = ("目标", "进展", "关键结果", "文件与变更", "关键片段", "待确认")
TYRUM_FIELDS = (
    "goal",
    "user_constraints",
    "decisions",
    "discoveries",
    "completed_work",
    "pending_work",
    "unresolved_questions",
    "critical_identifiers",
    "relevant_files",
    "handoff_md",
)


def pi(messages: Iterable[Message], result_chars: int = 2000) -> str:
    """Write messages as Pi does: tool results cut to `result_chars`, user and assistant
    text never.
    """
    return "\n\n".join(row for m in messages for row in _labelled(m, result_chars))


def _labelled(m: Message, result_chars: int) -> list[str]:
    text = plain(m)
    if m.role == "tool":
        cut = len(text) - result_chars
        more = f"\n\n[... {cut} more characters truncated]" if cut > 0 else ""
        return [f"[Tool result]: {text[:result_chars]}{more}"]
    if m.role != "assistant":
        return [f"[User]: {text}"] if text else []
    thought = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
    rows = [f"[Assistant thinking]: {thought}"] if thought else []
    rows += [f"[Assistant]: {text}"] if text else []
    calls = "; ".join(map(_call, m.tool_calls))
    return [*rows, f"[Assistant tool calls]: {calls}"] if calls else rows


def _call(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{k}={_json(v)}' for k, v in call.arguments.items())})"


def ai_result(text: str, head: int = 1200, tail: int = 600) -> str:
    """Return a tool result as `ai` shows it to its summariser; an empty one as `(empty output)`."""
    return trims.ends(text, head, tail, "\n... (truncated) ...\n") or "(empty output)"


def tyrum(messages: Iterable[Message]) -> str:
    """Write messages as `Role [id]: text`: text only, so that tool results never reach Tyrum's
    summariser.
    """
    rows = (
        (m, " ".join(p.text for p in m.parts if isinstance(p, Text)))
        for m in messages
        if m.role != "tool"
    )
    return "\n".join(f"{m.role.capitalize()} [{m.id}]: {text}" for m, text in rows if text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def plain(message: Message) -> str:
    """Return the text of a message without its thinking; an image is `[image]`."""
    return contents.texts_and(message, "[image]")


def focused(instructions: str, focus: str) -> str:
    """Add a user's wish to what a summariser is told, as Pi and Fased do."""
    return f"{instructions}\n\nAdditional focus: {focus.strip()}" if focus.strip() else instructions
