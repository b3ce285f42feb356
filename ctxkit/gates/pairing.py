"""Whether what a compactor gave back can be sent at all: pairs whole, order kept, system first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from ctxkit.gates.programs import Talk


def faults(given: Talk, back: Talk) -> list[str]:
    """Return in sentences what is wrong with messages that came back for those that were given."""
    return [*_pairs(back), *_order(given, back), *_system(given, back)]


def _pairs(back: Talk) -> list[str]:
    """Each result follows its call before anybody else speaks, and each call has its result."""
    out: list[str] = []
    waiting: dict[str, int] = {}
    for i, message in enumerate(back):
        if message["role"] == "tool":
            name = str(message.get("tool_call_id", ""))
            if waiting.pop(name, None) is None:
                out.append(
                    f"Message {i} is the result of {line(redact(name), 40)!r}, a call that is not"
                    " before it."
                )
            continue
        out += _unanswered(waiting)
        waiting = dict.fromkeys(_calls(message), i)
    # the newest calls may still be running; those of the last message are not missed
    last = len(back) - 1
    return out + _unanswered({c: i for c, i in waiting.items() if i != last})


def _unanswered(waiting: dict[str, int]) -> list[str]:
    return [
        f"The call {line(redact(c), 40)!r} of message {i} has lost its result."
        for c, i in waiting.items()
    ]


def _calls(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    found = calls if isinstance(calls, list) else []
    return [str(c.get("id", "")) for c in found if isinstance(c, dict)]


def _order(given: Talk, back: Talk) -> list[str]:
    """Messages that came back as they were stand in the order in which they were given."""
    places: dict[str, list[int]] = {}
    for i, message in enumerate(given):
        places.setdefault(_same(message), []).append(i)
    last, out = -1, []
    for i, message in enumerate(back):
        found = places.get(_same(message))
        if not found:
            continue
        later = next((p for p in found if p > last), None)
        if later is None:
            out.append(f"Message {i} ({message['role']}) stands after one that was said later.")
        else:
            last = later
    return out


def _same(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _system(given: Talk, back: Talk) -> list[str]:
    if given and given[0]["role"] == "system" and back[0] != given[0]:
        return ["The system message does not stand first as it was."]
    return []
