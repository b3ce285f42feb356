"""fuseraft's change log, intent log and evidence graph of a session, and checks of claims on them.

The policies `intents` and `evidence` write their texts from the same record. A file may come from
anybody: it is read up to a bound, and an invalid one raises an error.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.redaction import redact
from ctxkit.errors import ReadError
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.policies.texts import message_content_and_truncation, tool_outcomes_and_files
from ctxkit.session.messages import Text, get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import is_write_tool, map_results_by_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import pandas as pd

    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.session.session import Session


__all__ = [
    "ChangeLog",
    "EvidenceGraph",
    "IntentLog",
    "build_change_log",
    "build_evidence_graph",
    "build_tool_call_intent_log",
    "check_claims_against_changes",
    "encode_record",
    "read_record",
]
__dir__ = make_dunder_dir(__all__)


_PATH_ARGUMENTS = ("path", "destination", "source", "file_path", "filepath", "filename")
"""Arguments that name the changed file: fuseraft's three, then those of other agents."""
_COMMIT_COMMAND, _COMMIT_TOOL = "git commit", "gitcommit"
"""Text of a commit in a command, and in a tool's name without underscores."""
_TRACKED_TOOLS = (
    "writefile",
    "patchfile",
    "deletefile",
    "deletedirectory",
    "copyfile",
    "movefile",
    "shellrun",
    _COMMIT_TOOL,
)
_COMMAND_ARGUMENTS = ("command", "cmd", "script")


class ToolCallWithResult(NamedTuple):
    """A tool call of a session with its result."""

    call: ToolCall
    reply: Message
    result: Message | None
    turn: int
    agent: str

    @property
    def outcome(self) -> tool_outcomes_and_files.Outcome:
        """State of the call."""
        return tool_outcomes_and_files.get_outcome(self.result)

    @property
    def output(self) -> str:
        """Text of the result; empty if there is none."""
        return "" if self.result is None else get_plain_text(self.result)

    @property
    def path(self) -> str | None:
        """Path that the call works on, if an argument names one."""
        values = (self.call.arguments.get(k) for k in _PATH_ARGUMENTS)
        return next((v for v in values if isinstance(v, str) and v), None)

    @property
    def is_command(self) -> bool:
        """True for a shell command."""
        return bool(tool_outcomes_and_files.SHELL_TOOL_PATTERN.search(self.call.name))

    @property
    def is_deletion(self) -> bool:
        """True for a tool that takes a file away."""
        return "delete" in self.call.name.lower() or "remove" in self.call.name.lower()

    @property
    def commit(self) -> str:
        """Command or message of the commit that the call makes, redacted; else empty."""
        if self.is_command:
            command = get_command(self)
            return command if _COMMIT_COMMAND in command else ""
        if _COMMIT_TOOL not in self._flat_name:
            return ""
        return redact(
            message_content_and_truncation.get_argument_text(
                self.call.arguments.get("message") or self.call.name
            )
        )

    @property
    def is_tracked(self) -> bool:
        """True for the calls that a change log records: writes, deletions, commands, commits."""
        return (
            any(t in self._flat_name for t in _TRACKED_TOOLS)
            or self.is_command
            or is_write_tool(self.call.name)
        )

    @property
    def _flat_name(self) -> str:
        return self.call.name.lower().replace("_", "")


def iter_calls(session: Session) -> Iterator[ToolCallWithResult]:
    """Yield the tool calls of a session in order; turns count from 0."""
    results = map_results_by_call(session.messages)
    turns = {id(c.message): c.turn for c in session.calls}
    for message in session.messages:
        for call in message.tool_calls:
            turn = turns.get(id(message), message.turn or 0)
            yield ToolCallWithResult(
                call, message, results.get(id(call)), turn, message.agent or session.agent
            )


