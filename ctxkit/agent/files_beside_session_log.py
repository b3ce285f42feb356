"""Files beside a session's log: events, artifacts, snapshots, context reports, work records."""

# All of them are derived from the session's record. If one cannot be written, the session continues
# without it.

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ctxkit._internal.formatting_and_sanitizing import format_error_line, sanitize_line
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.agent.change_intent_evidence_records import (
    build_change_log,
    build_evidence_graph,
    build_intent_log,
    encode_record,
)
from ctxkit.agent.tools.built_in_tools import make_brief_and_summary_tools
from ctxkit.agent.tools.confined_root import RootFolder
from ctxkit.agent.tools.file_search import search_files
from ctxkit.errors import BadArguments, CtxkitError, StoreError, did_you_mean
from ctxkit.metrics.context_window_report import ContextReport, report
from ctxkit.metrics.frames import frame
from ctxkit.policies.result_excerpts_and_offload import (
    ARTIFACT_FOLDER,
    DEFAULT_ADVICE,
    get_artifact_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from ctxkit.agent.ctxkit_folder_and_trust import Workspace
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.formats.snapshots.log_writer import SnapshotWriter
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
        intents = build_intent_log(session)
        if intents.entries:
            self._write_file(session.id, INTENTS_FILE, encode_record(intents))
        return bool(intents.entries)

    def _write_file(self, session: str, name: str, data: bytes) -> None:
        with suppress(StoreError):
            self._workspace.write_file(self._workspace.state(session), name, data.decode("utf-8"))


# Artifacts are tool results stored as files in the session's folder of the workspace. An agent is
# shown the path `.ctxkit/artifacts/ID.txt` for each, so a stub is the same in a live session and in
# its replay; the file tools read, list and search that path (`ExtraFiles`).
class ArtifactStore:
    """Stores tool results in the folder of a session, and opens them for the file tools.

    File names are derived from the content, so equal results share a file. Artifacts of the session
    that this one was branched from can be read, too.

    Args:
        workspace: where the session lies.
        sessions: returns the id of the session, and that of the one it was branched from.
        on_failure: called with the name of the tool and the reason, once for each result that could
            not be stored.
        on_stored: called with the name of the tool, its characters and the file, once for each
            result that is stored and was not before.
        advice: returns how parts of an artifact are read, with `{path}` (see
            `ResultOffload.advice`).

    Example:
        >>> import tempfile
        >>> from ctxkit.agent import ArtifactStore, Workspace
        >>> store = ArtifactStore(Workspace(tempfile.mkdtemp()), lambda: ["s1"])
        >>> store.list_files(".")
        []
    """

    def __init__(
        self,
        workspace: Workspace,
        sessions: Callable[[], Sequence[str]],
        *,
        on_failure: Callable[[str, str], None] = lambda _tool, _error: None,
        on_stored: Callable[[str, int, Path], None] = lambda _tool, _chars, _file: None,
        advice: Callable[[], str] = lambda: DEFAULT_ADVICE,
    ) -> None:
        self._workspace, self._sessions = workspace, sessions
        self._on_failure, self._on_stored, self._advice = on_failure, on_stored, advice
        self._failed: set[str] = set()

    # -- writing -----------------------------------------------------------------------------------

    def save(self, artifact: str, text: str, tool: str = "unknown", hint: str = "") -> None:
        """Store a text, redacted, under the artifact id that a stub of the pruning `offload` names.

        It is stored twice: as text, for the file tools, and as JSON with its origin, as fuseraft
        does (`ToolResultArtifactStore.cs`).

        Args:
            artifact: id of the artifact.
            text: its content.
            tool: tool whose result it is.
            hint: short description of the call.

        Raises:
            StoreError: it cannot be written.
        """
        self._store(artifact, redact(text), tool, redact(hint))

    def _store(self, artifact: str, clean: str, tool: str, hint: str = "") -> None:
        record = {
            "id": artifact,
            "tool": tool,
            "hint": hint,
            "chars": len(clean),
            "content": clean,
        }
        folder = self._folders()[0]
        file = folder / f"{artifact}.txt"
        is_new = not file.exists()
        try:
            self._workspace.write_file(folder, file.name, clean)
            record_text = json.dumps(record, indent=2, ensure_ascii=False)
            self._workspace.write_file(folder, f"{artifact}.json", record_text)
        except StoreError as e:
            if artifact not in self._failed:
                self._failed.add(artifact)
                self._on_failure(tool, format_error_line(e))
            raise
        if is_new:
            self._on_stored(tool, len(clean), file)

    def store_result(self, tool: str, text: str) -> str:
        """Store a result, redacted; return its stub, or the text itself if it cannot be stored.

        Args:
            tool: name of the tool.
            text: text of its result.
        """
        text = redact(text)
        digest = sha256(text.encode("utf-8", "replace")).hexdigest()
        try:
            self._store(digest[:12], text, tool)
        except StoreError:
            return text
        path = get_artifact_path(digest[:12])
        begins = text.lstrip().partition("\n")[0][:120]  # a tool says first what it left out
        return (
            f"[result offloaded: {len(text):,} characters of {tool} are in {path},"
            f" {text.count(chr(10)) + 1:,} lines]\nSHA256: {digest}\n"
            f"{self._advice().format(path=path)}\nIt begins: {begins}"
        )

    # -- reading, by the paths that an agent is shown ----------------------------------------------

    def contains(self, path: str) -> bool:
        """Say whether a path is one of artifacts, whether or not it exists."""
        return _split_artifact_path(path) is not None

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Yield an artifact, open for reading.

        Raises:
            StoreError: there is no such artifact.
        """
        name = _split_artifact_path(path)
        folder = self._find_folder(name) if name else None
        if not name or folder is None:
            raise StoreError(f"There is no artifact {sanitize_line(path, 200)!r}.")
        with (
            self._workspace.reach(folder) as here,
            os.fdopen(here.open(name, os.O_RDONLY), "rb") as file,
        ):
            yield file

    def list_files(self, path: str) -> list[str]:
        """Return the paths of the artifacts, or of one."""
        artifact, names = _split_artifact_path(path), list[str]()
        for folder in self._folders():
            if folder.is_dir():
                names += [p.name for p in sorted(folder.glob("*.txt")) if p.name not in names]
        return [f"{ARTIFACT_FOLDER}/{n}" for n in names if artifact in ("", n)]

    def search(self, pattern: str, path: str, files: str) -> str:
        """Return the hits of a regular expression in one artifact, or in all.

        Args:
            pattern: the regular expression.
            path: path of one artifact, or of their folder.
            files: glob that file names match.

        Raises:
            BadArguments: the pattern is no regular expression.
            StoreError: there is no such artifact.
        """
        name = _split_artifact_path(path)
        folder = self._find_folder(name) if name else self._folders()[0]
        if folder is None or not folder.is_dir():
            raise StoreError(f"There is no artifact {sanitize_line(path, 200)!r}.")
        hits = search_files(RootFolder(folder), pattern, name or ".", files if name else "*.txt")
        return "\n".join(
            f"{ARTIFACT_FOLDER}/{line}" if line.partition(":")[0].endswith(".txt") else line
            for line in hits.split("\n")
        )

    def _folders(self) -> list[Path]:
        return [self._workspace.results(session) for session in self._sessions()]

    def _find_folder(self, name: str) -> Path | None:
        return next((f for f in self._folders() if (f / name).is_file()), None)


def _split_artifact_path(path: str) -> str | None:
    """Return the file name in a path of an artifact, "" for their folder, None for another path."""
    clean = path.strip().removeprefix("./").rstrip("/")
    if clean == ARTIFACT_FOLDER:
        return ""
    folder, _, name = clean.rpartition("/")
    return name if folder == ARTIFACT_FOLDER and _ARTIFACT_FILE.fullmatch(name) else None


_ARTIFACT_FILE = re.compile(r"[0-9a-f]{12}\.txt")
