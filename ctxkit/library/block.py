"""The index of the context store as it stands in a prompt (`SystemPromptBuilder.cs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.library.index import StoreItem

HEAD = "CONTEXT — reference material imported for this session (use read_file to access):"
MOST_CHARS = 8_000
"""Characters of the block; what does not fit is counted in its last line."""
MOST_FILES = 20
"""Files of an item that are named (`shelves.LOOKED_AT`)."""


def index_block(items: Mapping[str, StoreItem]) -> str:
    """Return the block that says what is in the store; empty where nothing is.

    Args:
        items: for each item its path, as `Library.items` gives them.
    """
    if not items:
        return ""
    lines, size, n = [HEAD], len(HEAD), 0
    for path, item in sorted(items.items(), key=lambda each: each[1].name):
        said = _item(path, item)
        if size + sum(map(len, said)) + len(said) > MOST_CHARS:
            lines.append(f"  ({len(items) - n} more are not named here: use list_files)")
            break
        lines += said
        size, n = size + sum(map(len, said)) + len(said), n + 1
    return "\n".join(lines)


def _item(path: str, item: StoreItem) -> list[str]:
    about = line(item.description or "", 300)
    head = f"  [{item.name}]" + (f" — {about}" if about else "")
    names = [line(f"{path}/{f.relative_path}", 300) for f in item.files]
    if len(names) == 1:
        return [f"{head}: {names[0]}"]
    more = len(names) - MOST_FILES
    shown = [f"    {name}" for name in names[:MOST_FILES]]
    rest = [f"    ({more} more: list_files {path})"] if more > 0 else []
    return [f"{head} ({len(names)} files):", *shown, *rest]
