"""Which messages a reader asks for: by role, tool, file, failure and words, in what order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.display.markup import line
from ctxkit.widgets.scenes import failed, searched
from ctxkit.widgets.sought import Sought, sought

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.widgets.scenes import ListLine, Scenes

_MOST = 200
"""Tools and files that are offered."""


class Wanted(NamedTuple):
    """What is asked for; what is empty does not matter."""

    whole: bool = False
    """Of the whole session, not of one call."""
    largest: bool = True
    """The largest first, not as sent."""
    role: str = ""
    tool: str = ""
    file: str = ""
    errors: bool = False
    words: str = ""
    regex: bool = False

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Wanted:
        """Return what a browser asked for; what it should not say is left out."""

        def text(name: str) -> str:
            value = asked.get(name)
            return value[:1000] if isinstance(value, str) else ""

        whole, largest, errors, regex = (
            asked.get(name) is True for name in ("whole", "largest", "errors", "regex")
        )
        role, tool, file, words = map(text, ("role", "tool", "file", "words"))
        return cls(whole, largest, role, tool, file, errors, words, regex)


class Chosen(NamedTuple):
    """The lines that are asked for, in their order, and what is to be said of the search."""

    lines: Sequence[ListLine]
    said: str = ""


def chosen(scenes: Scenes, items: Sequence[ListLine], wanted: Wanted) -> Chosen:
    """Return the lines that hold what is wanted.

    Raises:
        BadArguments: the pattern is no regular expression.
    """
    lines, said = items, ""
    if wanted.role or wanted.tool or wanted.file or wanted.errors:
        lines = [i for i in items if _holds(scenes, i, wanted)]
    if wanted.words:
        found = sought((searched(i.message) for i in lines), wanted.words, regex=wanted.regex)
        said, lines = _told(found, lines), [lines[row] for row in found.rows]
    if wanted.largest and scenes.measured:
        lines = sorted(lines, key=lambda i: (-(i.tokens or 0), i.position))
    return Chosen(lines, said)


def _told(found: Sought, lines: Sequence[ListLine]) -> str:
    if found.until is None:
        return ""
    return (
        f"The search was ended after two seconds at message {found.until:,} of {len(lines):,}: "
        "use a simpler pattern, or fewer messages."
    )


def _holds(scenes: Scenes, item: ListLine, wanted: Wanted) -> bool:
    m = item.message
    return (
        (not wanted.role or m.role == wanted.role)
        and (not wanted.errors or failed(m))
        and (not wanted.tool or wanted.tool in _tools(scenes, item))
        and (not wanted.file or wanted.file in scenes.files(m))
    )


def _tools(scenes: Scenes, item: ListLine) -> list[str]:
    own = scenes.asked(item.message)
    calls = (own,) if own is not None else item.message.tool_calls
    return [line(n, 60) for n in (*(c.name for c in calls), item.message.tool) if n]


def choices(scenes: Scenes) -> dict[str, list[list[Any]]]:
    """Return the roles, tools and files of a session with how many messages each has."""
    every = scenes.whole
    return {
        "role": _counted(i.message.role for i in every),
        "tool": _counted(name for i in every for name in dict.fromkeys(_tools(scenes, i))),
        "file": _counted(f for i in every for f in dict.fromkeys(scenes.files(i.message))),
        "errors": [["", sum(failed(i.message) for i in every)]],
    }


def _counted(names: Iterable[str]) -> list[list[Any]]:
    return [[name, n] for name, n in Counter(names).most_common(_MOST)]
