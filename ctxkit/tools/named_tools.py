"""The tools that a session is given, by the names that `%%agent --tools` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.tools.documents import document_tool
from ctxkit.tools.file_tools import file_tools
from ctxkit.tools.kernel import python_tool, shell_tool
from ctxkit.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.tools.file_tools import Shelves
    from ctxkit.tools.root import Root

FILES = "files"
"""The five file tools together; `shell` and `python` must be named."""
TOOLS = (FILES, "document", "work", "shell", "python")


def tools_of(
    named: Sequence[str | Tool],
    root: Root,
    namespace: dict[str, Any],
    store: Shelves | None = None,
    work: Sequence[Tool] = (),
) -> list[Tool]:
    """Return the tools that are named, in a root folder and with the user's variables for `python`.

    Those that read files reach the shelves of a context store, too.

    Raises:
        BadArguments: there is no such tool.
    """
    out: list[Tool] = []
    for each in named:
        if isinstance(each, Tool):
            out.append(each)
        elif each == FILES:
            out.extend(file_tools(root, store))
        elif each == "document":
            out.append(document_tool(root, store))
        elif each == "work":
            out.extend(work)
        elif each == "shell":
            out.append(shell_tool(root))
        elif each == "python":
            out.append(python_tool(namespace))
        else:
            raise BadArguments(
                f"There is no tool {each!r}; name some of {', '.join(TOOLS)}, or give tools of your"
                " own."
            )
    return out
