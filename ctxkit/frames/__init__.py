"""Sessions as DataFrames with fixed columns: one observation a row, every number with
its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.faces import listed
from ctxkit.frames import per_call, per_compaction, per_message, per_session, per_turn
from ctxkit.frames.frame_columns import build
from ctxkit.garbage import without_collection
from ctxkit.readers.given import as_sessions
from ctxkit.session import apart

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from ctxkit.frames.counts import Count
    from ctxkit.frames.frame_columns import FrameColumn
    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session

__all__ = ["COLUMNS", "frame"]
__dir__ = listed(__all__)

_FRAMES = {
    "message": per_message,
    "call": per_call,
    "turn": per_turn,
    "compaction": per_compaction,
    "session": per_session,
}
COLUMNS: dict[str, tuple[FrameColumn, ...]] = {
    name: module.COLUMNS for name, module in _FRAMES.items()
}
"""The columns of each frame: name, dtype, unit, meaning."""


def frame(
    of: GivenAll,
    per: str = "turn",
    *,
    count: Count = None,
    children: bool = False,
) -> pd.DataFrame:
    """Return one frame over all sessions given, with the columns of ``COLUMNS[per]`` whatever the
    sessions hold.

    Args:
        of: a session, or any number of them; a path, a folder or a list of messages means the
            sessions in it.
        per: what a row is: "message", "call", "turn", "compaction" or "session".
        count: how messages are counted: None for a quarter of their characters, "exact" for the
            tokenizer, "anchored" for sizes scaled to recorded usage, the name of an estimate ("pi",
            "fuseraft", ...), or a token counter. Calls, turns and sessions are never counted: they
            hold what the log recorded.
        children: take the sessions of subagents too, each after its parent.

    Raises:
        BadArguments: `per` names no frame, `count` no counter, or something given is no session.
        ReadError: a file cannot be read, or holds no session.
    """
    if per not in _FRAMES:
        raise BadArguments(
            f"per= takes one of {', '.join(_FRAMES)}, not {per!r}.{did_you_mean(str(per), _FRAMES)}"
        )
    given = given_apart(of, children=children)
    with without_collection():
        if per == "message":
            data = per_message.rows(given, count)
        elif per == "compaction":
            data = per_compaction.rows(given, count, unmarked=True)
        else:
            data = _FRAMES[per].rows(given)
        return build(COLUMNS[per], data)


def given_apart(of: GivenAll, *, children: bool = False) -> list[Session]:
    """Return the sessions given, each under an id of its own, with subagents' where asked."""
    return apart(list(_all(as_sessions(of), children=children)))


def _all(given: Iterable[Session], *, children: bool) -> Iterable[Session]:
    for session in given:
        yield session
        if children:
            yield from _all(session.children, children=True)
