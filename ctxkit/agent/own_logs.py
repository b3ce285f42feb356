"""The log that an agent of another program writes of itself, found by its conversation's id."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.discoveries import found
from ctxkit.readers.reader_names import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

_NEWEST, _LARGEST = 8, 50_000_000
"""Files that are read at most, those named by the id first, and bytes of any other."""
_EARLIER = 5.0
"""Seconds by which clocks of files may be behind."""


def own_log(ident: str, since: float, home: str | None = None) -> Session | None:
    """Return the session of a conversation from the logs of known tools, or None.

    Args:
        ident: the conversation's id, as its agent told it.
        since: seconds since 1970; only files written later are looked at.
        home: where the tools' folders are; None: the user's own.
    """
    if not ident:
        return None
    changed = sorted(_changed(ident, since, home), reverse=True)
    for _, _, path in islice(changed, _NEWEST):
        for session in read_all(path, progress=False):
            if ident in (session.id, *session.details.values()) or ident in Path(path).name:
                return session
    return None


def _changed(ident: str, since: float, home: str | None) -> Iterator[tuple[bool, float, str]]:
    for _, entry, _ in found(home):
        try:
            told = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        named = ident[:8] in entry.name
        if told.st_mtime >= since - _EARLIER and (named or told.st_size < _LARGEST):
            yield named, told.st_mtime, os.fspath(entry.path)
