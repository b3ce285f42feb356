"""Snapshot logs of made-up teams, for charts of budgets."""

from __future__ import annotations

from random import Random
from typing import Any

import pandas as pd

_LIMIT = 3_200_000


def team(
    turns: int = 1000, agents: int = 3, seed: int = 1, name: str = "agent", session: str = "s"
) -> pd.DataFrame:
    """Return a frame as `read_snapshots` gives it: so many turns in all, a marker where a sum is over the limit."""
    rng, rows, sums = Random(seed), list[dict[str, Any]](), dict[str, int]()
    start = pd.Timestamp("2026-01-01", tz="UTC")
    for k in range(turns):
        agent, spent = f"{name}-{k % agents}", rng.randint(4_000, 90_000)
        sums[agent] = sums.get(agent, 0) + spent
        rows.append(
            _row(
                start + pd.Timedelta(minutes=k), session, agent, k, spent, sums[agent], fired=False
            )
        )
        if sums[agent] > _LIMIT:
            rows.append(
                _row(start + pd.Timedelta(minutes=k), session, "system", k + 1, 0, 0, fired=True)
            )
            sums.clear()
    return pd.DataFrame(rows)


def _row(
    ts, session: str, agent: str, turn: int, spent: int, total: int, *, fired: bool
) -> dict[str, Any]:
    return {
        "ts": ts,
        "session": session,
        "agent": agent,
        "turn": turn,
        "turn_input_tokens": spent,
        "turn_output_tokens": 0 if fired else 100,
        "cumulative_input_tokens": total,
        "warn_at": 2_000_000,
        "cutover_at": 3_000_000,
        "compaction_occurred": fired,
    }
