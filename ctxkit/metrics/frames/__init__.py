"""`ctxkit.frame` and `ctxkit.arrow`: sessions as DataFrames and Arrow streams with fixed
columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.frames import per_call, per_compaction, per_message, per_session, per_turn
from ctxkit.session.session import with_unique_ids

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.metrics.frames.frame_column import FrameColumn
    from ctxkit.metrics.message_token_counts import Count
    from ctxkit.session.session import Session


__all__ = ["FRAME_COLUMNS", "frame"]
__dir__ = make_dunder_dir(__all__)


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
    """Make a DataFrame of sessions, one row per message, call, turn, compaction or session.

    Args:
        of: a session, or any number of them; a path, a folder or a list of messages means the
            sessions in it.
        per: what a row is: "message", "call", "turn", "compaction" or "session".
        count: how messages are counted: None for a quarter of their characters, "exact" for the
            tokenizer, "anchored" for sizes scaled to recorded usage, the name of an estimate ("pi",
            "fuseraft", ...), or a token counter. Calls, turns and sessions are never counted: they
            hold what the log recorded.
        children: include the sessions of subagents, each after its parent.

    Returns:
        One frame over all sessions. Its columns do not depend on the sessions; `docs/frames.md`
        defines them, with units. What a log does not state is missing, never zero. Texts are in no
        frame: `session.path[position].text` is that of a message row, and `ck.find` searches texts.

    Raises:
        BadArguments: `per` names no frame, `count` no counter, or an argument is no session.
        ReadError: a file cannot be read, or holds no session.

    Example:
        >>> import ctxkit as ck
        >>> calls = ck.frame(ck.samples.path("billing"), per="call")
        >>> calls[["call", "prompt_tokens", "cache_read_tokens"]].iloc[1].tolist()
        [1, 2200, 1617]
    """
    if per not in _FRAMES:
        raise BadArguments(
            f"per= takes one of {', '.join(_FRAMES)}, not {per!r}.{did_you_mean(str(per), _FRAMES)}"
        )
    sessions = collect_sessions(of, children=children)
    with pause_gc():
        if per == "message":
            data = per_message.rows(sessions, count)
        elif per == "compaction":
            data = per_compaction.rows(sessions, count, unmarked=True, attempts=True)
        else:
            data = _FRAMES[per].rows(sessions)
        from ctxkit.metrics.frames.typed_frame_builder import build_frame

        return build_frame(FRAME_COLUMNS[per], data)


def collect_sessions(of: SessionsLike, *, children: bool = False) -> list[Session]:
    """Return the given sessions under unique ids, with those of subagents if `children` is True.

    Args:
        of: a session, a path, or a list of these.
        children: include the sessions of subagents.
    """
    return with_unique_ids(list(_with_children(as_sessions(of), children=children)))


def _with_children(sessions: Iterable[Session], *, children: bool) -> Iterable[Session]:
    for session in sessions:
        yield session
        if children:
            yield from _with_children(session.children, children=True)


_BATCH_SESSIONS = 64
"""Sessions whose rows make one Arrow batch."""


def arrow(
    of: SessionsLike,
    per: str = "turn",
    *,
    count: Count = None,
    children: bool = False,
    sessions: int = _BATCH_SESSIONS,
) -> Any:
    """Stream the rows of `ctxkit.frame` as Arrow record batches.

    Args:
        of: a session, or any number of them, as for `ctxkit.frame`.
        per: what a row is, as for `ctxkit.frame`.
        count: how messages are counted, as for `ctxkit.frame`.
        children: include the sessions of subagents.
        sessions: sessions per batch; one batch and the sessions are in memory at a time.

    Returns:
        A `pyarrow.RecordBatchReader` that makes the batches as they are read, once. Columns have
        the names and the order of the frame, with the types int64, double, bool, large_string and
        timestamp[ns, UTC]; missing values are null. `polars.from_arrow`, `duckdb.from_arrow` and
        `pyarrow.parquet` read it.

    Example:
        >>> import ctxkit as ck
        >>> ck.metrics.arrow(ck.samples.path("billing"), per="compaction").read_all().num_rows
        2

    Raises:
        BadArguments: as `ctxkit.frame`, or `sessions` is below 1.
        ReadError: a file cannot be read, or holds no session.
    """
    import pyarrow as pa

    if not isinstance(sessions, int) or sessions < 1:
        raise BadArguments(
            f"sessions= is how many sessions make a batch, at least 1, not {sessions!r}."
        )
    selected = collect_sessions(of, children=children)
    empty = _arrow_table([], per, count)

    def batches() -> Iterator[Any]:
        for first in range(0, len(selected), sessions):
            yield from _arrow_table(selected[first : first + sessions], per, count).to_batches()

    return pa.RecordBatchReader.from_batches(empty.schema, batches())


def _arrow_table(sessions: list[Session], per: str, count: Count) -> Any:
    """Return the frame of some sessions as an Arrow table."""
    import pyarrow as pa

    table = pa.Table.from_pandas(frame(sessions, per, count=count), preserve_index=False)
    return table.replace_schema_metadata(None)
