"""Which tools read a file and which change one, by their names: one table for policies and metrics.

A system whose own list differs on purpose says it as a setting of its member.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

READERS = ("read*", "*_read*", "view*", "*_view*", "cat", "cat_*", "open*", "*_open*", "get_file*")
"""Names or globs of the tools whose result is the content of a file."""
WRITERS = (
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

SEARCHERS = ("*search*", "*grep*", "*find*", "*glob*", "*list*", "ls", "*query*")
"""Names or globs of the tools that look for something and change nothing."""


@lru_cache(4096)
def among(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True for a name that is one of these or fits a glob, upper and lower case alike."""
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


def reads(name: str) -> bool:
    """Return True for a tool that reads a file."""
    return among(name, READERS) and not among(name, WRITERS)


def looks(name: str) -> bool:
    """Return True for a tool that reads or searches and does nothing else."""
    return reads(name) or (among(name, SEARCHERS) and not among(name, WRITERS))


def writes(name: str) -> bool:
    """Return True for a tool that changes a file."""
    return among(name, WRITERS)
