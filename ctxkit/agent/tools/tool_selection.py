"""Built-in tools by the names of `--tools`, and the tools for a session's brief and summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.tools.file_tools import make_document_tool, make_file_tools
from ctxkit.agent.tools.python_and_shell import make_python_tool, make_shell_tool
from ctxkit.agent.tools.tool import Tool, kit_tool
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.tools.file_tools import ExtraFiles


FILE_TOOLS = "files"
"""Name of the five file tools together; `shell` and `python` are never included by default."""
TOOL_NAMES = (FILE_TOOLS, "document", "work", "shell", "python")


def make_tools(
    names: Sequence[str | Tool],
    root: RootFolder,
    namespace: dict[str, Any],
    store: ExtraFiles | None = None,
    work: Sequence[Tool] = (),
) -> list[Tool]:
    """Return the tools of the given names.

    Args:
        names: names out of `TOOL_NAMES`, or tools of the user.
        root: folder in which the tools work.
        namespace: the user's variables, for the tool `python`.
        store: files beside the root that the file tools can read, such as a context store.
        work: the tools that `work` stands for.

    Returns:
        The tools in the order of the names; `files` and `work` stand for several.

    Raises:
        BadArguments: there is no such tool.

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import RootFolder
        >>> from ctxkit.agent.tools.tool_selection import make_tools
        >>> [tool.name for tool in make_tools(["python"], RootFolder(tempfile.mkdtemp()), {})]
        ['python']
    """
    out: list[Tool] = []
    for each in names:
        if isinstance(each, Tool):
            out.append(each)
        elif each == FILE_TOOLS:
            out.extend(make_file_tools(root, store))
        elif each == "document":
            out.append(make_document_tool(root, store))
        elif each == "work":
            out.extend(work)
        elif each == "shell":
            out.append(make_shell_tool(root))
        elif each == "python":
            out.append(make_python_tool(namespace))
        else:
            raise BadArguments(
                f"There is no tool {each!r}; name some of {', '.join(TOOL_NAMES)}, or give "
                "tools of your"
                " own."
            )
    return out


BRIEF_FILE, SUMMARY_FILE = "brief.json", "context_summary.md"
MAX_READ_CHARS = 8_000
"""Characters of the summary that are returned (fuseraft's `SessionContextPlugin.cs`)."""
MAX_WRITTEN_CHARS = 200_000


def make_inert_brief_and_summary_tools() -> tuple[Tool, ...]:
    """Make the tools for brief and summary where only their schemas are needed; they store nothing.

    Returns:
        The tools of `make_brief_and_summary_tools`, which write nothing and read empty texts.
    """
    return make_brief_and_summary_tools(lambda _, __: None, lambda _: "")


def make_brief_and_summary_tools(
    write: Callable[[str, str], None], read: Callable[[str], str]
) -> tuple[Tool, ...]:
    """Return the tools for the brief and the summary of a session.

    Args:
        write: writes a work file, by name and text.
        read: returns the text of a work file; empty if there is none.

    Returns:
        Tools that write and read the brief (a JSON object) and the summary for the next agent; a
        text that is too long, or a brief that is no object, is refused as the tool's result.
    """

    def session_context_write(text: str) -> str:
        """Write what whoever continues must know; it takes the place of what was written before."""
        if len(text) > MAX_WRITTEN_CHARS:
            raise BadArguments(f"Write at most {MAX_WRITTEN_CHARS:,} characters.")
        write(SUMMARY_FILE, redact(text))
        return f"Kept {len(text):,} characters."

    def session_context_read() -> str:
        """Read what was written by session_context_write."""
        text = read(SUMMARY_FILE)
        more = len(text) - MAX_READ_CHARS
        return (
            text if more <= 0 else f"{text[:MAX_READ_CHARS]}\n[{more:,} characters more]"
        ) or "(nothing)"

    def brief_write(brief: str) -> str:
        """Write the brief of the task as a JSON object: goal, files_to_change, verify_command,
        execution_checklist, acceptance_criteria, constraints, and what else is needed.
        """
        if len(brief) > MAX_WRITTEN_CHARS:
            raise BadArguments(f"Write at most {MAX_WRITTEN_CHARS:,} characters.")
        try:
            fields = redact_json(json.loads(brief))
            text = json.dumps(fields, indent=2, ensure_ascii=False)
        except (ValueError, RecursionError) as e:
            raise BadArguments(f"The brief is no JSON that can be kept: {str(e)[:120]}.") from None
        if not isinstance(fields, dict):
            raise BadArguments("The brief is a JSON object: name its fields.")
        write(BRIEF_FILE, text)
        return f"Kept {', '.join(map(str, fields))[:300]}."

    def brief_read(field: str = "") -> str:
        """Read the brief, or one field of it."""
        text = read(BRIEF_FILE)
        if not text:
            return "(nothing)"
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            raise StoreError("The brief on disk is no JSON: write it anew.") from None
        return get_brief_field(fields, field) if field else text[:MAX_WRITTEN_CHARS]

    functions = (session_context_write, session_context_read, brief_write, brief_read)
    return tuple(kit_tool(each) for each in functions)


def get_brief_field(brief: object, field: str) -> str:
    """Return a field of a brief by its name, else by the name in lower case; other values as JSON.

    Raises:
        BadArguments: there is no such field.
    """
    fields = brief if isinstance(brief, dict) else {}
    for name in (field, field.lower()):
        if name in fields:
            value = fields[name]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    raise BadArguments(
        f"The brief has no field {field[:80]!r}; it has {', '.join(map(str, fields))[:300]}."
    )
