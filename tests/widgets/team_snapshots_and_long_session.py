"""Made-up logs: snapshots of teams for charts of budgets, and a long session."""

from __future__ import annotations

from random import Random
from typing import Any

import pandas as pd

from ctxkit.session import Message, Session, Text, ToolCall, Usage

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


def long(messages: int) -> Session:
    """A session of so many messages, with recorded sizes."""
    words = "The quick brown fox jumps over the lazy dog and reads the log of the day. "
    log: list[Message] = []
    for i in range(messages // 4):
        read = ToolCall(id=f"c{i}", name="read_file", arguments={"path": f"src/f{i % 97}.py"})
        usage = Usage(input_tokens=100 + i, output_tokens=20)
        log += [
            Message(id=f"u{i}", role="user", parts=(Text(f"question {i} {words}"),)),
            Message(id=f"a{i}", role="assistant", parts=(Text("see"), read), usage=usage),
            Message(id=f"t{i}", role="tool", tool="read_file", call_id=read.id,
                    parts=(Text(f"line {i}\n{words * 3}"),)),
            Message(id=f"b{i}", role="assistant", parts=(Text(f"done {i}"),), usage=usage),
        ]  # fmt: skip
    return Session(id="long", log=tuple(log))
