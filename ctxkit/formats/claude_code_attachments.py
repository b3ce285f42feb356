"""Texts that Claude Code adds to a prompt: attachments, wrappers, reminders, the system prompt.

An attachment is content that the program adds to a prompt: memory files, files and folders named in
a prompt, changed files, lists of skills, agents and tools, and what hooks add. Newer versions
(tested: 2.1.332) write its text as it was sent (`rendered`), and system prompt and tool schemas
(`api-request-shape`). An attachment that is only a note of the program (a hook that ran, a mode)
adds no text to the prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import parse_tool_schemas
from ctxkit.formats.untrusted_record_parsing import as_dict, as_list, as_str
from ctxkit.session.messages import Part, Text, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WRAPPER_PREFIXES = (
    "<command-",
    "<local-command-",
    "<bash-",
    "<task-notification>",
    "<user-memory-input>",
)
"""Prefixes of the program's commands and their output, including a pasted `/context`."""
REMINDER_PREFIX = "<system-reminder>"
"""Prefix of the program's additions to a prompt: memory files, files, lists of skills."""
SUMMARY_PREFIX = "This session is being continued from a previous conversation"
"""The first words of a compaction's summary."""


SHAPE_TYPE = "api-request-shape"
"""Type of the line with the common beginning of all later requests."""


def get_attachment_text(record: dict[str, Any]) -> str:
    """Return the text that an attachment's line adds to the prompt; empty if it is unknown."""
    rendered = [as_dict(piece).get("content") for piece in as_list(record.get("rendered"))]
    texts = [text for text in rendered if type(text) is str and text]
    if texts:
        return "\n".join(texts)
    attachment = as_dict(record.get("attachment"))
    kind = attachment.get("type")
    parse = _TEXTS.get(kind) if type(kind) is str else None
    return parse(attachment) if parse is not None else ""


def find_system_prompt_and_tools(
    shapes: Iterable[dict[str, Any]],
) -> tuple[tuple[Part, ...], tuple[ToolSchema, ...]]:
    """Return system prompt and tools of the first request with tools; else nothing.

    `shapes` are the lines of type `SHAPE_TYPE`. A request without tools is a side call of the
    program (a title), not the agent's.
    """
    for record in shapes:
        shape = as_dict(record.get("shape"))
        tools = parse_tool_schemas(shape.get("tools"))
        texts = [as_str(as_dict(block).get("text")) for block in as_list(shape.get("system"))]
        if tools and any(texts):
            return tuple(Text(text) for text in texts if text), tools
    return (), ()


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
