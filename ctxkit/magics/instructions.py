"""The instructions of a session: a text, a file, or a variable that holds a text."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, StoreError
from ctxkit.injected.files import NAMES
from ctxkit.tools.root import Root

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT = NAMES[0]
_MOST = 200_000
"""Bytes of a file of instructions."""
_FILES = (".md", ".txt", ".prompt", ".rst")


def instructions(words: str, names: Mapping[str, Any], root: Path | None) -> str:
    """Return the instructions that `--system` means.

    Args:
        words: a variable's name, a path in the working folder or else in the root, or the text.
        names: the user's variables.
        root: folder of the file tools; None: a scratch folder.

    Raises:
        BadArguments: a file that is not there, no text, or too large; or nothing is said.
    """
    held = names.get(words) if words.isidentifier() else None
    text = held if isinstance(held, str) else _file(words, root)
    text = words if text is None else text
    if not text.strip():
        raise BadArguments(f"`--system {line(words, 60)}` says nothing; leave it out.")
    return text


def offered(root: Path | None, *, read: bool) -> str:
    """Return a note where a project's own instructions lie in the root, and are read or not."""
    if root is None or not root.is_dir():
        return ""
    place = Root(root)
    there = " and ".join(name for name in NAMES if place.is_file((name,)))
    if there and read:
        return (
            f"Note: {there} of the root stands in the prompt, as the project's word; "
            "`--sections -project` leaves it out."
        )
    if not place.is_file((PROJECT,)):
        return ""
    return f"Note: the root has an {PROJECT}; `--system {PROJECT}` begins a session with it."


def _file(words: str, root: Path | None) -> str | None:
    """Return what a file says, or None where the words are no path."""
    if "\n" in words or len(words) > 1000:
        return None
    here = Path(words).expanduser()
    if os.path.isfile(here):  # noqa: PTH113  a name too long is no error here
        with here.open("rb") as file:
            return _text(file.read(_MOST + 1), words)
    if root is not None and root.is_dir() and not here.is_absolute():
        place = Root(root)
        with suppress(StoreError):
            if place.is_file(place.parts(words)):
                return _text(place.read(words, _MOST + 1), words)
    if here.suffix in _FILES and " " not in words:
        raise BadArguments(f"There is no file {line(words, 200)!r}, neither here nor in the root.")
    return None


def _text(data: bytes, name: str) -> str:
    if len(data) > _MOST:
        raise BadArguments(f"{line(name, 200)!r} has more than {_MOST:,} bytes: that is no prompt.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadArguments(f"{line(name, 200)!r} is no text in UTF-8.") from None
