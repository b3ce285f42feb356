"""Turns, segments and compactions of a snapshot log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ctxkit.errors import BadArguments
from ctxkit.formats.snapshots.schema import SNAPSHOT_FIELDS

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
    "cached_tokens": "Int64",
    "cost_usd": "Float64",
    "cost_source": "string",
    "model": "string",
    "calls_n": "Int64",
    "source": "string",
}
"""Columns and dtypes of ``ctxkit.frame(per="turn")``, which stands above; a test compares them."""
_KEY = ["session", "segment", "agent"]


def turns(log: pd.DataFrame) -> pd.DataFrame:
    """Return the turns of a log in the shape of ``ctxkit.frame(per="turn")``: no marker is a row.

    `compaction_occurred` is True on the turn after which a compaction fired. What a snapshot cannot
    say (occupancy, cached tokens, cost, model) is missing.

    Raises:
        BadArguments: the frame lacks a column of a log.
    """
    rows = _rows(log)
    plain = np.flatnonzero(~rows.marker)
    fired = np.zeros(len(log), np.bool_)
    before = _last_before(rows, np.flatnonzero(rows.marker))
    fired[before[before >= 0]] = True
    out = log.iloc[plain].reset_index(drop=True)
    out["compaction_occurred"] = fired[plain]
    out["source"] = "recorded"
    return out.reindex(columns=list(TURN_DTYPES)).astype(TURN_DTYPES)


def segments(log: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each agent of each segment: a session's turns between two resets of the
    running sums.

    Columns: `session segment agent turns_n first_turn last_turn turn_input_tokens
    turn_output_tokens largest_turn_tokens cumulative_input_tokens warn_at cutover_at gaps_n reached
    ended_by`. `turn_input_tokens` is the sum over the segment, `cumulative_input_tokens` what the
    log said last; `reached` is "warn", "cutover" or "" by the latter; `ended_by` is "compaction",
    "resume" or "end"; `gaps_n` counts turns before which the running sum shows that lines are lost.

    Raises:
        BadArguments: the frame lacks a column of a log.
    """
    rows = _rows(log)
    events = _events(rows)
    table = _plain(log, rows, events)
    groups = table.groupby(_KEY, sort=False, observed=True, dropna=False)
    out = groups.agg(
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
    cumulative = out["cumulative_input_tokens"]
    warned = (cumulative >= out["warn_at"]).fillna(False)  # noqa: FBT003
    cut = (cumulative >= out["cutover_at"]).fillna(False)  # noqa: FBT003
    out["reached"] = np.select([cut, warned], ["cutover", "warn"], "")
    ends = {(e.session, e.number): e.kind for e in events}
    pairs = zip(table["of"].to_numpy()[groups.head(1)["at"]], out["segment"], strict=True)
    out["ended_by"] = [ends.get((int(s), int(k)), "end") for s, k in pairs]
    return out


def compactions(log: pd.DataFrame) -> pd.DataFrame:
    """Return, for each reset of a session and each of its agents, the turn before and the turn
    after.

    Columns: `session compaction kind ts agent marker_turn after_turn turn_before turn_after
    turn_input_tokens_before turn_input_tokens_after cumulative_input_tokens_before
    cumulative_input_tokens_after source sizes_source`. `compaction` counts the resets of a session
    from 0; `kind` is "compaction" (a marker, `source` "recorded") or "resume" (`source` "derived");
    `marker_turn` is the marker's own count, `after_turn` the index of the session's last turn
    before it. Before and after are always derived, and are what turns were billed, not the size of
    the window. An agent without a turn on one side has missing values there.

    Raises:
        BadArguments: the frame lacks a column of a log.
    """
    rows = _rows(log)
    events = _events(rows)
    at = np.array([e.row for e in events], np.int64)
    table = _plain(log, rows, events)
    head = pd.DataFrame(
        {"of": [e.session for e in events], "compaction": [e.number for e in events]}, dtype="int64"
    )
    head["kind"] = pd.array([e.kind for e in events], dtype="string")
    head["session"] = log["session"].iloc[at].astype("string").array
    head["ts"] = log["ts"].iloc[at].array
    head["marker_turn"] = log["turn"].iloc[at].where(rows.marker[at]).array
    before = _last_before(rows, at)
    head["after_turn"] = log["turn"].iloc[before].where(before >= 0).array
    sides = ["of", "segment", "agent", "turn", "turn_input_tokens", "cumulative_input_tokens"]
    last = table.drop_duplicates(_KEY, keep="last")[sides]
    first = table.drop_duplicates(_KEY, keep="first")[sides].assign(
        segment=lambda t: t["segment"] - 1
    )
    both = last.merge(
        first, how="outer", on=["of", "segment", "agent"], suffixes=("_before", "_after")
    )
    out = head.merge(both, how="left", left_on=["of", "compaction"], right_on=["of", "segment"])
    out["source"] = pd.array(
        np.where(out["kind"] == "resume", "derived", "recorded"), dtype="string"
    )
    out["sizes_source"] = pd.array(["derived"] * len(out), dtype="string")
    names = ["session", "compaction", "kind", "ts", "agent", "marker_turn", "after_turn"]
    names += [f"{n}_{side}" for n in sides[3:] for side in ("before", "after")]
    return out[[*names, "source", "sizes_source"]]


# -- where sums begin anew ------------------------------------------------------------------------


class _LogRows(NamedTuple):
    """A log as arrays, one place a row."""

    session: NDArray[np.int64]
    agent: NDArray[np.int64]
    marker: NDArray[np.bool_]
    base: NDArray[np.float64]
    """What the running sum was before the turn; NaN where the log cannot say."""
    cumulative: NDArray[np.float64]


class _Event(NamedTuple):
    """A reset: a marker, or the first row after a resume."""

    session: int
    number: int
    row: int
    kind: str


def _rows(log: pd.DataFrame) -> _LogRows:
    lacking = [name for name in SNAPSHOT_FIELDS if name not in log.columns]
    if lacking:
        raise BadArguments(
            f"Give a frame of read_snapshots with all its columns: {', '.join(lacking)} not there."
        )
    session = pd.factorize(log["session"], use_na_sentinel=False)[0].astype(np.int64)
    code, names = pd.factorize(log["agent"], use_na_sentinel=False)
    folded = pd.factorize(np.array([str(name).lower() for name in names], dtype=object))[0]
    agent = folded[code] if len(names) else code.astype(np.int64)
    spent = log["turn_input_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    cumulative = log["cumulative_input_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    marker = log["compaction_occurred"].to_numpy(dtype=np.bool_, na_value=False)
    system = np.array([str(name).lower() == MARKER_AGENT for name in names], np.bool_)
    silent = system[code] & ~(spent > 0) if len(names) else marker
    return _LogRows(session, agent, marker | silent, cumulative - spent, cumulative)


def _last_before(rows: _LogRows, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place the last turn of the same session before it; -1 where there is none."""
    plain = np.flatnonzero(~rows.marker)
    n = len(rows.session) + 1
    keys = np.sort(rows.session[plain] * n + plain)
    found = np.searchsorted(keys, rows.session[at] * n + at) - 1
    if not len(keys):
        return np.full(len(at), -1)
    return np.where((found >= 0) & (keys[found] // n == rows.session[at]), keys[found] % n, -1)


def _previous(rows: _LogRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Turns, and for each the same agent's turn before it in the session; -1: none."""
    plain = np.flatnonzero(~rows.marker)
    order = plain[np.lexsort((plain, rows.agent[plain], rows.session[plain]))]
    before = np.full(len(order), -1)
    same = (rows.session[order][1:] == rows.session[order][:-1]) & (
        rows.agent[order][1:] == rows.agent[order][:-1]
    )
    before[1:][same] = order[:-1][same]
    back = np.argsort(order)
    return order[back], before[back]


def _events(rows: _LogRows) -> list[_Event]:
    """Resets in file order, numbered by session."""
    at, before = _previous(rows)
    drops = np.flatnonzero((before >= 0) & (rows.base[at] < rows.cumulative[before]))
    places = [(int(m), -1) for m in np.flatnonzero(rows.marker)]
    places += [(int(at[d]), int(before[d])) for d in drops]
    resets: dict[int, int] = {}  # by session: the last reset
    count: dict[int, int] = {}
    out: list[_Event] = []
    for row, previous in sorted(places):
        session = int(rows.session[row])
        if not rows.marker[row] and previous < resets.get(session, -1):
            continue  # this agent's first turn since a reset that is known
        resets[session] = row
        number = count[session] = count.get(session, -1) + 1
        out.append(_Event(session, number, row, "compaction" if rows.marker[row] else "resume"))
    return out


def _plain(log: pd.DataFrame, rows: _LogRows, events: list[_Event]) -> pd.DataFrame:
    """Turns with the number of their segment, and whether lines before them are lost."""
    begins = np.zeros(len(log), np.int64)
    begins[[e.row for e in events]] = 1
    segment = pd.Series(begins).groupby(rows.session).cumsum().to_numpy() if len(log) else begins
    at, before = _previous(rows)
    within = (before >= 0) & (segment[at] == segment[before])
    expected = np.where(within, rows.cumulative[before], 0.0)
    table = log.iloc[at].reset_index(drop=True)
    _, first, place = np.unique(rows.agent[at], return_index=True, return_inverse=True)
    return table.assign(
        agent=table["agent"].iloc[first].astype("string").array.take(place),
        session=table["session"].astype("string"),
        of=rows.session[at],
        segment=segment[at],
        row=at,
        at=np.arange(len(at)),
        gap=rows.base[at] > expected,
    )
