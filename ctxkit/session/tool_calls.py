"""What a tool call works on (path, command), and which tools read, search or write, by name.

A system whose own list differs on purpose says it as a setting of its member.
"""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_line
from ctxkit.session.messages import Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.messages import Message


_PATHS = dict.fromkeys(
    (
        *("path", "file_path", "filePath", "filepath", "absolute_path", "notebook_path"),
        *("target_file", "filename", "file_name", "file"),
    )
)
_COMMANDS = dict.fromkeys(("command", "cmd", "keystrokes", "script"))
_OTHERS = ("url", "query", "pattern", "expression", "description", "prompt", "name")
_SHELLS = frozenset({"bash", "sh", "zsh"})
_PATCHED = ("*** Update File: ", "*** Add File: ", "*** Delete File: ")
_LONGEST = 4_000
"""Characters of a path or a command that are kept; what is longer is no name."""


def get_call_path(call: ToolCall) -> str | None:
    """Return the file that a call is about, as the log writes it; None where it names none."""
    for key in _present_keys(call.arguments, _PATHS):
        value = call.arguments[key]
        if isinstance(value, str) and 0 < len(value) <= _LONGEST:
            return value
    found = _patched_files(call)
    return found[0] if len(found) == 1 else None


def get_path_and_command(call: ToolCall) -> tuple[str | None, str | None]:
    """Return the file that a call is about and the command line that it runs; None: it has none.

    A list of words is joined; of `bash -lc LINE` it is the line. Where a tool takes a path, too,
    its `command` is a verb (`view`), not a command.
    """
    path = get_call_path(call)
    return path, _command(call) if path is None else None


def _command(call: ToolCall) -> str | None:
    for key in _present_keys(call.arguments, _COMMANDS):
        value = call.arguments[key]
        if isinstance(value, str) and value.strip():
            return value[:_LONGEST]
        if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            shell = value[0].rsplit("/", 1)[-1] in _SHELLS and len(value) == 3
            return (value[2] if shell else shlex.join(value))[:_LONGEST]
    return None


def describe_call(call: ToolCall, folder: str | None = None, limit: int = 80) -> str:
    """Return what a call does, in a line: ``Read src/a.py 1-900``, ``Bash go test ./...``.

    Args:
        call: a tool call.
        folder: where the agent worked; paths below it are written from there.
        limit: characters at most.
    """
    tool, (path, command) = sanitize_line(call.name, 40), get_path_and_command(call)
    if path is not None:
        verb = call.arguments.get("command")
        named = [tool, *([verb] if isinstance(verb, str) and verb.isidentifier() else [])]
        return sanitize_line(
            " ".join([*named, _relative_path(path, folder), *_line_range(call.arguments)]), limit
        )
    if command is not None:
        command = _without_cd(command)
        return sanitize_line(
            command if command.split()[:1] == [tool] else f"{tool} {command}", limit
        )
    patched = _patched_files(call)
    if patched:
        return sanitize_line(
            f"{tool} {_relative_path(patched[0], folder)} and {len(patched) - 1} more", limit
        )
    told = (call.arguments.get(key) for key in _OTHERS)
    texts = [*(t for t in told if isinstance(t, str) and t), *_texts(call.arguments)]
    return sanitize_line(f"{tool} {texts[0]}" if texts else tool, limit)


def describe_message(message: Message, answers: ToolCall | None, folder: str | None = None) -> str:
    """Return what a message is, in a line of at most 80 characters.

    Args:
        message: any message.
        answers: the call that it is the result of, where it is one and the call is known.
        folder: where the agent worked.
    """
    if message.role == "tool" or message.call_id:
        return (
            describe_call(answers, folder)
            if answers
            else sanitize_line(message.tool or "tool result", 80)
        )
    largest = max(message.parts, key=_length, default=None)
    if message.role == "assistant" and isinstance(largest, ToolCall):
        return sanitize_line(f"asks for {describe_call(largest, folder)}", 80)
    said = next((p.text for p in message.parts if isinstance(p, Text) and p.text.strip()), "")
    who = "thinking" if isinstance(largest, Thinking) and not said else message.role
    words = said or (largest.text if isinstance(largest, Thinking) else message.kind)
    return sanitize_line(f"{who}: {words}" if words else who, 80)


def pair_with_calls(messages: Iterable[Message]) -> Iterator[tuple[Message, ToolCall | None]]:
    """Yield messages in order, each with the call that it is the result of; None: of none that is
    known.

    Ids of calls may be used again: the last one before the result counts.
    """
    asked: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    asked[part.id] = part
            yield message, None
        else:
            yield message, asked.get(message.call_id) if message.call_id else None


