"""Codex's response items as values: parts, calls, outputs, and the usage of a count."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Image, Message, Part, Sized, Text, Thinking, ToolCall, Usage
from ctxkit.readers.exits import exit_code, is_failure
from ctxkit.readers.fields import arguments, as_text, items, mapping, number, text, word
from ctxkit.readers.parts import to_parts

if TYPE_CHECKING:
    from collections import Counter

CALLS = {
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "web_search_call",
    "image_generation_call",
}
OUTPUTS = {
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    "local_shell_call_output",
}
SUMMARIES = {"compaction", "compaction_summary", "context_compaction"}
SERVER = {"web_search_call", "image_generation_call"}
"""Calls that the provider runs; what it found is not in the log, but for pictures."""
_WRAPPERS = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill",
)


def parts_of(content: Any, skipped: Counter[str]) -> tuple[Part, ...]:
    """Return a content as parts, pictures without data left out."""
    if type(content) is str:
        return (Text(content),) if content else ()
    parts, _ = to_parts(content, skipped)
    return tuple(p for p in parts if type(p) is not Image or p.data or p.url)


def is_wrapper(parts: tuple[Part, ...]) -> bool:
    """Say whether an input is context that Codex writes itself."""
    return bool(parts) and type(parts[0]) is Text and parts[0].text.startswith(_WRAPPERS)


def hidden(p: dict[str, Any], kind: str) -> tuple[Part, ...]:
    """Return a summary whose text may be encrypted: then its size is all that is known."""
    said, blob = word(p.get("summary")) or word(p.get("text")), text(p.get("encrypted_content"))
    return ((Text(said),) if said else ()) + ((Sized(kind, chars=len(blob)),) if blob else ())


def to_thinking(p: dict[str, Any]) -> Thinking:
    """Return reasoning: its summary, and the size of what is encrypted."""
    said = [
        text(mapping(s).get("text")) for s in (*items(p.get("summary")), *items(p.get("content")))
    ]
    return Thinking("\n".join(s for s in said if s), None, len(text(p.get("encrypted_content"))))


def to_call(p: dict[str, Any], kind: str, own: str) -> ToolCall:
    """Return a call; those that are no functions are named by their kind."""
    if kind in ("function_call", "custom_tool_call"):
        return ToolCall(own, text(p.get("name")), *arguments(p.get("arguments", p.get("input"))))
    given, raw = arguments(p.get("action", p.get("arguments", p.get("revised_prompt"))))
    return ToolCall(own, kind.removesuffix("_call"), given, raw)


def to_output(
    p: dict[str, Any], skipped: Counter[str]
) -> tuple[tuple[Part, ...], bool, dict[str, Any]]:
    """Return what a call gave, if it failed, and details; output can be JSON with an exit code."""
    output = p.get("output", p.get("tools"))
    details: dict[str, Any] = {}
    failed = p.get("status") in ("failed", "error")
    if type(output) is str and output.startswith('{"output":'):
        inner, raw = arguments(output)
        if raw is None and type(inner.get("output")) is str:
            output, about = inner["output"], mapping(inner.get("metadata"))
            if type(about.get("exit_code")) is int:
                details = {"exit_code": about["exit_code"]}
    elif type(output) is dict:
        failed = failed or output.get("success") is False
        output = output.get("content", output.get("text", output))
    parts = parts_of(output if type(output) in (str, list) else as_text(output), skipped)
    if not details and parts and type(parts[0]) is Text:
        code = exit_code(parts[0].text)
        details = {} if code is None else {"exit_code": code}
    return parts, failed or is_failure(details.get("exit_code")), details


def to_usage(last: dict[str, Any]) -> Usage | None:
    """Return a call's usage, cached tokens taken out of the input; None if nothing was billed."""
    whole, cached = number(last.get("input_tokens")), number(last.get("cached_input_tokens"))
    write, output = number(last.get("cache_write_input_tokens")), number(last.get("output_tokens"))
    if not (whole or output):
        return None
    fresh = None if whole is None else max(whole - (cached or 0) - (write or 0), 0)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=cached,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=number(last.get("reasoning_output_tokens")),
    )


def key_of(m: Message) -> bytes:
    """Return what a message is recognised by when a compaction repeats it."""
    key = msgspec.json.encode((m.role if m.role != "summary" else "user", m.call_id, m.parts))
    return (
        key if len(key) < 64 else blake2b(key, digest_size=32).digest()
    )  # images are not held twice


def opening(shown: list[Message]) -> set[str]:
    """Return the ids of what stood before the first input: the context that Codex writes itself."""
    out: set[str] = set()
    for m in shown:
        if m.role not in ("system", "user") or (m.role == "user" and m.kind != "wrapper"):
            break
        out.add(m.id)
    return out
