"""Texts of the attachments of Claude Code's transcripts: what the program lays into a prompt.

Memory files, files and folders named in a prompt, changed files, lists of skills, agents and tools,
and what hooks add. An attachment that is only a note of the program (a hook that ran, a mode) sends
no text and has none here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.fields import as_dict, as_list, as_str

if TYPE_CHECKING:
    from collections.abc import Callable


def parse_attachment(attachment: dict[str, Any]) -> str:
    """Return the text that an attachment adds to the prompt; empty where none is known."""
    kind = attachment.get("type")
    parse = _TEXTS.get(kind) if type(kind) is str else None
    return parse(attachment) if parse is not None else ""


def _read_file(attachment: dict[str, Any]) -> str:
    content = as_dict(attachment.get("content"))
    return as_str(as_dict(content.get("file")).get("content"))


def _read_memory(attachment: dict[str, Any]) -> str:
    return as_str(as_dict(attachment.get("content")).get("content"))


def _read_field(name: str) -> Callable[[dict[str, Any]], str]:
    """Return a parser of a field that is a text, or a list of texts."""

    def parse(attachment: dict[str, Any]) -> str:
        value = attachment.get(name)
        texts = [value] if type(value) is str else as_list(value)
        return "\n".join(text for text in texts if type(text) is str)

    return parse


_TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "nested_memory": _read_memory,
    "file": _read_file,
    "edited_text_file": _read_field("snippet"),
    "directory": _read_field("content"),
    "skill_listing": _read_field("content"),
    "hook_additional_context": _read_field("content"),
    "total_tokens_reminder": _read_field("text"),
    "deferred_tools_delta": _read_field("addedLines"),
    "agent_listing_delta": _read_field("addedLines"),
    "mcp_instructions_delta": _read_field("addedBlocks"),
}
"""Parsers by the attachment's type."""
