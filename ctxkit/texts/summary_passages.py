"""How messages are written down for a summariser: each system's own labels and limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit.messages import Text, Thinking, ToolCall
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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

    def result(m: Message) -> str:
        return "[Tool result]: " + _cut_result(plain(m), result_chars)

    return "\n\n".join(row for m in messages for row in _labelled(m, result, pi_call))


def _cut_result(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n\n[... {len(text) - limit} more characters truncated]"


def ai(messages: Iterable[Message], head: int = 1200, tail: int = 600) -> str:
    """Write messages as the agent `ai` does: a tool result keeps its first `head` and last `tail`
    characters.
    """

    def result(m: Message) -> str:
        return f"[Tool result {m.tool or 'unknown'}]: {ai_result(plain(m), head, tail)}"

    def call(c: ToolCall) -> str:
        return f"{c.name}({json.dumps(c.arguments, ensure_ascii=False, sort_keys=True)})"

    return "\n\n".join(row for m in messages for row in _labelled(m, result, call))


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


def fuseraft(messages: Iterable[Message], max_chars: int = 8000) -> str:
    """Write messages under `[Agent — Turn N]`, each cut to `max_chars` (0: never;
    summaries never).
    """
    return "\n\n".join(_turn(m, max_chars) for m in messages)


def _turn(m: Message, max_chars: int) -> str:
    if m.role == "summary":
        return f"[Prior Summary — covers turns 1–{(m.turn or 0) + 1}]\n{m.text}"
    who = "Human" if m.role == "user" else m.agent or ("tool" if m.role == "tool" else "main")
    text = plain(m)
    if 0 < max_chars < len(text):
        text = f"{text[:max_chars]} [TRUNCATED — {len(text):,} chars total]"
    calls = ", ".join(f"{c.name}({_short(c)})" for c in m.tool_calls)
    return f"[{who} — Turn {(m.turn or 0) + 1}]\n{text}" + (
        f"\n  [Tool calls: {calls}]" if calls else ""
    )


def _short(call: ToolCall, limit: int = 80) -> str:
    return trims.cut(", ".join(f"{k}={v}" for k, v in call.arguments.items()), limit, "…")


def pi_call(call: ToolCall) -> str:
    """Write a call as Pi does: `read(path="a.py", limit=3)`."""
    return f"{call.name}({', '.join(f'{k}={_json(v)}' for k, v in call.arguments.items())})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def plain(message: Message) -> str:
    """Return the text of a message without its thinking; an image is `[image]`."""
    return contents.texts_and(message, "[image]")


def _labelled(
    m: Message, result: Callable[[Message], str], call: Callable[[ToolCall], str]
) -> list[str]:
    if m.role == "tool":
        return [result(m)]
    text = plain(m)
    if m.role != "assistant":
        return [f"[User]: {text}"] if text else []
    thought = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
    rows = [f"[Assistant thinking]: {thought}"] if thought else []
    rows += [f"[Assistant]: {text}"] if text else []
    calls = "; ".join(call(c) for c in m.tool_calls)
    return [*rows, f"[Assistant tool calls]: {calls}"] if calls else rows


def focused(instructions: str, focus: str) -> str:
    """Add a user's wish to what a summariser is told, as Pi and Fased do."""
    return f"{instructions}\n\nAdditional focus: {focus.strip()}" if focus.strip() else instructions
