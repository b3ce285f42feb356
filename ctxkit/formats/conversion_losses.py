"""Counts of the parts of a session that an output format cannot hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ctxkit.session.messages import (
    MISSING_START_KIND,
    Attachment,
    Edit,
    Message,
    SizeOnly,
    Thinking,
    ToolCall,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ctxkit.session.session import Session

_LOSS_NAMES_BY_FIELD = {
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


def count_conversion_losses(session: Session, supported: Collection[str] = ()) -> Counter[str]:
    """Count what a session has beyond plain messages, by name.

    Args:
        session: the session to be written.
        supported: names that the output format does hold; they are not counted.
    """
    losses: Counter[str] = Counter()
    for entry in session.log:
        if isinstance(entry, Edit):
            losses["compactions" if entry.kind == "summarised" else f"edits ({entry.kind})"] += 1
        else:
            _count_message_losses(entry, losses)
    losses["entries of other branches"] = len(session.log) - len(session.path)
    losses["subagent sessions"] = _count_descendants(session)
    losses["tool schemas"] = len(session.tools)
    losses["counts of what the reader skipped"] = len(session.skipped)
    losses["faults of the file read"] = len(session.faults)
    losses["details of the session"] = len(session.details)
    return Counter(
        {name: count for name, count in losses.items() if count and name not in supported}
    )


def _count_descendants(session: Session) -> int:
    """Count the subagent sessions of a session, at any depth."""
    return sum(1 + _count_descendants(child) for child in session.children)


def _count_message_losses(message: Message, losses: Counter[str]) -> None:
    for field, name in _LOSS_NAMES_BY_FIELD.items():
        if getattr(message, field) not in (None, "", False, {}):
            losses[name] += 1
    if not message.visible:
        losses["hidden messages"] += 1
    if message.role == "system":
        losses["system prompts"] += 1
    if message.role == "summary":
        losses["summary marks"] += 1
    for part in message.parts:
        name = _name_part_loss(part)
        if name:
            losses[name] += 1


def _name_part_loss(part: object) -> str:
    if isinstance(part, SizeOnly):
        return "contents known by size only"
    if isinstance(part, Thinking):
        return "thoughts"
    if isinstance(part, Attachment):
        return "images" if part.kind == "image" else "documents and audio"
    return (
        "tool arguments that are no JSON object"
        if isinstance(part, ToolCall) and part.raw is not None
        else ""
    )


def select_sent_messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages sent to a model, without the placeholders of a lost beginning."""
    return [m for m in messages if m.visible and m.kind != MISSING_START_KIND]