def results_by_call(messages: Iterable[Message]) -> dict[int, Message]:
    """Return the results of tool calls, each by the identity of its call."""
    return {id(c): m for m, c in pair_with_calls(messages) if c is not None and m.role == "tool"}


def _present_keys(arguments: dict[str, Any], names: dict[str, None]) -> Iterable[str]:
    """Return which of some names a call gives, the first of them first."""
    given = [name for name in arguments if name in names]
    return given if len(given) < 2 else [name for name in names if name in arguments]


def _patched_files(call: ToolCall) -> list[str]:
    """Return the files that a patch names (`*** Update File: PATH`, as Codex writes it)."""
    text = (
        call.raw
        if call.raw is not None
        else call.arguments.get("input", call.arguments.get("patch"))
    )
    if not isinstance(text, str) or "*** " not in text:
        return []
    heads = (row for row in text.splitlines() if row.startswith(_PATCHED))
    return list(dict.fromkeys(row.split(": ", 1)[1].strip()[:_LONGEST] for row in heads))


def _line_range(arguments: dict[str, Any]) -> list[str]:
    """Return the lines of a file that a call reads, as `1-900`."""
    told = arguments.get("view_range")
    if isinstance(told, list) and len(told) == 2 and all(type(n) is int for n in told):
        return [f"{told[0]}-{told[1]}" if told[1] >= 0 else f"{told[0]}-"]
    first, last = (arguments.get(k) for k in ("start_line", "end_line"))
    if type(first) is int and type(last) is int:
        return [f"{first}-{last}"]
    offset, limit = arguments.get("offset"), arguments.get("limit")
    start = offset if type(offset) is int and offset > 0 else 1
    if type(limit) is int and limit > 0:
        return [f"{start}-{start + limit - 1}"]
    return [f"{start}-"] if start > 1 else []


def _relative_path(path: str, folder: str | None) -> str:
    path, root = path.replace("\\", "/"), (folder or "").replace("\\", "/").rstrip("/")
    return path[len(root) + 1 :] if root and path.startswith(f"{root}/") else path


def _without_cd(command: str) -> str:
    """Return a command line without the `cd FOLDER &&` that many agents put before each."""
    first, found, rest = command.partition("&&")
    return (
        rest.strip() if found and first.split()[:1] == ["cd"] and rest.strip() else command.strip()
    )


def _texts(arguments: dict[str, Any]) -> Iterator[str]:
    return (v for v in arguments.values() if isinstance(v, str) and v.strip())


def _length(part: Any) -> int:
    if isinstance(part, ToolCall):
        values = part.arguments.values()
        return len(part.raw) if part.raw is not None else sum(len(str(v)) for v in values)
    return len(part.text) if isinstance(part, (Text, Thinking)) else 0


READ_TOOL_PATTERNS = (
    "read*",
    "*_read*",
    "view*",
    "*_view*",
    "cat",
    "cat_*",
    "open*",
    "*_open*",
    "get_file*",
)
"""Names or globs of the tools whose result is the content of a file."""
WRITE_TOOL_PATTERNS = (
    "*write*",
    "*edit*",
    "*patch*",
    "*create*",
    "*replace*",
    "*insert*",
    "*delete*",
    "*move*",
    "apply*",
)
"""Names or globs of the tools that write a file, or a part of it, or put it away."""

SEARCH_TOOL_PATTERNS = ("*search*", "*grep*", "*find*", "*glob*", "*list*", "ls", "*query*")
"""Names or globs of the tools that look for something and change nothing."""


@lru_cache(4096)
def matches_tool(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True for a name that is one of these or fits a glob, upper and lower case alike."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def is_read_tool(name: str) -> bool:
    """Return True for a tool that reads a file."""
    return matches_tool(name, READ_TOOL_PATTERNS) and not matches_tool(name, WRITE_TOOL_PATTERNS)


def is_read_only_tool(name: str) -> bool:
    """Return True for a tool that reads or searches and does nothing else."""
    return is_read_tool(name) or (
        matches_tool(name, SEARCH_TOOL_PATTERNS) and not matches_tool(name, WRITE_TOOL_PATTERNS)
    )


def is_write_tool(name: str) -> bool:
    """Return True for a tool that changes a file."""
    return matches_tool(name, WRITE_TOOL_PATTERNS)