def build_change_log(session: Session) -> ChangeLog:
    """Return a change log: one entry per turn of an agent that changed anything.

    Args:
        session: a recorded or live session; calls without a result are left out.

    Returns:
        The content of fuseraft's `changes.json`: entries by turn and agent, with the files written
        and deleted, the commands run and the commits made in it.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent import build_change_log
        >>> len(build_change_log(ck.read(ck.samples.path("billing"))).entries)
        18
    """
    by_turn: dict[tuple[int, str], list[ToolCallWithResult]] = {}
    for act in iter_calls(session):
        if act.is_tracked and act.outcome != "pending":
            by_turn.setdefault((act.turn, act.agent), []).append(act)
    entries = [_change_entry(session, turn, agent, done) for (turn, agent), done in by_turn.items()]
    return ChangeLog(active_session_id=session.id, entries=tuple(entries))


def build_tool_call_intent_log(session: Session) -> IntentLog:
    """Return an intent log: one entry per tracked call, `Pending` until it has a result.

    Args:
        session: recorded or live.

    Returns:
        The content of fuseraft's `intents.json`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent.change_log_intent_log_evidence_graph import build_tool_call_intent_log
        >>> log = build_tool_call_intent_log(ck.read(ck.samples.path("billing")))
        >>> log.entries[0].status
        'Applied'
    """
    entries = (_intent_entry(session, act) for act in iter_calls(session) if act.is_tracked)
    return IntentLog(active_session_id=session.id, entries=tuple(entries))


def to_iso_time(time: float | None) -> str:
    """Return seconds since 1970 in ISO 8601; empty for None."""
    return "" if time is None else datetime.fromtimestamp(time, UTC).isoformat()


def get_command(act: ToolCallWithResult) -> str:
    """Return the command that a call ran, redacted; a list of words becomes one line.

    Args:
        act: a call of a tool that runs commands.

    Returns:
        The command line.
    """
    arguments = act.call.arguments
    words = next((v for k in _COMMAND_ARGUMENTS if isinstance(v := arguments.get(k), list)), None)
    command = (
        " ".join(map(str, words))
        if words
        else message_content_and_truncation.get_call_target(act.call)
    )
    return redact(command)


def _change_entry(
    session: Session, turn: int, agent: str, records: Sequence[ToolCallWithResult]
) -> TurnChangeEntry:
    file_changes = [a for a in records if a.outcome == "done" and a.path and not a.is_command]
    # The file must say whether a command succeeded, so one without a known outcome is left out.
    commands = [a for a in records if a.is_command and a.outcome != "unknown"]
    runs = (
        CommandRun(command=get_command(a), succeeded=a.outcome == "done",
                   output=redact(a.output)[:MAX_OUTPUT_CHARS] or None)
        for a in commands
    )  # fmt: skip
    return TurnChangeEntry(
        agent=agent,
        turn_index=turn,
        timestamp=to_iso_time(records[-1].reply.time),
        session_id=session.id,
        files_written=tuple(
            dict.fromkeys(a.path for a in file_changes if a.path and not a.is_deletion)
        ),
        files_deleted=tuple(
            dict.fromkeys(a.path for a in file_changes if a.path and a.is_deletion)
        ),
        commands_run=tuple(runs),
        git_commits=tuple(a.commit for a in records if a.outcome == "done" and a.commit),
    )


_INTENT_STATUS: dict[tool_outcomes_and_files.Outcome, IntentStatus] = {
    "pending": "Pending",
    "done": "Applied",
    "failed": "Failed",
    "unknown": "Pending",
}


def _intent_entry(session: Session, act: ToolCallWithResult) -> ToolCallStatusEntry:
    failed, name = act.outcome == "failed", f"{session.id}\0{act.call.id}"
    named = {
        str(k): redact(message_content_and_truncation.get_argument_text(v))
        for k, v in act.call.arguments.items()
    }
    short_arguments = {
        k: v if len(v) <= MAX_ARGUMENT_CHARS else v[:MAX_ARGUMENT_CHARS] + "…"
        for k, v in named.items()
    }
    return ToolCallStatusEntry(
        intent_id=sha256(name.encode("utf-8", "replace")).hexdigest()[:16],
        timestamp=to_iso_time(act.reply.time),
        agent=act.agent,
        turn_index=act.turn,
        session_id=session.id,
        operation=ToolCallOperation(
            function_name=act.call.name,
            target_path=None if act.is_command else act.path,
            args_summary=short_arguments,
        ),
        status=_INTENT_STATUS[act.outcome],
        error_message=message_content_and_truncation.format_one_line(redact(act.output), 400)
        if failed
        else None,
        completed_at=to_iso_time(act.result.time) or None if act.result is not None else None,
    )


