"""Names under which other programs know the kit's tools: fuseraft's instructions name its own."""

from __future__ import annotations

import inspect
import shlex
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.agent.tools.tool import Tool
    from ctxkit.session.messages import ToolCall


@dataclass(frozen=True, kw_only=True)
class ToolAlias:
    """One tool as another program names it."""

    tool: str
    """The kit's name of the tool."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The kit's parameters, by the other program's."""
    without: frozenset[str] = frozenset()
    """Parameters of the other program that change nothing here."""
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """Converts the arguments that a new name alone does not convert."""


def _end_line(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace a number of lines by the last line; the tool itself refuses what is no number."""
    lines, others = (
        arguments.get("maxLines"),
        {k: v for k, v in arguments.items() if k != "maxLines"},
    )
    if not lines:
        return others
    try:
        return {**others, "end": int(others.get("start", 1)) + int(lines) - 1}
    except (TypeError, ValueError):
        return arguments


def _case_insensitive(arguments: dict[str, Any]) -> dict[str, Any]:
    """Search without case unless `caseSensitive` is set, as fuseraft's tools do."""
    others = {k: v for k, v in arguments.items() if k != "caseSensitive"}
    if arguments.get("caseSensitive") or not isinstance(others.get("pattern"), str):
        return others
    return {**others, "pattern": f"(?i){others['pattern']}"}


def _in_folder(arguments: dict[str, Any]) -> dict[str, Any]:
    """Put the folder of a command in front of it."""
    folder = arguments.get("workingDirectory")
    others = {k: v for k, v in arguments.items() if k != "workingDirectory"}
    if not folder or folder == ".":
        return others
    return {**others, "command": f"cd {shlex.quote(str(folder))} && {others.get('command', '')}"}


def _whole_document(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"part": "all", **arguments}


def _alias(tool: str, words: str = "", without: str = "", **adapt: Any) -> ToolAlias:
    renamed = dict(word.split("=") for word in words.split())
    return ToolAlias(tool=tool, parameters=renamed, without=frozenset(without.split()), **adapt)


_GREP = _alias("search", without="contextLines maxMatches", adapt=_case_insensitive)
_LIST = _alias("list_files", "directory=path", without="maxResults")
TOOL_ALIASES: Mapping[str, ToolAlias] = MappingProxyType(
    {
        "read_file": _alias("read_file", "startLine=start", adapt=_end_line),
        "patch_file": _alias("patch_file", "oldText=old newText=new"),
        "write_file": _alias("write_file", without="raw baseVersion"),
        "list_files": _LIST,
        "list_directory": _LIST,
        "grep_file": _GREP,
        "grep_in_file": _GREP,
        "search_content": _alias(
            "search",
            "query=pattern directory=path filePattern=files",
            without="maxResults",
            adapt=_case_insensitive,
        ),
        "shell_run": _alias("shell", without="timeoutSeconds quiet", adapt=_in_folder),
        "shell_run_script": _alias(
            "shell", "script=command", without="timeoutSeconds", adapt=_in_folder
        ),
        "document_extract_text": _alias("document", adapt=_whole_document),
        "document_get_info": _alias("document"),
        "document_list_sheets": _alias("document"),
        "document_get_sheet": _alias("document", "sheetName=part", without="maxRows"),
        "session_context_write": _alias("session_context_write", "summary=text"),
        "sub_agent_explore": _alias("sub_agent_explore", without="format"),
        "sub_agent_locate": _alias("sub_agent_locate", "target=query"),
    }
)
"""Tools of fuseraft, by its names, with its parameters (its docs/plugins.md)."""


def resolve_alias(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """Return a call under the kit's own names; one that uses no other name as it is.

    A tool of the user's that takes the arguments as they came gets them so.

    Args:
        call: as the model sent it.
        tools: the tools that there are, by name.
    """
    alias = TOOL_ALIASES.get(call.name)
    tool = tools.get(alias.tool) if alias is not None else None
    if (
        alias is None
        or tool is None
        or call.raw is not None
        or (call.name in tools and call.name != tool.name)
    ):
        return call
    taken = inspect.signature(tool.run).parameters
    if tool.free or (call.name == tool.name and all(k in taken for k in call.arguments)):
        return call
    renamed = {
        alias.parameters.get(name, name): value
        for name, value in call.arguments.items()
        if name not in alias.without
    }
    return msgspec.structs.replace(call, name=tool.name, arguments=alias.adapt(renamed))
