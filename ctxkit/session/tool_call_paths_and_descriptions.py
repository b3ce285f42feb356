"""Paths and commands of tool calls, one-line descriptions, and kinds of tools by name.

A system with other kinds of tools has its own list as a setting of its preset.
"""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.session.messages import Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.messages import Message


# Logs of many programs name the same thing differently. Paths, commands and other arguments are
# read from the first key of a list that a call has; a dict is used as an ordered set.
_PATH_KEYS = dict.fromkeys(
    (
        *("path", "file_path", "filePath", "filepath", "absolute_path", "notebook_path"),
        *("target_file", "filename", "file_name", "file"),
    )
)
_COMMAND_KEYS = dict.fromkeys(("command", "cmd", "keystrokes", "script"))
_DESCRIPTIVE_KEYS = ("url", "query", "pattern", "expression", "description", "prompt", "name")
_SHELL_NAMES = frozenset({"bash", "sh", "zsh"})
_PATCH_HEADERS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ")
_MAX_CHARS = 4_000
"""Characters of a command that are returned; a longer path is ignored."""


def get_call_path(call: ToolCall) -> str | None:
    """Return the file that a call works on, as the log has it; None if it names none.

    Args:
        call: a call of any tool; its arguments are searched for a known name of a path.

    Returns:
        The path; None also for a patch of several files.

    Example:
        >>> from ctxkit.session import ToolCall
        >>> get_call_path(ToolCall("1", "read", {"file_path": "src/a.py"}))
        'src/a.py'
    """
    for key in _present_keys(call.arguments, _PATH_KEYS):
        value = call.arguments[key]
        if isinstance(value, str) and 0 < len(value) <= _MAX_CHARS:
            return value
    files = _patched_files(call)
    return files[0] if len(files) == 1 else None


def get_path_and_command(call: ToolCall) -> tuple[str | None, str | None]:
    """Return the file that a call works on and the command line that it runs; None where missing.

    A list of words is joined; of `bash -lc LINE` the line is returned. Where a tool has a path, its
    `command` is a verb (`view`) and no command line.

    Args:
        call: a call of any tool.

    Returns:
        (path, command line); at most one of them is given.

    Example:
        >>> from ctxkit.session import ToolCall
        >>> get_path_and_command(ToolCall("1", "shell", {"command": ["bash", "-lc", "go test"]}))
        (None, 'go test')
    """
    path = get_call_path(call)
    return path, _command_line(call) if path is None else None


def _command_line(call: ToolCall) -> str | None:
    for key in _present_keys(call.arguments, _COMMAND_KEYS):
        value = call.arguments[key]
        if isinstance(value, str) and value.strip():
            return value[:_MAX_CHARS]
        if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
            # `bash -lc LINE`: three words, the last of which is the line
            is_shell = value[0].rsplit("/", 1)[-1] in _SHELL_NAMES and len(value) == 3
            return (value[2] if is_shell else shlex.join(value))[:_MAX_CHARS]
    return None


def describe_call(call: ToolCall, folder: str | None = None, limit: int = 80) -> str:
    """Describe a call in one line: ``Read src/a.py 1-900``, ``Bash go test ./...``.

    Args:
        call: a tool call.
        folder: the agent's working folder; paths below it are relative to it.
        limit: maximal length in characters.

    Returns:
        One line without control characters, to be escaped for HTML.

    Example:
        >>> from ctxkit.session import ToolCall
        >>> describe_call(ToolCall("1", "Read", {"path": "/repo/src/a.py"}), folder="/repo")
        'Read src/a.py'
    """
    tool, (path, command) = sanitize_line(call.name, 40), get_path_and_command(call)
    if path is not None:
        verb = call.arguments.get("command")
        words = [tool, *([verb] if isinstance(verb, str) and verb.isidentifier() else [])]
        words += [_relative_path(path, folder), *_line_range(call.arguments)]
        return sanitize_line(" ".join(words), limit)
    if command is not None:
        command = _without_cd(command)
        starts_with_tool = command.split()[:1] == [tool]
        return sanitize_line(command if starts_with_tool else f"{tool} {command}", limit)
    files = _patched_files(call)
    if files:
        first = _relative_path(files[0], folder)
        return sanitize_line(f"{tool} {first} and {len(files) - 1} more", limit)
    values = [call.arguments.get(key) for key in _DESCRIPTIVE_KEYS]
    texts = [v for v in values if isinstance(v, str) and v]
    texts += [v for v in call.arguments.values() if isinstance(v, str) and v.strip()]
    return sanitize_line(f"{tool} {texts[0]}" if texts else tool, limit)