_TEST_COMMAND = re.compile(
    r"(?<![\w-])(?:pytest|tox|nox|jest|vitest|go test|cargo test|ctest|"
    r"(?:npm|make|yarn) (?:run )?test)(?!\w)"
)
_CONTENT_ARGUMENTS = ("content", "new", "new_string", "text", "code")
"""Arguments that have the written content."""


def build_evidence_graph(session: Session) -> EvidenceGraph:
    """Return the evidence graph: files, commands, tests, commits and symbols that a session proves.

    A written file is verified by the next test command that succeeds. A symbol is defined by the
    first file whose content defines it, and referred to by other files that name it.

    Args:
        session: recorded or live; calls without a result are left out.

    Returns:
        The content of fuseraft's `evidence.json`.
    """
    nodes: list[EvidenceNode] = []
    edges: list[EvidenceEdge] = []
    open_files: list[str] = []
    written: dict[str, tuple[EvidenceNode, str]] = {}
    for act in iter_calls(session):
        if not act.is_tracked or act.outcome in ("pending", "unknown"):
            continue
        node = _evidence_node(session, act, len(nodes))
        nodes.append(node)
        if node.node_type == "FileWrite" and act.outcome == "done":
            open_files.append(node.id)
            written[node.path or ""] = node, _written_text(act)
        elif node.node_type == "TestResult" and act.outcome == "done":
            edges += [EvidenceEdge(from_=f, to=node.id, relation="verified_by") for f in open_files]
            open_files = []
    more, joined = make_definition_and_reference_nodes(list(written.values()), len(nodes))
    return EvidenceGraph(
        active_session_id=session.id, nodes=(*nodes, *more), edges=(*edges, *joined)
    )


def make_definition_and_reference_nodes(
    written: Sequence[tuple[EvidenceNode, str]], first_node_number: int = 0
) -> tuple[list[EvidenceNode], list[EvidenceEdge]]:
    """Return the definitions and references of symbols in written files, with their edges.

    Args:
        written: nodes of the files, with their content.
        first_node_number: number of the first new node.
    """
    defined: dict[str, EvidenceNode] = {}
    nodes: list[EvidenceNode] = []
    edges: list[EvidenceEdge] = []

    def add_node(file: EvidenceNode, kind: str, **more: str) -> EvidenceNode:
        node = EvidenceNode(id=f"n{first_node_number + len(nodes)}", node_type=kind,
                            timestamp=file.timestamp,
                            agent=file.agent, turn=file.turn, session_id=file.session_id,
                            path=file.path, **more)  # type: ignore[arg-type]  # fmt: skip
        nodes.append(node)
        return node

    for file, text in written:
        for kind, name in tool_outcomes_and_files.find_definitions(text):
            if name not in defined:
                defined[name] = add_node(
                    file, "SymbolDefinition", symbol_name=name, symbol_kind=kind
                )
                edges.append(
                    EvidenceEdge(from_=defined[name].id, to=file.id, relation="produced_by")
                )
    for file, text in written:
        for name in tool_outcomes_and_files.find_used_names(text):
            home = defined.get(name)
            if home is not None:
                node = add_node(
                    file, "SymbolReference", symbol_name=name, target_file=home.path or ""
                )
                edges.append(EvidenceEdge(from_=node.id, to=home.id, relation="depends_on"))
    return nodes, edges


def _evidence_node(session: Session, act: ToolCallWithResult, number: int) -> EvidenceNode:
    output = redact(act.output)[:MAX_OUTPUT_CHARS]
    command = get_command(act) if act.is_command else None
    kind = "FileDelete" if act.is_deletion else "FileWrite"
    if act.commit:
        kind = "GitCommit"
    elif command is not None:
        kind = "TestResult" if _TEST_COMMAND.search(command) else "CommandRun"
    text = "" if command is not None or act.commit else _written_text(act)
    return EvidenceNode(
        id=f"n{number}",
        node_type=kind,
        timestamp=to_iso_time(act.reply.time),
        agent=act.agent,
        turn=act.turn,
        session_id=session.id,
        path=None if command is not None else act.path,
        content_hash=_sha256(text) if text else None,
        command=command,
        exit_code=_exit_code(act) if command is not None else None,
        output_hash=_sha256(act.output) if command is not None and act.output else None,
        output=output or None if command is not None else None,
        commit_message=act.commit or None,
        status="passed" if act.outcome == "done" else "failed",
    )


