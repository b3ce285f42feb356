"""Turns, segments and compactions of a snapshot log."""
# Resets of the running sums divide a session into segments. A reset is a marker (recorded), or
# derived: an agent's running sum before a turn (cumulative - spent) is below its sum after the
# previous turn, which means that the process was resumed and its sums began at zero. A resume
# resets all agents at once; falls of other agents since then are the same event. A running sum
# above the expected one means that lines are lost (a gap). All is computed on arrays: O(n log n)
# for the sorting by session and agent.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ctxkit.errors import BadArguments
from ctxkit.formats.snapshots.column_blocks_and_faults import SNAPSHOT_FIELDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARKER_AGENT = "system"
TURN_DTYPES = {
    "ts": "datetime64[ns, UTC]",
    "session": "string",
    "agent": "string",
    **dict.fromkeys(SNAPSHOT_FIELDS[3:9], "Int64"),
    "compaction_occurred": "boolean",
    "context_tokens": "Int64",
    "cache_read_tokens": "Int64",
    "cost_usd": "Float64",
    "cost_source": "string",
    "model": "string",
    "calls_n": "Int64",
    "source": "string",
}
"""Columns and dtypes of ``ctxkit.frame(per="turn")``, in a higher layer; a test compares them."""
_SEGMENT_KEY = ["session", "segment", "agent"]


def turns(log: pd.DataFrame) -> pd.DataFrame:
    """Return the turns of a log, without markers.

    Args:
        log: a frame of `read_snapshots` with all columns.

    Returns:
        One row per turn, with the columns of ``ctxkit.frame(per="turn")``. `compaction_occurred` is
        True on a turn that a compaction followed. What a snapshot does not have (context size,
        cached tokens, cost, model) is missing.

    Raises:
        BadArguments: the frame lacks a column of a log.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter, read_snapshots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...         writer.marker(1)
        ...     log = read_snapshots(folder, cache=False)
        >>> len(log), turns(log)["compaction_occurred"].tolist()
        (2, [True])
    """
    arrays = _to_arrays(log)
    turn_rows = np.flatnonzero(~arrays.marker)
    is_compacted_after = np.zeros(len(log), np.bool_)
    last_turns = _find_last_turns(arrays, np.flatnonzero(arrays.marker))
    is_compacted_after[last_turns[last_turns >= 0]] = True
    table = log.iloc[turn_rows].reset_index(drop=True)
    table["compaction_occurred"] = is_compacted_after[turn_rows]
    table["source"] = "recorded"
    return table.reindex(columns=list(TURN_DTYPES)).astype(TURN_DTYPES)


