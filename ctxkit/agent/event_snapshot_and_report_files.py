"""Files beside a session's log: events, artifacts, snapshots, context reports, work records."""

# All of them are derived from the session's record. If one cannot be written, the session continues
# without it.

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact_json
from ctxkit.agent.change_log_intent_log_evidence_graph import (
    build_change_log,
    build_evidence_graph,
    build_tool_call_intent_log,
    encode_record,
)
from ctxkit.agent.tools.python_shell_and_summary_tools import make_brief_and_summary_tools
from ctxkit.errors import BadArguments, CtxkitError, StoreError, did_you_mean
from ctxkit.metrics.context_window_report import ContextReport, report
from ctxkit.metrics.frames import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.formats.snapshots.token_log_writer import SnapshotWriter
    from ctxkit.session.session import Session


_MAX_TEXT_CHARS = 400
"""Characters of a text in a payload; like fuseraft's, the log has sizes rather than contents."""


class EventLog:
    """Appends events to a file, one line of JSON each.

    Args:
        handle: descriptor of the file, open for appending; `close` closes it.
        session: id on every line.
        agent: name on every line.
    """

    def __init__(self, handle: int, session: str, agent: str = "main") -> None:
        self._session, self._agent = session, agent
        self._handle = handle

    def write(
        self,
        kind: str,
        time: float,
        turn: int,
        payload: Mapping[str, Any],
        agent: str | None = None,
    ) -> None:
        """Write one event; `agent` names its agent if it is not the session's own.

        Args:
            kind: name of the event.
            time: seconds since 1970.
            turn: number of the turn.
            payload: data of the event, redacted here; None values are left out.
            agent: name of another agent than the session's own.
        """
        stamp = datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")
        line = {
            "ts": stamp,
            "session": self._session,
            "agent": agent or self._agent,
            "turn": max(turn, 0),
            "event_type": kind,
            "payload": {
                k: _shorten_texts(v) for k, v in redact_json(dict(payload)).items() if v is not None
            },
        }
        os.write(self._handle, msgspec.json.encode(line, enc_hook=str) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_TEXT_CHARS:
        return value[:_MAX_TEXT_CHARS] + f"… [{len(value)} characters]"
    if isinstance(value, dict):
        return {k: _shorten_texts(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_shorten_texts(v) for v in value]
    return value


# Markers of compactions
#
# fuseraft's snapshot log has one row per billed turn, and a marker line before the row of a turn
# in which a compaction happened before the last call. So a marker is written when the first call
# after the compaction is made; without such a call it is written at the end of the turn.


class TurnSnapshotRowWriter:
    """Writes one row to the snapshot log at the end of each turn.

    Args:
        writer: appends to the snapshot log.
        session: the session so far.
    """

    def __init__(self, writer: SnapshotWriter, session: Session) -> None:
        self._writer, self._session = writer, session
        self._in_turn = False
        self._unmarked: list[int] = []
        """For each compaction of this turn without a later call: the replies before it."""
        if session.calls:
            self.on_move(session)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows so far; always the same object."""
        return _billed_turns(self._session)

    def note_call(self, kind: str) -> None:
        """Note that a turn began, or that a call was made in it."""
        self._in_turn = True
        if kind == "model_call":
            self._write_markers()

    def note_compaction(self, session: Session) -> None:
        """Note a compaction; between two turns its marker is written at once."""
        self._unmarked.append(sum(c.message.stop != "error" for c in session.calls))
        if not self._in_turn:
            self._write_markers()
            self.update_frame(session)

    def end(self, session: Session) -> None:
        """Write the row of the turn that ended, if it was billed any input."""
        if self._in_turn and session.calls:
            turn = session.calls[-1].turn
            if turn == session.turns[-1]:
                self._write_turn(session, turn)
        self._write_markers()
        self._in_turn = False
        self.update_frame(session)

    def on_move(self, session: Session) -> None:
        """Continue from another point: rewrite the snapshot log to the turns on the path."""
        self._writer.replace_turns(_billed_turns(session))
        self.update_frame(session)

    def update_frame(self, session: Session) -> None:
        """Update the DataFrame to the session."""
        self._session = session
        if "frame" in self.__dict__:
            _update_frame(self.frame, _billed_turns(session))

    def _write_turn(self, session: Session, turn: int) -> None:
        calls = [c.message for c in session.calls if c.turn == turn]
        used = [m.usage for m in calls if m.usage is not None]
        times = [m.time for m in calls if m.time is not None]
        self._writer.turn(
            session.agent,
            turn,
            sum(u.prompt_tokens or 0 for u in used),
            sum(u.output_tokens or 0 for u in used),
            datetime.fromtimestamp(times[-1], UTC) if times else None,
        )

    def _write_markers(self) -> None:
        for replies in self._unmarked:
            self._writer.marker(replies)
        self._unmarked.clear()


def _billed_turns(session: Session) -> pd.DataFrame:
    """Return the turns that were billed input, as the snapshot log has no others.

    A compaction in a turn that was not billed counts for the last billed turn before it.
    """
    turns = frame(session, per="turn")
    billed = (turns["turn_input_tokens"].fillna(0) > 0).astype(bool)
    last_billed_row = billed.cumsum() - 1  # for each turn the row of the last billed turn so far
    fired = set(last_billed_row[turns["compaction_occurred"].astype(bool)])
    out = turns[billed].reset_index(drop=True)
    out["compaction_occurred"] |= out.index.isin(fired)
    return out


def _update_frame(old: pd.DataFrame, new: pd.DataFrame) -> None:
    """Make a frame equal to another one in place, so that its holders see the new rows."""
    if not old.equals(new):
        type(old).__init__(old, new)  # type: ignore[call-arg]  # pandas has no lasting way


MAX_REPORT_BYTES = 20_000_000
"""Bytes of the file that are read, from its start."""


class StoredContextReport(msgspec.Struct, frozen=True, kw_only=True):
    """A context report: what filled the window at the last call of a turn."""

    id: str
    """Id of the session and number of the turn, with a counter if that turn was taken again."""
    time: str
    """ISO 8601."""
    turn: int
    report: ContextReport


class ContextReportStore:
    """The context reports of a session, `.ctxkit/logs/context_reports_ID.jsonl`, one line each.

    Args:
        workspace: the workspace of the session.
        session: id of the session.
    """

    def __init__(self, workspace: Workspace, session: str) -> None:
        self._workspace, self._session = workspace, session
        self._reports_per_turn: Counter[int] | None = None
        self._path = workspace.folder / "logs" / f"context_reports_{session}.jsonl"

    def store(self, session: Session, clock: Callable[[], float]) -> StoredContextReport | None:
        """Store the report of the turn that ended; return None if the turn made no call.

        A report that cannot be made or written is left out.

        Args:
            session: the session after the turn.
            clock: returns seconds since 1970.
        """
        if not session.calls or session.calls[-1].turn != session.turns[-1]:
            return None
        turn = session.calls[-1].turn
        try:
            if self._reports_per_turn is None:
                self._reports_per_turn = Counter(stored.turn for stored in self.all())
            earlier = self._reports_per_turn[turn]
            name = f"{self._session}-{turn}" + (f"-{earlier + 1}" if earlier else "")
            now = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="seconds")
            new_report = StoredContextReport(
                id=name, time=now, turn=turn, report=report(session, -1)
            )
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(self._workspace.open(self._path, flags), "wb") as file:
                file.write(msgspec.json.encode(new_report) + b"\n")
            self._reports_per_turn[turn] += 1
        except (CtxkitError, OSError):
            return None
        return new_report

    def all(self) -> list[StoredContextReport]:
        """Return all reports, the oldest first; invalid lines are skipped."""
        reports = []
        for row in self._workspace.read_file(
            self._path.parent, self._path.name, MAX_REPORT_BYTES
        ).split("\n"):
            try:
                reports.append(msgspec.json.decode(row, type=StoredContextReport))
            except (msgspec.DecodeError, RecursionError):
                continue
        return reports

    def of(self, name: str) -> StoredContextReport:
        """Return a report by its id.

        Raises:
            BadArguments: there is no such report.
        """
        reports = {stored.id: stored for stored in self.all()}
        if name not in reports:
            raise BadArguments(
                f"No context report is called {sanitize_line(name, 60)!r}; `%context reports` "
                "lists them."
                f"{did_you_mean(name, reports)}"
            )
        return reports[name]


INTENTS_INTERVAL = 1.0
"""Seconds between two writings of intents in a turn; each takes time linear in the session."""
CHANGES_FILE, INTENTS_FILE, EVIDENCE_FILE = "changes.json", "intents.json", "evidence.json"


class ChangeIntentEvidenceWriter:
    """Writes the work records of a session: `changes.json`, `intents.json`, `evidence.json`.

    They are in `.ctxkit/state/ID/`.

    Args:
        workspace: the workspace of the session.
        clock: returns seconds since 1970.
    """

    def __init__(self, workspace: Workspace, clock: Callable[[], float]) -> None:
        self._workspace, self._clock = workspace, clock
        self._intents_time, self._tools_used = float("-inf"), False

    def on_event(self, kind: str, session: Callable[[], Session]) -> None:
        """Write the files that an event may have changed.

        Args:
            kind: kind of the event, such as "tool_result".
            session: returns the session; it is called only where a file is written.
        """
        if kind in ("tool_call", "tool_result"):
            self._tools_used = True
            now = self._clock()
            if now - self._intents_time >= INTENTS_INTERVAL:
                self._intents_time = now
                self._write_intents(session())
        elif kind == "turn_end" and self._tools_used:
            self._tools_used = False
            current = session()
            if self._write_intents(current):
                self._write_file(current.id, CHANGES_FILE, encode_record(build_change_log(current)))
                self._write_file(
                    current.id, EVIDENCE_FILE, encode_record(build_evidence_graph(current))
                )

    def tools(self, session: Callable[[], str]) -> tuple[Tool, ...]:
        """Return the tools for the brief and the summary; `session` returns the session's id."""

        def read_work_file(name: str) -> str:
            return self._workspace.read_file(self._workspace.state(session()), name)

        return make_brief_and_summary_tools(
            lambda name, text: self._workspace.write_file(
                self._workspace.state(session()), name, text
            ),
            read_work_file,
        )

    def _write_intents(self, session: Session) -> bool:
        """Write the intents; return whether there are any."""
        intents = build_tool_call_intent_log(session)
        if intents.entries:
            self._write_file(session.id, INTENTS_FILE, encode_record(intents))
        return bool(intents.entries)

    def _write_file(self, session: str, name: str, data: bytes) -> None:
        with suppress(StoreError):
            self._workspace.write_file(self._workspace.state(session), name, data.decode("utf-8"))