def _written_text(act: ToolCallWithResult) -> str:
    values = (act.call.arguments.get(k) for k in _CONTENT_ARGUMENTS)
    return next((v for v in values if isinstance(v, str)), "")


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def _exit_code(act: ToolCallWithResult) -> int | None:
    """Return the exit code that a command's output states, or None."""
    done = tool_outcomes_and_files.ToolCallOutcome(
        act.call.name, "", "", act.outcome, act.output, act.turn, act.agent, 0
    )
    return done.exit


_FILE_PATTERN = (
    r"[`'\"*]{0,3}((?:[\w.@-]{1,100}/){0,12}[\w@-][\w.@-]{0,100}\.[A-Za-z][A-Za-z0-9]{0,4})(?!\w)"
)
_WROTE_CLAIM = re.compile(
    r"(?<!\w)(?:wrote|created|added|updated|changed|modified|patched|edited|fixed|rewrote)"
    rf"(?: (?:a|an|the|new|file|files|it in|in|to))*[ :]+{_FILE_PATTERN}",
    re.IGNORECASE,
)
_DELETED_CLAIM = re.compile(
    rf"(?<!\w)(?:deleted|removed)(?: (?:the|file|old))*[ :]+{_FILE_PATTERN}", re.IGNORECASE
)
_MORE_FILES = re.compile(rf"[`'\"*]{{0,3}}(?:,? and|,) {_FILE_PATTERN}", re.IGNORECASE)
"""Continuation of a list of files."""
_RAN_CLAIM = re.compile(r"(?<!\w)(?:ran|executed) `([^`\n]{2,200})`", re.IGNORECASE)
_PASSED_CLAIM = re.compile(
    r"(?<!\w)(?:(?:all )?(?:the )?(?:\d+ )?tests? (?:now )?(?:pass|passed|are green|succeed)|"
    r"test suite (?:passes|passed|is green))(?!\w)", re.IGNORECASE)  # fmt: skip
_NEGATION = re.compile(
    r"(?<!\w)(?:not|never|no|n't|if|once|until|should|will|would|to)\s+(?:\w+\s+){0,2}$"
)
_TEST_WORD = re.compile(r"test|tox|jest|check", re.IGNORECASE)
_MAX_TEXT_CHARS = 200_000
GROUNDING_COLUMNS = ["turn", "message", "kind", "claim", "target", "grounded", "why"]


class AgentClaim(NamedTuple):
    """A statement of an agent that it did something."""

    kind: str
    """`wrote`, `deleted`, `ran` or `passed`."""
    words: str
    target: str


@accepts_session
def check_claims_against_changes(
    session: Session, changes: ChangeLog | None = None
) -> pd.DataFrame:
    """Check what an agent claims to have done against the change log.

    Claims are found by their words ("I created a.py", "ran `pytest`", "all tests pass"), so some
    are missed. A claim that is not grounded may still be true; the column `why` says what was
    looked for. Statements that are negated, conditional or about the future are no claims.

    Args:
        session: a session, the path of a log, or a list of messages.
        changes: change log to check against, as `read_record` returns it; None: built from the
            session.

    Returns:
        One row per claim, with the columns `turn`, `message` (id), `kind` (`wrote`, `deleted`,
        `ran`, `passed`), `claim` (its words), `target`, `grounded` and `why`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent import change_log_intent_log_evidence_graph as work_records
        >>> claims = work_records.check_claims_against_changes(ck.samples.path("billing"))
        >>> list(claims.columns)
        ['turn', 'message', 'kind', 'claim', 'target', 'grounded', 'why']
    """
    import pandas as pd

    log, rows = changes or build_change_log(session), []
    for call in session.calls:
        text = "\n".join(
            p.text[:_MAX_TEXT_CHARS] for p in call.message.parts if isinstance(p, Text)
        )
        for claim in find_claims(text):
            is_grounded, why = _check_claim(claim, log, call.turn)
            rows.append(
                (
                    call.turn,
                    call.message.id,
                    claim.kind,
                    claim.words,
                    claim.target,
                    is_grounded,
                    why,
                )
            )
    table = pd.DataFrame(rows, columns=GROUNDING_COLUMNS)
    return table.astype({"turn": "Int64", "grounded": "boolean"})


