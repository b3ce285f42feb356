"""Change log and intents, made from a session's record: what tools did, not what a model said of
it.

The same record is what the policies `intents` and `evidence` write their texts from.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.ledgers.kinds import (
    MOST_ARGUMENT,
    MOST_OUTPUT,
    ChangeEntry,
    ChangeLog,
    CommandRun,
    IntentEntry,
    IntentLog,
    Operation,
    Status,
)
from ctxkit.redaction import redact
from ctxkit.subjects import results
from ctxkit.texts import contents, records
from ctxkit.tools.tool_names import writes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.messages import Message, ToolCall
    from ctxkit.session import Session

_PATHS = ("path", "destination", "source", "file_path", "filepath", "filename")
"""Arguments that name what is changed: fuseraft's three first, then what other agents call them."""
_COMMIT, _COMMITS = "git commit", "gitcommit"
"""In a command, and in a tool's name without underscores."""
_TRACKED = (
    "writefile",
    "patchfile",
    "deletefile",
    "deletedirectory",
    "copyfile",
    "movefile",
    "shellrun",
    _COMMITS,
)
_COMMANDS = ("command", "cmd", "script")


class Act(NamedTuple):
    """A tool call of a session, and what became of it."""

    call: ToolCall
    reply: Message
    result: Message | None
    turn: int
    agent: str

    @property
    def outcome(self) -> records.Outcome:
        """How it ended."""
        if self.result is None:
            return "pending"
        return "failed" if records.failed(self.result) else "done"

    @property
    def output(self) -> str:
        """What the tool said."""
        return "" if self.result is None else contents.texts(self.result)

    @property
    def path(self) -> str | None:
        """What it works on, where an argument says so."""
        found = (self.call.arguments.get(k) for k in _PATHS)
        return next((v for v in found if isinstance(v, str) and v), None)

    @property
    def is_command(self) -> bool:
        """True for a command of a shell."""
        return bool(records.SHELLS.search(self.call.name))

    @property
    def deletes(self) -> bool:
        """True for a tool that takes a file away."""
        return "delete" in self.call.name.lower() or "remove" in self.call.name.lower()

    @property
    def commit(self) -> str:
        """Command or message of the commit that it makes, without keys; empty: it makes none."""
        if self.is_command:
            said = command_of(self)
            return said if _COMMIT in said else ""
        if _COMMITS not in self._flat:
            return ""
        return redact(contents.written(self.call.arguments.get("message") or self.call.name))

    @property
    def tracked(self) -> bool:
        """True for what a change log holds: writes, deletions, commands, commits."""
        return any(t in self._flat for t in _TRACKED) or self.is_command or writes(self.call.name)

    @property
    def _flat(self) -> str:
        return self.call.name.lower().replace("_", "")


def acts(session: Session) -> Iterator[Act]:
    """Yield the tool calls of a session in order; a turn is counted from 0."""
    found = results(session.messages)
    turns = {id(c.message): c.turn for c in session.calls}
    for message in session.messages:
        for call in message.tool_calls:
            turn = turns.get(id(message), message.turn or 0)
            yield Act(call, message, found.get(id(call)), turn, message.agent or session.agent)


def changes_of(session: Session) -> ChangeLog:
    """Return a change log: an entry for each turn of an agent that changed anything."""
    by_turn: dict[tuple[int, str], list[Act]] = {}
    for act in acts(session):
        if act.tracked and act.outcome != "pending":
            by_turn.setdefault((act.turn, act.agent), []).append(act)
    entries = [_entry(session, turn, agent, done) for (turn, agent), done in by_turn.items()]
    return ChangeLog(active_session_id=session.id, entries=tuple(entries))


def intents_of(session: Session) -> IntentLog:
    """Return an entry for each tracked tool call: `Pending` until its result came."""
    entries = (_intent(session, act) for act in acts(session) if act.tracked)
    return IntentLog(active_session_id=session.id, entries=tuple(entries))


def stamp(time: float | None) -> str:
    """Return seconds since 1970 as ISO 8601; empty where they are not known."""
    return "" if time is None else datetime.fromtimestamp(time, UTC).isoformat()


def command_of(act: Act) -> str:
    """Return the command that a call ran, without keys; a list of words as one line."""
    given = act.call.arguments
    words = next((v for k in _COMMANDS if isinstance(v := given.get(k), list)), None)
    said = " ".join(map(str, words)) if words else contents.target(act.call)
    return redact(said)


def _entry(session: Session, turn: int, agent: str, done: Sequence[Act]) -> ChangeEntry:
    kept = [a for a in done if a.outcome == "done" and a.path and not a.is_command]
    commands = [a for a in done if a.is_command]
    runs = (
        CommandRun(command=command_of(a), succeeded=a.outcome == "done",
                   output=redact(a.output)[:MOST_OUTPUT] or None)
        for a in commands
    )  # fmt: skip
    return ChangeEntry(
        agent=agent,
        turn_index=turn,
        timestamp=stamp(done[-1].reply.time),
        session_id=session.id,
        files_written=tuple(dict.fromkeys(a.path for a in kept if a.path and not a.deletes)),
        files_deleted=tuple(dict.fromkeys(a.path for a in kept if a.path and a.deletes)),
        commands_run=tuple(runs),
        git_commits=tuple(a.commit for a in done if a.outcome == "done" and a.commit),
    )


_STATUS: dict[records.Outcome, Status] = {
    "pending": "Pending",
    "done": "Applied",
    "failed": "Failed",
}


def _intent(session: Session, act: Act) -> IntentEntry:
    failed, name = act.outcome == "failed", f"{session.id}\0{act.call.id}"
    named = {str(k): redact(contents.written(v)) for k, v in act.call.arguments.items()}
    cut = {k: v if len(v) <= MOST_ARGUMENT else v[:MOST_ARGUMENT] + "…" for k, v in named.items()}
    return IntentEntry(
        intent_id=sha256(name.encode("utf-8", "replace")).hexdigest()[:16],
        timestamp=stamp(act.reply.time),
        agent=act.agent,
        turn_index=act.turn,
        session_id=session.id,
        operation=Operation(
            function_name=act.call.name,
            target_path=None if act.is_command else act.path,
            args_summary=cut,
        ),
        status=_STATUS[act.outcome],
        error_message=contents.one_line(redact(act.output), 400) if failed else None,
        completed_at=stamp(act.result.time) or None if act.result is not None else None,
    )
