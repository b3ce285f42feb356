"""Reads of files that were written later, so that what they hold is no longer true."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.history.columns import TOOL
from ctxkit.texts import contents
from ctxkit.tools.tool_names import READERS, WRITERS, among

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.messages import ToolCall
    from ctxkit.schedules import ScheduleView


class _File(NamedTuple):
    """Positions of the replies that write a file, and of its reads with the replies that asked."""

    writes: set[int]
    fresh: dict[int, int]
    stale: dict[int, int]


def stale(
    view: ScheduleView, readers: tuple[str, ...] = READERS, writers: tuple[str, ...] = WRITERS
) -> Iterator[tuple[int, int, bool]]:
    """Yield read, call, and whether a later reply than the one that asked for it wrote the file.

    Calls are taken as they were said, those of a reply that a part before hides as not there.
    Paths are compared without case.
    """
    files: dict[str, _File] = view.memory.setdefault(("files", readers, writers), {})
    for call, came, went, _ in view.news("assistant", "tool"):
        touched = dict.fromkeys(path for p in went for path in _written(view, p, writers))
        for path in touched:
            files[path].writes.difference_update(went)
        for p in came:
            for path in _written(view, p, writers):
                touched[path] = None
                _file(files, path).writes.add(p)
            path = _read(view, p, readers)
            if path and p not in _file(files, path).stale:
                touched[path] = None
                files[path].fresh[p] = _asker(view, p)
        for path in touched:
            for p, is_stale in _settled(files[path]):
                yield p, call, is_stale


def _settled(file: _File) -> Iterator[tuple[int, bool]]:
    """Yield each read that became stale (True), or is so no more (False)."""
    last = max(file.writes, default=-1)
    for p in [p for p, at in file.fresh.items() if at < last]:
        file.stale[p] = file.fresh.pop(p)
        yield p, True
    for p in [p for p, at in file.stale.items() if at >= last]:
        file.fresh[p] = file.stale.pop(p)
        yield p, False


def _file(files: dict[str, _File], path: str) -> _File:
    return files.setdefault(path, _File(set(), {}, {}))


def _written(view: ScheduleView, p: int, writers: tuple[str, ...]) -> list[str]:
    """Return the paths that a reply writes."""
    if view.role(p) == TOOL:
        return []
    return [path for call in view.said_calls(p) if (path := path_of(call, writers))]


def _read(view: ScheduleView, p: int, readers: tuple[str, ...]) -> str:
    """Return the path whose content a result is; an empty string where it is none."""
    call = view.asked(p) if view.role(p) == TOOL else None
    return path_of(call, readers) if call is not None else ""


def _asker(view: ScheduleView, p: int) -> int:
    """Return the position of the reply that asked for a result; -1 where it is not there."""
    at = view.rows.place(view.rows.group(p))
    return -1 if at is None else at


def path_of(call: ToolCall, tools: tuple[str, ...]) -> str:
    """Return the path that a call of one of some tools is about, without case; else nothing."""
    return contents.path(call).casefold() if among(call.name, tools) else ""
