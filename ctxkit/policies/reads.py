"""Reads of files that were written later, so that what they hold is no longer true."""

from __future__ import annotations

from bisect import bisect_right
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.policies import contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.history import History
    from ctxkit.policies.courses import Course

READERS = ("read_file", "read", "view_file", "open_file")
WRITERS = ("write_file", "patch_file", "write", "edit", "edit_file", "multiedit", "str_replace*", "apply_patch")


def consumed(history: History, readers: Iterable[str] = READERS, writers: Iterable[str] = WRITERS) -> frozenset[int]:
    """Return positions of reads whose path a later message writes; paths are compared without case."""
    reads, writes = _files(history, readers, writers)
    return frozenset(p for p, at, path in reads if path in writes and writes[path][-1] > at)


def stale(course: Course, readers: Iterable[str] = READERS, writers: Iterable[str] = WRITERS) -> dict[int, int]:
    """Return from which call on each read is `consumed`, for those that ever are."""
    course.need_calls(lambda c: (c.id, c.name, contents.path(c)))
    reads, writes = _files(course.shown, readers, writers)
    found: dict[int, int] = {}
    for p, at, path in reads:
        later = writes.get(path, [])[bisect_right(writes.get(path, []), at) :]
        if later:
            found[p] = int(course.arrive[later[0]])
    return found


def _files(
    history: History, readers: Iterable[str], writers: Iterable[str]
) -> tuple[list[tuple[int, int, str]], dict[str, list[int]]]:
    """Return the reads, each with the positions of its result and its call, and where each path is written."""
    readers, writers = tuple(readers), tuple(writers)
    writes: dict[str, list[int]] = {}
    asked: dict[str, tuple[int, str]] = {}
    reads: list[tuple[int, int, str]] = []
    for p in np.flatnonzero(history.role("assistant", "tool")).tolist():
        message = history[p]
        for call in message.tool_calls:
            path = contents.path(call).casefold()
            if path and _among(call.name, writers):
                writes.setdefault(path, []).append(p)
            elif path and _among(call.name, readers):
                asked[call.id] = (p, path)
        if message.call_id in asked:
            reads.append((p, *asked[message.call_id]))
    return reads, writes


@lru_cache(4096)
def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)
