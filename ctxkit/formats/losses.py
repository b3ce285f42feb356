"""Count what a format cannot hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ctxkit.session.messages import (
    MISSING_START_KIND,
    Edit,
    Image,
    Message,
    SizeOnly,
    Thinking,
    ToolCall,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ctxkit.session.session import Session

_FIELDS = {
    "usage": "usages",
    "time": "times",
    "model": "models of calls",
    "stop": "stop reasons",
    "error": "error texts",
    "latency": "latencies",
    "agent": "agent names",
    "turn": "turn numbers",
    "kind": "kinds of messages",
    "pinned": "pins",
    "pending": "pending marks",
    "context_window": "context windows",
    "details": "details of messages",
    "is_error": "error marks",
}


def count_losses(session: Session, holds: Collection[str] = ()) -> Counter[str]:
    """Count what a session has beside the plain conversation, but for the names in `holds`."""
    lost: Counter[str] = Counter()
    for entry in session.log:
        if isinstance(entry, Edit):
            lost["compactions" if entry.kind == "summarised" else f"edits ({entry.kind})"] += 1
        else:
            _count_message_losses(entry, lost)
    lost["entries of other branches"] = len(session.log) - len(session.path)
    lost["subagent sessions"] = count_descendants(session)
    lost["tool schemas"] = len(session.tools)
    lost["counts of what the reader skipped"] = len(session.skipped)
    lost["faults of the file read"] = len(session.faults)
    lost["details of the session"] = len(session.details)
    return Counter({name: n for name, n in lost.items() if n and name not in holds})


def count_descendants(session: Session) -> int:
    """Return how many sessions there are below one, at any depth."""
    return sum(1 + count_descendants(child) for child in session.children)


def _count_message_losses(m: Message, lost: Counter[str]) -> None:
    for field, name in _FIELDS.items():
        if getattr(m, field) not in (None, "", False, {}):
            lost[name] += 1
    if not m.visible:
        lost["hidden messages"] += 1
    if m.role == "system":
        lost["system prompts"] += 1
    if m.role == "summary":
        lost["summary marks"] += 1
    for p in m.parts:
        name = _part_loss(p)
        if name:
            lost[name] += 1


def _part_loss(p: object) -> str:
    if isinstance(p, SizeOnly):
        return "contents known by size only"
    if isinstance(p, Thinking):
        return "thoughts"
    if isinstance(p, Image):
        return "images" if p.kind == "image" else "documents and audio"
    return (
        "tool arguments that are no JSON object"
        if isinstance(p, ToolCall) and p.raw is not None
        else ""
    )


def visible_messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages sent to a model; what only stands for a lost beginning has no words."""
    return [m for m in messages if m.visible and m.kind != MISSING_START_KIND]
