"""`ctxkit.frame` and `ctxkit.arrow`: sessions as DataFrames and Arrow streams with fixed
columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.inputs import as_sessions
from ctxkit.metrics.frames import (
    counting,
    per_call,
    per_compaction,
    per_message,
    per_session,
    per_turn,
)
from ctxkit.metrics.frames.columns import build_frame
from ctxkit.session.session import with_unique_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from ctxkit.formats.inputs import SessionsLike
    from ctxkit.metrics.frames.columns import FrameColumn
    from ctxkit.metrics.frames.counting import Count
    from ctxkit.session.session import Session


__all__ = ["FRAME_COLUMNS", "frame"]
__dir__ = public_dir(__all__)


_FRAMES = {
    "message": per_message,
    "call": per_call,
    "turn": per_turn,
    "compaction": per_compaction,
    "session": per_session,
}
FRAME_COLUMNS: dict[str, tuple[FrameColumn, ...]] = {
    name: module.COLUMNS for name, module in _FRAMES.items()
}
"""The columns of each frame: name, dtype, unit, meaning."""


def frame(
    of: SessionsLike,
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
    given = collect_sessions(of, children=children)
    with pause_gc():
        if per == "message":
            data = per_message.rows(given, count)
        elif per == "compaction":
            data = per_compaction.rows(given, count, unmarked=True)
        else:
            data = _FRAMES[per].rows(given)
        return build_frame(FRAME_COLUMNS[per], data)


def collect_sessions(of: SessionsLike, *, children: bool = False) -> list[Session]:
    """Return the sessions given, each under an id of its own, with subagents' where asked."""
    return with_unique_ids(list(_with_children(as_sessions(of), children=children)))


def _with_children(given: Iterable[Session], *, children: bool) -> Iterable[Session]:
    for session in given:
        yield session
        if children:
            yield from _with_children(session.children, children=True)


_BATCH_SESSIONS = 64
"""Sessions whose rows make a batch."""


def arrow(
    of: SessionsLike,
    per: str = "turn",
    *,
    count: counting.Count = None,
    children: bool = False,
    sessions: int = _BATCH_SESSIONS,
) -> Any:
    """Return a `pyarrow.RecordBatchReader` over the rows of `ctxkit.frame(of, per)`, made as they
    are read.

    Its columns have the names and the order of the frame: int64, double, bool, large_string,
    timestamp[ns, UTC]; what the frame has as missing is null. Whatever takes Arrow's stream
    interface reads it once: `polars.from_arrow`, `duckdb.from_arrow`, `pyarrow.parquet`.

    Args:
        of: see `ctxkit.frame`, as `per`, `count` and `children`.
        per: what a row is.
        count: how messages are counted.
        children: take the sessions of subagents too.
        sessions: so many of them make a batch; a batch and the sessions are what is in memory.

    Raises:
        BadArguments: as `ctxkit.frame`, or `sessions` is below 1.
        ReadError: a file cannot be read, or holds no session.
    """
    import pyarrow as pa

    if not isinstance(sessions, int) or sessions < 1:
        raise BadArguments(
            f"sessions= is how many sessions make a batch, at least 1, not {sessions!r}."
        )
    given = collect_sessions(of, children=children)
    empty = _arrow_table([], per, count)

    def batches() -> Iterator[Any]:
        for first in range(0, len(given), sessions):
            yield from _arrow_table(given[first : first + sessions], per, count).to_batches()

    return pa.RecordBatchReader.from_batches(empty.schema, batches())


def _arrow_table(given: list[Session], per: str, count: counting.Count) -> Any:
    """Return the frame of some sessions as a table of Arrow."""
    import pyarrow as pa

    made = pa.Table.from_pandas(frame(given, per, count=count), preserve_index=False)
    return made.replace_schema_metadata(None)
