"""Messages of Pi's format as values: replies, results, user's commands, what was said beside."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ctxkit.messages import USER_VISIBLE, Image, Message, Part, Text, Thinking, ToolCall, Usage
from ctxkit.readers.fields import arguments, as_text, items, number, real, text, time, word

_STOPS = {"toolUse": "tool"}
_FAILED = ("error", "aborted")
"""Replies that end so are not sent back, save words in versions 1 and 2 (by recorded prompts)."""
_SAID = (Text, Thinking)


def to_reply(
    record: dict[str, Any], m: dict[str, Any], own: str, *, is_early: bool
) -> tuple[Message, tuple[Part, ...]]:
    """Return a reply, and its whole parts where it failed with calls that were not run.

    Args:
        record: the entry.
        m: its message.
        own: the id it gets.
        is_early: versions 1 and 2 sent what a failed reply had said.
    """
    stop = m.get("stopReason")
    ended, began = time(record.get("timestamp")), time(m.get("timestamp"))
    details: dict[str, Any] = {"provider": m["provider"]} if type(m.get("provider")) is str else {}
    whole = parts = to_parts(m.get("content"))
    failed = stop in _FAILED
    if failed:
        parts = _cut_off(whole, details)
    latency = (
        None
        if ended is None or began is None or not 0 <= ended - began < 86400
        else round(ended - began, 3)
    )
    reply = Message(
        role="assistant",
        id=own,
        parts=parts,
        time=began if ended is None else ended,
        visible=is_visible(m)
        and (not failed or (is_early and any(p.text for p in parts if isinstance(p, _SAID)))),
        is_error=failed,
        error=word(m.get("errorMessage")),
        usage=to_usage(m.get("usage")),
        model=word(m.get("model")),
        stop=_STOPS.get(stop, stop) if type(stop) is str else None,
        latency=latency,
        details=details,
    )
    reply = marked(reply, m)
    return reply, () if parts is whole else whole


def _cut_off(parts: tuple[Part, ...], details: dict[str, Any]) -> tuple[Part, ...]:
    """Return a failed reply's parts without its calls, which were not run: `details` tell them."""
    calls = [p for p in parts if type(p) is ToolCall]
    if not calls:
        return parts
    details["calls_not_run"] = [
        {"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls
    ]
    return tuple(p for p in parts if type(p) is not ToolCall)


def to_result(record: dict[str, Any], m: dict[str, Any], own: str, *, visible: bool) -> Message:
    """Return the result of a call."""
    result = Message(
        role="tool",
        id=own,
        parts=to_parts(m.get("content")),
        time=time(record.get("timestamp")) or time(m.get("timestamp")),
        tool=word(m.get("toolName")),
        call_id=word(m.get("toolCallId")),
        is_error=m.get("isError") is True,
        visible=visible,
    )
    return marked(result, m)


def to_command(record: dict[str, Any], m: dict[str, Any], own: str) -> Message:
    """Return a command that the user ran, with its output."""
    command, code = text(m.get("command")), m.get("exitCode")
    failed = m.get("cancelled") is True or (type(code) is int and code != 0)
    return Message(
        role="user",
        id=own,
        kind="bash",
        parts=(Text(f"Ran `{command}`\n```\n{text(m.get('output'))}\n```"),),
        time=time(record.get("timestamp")) or time(m.get("timestamp")),
        visible=m.get("excludeFromContext") is not True,
        is_error=failed,
        details={"command": command, "exit_code": code if type(code) is int else None},
    )


def is_visible(m: dict[str, Any]) -> bool:
    """Say whether a message is sent to the model: ai marks those that are not."""
    metadata = m.get("metadata")
    return type(metadata) is not dict or metadata.get("agentVisible") is not False


def marked(message: Message, m: dict[str, Any]) -> Message:
    """Return a message with the marks that ai has on it: its kind, and whether the user sees it."""
    metadata = m.get("metadata")
    if type(metadata) is not dict:
        return message
    kind = word(metadata.get("kind"))
    if kind and kind != "tool_result":  # which every result is
        message = replace(message, kind=kind)
    if metadata.get("userVisible") is False:
        message = replace(message, details={**message.details, USER_VISIBLE: False})
    return message


def to_usage(value: Any) -> Usage | None:
    """Return what a call was billed for; None for all zeros: it failed before it was counted."""
    if type(value) is not dict:
        return None
    fresh, output = number(value.get("input")), number(value.get("output"))
    read, write = number(value.get("cacheRead")), number(value.get("cacheWrite"))
    if not (fresh or read or write or output):
        return None
    cost = value.get("cost")
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=number(value.get("reasoning")),
        cost_usd=real(cost.get("total")) if type(cost) is dict else None,
    )


def to_parts(content: Any) -> tuple[Part, ...]:
    """Return Pi's content, a text or a list of parts, as our parts."""
    if type(content) is str:
        return (Text(content),) if content else ()
    out: list[Part] = []
    for p in items(content):
        if type(p) is not dict:
            raise ValueError("expected the parts of a message to be objects")
        kind = p.get("type")
        if kind == "text":
            out.append(Text(text(p.get("text"))))
        elif kind == "thinking":
            signature = word(p.get("thinkingSignature"))
            hidden = len(signature) if signature and len(signature) > 64 else 0
            out.append(
                Thinking(text(p.get("thinking")), signature, hidden, p.get("redacted") is True)
            )
        elif kind == "toolCall":
            given, raw = arguments(p.get("arguments"))
            out.append(ToolCall(text(p.get("id")), text(p.get("name")), given, raw))
        elif kind == "image":
            out.append(Image(text(p.get("mimeType")) or "image/png", text(p.get("data"))))
        else:
            out.append(Text(as_text(p)))  # an unknown part went to the model too
    return tuple(out)