def describe_message(message: Message, call: ToolCall | None, folder: str | None = None) -> str:
    """Describe a message in one line of at most 80 characters.

    Args:
        message: any message.
        call: the call of a tool result, where it is known.
        folder: the agent's working folder.

    Returns:
        One line: a result by its call, a reply by its largest part, others by role and text.

    Example:
        >>> from ctxkit.session import Message, Text
        >>> describe_message(Message(role="user", parts=(Text("Fix the test."),)), None)
        'user: Fix the test.'
    """
    if message.role == "tool" or message.call_id:
        if call:
            return describe_call(call, folder)
        return sanitize_line(message.tool or "tool result", 80)
    # a reply is described by its largest part: a call, thinking, or text
    largest = max(message.parts, key=_part_length, default=None)
    if message.role == "assistant" and isinstance(largest, ToolCall):
        return sanitize_line(f"asks for {describe_call(largest, folder)}", 80)
    text = next((p.text for p in message.parts if isinstance(p, Text) and p.text.strip()), "")
    label = "thinking" if isinstance(largest, Thinking) and not text else message.role
    words = text or (largest.text if isinstance(largest, Thinking) else message.kind)
    return sanitize_line(f"{label}: {words}" if words else label, 80)


def pair_with_calls(messages: Iterable[Message]) -> Iterator[tuple[Message, ToolCall | None]]:
    """Yield messages in order, each tool result with its call (None where it has none).

    Ids of calls may repeat: the last call before the result counts.

    Args:
        messages: messages in the order of the log.

    Yields:
        (message, call); the call is None for all messages but results whose call came before.

    Example:
        >>> import ctxkit as ck
        >>> messages = ck.read(ck.samples.path("billing")).messages
        >>> next(call.name for message, call in pair_with_calls(messages) if call is not None)
        'read_file'
    """
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    calls[part.id] = part
            yield message, None
        else:
            yield message, calls.get(message.call_id) if message.call_id else None


def map_results_by_call(messages: Iterable[Message]) -> dict[int, Message]:
    """Return the results of tool calls by the identity (`id()`) of their call.

    Args:
        messages: messages in the order of the log; keep them while the map is used.

    Returns:
        The result by `id(call)`; calls without a result are missing.

    Example:
        >>> import ctxkit as ck
        >>> messages = ck.read(ck.samples.path("billing")).messages
        >>> results = map_results_by_call(messages)
        >>> {result.role for result in results.values()}
        {'tool'}
    """
    return {id(c): m for m, c in pair_with_calls(messages) if c is not None and m.role == "tool"}


def _present_keys(arguments: dict[str, Any], names: dict[str, None]) -> Iterable[str]:
    """Return which of some names are among the arguments, in the order of the names."""
    present = [name for name in arguments if name in names]
    return present if len(present) < 2 else [name for name in names if name in arguments]


def _patched_files(call: ToolCall) -> list[str]:
    """Return the files that a patch names (`*** Update File: PATH`, as Codex writes it)."""
    text = call.raw
    if text is None:
        text = call.arguments.get("input", call.arguments.get("patch"))
    if not isinstance(text, str) or "*** " not in text:
        return []
    headers = (line for line in text.splitlines() if line.startswith(_PATCH_HEADERS))
    return list(dict.fromkeys(line.split(": ", 1)[1].strip()[:_MAX_CHARS] for line in headers))


def _line_range(arguments: dict[str, Any]) -> list[str]:
    """Return the lines of a file that a call reads, as `1-900`."""
    lines = arguments.get("view_range")
    if isinstance(lines, list) and len(lines) == 2 and all(type(n) is int for n in lines):
        return [f"{lines[0]}-{lines[1]}" if lines[1] >= 0 else f"{lines[0]}-"]
    first, last = (arguments.get(k) for k in ("start_line", "end_line"))
    if type(first) is int and type(last) is int:
        return [f"{first}-{last}"]
    # the line number and the number of lines, as in Claude Code's tool
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
    first, _, rest = command.partition("&&")
    return rest.strip() if first.split()[:1] == ["cd"] and rest.strip() else command.strip()


def _part_length(part: Any) -> int:
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
"""Globs of the names of tools whose result is the content of a file."""
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
"""Globs of the names of tools that write, move or delete a file or a part of it."""

SEARCH_TOOL_PATTERNS = ("*search*", "*grep*", "*find*", "*glob*", "*list*", "ls", "*query*")
"""Globs of the names of tools that search and change nothing."""


@lru_cache(4096)
def matches_tool(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a tool's name matches a pattern; case is ignored.

    Args:
        name: name of the tool.
        patterns: globs (`*`, `?`, `[...]`), one of which must match.
    """
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def is_read_tool(name: str) -> bool:
    """Return whether a tool reads a file, by its name."""
    return matches_tool(name, READ_TOOL_PATTERNS) and not matches_tool(name, WRITE_TOOL_PATTERNS)


def is_read_only_tool(name: str) -> bool:
    """Return whether a tool only reads or searches, by its name."""
    return is_read_tool(name) or (
        matches_tool(name, SEARCH_TOOL_PATTERNS) and not matches_tool(name, WRITE_TOOL_PATTERNS)
    )


def is_write_tool(name: str) -> bool:
    """Return whether a tool changes a file, by its name."""
    return matches_tool(name, WRITE_TOOL_PATTERNS)
