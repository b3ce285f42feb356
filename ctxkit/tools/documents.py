"""A tool that reads documents met during a session: pages, slides, single sheets."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from ctxkit.documents import document as read
from ctxkit.errors import BadArguments
from ctxkit.tools import passages
from ctxkit.tools.file_tools import opened
from ctxkit.tools.tool import Tool, kit_tool

if TYPE_CHECKING:
    from ctxkit.documents import Document
    from ctxkit.tools.file_tools import Shelves
    from ctxkit.tools.root import Root

_RANGE = re.compile(r"(?:(page|slide)s? )?(\d{1,6})(?: ?- ?(\d{1,6}))?", re.IGNORECASE)
_MOST = 5_000


def document_tool(root: Root, shelves: Shelves | None = None) -> Tool:
    """Return the tool `document`, confined to a root folder and shelves."""

    def document(path: str, part: str = "", start: int = 1, end: int | None = None) -> str:
        """Read a pdf, docx, pptx or xlsx file as text.
        Without `part`: its parts and their sizes. `part`: a sheet's name, a page or slide number,
        a range such as 3-7, or `all`; `start` and `end`: line numbers of that text.
        """
        with opened(root, shelves, path) as file:
            found = read(file, path, _wanted(path, part))
        if part and not found.pieces:
            with opened(root, shelves, path) as file:
                names = ", ".join(repr(p.name) for p in read(file, path).pieces[:50])
            raise BadArguments(f"{path[:200]!r} has no part {part[:80]!r}; it has {names}.")
        text = found.text if part else _outline(found)
        return passages.read(io.BytesIO(text.encode()), path, start, end)

    return kit_tool(document)


def _wanted(path: str, part: str) -> list[str] | None:
    """Return the names of the pieces that a part means; None: all of them."""
    if not part or part == "all":
        return None
    found = _RANGE.fullmatch(part.strip())
    if found is None or path.lower().endswith((".xlsx", ".docx")):
        return [part]
    first = int(found[2])
    last = min(int(found[3] or first), first + _MOST)
    return [f"{kind} {n}" for n in range(first, last + 1) for kind in ("page", "slide")]


def _outline(found: Document) -> str:
    """Return what a document has, and how much text each part is."""
    lines = [f"{p.name}: {len(p.text):,} characters" for p in found.pieces]
    return "\n".join([*lines, *([f"[{found.note}]"] if found.note else [])])
