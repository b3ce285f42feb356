"""What `opencode run --format json` prints: parts of replies as they end, each step's usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.readers.fields import items, mapping, text
from ctxkit.readers.opencode_messages import to_session

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

_PARTS = {"step_start": "step-start", "text": "text", "reasoning": "reasoning", "tool_use": "tool",
          "step_finish": "step-finish"}  # fmt: skip


def is_run(source: Source) -> bool:
    """Say whether the first lines are parts with a session and a time."""
    head = source.head[:4]
    return (
        bool(head)
        and all(
            text(r.get("type")) in {*_PARTS, "error"} and "sessionID" in r and "timestamp" in r
            for r in head
        )
        and any(type(r.get("part")) is dict for r in head)
    )


def read_run(source: Source) -> Session:
    """Return the session: parts of one message id, or of one step, are a reply."""
    messages: list[dict[str, Any]] = []
    at = None
    for _, record in source.records:
        kind, part = text(record.get("type")), mapping(record.get("part"))
        when = record.get("timestamp")
        if kind == "error":
            told = {
                "role": "assistant",
                "error": mapping(record.get("error")),
                "time": {"created": when},
            }
            messages.append({"info": told, "parts": []})
            continue
        own = text(part.get("messageID")) or at
        if kind == "step_start" or not messages or own != at:
            at = own
            messages.append(
                {
                    "info": {"role": "assistant", "id": own or None, "time": {"created": when}},
                    "parts": [],
                }
            )
        _take(messages[-1], {**part, "type": _PARTS.get(kind, kind)}, when)
    first = mapping(next((r for _, r in source.records), None))
    info = {"id": first.get("sessionID"), "time": {"created": first.get("timestamp")}}
    return to_session(info, messages, source.faults)


def _take(message: dict[str, Any], part: dict[str, Any], when: Any) -> None:
    info = message["info"]
    items(message["parts"]).append(part)
    if part["type"] == "step-finish":
        info.update(tokens=part.get("tokens"), cost=part.get("cost"), finish=part.get("reason"))
        info["time"]["completed"] = when
