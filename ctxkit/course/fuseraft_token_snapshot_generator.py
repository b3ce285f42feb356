"""Snapshot logs of a simulated lab, in fuseraft's format: a hundred sessions of several agents.

`python -m ctxkit.course.fuseraft_token_snapshot_generator FOLDER` writes one log a session in
fuseraft's newer layout, with the same bytes each time. Three teams share one budget; their agents'
contexts grow at different speeds. Some sessions were resumed, some thrash (they compact every few
turns), and one log ends in the traces of a crash.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ctxkit.formats.snapshots import SnapshotWriter

SEED = 8151
N_SESSIONS = 100
WARN_AT, CUTOVER_AT = 60_000, 100_000
FIRST_START = datetime(2026, 9, 14, 8, tzinfo=UTC)
TEAMS = {
    "web-shop": {"Planner": 900, "Developer": 3400, "Reviewer": 1500},
    "etl-pipeline": {"Architect": 1200, "Engineer": 2600, "Tester": 5200},
    "research": {"Researcher": 4600, "Writer": 1100},
}
"""By team, tokens by which each agent's prompt grows in a turn."""
_CRASH = (
    "Unhandled exception. System.IO.IOException: No space left on device\n"
    '{"ts":"2026-09-1'
)  # fmt: skip


def write_lab_logs(folder: str | Path, sessions: int = N_SESSIONS) -> Path:
    """Write all logs of the lab below a folder.

    Args:
        folder: gets `logs/sessions/TEAM/SESSION/ctx_snapshots.jsonl`.
        sessions: number of sessions.

    Returns:
        The folder.
    """
    rng = random.Random(SEED)  # noqa: S311  no secret
    logs = Path(folder) / "logs" / "sessions"
    path = logs
    for i in range(sessions):
        team = rng.choice(list(TEAMS))
        session = f"{rng.getrandbits(32):08x}"
        path = logs / team / session / "ctx_snapshots.jsonl"
        _write_session_log(path, session, TEAMS[team], rng, FIRST_START + timedelta(minutes=37 * i))
    with path.open("a") as last_log:
        last_log.write(_CRASH)
    return Path(folder)


class _StoryClock:
    """A clock that moves only when it is told to."""

    def __init__(self, start: datetime) -> None:
        self.time = start

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def _write_session_log(
    path: Path, session: str, team: dict[str, int], rng: random.Random, start: datetime
) -> None:
    """Write one session: agents take turns, with a compaction after a sum above the budget."""
    clock = _StoryClock(start)
    thrashes = rng.random() < 0.08
    prompts = dict.fromkeys(team, 4000)
    sums = dict.fromkeys(team, 0)
    writer = SnapshotWriter(path, session, warn_at=WARN_AT, cutover_at=CUTOVER_AT, now=clock)
    for turn in range(rng.randrange(20, 90)):
        agent = list(team)[turn % len(team)] if rng.random() < 0.8 else rng.choice(list(team))
        calls = 1 + min(int(rng.expovariate(0.6)), 6)
        turn_tokens = sum(prompts[agent] + rng.randrange(team[agent]) * k for k in range(calls))
        prompts[agent] += team[agent] * (4 if thrashes else 1)
        sums[agent] += turn_tokens
        clock.advance(rng.uniform(5, 120))
        writer.turn(agent, turn, turn_tokens, rng.randrange(80, 2400))
        if sums[agent] >= CUTOVER_AT:
            clock.advance(rng.uniform(5, 40))
            writer.marker(turn + 1)
            share = 0.9 if thrashes else 0.3
            prompts = {name: max(4000, int(size * share)) for name, size in prompts.items()}
            sums = dict.fromkeys(team, 0)
        elif rng.random() < 0.01:  # the process ends, and continues after a while
            writer.close()
            clock.advance(rng.uniform(600, 30_000))
            writer = SnapshotWriter(
                path, session, warn_at=WARN_AT, cutover_at=CUTOVER_AT, now=clock
            )
            sums = dict.fromkeys(team, 0)
    writer.close()


if __name__ == "__main__":
    sys.stdout.write(f"{write_lab_logs(sys.argv[1])}\n")