# Claims are matched by patterns for "wrote FILE", "deleted FILE", "ran `COMMAND`" and "tests pass".
# A negation, condition or future within 40 characters before a match rejects it. A list of files
# ("a.py, b.py and c.py") is followed to its end.


def find_claims(text: str) -> Iterator[AgentClaim]:
    """Yield the claims in a text."""
    for kind, pattern in (
        ("wrote", _WROTE_CLAIM),
        ("deleted", _DELETED_CLAIM),
        ("ran", _RAN_CLAIM),
        ("passed", _PASSED_CLAIM),
    ):
        for hit in pattern.finditer(text):
            if not _NEGATION.search(text[max(hit.start() - 40, 0) : hit.start()].lower()):
                target = hit[1].rstrip(".") if hit.re.groups else ""
                words = " ".join(hit[0].split())[:200]
                yield AgentClaim(kind, words, target)
                more = _MORE_FILES.match(text, hit.end()) if kind in ("wrote", "deleted") else None
                while more is not None:
                    yield AgentClaim(kind, words, more[1].rstrip("."))
                    more = _MORE_FILES.match(text, more.end())


def _check_claim(claim: AgentClaim, log: ChangeLog, turn: int) -> tuple[bool, str]:
    """Return whether the log up to a turn supports a claim, and why."""
    past = [e for e in log.entries if e.turn_index <= turn]
    runs = [c for e in past for c in e.commands_run]
    if claim.kind in ("wrote", "deleted"):
        written = claim.kind == "wrote"
        paths = {p for e in past for p in (e.files_written if written else e.files_deleted)}
        if any(_is_same_path(claim.target, p) for p in paths):
            return True, "the change log has the file"
        named = any(c.succeeded and claim.target in c.command for c in runs)
        return named, "a command names it" if named else "no change of that file, no command"
    if claim.kind == "ran":
        commands = [c.command for c in runs if c.command]  # a call may have no command
        same = [c for c in commands if claim.target in c or c in claim.target]
        return (True, "the command was run") if same else (False, "no such command")
    return _check_tests_passed(runs)


def _check_tests_passed(runs: list[CommandRun]) -> tuple[bool, str]:
    tests = [c for c in runs if _TEST_WORD.search(c.command)]
    if not tests:
        return False, "no command that tests"
    good = tests[-1].succeeded
    return good, f"the last test command {'succeeded' if good else 'failed'}"


def _is_same_path(claimed: str, path: str) -> bool:
    """Return whether two paths are equal, or one is the end of the other."""
    one, other = claimed.removeprefix("./"), path.removeprefix("./")
    return one == other or other.endswith(f"/{one}") or one.endswith(f"/{other}")


MAX_RECORD_BYTES = 50_000_000
MAX_OUTPUT_CHARS, MAX_ARGUMENT_CHARS = 4_096, 200
"""Characters of an output, and of an argument, that are stored."""
IntentStatus = Literal["Pending", "Applied", "Failed", "Retryable"]
RecordType = TypeVar("RecordType", bound=msgspec.Struct)


