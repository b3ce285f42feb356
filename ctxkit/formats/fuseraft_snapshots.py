"""Snapshot logs of fuseraft as sessions: a reply a turn, compactions as marks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.fields import as_str, catch_damage, count_or_none, parse_timestamp, str_or_none
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "fuseraft-snapshots"
ALIASES = ("fuseraft", "snapshots", "ctx-snapshots")
CAN = "usage per turn and agent, budgets, compactions as marks, times"
CANNOT = "text, single calls, cache, model; the size of a context (the sums are bills)"

_NEEDED = ("ts", "agent", "turn", "turn_input_tokens")
_SETTINGS = ("cumulative_input_tokens", "warn_at", "cutover_at")


def sniff(source: Source) -> bool:
    """Say whether the first lines have the fields of a snapshot."""
    return any("turn_input_tokens" in r and "agent" in r and "turn" in r for r in source.head[:4])


def read(source: Source) -> list[Session]:
    """Read the sessions of a log, in order of appearance.

    A row is a reply of kind `turn`: its usage is the sum over the turn's calls, what was billed and
    not what the context held. `details` bears the recorded running sum and the thresholds, and
    `resumed` where the sum of an agent fell without a mark: the process was started again.
    """
    logs: dict[str, _Rows] = {}
    faults = list(source.faults)
    for line, record in source.records:
        with catch_damage(faults, line):
            own = as_str(record.get("session")) or source.path.stem.removeprefix("ctx_snapshots_")
            rows = logs.get(own.lower())
            if rows is None:
                rows = logs[own.lower()] = _Rows(own)
            rows.row(record)
    sessions = [rows.session() for rows in logs.values() if rows.log.entries]
    if not sessions:
        raise ReadError(
            "expected rows with agent, turn and turn_input_tokens; found none.", source.path
        )
    if faults:
        sessions[0] = replace(sessions[0], faults=tuple(sorted(faults, key=lambda f: f.line)))
    return sessions


class _Rows:
    """The rows of one session."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.log = SessionBuilder()
        self.skipped: Counter[str] = Counter()
        self.sums: dict[str, int] = {}
        self.started: float | None = None

    def row(self, record: dict[str, Any]) -> None:
        """Add a turn, or the edit of a mark."""
        agent, when = str_or_none(record.get("agent")), parse_timestamp(record.get("ts"))
        turn, spent = (
            count_or_none(record.get("turn")),
            count_or_none(record.get("turn_input_tokens")),
        )
        if agent is None or turn is None or spent is None:
            missing = next(
                k for k, v in zip(_NEEDED[1:], (agent, turn, spent), strict=True) if v is None
            )
            raise ValueError(
                f"expected {missing!r} to be {'text' if missing == 'agent' else 'a count'}"
            )
        self.started = when if self.started is None else self.started
        if record.get("compaction_occurred") is True:
            self.sums.clear()
            self.log.add(
                Edit(
                    kind="summarised",
                    id=self.log.new_id(),
                    method="compaction",
                    agent=agent,
                    time=when,
                    reason="marked in the log, which holds no texts",
                    details={"turn": turn},
                )
            )
            return
        if agent == "system" and not spent:
            self.skipped["row of agent system without a mark"] += 1
            return
        self._turn(record, agent, turn, spent, when)

    def _turn(
        self, record: dict[str, Any], agent: str, turn: int, spent: int, when: float | None
    ) -> None:
        details: dict[str, Any] = {
            k: n for k in _SETTINGS if (n := count_or_none(record.get(k))) is not None
        }
        running, name = details.get("cumulative_input_tokens"), agent.lower()
        if running is not None:
            if running < self.sums.get(name, 0):
                details["resumed"] = True
            self.sums[name] = running
        self.log.say(
            "assistant",
            kind="turn",
            agent=agent,
            turn=turn,
            time=when,
            usage=Usage(
                input_tokens=spent, output_tokens=count_or_none(record.get("turn_output_tokens"))
            ),
            details=details,
        )

    def session(self) -> Session:
        """Return what was read."""
        return self.log.session(
            id=self.own,
            format=NAME,
            product="fuseraft",
            started=self.started,
            skipped=dict(self.skipped),
        )
