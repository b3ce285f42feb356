"""The same tables as Arrow streams: what polars, DuckDB and others take without a pandas frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.frames import counts, frame, given_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session

_MANY = 64
"""Sessions whose rows make a batch."""


def arrow(
    of: GivenAll,
    per: str = "turn",
    *,
    count: counts.Count = None,
    children: bool = False,
    sessions: int = _MANY,
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
    given = given_apart(of, children=children)
    empty = _table([], per, count)

    def batches() -> Iterator[Any]:
        for first in range(0, len(given), sessions):
            yield from _table(given[first : first + sessions], per, count).to_batches()

    return pa.RecordBatchReader.from_batches(empty.schema, batches())


def _table(given: list[Session], per: str, count: counts.Count) -> Any:
    """Return the frame of some sessions as a table of Arrow."""
    import pyarrow as pa

    made = pa.Table.from_pandas(frame(given, per, count=count), preserve_index=False)
    return made.replace_schema_metadata(None)