class CommandRun(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a turn. It has no exit code; `evidence.json` has some."""

    command: str = msgspec.field(name="Command")
    succeeded: bool = True
    output: str | None = msgspec.field(default=None, name="Output")


class TurnChangeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """What one agent changed in one turn."""

    agent: str
    turn_index: int
    """From 0."""
    timestamp: str = ""
    session_id: str | None = None
    files_written: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()
    commands_run: tuple[CommandRun, ...] = ()
    git_commits: tuple[str, ...] = ()


class ChangeLog(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The content of fuseraft's `changes.json`: what each turn of each agent changed.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.agent import build_change_log
        >>> log = build_change_log(ck.read(ck.samples.path("billing")))
        >>> len(log.entries), log.entries[0].turn_index
        (18, 0)
    """

    active_session_id: str | None = None
    """Id of the session that the file describes."""
    entries: tuple[TurnChangeEntry, ...] = ()
    """One entry per turn and agent, in order of turns."""


class ToolCallOperation(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The operation of a tool call."""

    function_name: str
    target_path: str | None = None
    """The argument `path`, else `destination`, else `source`; so none for a command."""
    args_summary: dict[str, str] = {}


class ToolCallStatusEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A tool call, written before it runs and again when it ended."""

    intent_id: str
    """16 hexadecimal digits."""
    timestamp: str = ""
    agent: str = ""
    turn_index: int = 0
    session_id: str | None = None
    operation: ToolCallOperation
    status: IntentStatus = "Pending"
    error_message: str | None = None
    completed_at: str | None = None


class IntentLog(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The content of fuseraft's `intents.json`: each tool call with its status.

    Example:
        >>> from ctxkit.agent import IntentLog
        >>> IntentLog(active_session_id="s1").entries
        ()
    """

    active_session_id: str | None = None
    """Id of the session that the file describes."""
    entries: tuple[ToolCallStatusEntry, ...] = ()
    """One entry per tracked tool call, in order of calls."""


class EvidenceNode(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """A node of the graph: a file, a command, a commit or a symbol."""

    id: str
    node_type: str
    timestamp: str = ""
    agent: str = ""
    turn: int = 0
    session_id: str | None = None
    path: str | None = None
    content_hash: str | None = None
    """SHA-256 of a file's content."""
    command: str | None = None
    exit_code: int | None = None
    output_hash: str | None = None
    output: str | None = None
    commit_message: str | None = None
    status: str | None = None
    symbol_name: str | None = None
    symbol_kind: str | None = None
    target_file: str | None = None


class EvidenceEdge(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A relation of two nodes: `produced_by`, `verified_by`, `depends_on`."""

    from_: str = msgspec.field(name="From")
    to: str
    relation: str


class EvidenceGraph(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`evidence.json`."""

    active_session_id: str | None = None
    nodes: tuple[EvidenceNode, ...] = ()
    edges: tuple[EvidenceEdge, ...] = ()


def read_record(path: str | Path, kind: type[RecordType]) -> RecordType:
    """Return the record in a file.

    Args:
        path: `changes.json`, `intents.json` or `evidence.json`, ctxkit's or fuseraft's.
        kind: `ChangeLog`, `IntentLog` or `EvidenceGraph`.

    Returns:
        The record, an instance of `kind`; keys that fuseraft adds and ctxkit does not know are
        ignored.

    Raises:
        ReadError: it cannot be read, is too large, or is not valid.

    Example:
        >>> from pathlib import Path
        >>> from ctxkit.agent import ChangeLog, read_record
        >>> size = Path("changes.json").write_text('{"ActiveSessionId": "s1", "Entries": []}')
        >>> read_record("changes.json", ChangeLog).active_session_id
        's1'
    """
    place = Path(path)
    try:
        if not place.is_file():
            raise ReadError("There is no such file.", path)
        with place.open("rb") as file:
            data = file.read(MAX_RECORD_BYTES + 1)
    except OSError as e:
        raise ReadError(f"It cannot be read: {e.strerror}.", path) from None
    if len(data) > MAX_RECORD_BYTES:
        raise ReadError(f"It has more than {MAX_RECORD_BYTES:,} bytes.", path)
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except (msgspec.DecodeError, RecursionError) as e:
        why = str(e)[:200] if isinstance(e, msgspec.DecodeError) else "it is nested too deeply"
        raise ReadError(f"It is no {kind.__name__} of fuseraft's: {why}.", path) from None


def encode_record(record: msgspec.Struct) -> bytes:
    """Return a record as the bytes of its file: one JSON object, indented.

    Args:
        record: a change log, an intent log or an evidence graph.

    Returns:
        UTF-8 with fuseraft's keys (`ActiveSessionId`, `Entries`, ...).
    """
    encoded: Any = msgspec.json.encode(record)
    return bytes(msgspec.json.format(encoded, indent=2))
