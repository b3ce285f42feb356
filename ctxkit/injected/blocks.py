"""A block of a prompt, and what blocks are made of."""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  read by dataclasses
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  as above
from typing import NamedTuple

from ctxkit.display.markup import plain
from ctxkit.library import Library  # noqa: TC001  as above
from ctxkit.redaction import redact
from ctxkit.tools.root import Root  # noqa: TC001  as above


class Block(NamedTuple):
    """A section's text as it goes into a prompt."""

    name: str
    text: str
    raw_chars: int
    """Characters of what it was made from: of a file that was cut, all of it."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What sections are made of; what is not there is a section that says nothing."""

    folder: Path
    """Where relative paths of the tools begin."""
    root: Root | None = None
    """The folder that the user named: its files speak for the project; None: none is read."""
    own: str = ""
    """The agent's own instructions."""
    store: Library | None = None
    """The context store of the working folder."""
    memory: Callable[[], str] | None = None
    """What a memory gives for the next prompt, asked before each turn."""


def block(name: str, text: str, raw_chars: int | None = None) -> Block | None:
    """Return a block of a text, without keys and control characters; None where it says nothing."""
    clean = redact(plain(text)).strip()
    if not clean:
        return None
    return Block(name, clean, max(len(text.strip()), raw_chars or 0))


def fenced(text: str) -> str:
    """Return a text between fences that are longer than any in it, so that it cannot end them.

    Control characters go first: without one between them, ticks may be a fence.
    """
    text, ticks = plain(text), "```"
    while ticks in text:
        ticks += "`"
    return f"{ticks}\n{text.rstrip()}\n{ticks}"