def segments(log: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the segments of a log: a session's turns between two resets of the running sums.

    Args:
        log: a frame of `read_snapshots` with all columns.

    Returns:
        One row per segment and agent. Columns: `session segment agent turns_n first_turn last_turn
        turn_input_tokens turn_output_tokens largest_turn_tokens cumulative_input_tokens warn_at
        cutover_at gaps_n reached ended_by`. `turn_input_tokens` is the sum over the segment,
        `cumulative_input_tokens` the last running sum in the log; `reached` is "warn", "cutover" or
        "", by that running sum; `ended_by` is "compaction", "resume" or "end"; `gaps_n` is the
        number of turns before which lines are lost, as the running sum shows.

    Raises:
        BadArguments: the frame lacks a column of a log.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter, read_snapshots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...         writer.marker(1)
        ...         writer.turn("Coder", 1, 300, 40)
        ...     log = read_snapshots(folder, cache=False)
        >>> segments(log)["ended_by"].tolist()
        ['compaction', 'end']
    """
    arrays = _to_arrays(log)
    resets = _find_resets(arrays)
    table = _make_turn_table(log, arrays, resets)
    groups = table.groupby(_SEGMENT_KEY, sort=False, observed=True, dropna=False)
    segment_table = groups.agg(
        turns_n=("row", "size"),
        first_turn=("turn", "first"),
        last_turn=("turn", "last"),
        turn_input_tokens=("turn_input_tokens", "sum"),
        turn_output_tokens=("turn_output_tokens", "sum"),
        largest_turn_tokens=("turn_input_tokens", "max"),
        cumulative_input_tokens=("cumulative_input_tokens", "last"),
        warn_at=("warn_at", "last"),
        cutover_at=("cutover_at", "last"),
        gaps_n=("gap", "sum"),
    ).reset_index()
    cumulative = segment_table["cumulative_input_tokens"]
    has_warned = (cumulative >= segment_table["warn_at"]).fillna(False)  # noqa: FBT003
    has_cutover = (cumulative >= segment_table["cutover_at"]).fillna(False)  # noqa: FBT003
    segment_table["reached"] = np.select([has_cutover, has_warned], ["cutover", "warn"], "")
    ends = {(reset.session, reset.reset_number): reset.kind for reset in resets}
    pairs = zip(table["of"].to_numpy()[groups.head(1)["at"]], segment_table["segment"], strict=True)
    segment_table["ended_by"] = [
        ends.get((int(session), int(number)), "end") for session, number in pairs
    ]
    return segment_table


def compactions(log: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the resets of a log, with each agent's turns before and after.

    Args:
        log: a frame of `read_snapshots` with all columns.

    Returns:
        One row per reset of a session and agent. Columns: `session compaction kind ts agent
        marker_turn after_turn turn_before turn_after turn_input_tokens_before
        turn_input_tokens_after cumulative_input_tokens_before cumulative_input_tokens_after source
        sizes_source`. `compaction` numbers the resets of a session from 0; `kind` is "compaction"
        (a marker, `source` "recorded") or "resume" (`source` "derived"); `marker_turn` is the
        marker's own count, `after_turn` the index of the session's last turn before it. Values
        before and after are derived; they are tokens billed in turns, not context sizes. An agent
        without a turn on one side has missing values there.

    Raises:
        BadArguments: the frame lacks a column of a log.

    Example:
        >>> import tempfile
        >>> from ctxkit.formats.snapshots import SnapshotWriter, read_snapshots
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with SnapshotWriter(f"{folder}/ctx_snapshots.jsonl", "a1b2c3d4") as writer:
        ...         writer.turn("Coder", 0, 1_200, 80)
        ...         writer.marker(1)
        ...         writer.turn("Coder", 1, 300, 40)
        ...     log = read_snapshots(folder, cache=False)
        >>> compactions(log)[["kind", "turn_before", "turn_after"]].values.tolist()
        [['compaction', 0, 1]]
    """
    arrays = _to_arrays(log)
    resets = _find_resets(arrays)
    reset_rows = np.array([reset.row_index for reset in resets], np.int64)
    table = _make_turn_table(log, arrays, resets)
    reset_frame = pd.DataFrame(
        {
            "of": [reset.session for reset in resets],
            "compaction": [reset.reset_number for reset in resets],
        },
        dtype="int64",
    )
    reset_frame["kind"] = pd.array([reset.kind for reset in resets], dtype="string")
    reset_frame["session"] = log["session"].iloc[reset_rows].astype("string").array
    reset_frame["ts"] = log["ts"].iloc[reset_rows].array
    reset_frame["marker_turn"] = log["turn"].iloc[reset_rows].where(arrays.marker[reset_rows]).array
    last_turns = _find_last_turns(arrays, reset_rows)
    reset_frame["after_turn"] = log["turn"].iloc[last_turns].where(last_turns >= 0).array
    side_columns = [
        "of",
        "segment",
        "agent",
        "turn",
        "turn_input_tokens",
        "cumulative_input_tokens",
    ]
    last_of_segment = table.drop_duplicates(_SEGMENT_KEY, keep="last")[side_columns]
    first_of_segment = table.drop_duplicates(_SEGMENT_KEY, keep="first")[side_columns].assign(
        segment=lambda t: t["segment"] - 1
    )
    before_and_after = last_of_segment.merge(
        first_of_segment, how="outer", on=["of", "segment", "agent"], suffixes=("_before", "_after")
    )
    reset_table = reset_frame.merge(
        before_and_after, how="left", left_on=["of", "compaction"], right_on=["of", "segment"]
    )
    reset_table["source"] = pd.array(
        np.where(reset_table["kind"] == "resume", "derived", "recorded"), dtype="string"
    )
    reset_table["sizes_source"] = pd.array(["derived"] * len(reset_table), dtype="string")
    names = ["session", "compaction", "kind", "ts", "agent", "marker_turn", "after_turn"]
    names += [f"{name}_{side}" for name in side_columns[3:] for side in ("before", "after")]
    return reset_table[[*names, "source", "sizes_source"]]


# -- resets of the running sums -------------------------------------------------------------------


class _LogRows(NamedTuple):
    """A log as arrays, with one item per row."""

    session: NDArray[np.int64]
    agent: NDArray[np.int64]
    marker: NDArray[np.bool_]
    base: NDArray[np.float64]
    """The running sum before the turn; NaN if unknown."""
    cumulative: NDArray[np.float64]


class _Reset(NamedTuple):
    """A reset of the running sums: a marker, or the first row after a resume."""

    session: int
    reset_number: int
    row_index: int
    kind: str


def _to_arrays(log: pd.DataFrame) -> _LogRows:
    missing = [name for name in SNAPSHOT_FIELDS if name not in log.columns]
    if missing:
        raise BadArguments(
            f"Give a frame of read_snapshots with all its columns: {', '.join(missing)} not there."
        )
    session = pd.factorize(log["session"], use_na_sentinel=False)[0].astype(np.int64)
    code, names = pd.factorize(log["agent"], use_na_sentinel=False)
    folded_codes = pd.factorize(np.array([str(name).lower() for name in names], dtype=object))[0]
    agent = folded_codes[code] if len(names) else code.astype(np.int64)
    input_tokens = log["turn_input_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    cumulative = log["cumulative_input_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    is_marker = log["compaction_occurred"].to_numpy(dtype=np.bool_, na_value=False)
    is_system = np.array([str(name).lower() == MARKER_AGENT for name in names], np.bool_)
    is_empty_system = is_system[code] & ~(input_tokens > 0) if len(names) else is_marker
    return _LogRows(
        session, agent, is_marker | is_empty_system, cumulative - input_tokens, cumulative
    )


def _find_last_turns(rows: _LogRows, row_indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the last turn of the same session before it, or -1."""
    turn_rows = np.flatnonzero(~rows.marker)
    stride = len(rows.session) + 1
    keys = np.sort(rows.session[turn_rows] * stride + turn_rows)
    positions = np.searchsorted(keys, rows.session[row_indices] * stride + row_indices) - 1
    if not len(keys):
        return np.full(len(row_indices), -1)
    return np.where(
        (positions >= 0) & (keys[positions] // stride == rows.session[row_indices]),
        keys[positions] % stride,
        -1,
    )


def _find_previous_turns(rows: _LogRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of turns, and for each the same agent's previous turn, or -1."""
    turn_rows = np.flatnonzero(~rows.marker)
    order = turn_rows[np.lexsort((turn_rows, rows.agent[turn_rows], rows.session[turn_rows]))]
    previous = np.full(len(order), -1)
    is_same_agent = (rows.session[order][1:] == rows.session[order][:-1]) & (
        rows.agent[order][1:] == rows.agent[order][:-1]
    )
    previous[1:][is_same_agent] = order[:-1][is_same_agent]
    inverse = np.argsort(order)
    return order[inverse], previous[inverse]


def _find_resets(rows: _LogRows) -> list[_Reset]:
    """Return the resets in file order, numbered per session."""
    turn_rows, previous_rows = _find_previous_turns(rows)
    falls = np.flatnonzero(
        (previous_rows >= 0) & (rows.base[turn_rows] < rows.cumulative[previous_rows])
    )
    candidates = [(int(marker_row), -1) for marker_row in np.flatnonzero(rows.marker)]
    candidates += [(int(turn_rows[fall]), int(previous_rows[fall])) for fall in falls]
    last_reset: dict[int, int] = {}  # by session: the last reset
    last_number: dict[int, int] = {}
    events: list[_Reset] = []
    for row, previous in sorted(candidates):
        session = int(rows.session[row])
        if not rows.marker[row] and previous < last_reset.get(session, -1):
            continue  # the agent's first turn after a reset that was found already
        last_reset[session] = row
        number = last_number[session] = last_number.get(session, -1) + 1
        events.append(_Reset(session, number, row, "compaction" if rows.marker[row] else "resume"))
    return events


def _make_turn_table(log: pd.DataFrame, rows: _LogRows, events: list[_Reset]) -> pd.DataFrame:
    """Return the turns with the number of their segment, and whether lines before are lost."""
    is_reset = np.zeros(len(log), np.int64)
    is_reset[[event.row_index for event in events]] = 1
    segment = (
        pd.Series(is_reset).groupby(rows.session).cumsum().to_numpy() if len(log) else is_reset
    )
    turn_rows, previous_rows = _find_previous_turns(rows)
    is_same_segment = (previous_rows >= 0) & (segment[turn_rows] == segment[previous_rows])
    expected = np.where(is_same_segment, rows.cumulative[previous_rows], 0.0)
    table = log.iloc[turn_rows].reset_index(drop=True)
    _, first_rows, positions = np.unique(
        rows.agent[turn_rows], return_index=True, return_inverse=True
    )
    return table.assign(
        agent=table["agent"].iloc[first_rows].astype("string").array.take(positions),
        session=table["session"].astype("string"),
        of=rows.session[turn_rows],
        segment=segment[turn_rows],
        row=turn_rows,
        at=np.arange(len(turn_rows)),
        gap=rows.base[turn_rows] > expected,
    )
