"""Reader of fuseraft snapshot logs as sessions: one reply per turn, compactions without content."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_str,
    catch_damage,
    count_or_none,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Edit, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "fuseraft-snapshots"
ALIASES = ("fuseraft", "snapshots", "ctx-snapshots")
CAN = "usage per turn and agent, budgets, marks of compactions, times"
CANNOT = "text, single calls, cache, model; the size of a context (the sums are billed tokens)"

_REQUIRED_FIELDS = ("ts", "agent", "turn", "turn_input_tokens")
_DETAIL_FIELDS = ("cumulative_input_tokens", "warn_at", "cutover_at")


# Cumulative input tokens of an agent begin at zero after a compaction marker and after a restart. A
# marker becomes an edit without targets, as the log has no messages; a fall without a marker is
# noted in the details of the turn.
def sniff(source: Source) -> bool:
    """Return True if the first lines have the fields of a snapshot."""
    return any("turn_input_tokens" in r and "agent" in r and "turn" in r for r in source.head[:4])


def read(source: Source) -> list[Session]:
    """Read the sessions of a log, in order of appearance.

    A row becomes a reply of kind `turn`. Its usage is the sum over the turn's calls (what was
    billed, not the size of the context). Its `details` have the recorded running sum, the
    thresholds, and `resumed` if the running sum of an agent fell without a marker, which means that
    the process was restarted.

    Raises:
        ReadError: the file has no row of a snapshot.
    """
    rows_by_session: dict[str, _SessionRows] = {}
    faults = list(source.faults)
    for line, record in source.records:
        with catch_damage(faults, line):
            session_id = as_str(record.get("session")) or source.path.stem.removeprefix(
                "ctx_snapshots_"
            )
            rows = rows_by_session.get(session_id.lower())
            if rows is None:
                rows = rows_by_session[session_id.lower()] = _SessionRows(session_id)
            rows.read_row(record)
    sessions = [rows.build_session() for rows in rows_by_session.values() if rows.builder.entries]
    if not sessions:
        raise ReadError(
            "expected rows with agent, turn and turn_input_tokens; found none.", source.path
        )
    if faults:
        sessions[0] = replace(sessions[0], faults=tuple(sorted(faults, key=lambda f: f.line)))
    return sessions


class _SessionRows:
    """Reader of the rows of one session."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.builder = SessionBuilder()
        self.skipped: Counter[str] = Counter()
        self.cumulative_by_agent: dict[str, int] = {}
        self.started: float | None = None

    def read_row(self, record: dict[str, Any]) -> None:
        """Read a row: a turn, or the marker of a compaction."""
        agent, time = str_or_none(record.get("agent")), parse_timestamp(record.get("ts"))
        turn, input_tokens = (
            count_or_none(record.get("turn")),
            count_or_none(record.get("turn_input_tokens")),
        )
        if agent is None or turn is None or input_tokens is None:
            missing = next(
                k
                for k, v in zip(_REQUIRED_FIELDS[1:], (agent, turn, input_tokens), strict=True)
                if v is None
            )
            raise ValueError(
                f"expected {missing!r} to be {'text' if missing == 'agent' else 'a count'}"
            )
        self.started = time if self.started is None else self.started
        if record.get("compaction_occurred") is True:
            self.cumulative_by_agent.clear()
            self.builder.add(
                Edit(
                    kind="summarised",
                    id=self.builder.new_id(),
                    method="compaction",
                    agent=agent,
                    time=time,
                    reason="marked in the log, which holds no texts",
                    details={"turn": turn},
                )
            )
            return
        if agent == "system" and not input_tokens:
            self.skipped["row of agent system without a mark"] += 1
            return
        self._add_turn(record, agent, turn, input_tokens, time)

    def _add_turn(
        self, record: dict[str, Any], agent: str, turn: int, input_tokens: int, time: float | None
    ) -> None:
        details: dict[str, Any] = {
            k: count for k in _DETAIL_FIELDS if (count := count_or_none(record.get(k))) is not None
        }
        cumulative, name = details.get("cumulative_input_tokens"), agent.lower()
        if cumulative is not None:
            if cumulative < self.cumulative_by_agent.get(name, 0):
                details["resumed"] = True
            self.cumulative_by_agent[name] = cumulative
        self.builder.add_message(
            "assistant",
            kind="turn",
            agent=agent,
            turn=turn,
            time=time,
            usage=Usage(
                input_tokens=input_tokens,
                output_tokens=count_or_none(record.get("turn_output_tokens")),
            ),
            details=details,
        )

    def build_session(self) -> Session:
        """Return the session."""
        return self.builder.session(
            id=self.session_id,
            format=NAME,
            product="fuseraft",
            started=self.started,
            skipped=dict(self.skipped),
        )
