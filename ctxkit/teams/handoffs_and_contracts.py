"""Hand-offs between agents, and the contracts that must hold before them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.redaction import redact
from ctxkit.agent.tools.tool import Tool, tool
from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.message_content_and_truncation import get_call_target, get_path_argument
from ctxkit.session.messages import get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import is_write_tool
from ctxkit.teams.team_definition import OWN_HISTORY_CHARS, SOURCE_CHARS, ContextSource, matches_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.presets.config_key_mapping import ConfigSection
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.session.session import Session
    from ctxkit.teams.team_definition import ContractRequirement, HandoffContract, TeamPlan


SOURCE_KINDS = ("session_context", "changes_recent", "brief_field", "file", "own_history")
SUMMARY_FILE = "context_summary.md"
"""File that the source `session_context` reads and the tool `session_context_write` writes."""
_TRUNCATED_SOURCE = "\n[...{n} chars truncated — use file tool to read in full]"


def parse_context_sources(
    rows: Sequence[ConfigSection], where: str, *, allow_own: bool
) -> tuple[ContextSource, ...]:
    """Return declared sources; `allow_own`: the agent's own history may be among them.

    Args:
        rows: entries of `Context`, `HandoffContext` or a view.
        where: place in the config, for the error's sentence.
        allow_own: the agent's own history may be among them.

    Returns:
        The sources in the order of the config, with their limits in characters.

    Raises:
        BadArguments: there is no such source, or it is not allowed there.
    """
    return tuple(_parse_source(f, where, allow_own=allow_own) for f in rows)


def _parse_source(section: ConfigSection, where: str, *, allow_own: bool) -> ContextSource:
    kind, _, argument = section.text("Source").strip().partition(":")
    if kind not in SOURCE_KINDS:
        raise BadArguments(
            f"{where}: there is no source {sanitize_text(kind, 40)!r}; there are "
            f"{', '.join(SOURCE_KINDS)}."
            f"{did_you_mean(kind, SOURCE_KINDS)}"
        )
    if kind == "own_history" and not allow_own:
        raise BadArguments(
            f"{where}: own_history is no part of a hand-off, as its reader is not its author: "
            "put it into the Context of the agent that receives."
        )
    if kind in ("brief_field", "file") and not argument:
        raise BadArguments(f"{where}: {kind} needs a name behind a colon, such as {kind}:NAME.")
    if (
        kind in ("changes_recent", "own_history")
        and argument
        and not re.fullmatch(r"[1-9]\d{0,5}", argument)
    ):
        raise BadArguments(
            f"{where}: {kind} takes a number above 0 behind its colon, not "
            f"{sanitize_text(argument, 40)!r}."
        )
    default_chars = OWN_HISTORY_CHARS if kind == "own_history" else SOURCE_CHARS
    return ContextSource(
        kind=kind,
        argument=argument,
        max_chars=section.number("MaxChars") or default_chars,
        label=section.text("Label"),
    )


# A hand-off has context blocks made of files, tools to hand on, and an end of turn.
@dataclass(frozen=True, kw_only=True)
class ContextSourceInputs:
    """Files and changes from which sources are read."""

    root: FolderReader
    brief: str
    changes: Sequence[TurnFilesAndCommands]


def format_handoff(files: ContextSourceInputs, sources: Sequence[ContextSource], agent: str) -> str:
    """Return the block of a hand-off; empty if its sources are.

    Args:
        files: the team's folder, its brief and its changes so far.
        sources: sources of the hand-off, as declared.
        agent: that gets it.

    Returns:
        A heading, and a part for each source that is not empty, cut to its characters.
    """
    return _format_block(f"[HANDOFF CONTEXT — assembled for {agent}]", files, sources)


def format_declared_context(
    source_files: ContextSourceInputs, sources: Sequence[ContextSource]
) -> str:
    """Return the block of a declared context; empty if its sources are.

    Args:
        source_files: the team's folder, its brief and its changes so far.
        sources: as declared; `own_history` is no part of the block.

    Returns:
        A heading, and a part for each source that is not empty, cut to its characters.
    """
    files = [s for s in sources if s.kind != "own_history"]
    return _format_block("[AGENT CONTEXT — assembled from artifacts]", source_files, files)


def list_empty_sources(
    files: ContextSourceInputs, sources: Sequence[ContextSource]
) -> tuple[str, ...]:
    """Return the names of the empty sources, as in the config.

    Args:
        files: the team's folder, its brief and its changes so far.
        sources: as declared; own history is not looked at.

    Returns:
        Names such as `brief_field:goal`.
    """
    return tuple(s.name for s in sources if s.kind != "own_history" and not _read_source(files, s))


def _format_block(head: str, files: ContextSourceInputs, sources: Sequence[ContextSource]) -> str:
    parts = []
    for source in sources:
        text = _read_source(files, source)
        if text:
            text = message_content_and_truncation.truncate_end(
                text, source.max_chars, _TRUNCATED_SOURCE
            )
            parts.append(f"\n\n## {source.label or _source_label(source)}\n{text}")
    return head + "".join(parts) if parts else ""


def _source_label(source: ContextSource) -> str:
    if source.kind == "file":
        return source.argument.replace("\\", "/").rsplit("/", 1)[-1]
    if source.kind == "brief_field":
        return f"Task: {source.argument}"
    return {"session_context": "Session Context", "changes_recent": "Recent Changes"}[source.kind]


def _read_source(files: ContextSourceInputs, source: ContextSource) -> str:
    """Return the current text of a source, redacted; empty if it does not exist."""
    if source.kind == "changes_recent":
        # without a number all, as fuseraft documents it (its program takes three)
        return "\n".join(c.text for c in list(files.changes)[-int(source.argument or 0) :])
    if source.kind == "brief_field":
        return _brief_field(read_brief(files.root, files.brief), source.argument)
    path = SUMMARY_FILE if source.kind == "session_context" else source.argument
    return read_text(files.root, path).strip()


def _brief_field(brief: dict[str, Any], name: str) -> str:
    value = brief.get(name, brief.get(name.lower()))
    if value is None or isinstance(value, str):
        return (value or "").strip()
    return json.dumps(value, ensure_ascii=False)


def read_brief(root: FolderReader, path: str) -> dict[str, Any]:
    """Return the brief, a JSON object that an agent writes; empty if there is none.

    Args:
        root: folder of the team.
        path: path of the brief in it.
    """
    return read_json(root, path) or {}


HANDOFF_TOOL = "handoff"


def handoff(route_keyword: str) -> str:
    """Hand the work on with one of the signals that were named; end your turn after it."""
    return f"Noted: {route_keyword}. End your turn now."


NO_CHANGES = "Nobody has written a file or run a command yet."
_MAX_CHANGES = 200
"""Turns of the change log that are returned at once, the newest."""


def make_team_tools(
    root: RootFolder,
    *,
    by_call: bool,
    summary: bool,
    changes: Callable[[], Sequence[TurnFilesAndCommands]] | None = None,
) -> list[Tool]:
    """Return the tools of one agent.

    Args:
        root: the team's folder.
        by_call: the agent may hand off by a tool call.
        summary: the team's sources read the summary.
        changes: returns the team's changes so far; None: the agent has no tool to read them.

    Returns:
        Tools besides those of the agent's plugins; none write outside of the summary's file.
    """

    def session_context_write(text: str) -> str:
        """Write the summary that the next agent is handed, in place of the last one."""
        root.write(SUMMARY_FILE, text.encode())
        return "Written."

    def changes_read_latest(count: int = 1) -> str:
        """Read the newest entries of the change log: what each turn wrote and ran, and how it
        ended.
        """
        return _format_changes(changes, count)

    def changes_read() -> str:
        """Read the change log: what each turn wrote and ran, and how it ended."""
        return _format_changes(changes, _MAX_CHANGES)

    tools = [tool(handoff)] if by_call else []
    tools += [tool(session_context_write)] if summary else []
    return [*tools, tool(changes_read_latest), tool(changes_read)] if changes else tools


def _format_changes(
    changes: Callable[[], Sequence[TurnFilesAndCommands]] | None, count: int
) -> str:
    entries = list(changes() if changes is not None else ())[-min(max(count, 1), _MAX_CHANGES) :]
    return redact("\n".join(entry.text for entry in entries)) or NO_CHANGES


def is_turn_finished(session: Session, turn: int) -> bool:
    """Return True if a turn of an agent's session was finished.

    Args:
        session: session of one agent.
        turn: number of the turn in it.

    Returns:
        False for a turn that was interrupted, has open calls, or ended at the length limit.
    """
    messages = [m for m in session.messages if m.turn == turn and m.visible]
    return (
        bool(messages)
        and messages[-1].role == "assistant"
        and not messages[-1].tool_calls
        and messages[-1].stop != "length"
    )


def get_last_reply(messages: Sequence[Message]) -> str:
    """Return the text of the last reply.

    Args:
        messages: messages of an agent's session.

    Returns:
        The newest visible text of role `assistant`, without its thinking; empty if there is none.
    """
    return next(
        (get_plain_text(m) for m in reversed(messages) if m.role == "assistant" and m.visible), ""
    )


def find_called_signals(messages: Sequence[Message]) -> list[str]:
    """Return the signals that were given by tool calls.

    Args:
        messages: messages of one turn.

    Returns:
        The signal of the last call of the hand-off tool; empty without such a call.
    """
    calls = [c for m in messages for c in m.tool_calls if c.name == HANDOFF_TOOL]
    return [str(c.arguments.get("route_keyword", "")) for c in calls[-1:]]


_FILE_WORD = re.compile(r"[\w.\-/\\]*(?:/[\w.\-]+|[\w\-]\.(?:[A-Za-z]\w{1,7}|[chr]))")
"""A word that names a file: it has a slash or a suffix."""


# A contract is checked against the files that agents wrote and the commands that they ran.
@dataclass(frozen=True, kw_only=True)
class ContractChecker:
    """The facts that contracts are checked against: the folder, the changes, the turn."""

    root: RootFolder
    plan: TeamPlan
    changes: Sequence[TurnFilesAndCommands]
    turn: int = -1
    """Number of the turn that hands off."""

    def find_unmet_requirements(self, contracts: Iterable[HandoffContract]) -> list[str]:
        """Return a sentence for each requirement of contracts that does not hold."""
        needs = [(c.name, r) for c in contracts for r in c.requires]
        return [f"{name}: {why}" for name, r in needs if (why := self._missing_reason(r))]

    def status(self, contracts: Iterable[HandoffContract]) -> list[dict[str, str]]:
        """Return each contract's name with its unmet requirements (`why`; empty if it holds)."""
        rows = {
            c.name: [w for r in c.requires if (w := self._missing_reason(r))] for c in contracts
        }
        return [{"name": name, "why": redact("; ".join(why))} for name, why in rows.items()]

    def read(self, path: str) -> str:
        """Return the text of a file of the team; empty if there is none."""
        return read_text(self.root, path)

    def _missing_reason(self, r: ContractRequirement) -> str:
        """Return why a requirement does not hold; empty if it does."""
        checks = {"FileExists": self._check_file, "FilesWritten": self._check_written,
                  "CommandSucceeded": self._check_command, "TestReport": self._check_report,
                  "ChecklistComplete": self._check_checklist, "RelatedTestsPass": self._check_tests,
                  "Brief": self._check_brief}  # fmt: skip
        return checks[r.kind](r)

    def _relevant_changes(self, r: ContractRequirement) -> Sequence[TurnFilesAndCommands]:
        return [c for c in self.changes if c.turn == self.turn] if r.this_turn else self.changes

    def _check_file(self, r: ContractRequirement) -> str:
        try:
            with self.root.open_file(r.path):
                return ""
        except StoreError:
            return f"there is no file {r.path}"

    def _check_brief(self, r: ContractRequirement) -> str:
        brief = read_json(self.root, r.path or self.plan.brief_path) or {}
        missing_keys = [
            k for k in ("goal", "files_to_change", "acceptance_criteria") if not brief.get(k)
        ]
        return (
            f"{r.path or self.plan.brief_path} has no {', '.join(missing_keys)}"
            if missing_keys
            else ""
        )

    def _check_written(self, r: ContractRequirement) -> str:
        if r.this_turn:
            written = any(c.files for c in self._relevant_changes(r))
            return "" if written else "no file was written in this turn"
        listed = (read_json(self.root, r.path or self.plan.brief_path) or {}).get(
            r.field or "files_to_change"
        )
        if not isinstance(listed, list) or not listed:
            return f"{r.path or self.plan.brief_path} names no {r.field or 'files_to_change'}"
        return self._describe_unwritten(str(p) for p in listed)

    def _check_checklist(self, r: ContractRequirement) -> str:
        """Check that every file named in a checklist's steps was written."""
        path, name = r.path or self.plan.brief_path, r.field or "execution_checklist"
        steps = (read_json(self.root, path) or {}).get(name)
        if not isinstance(steps, list) or not steps:
            return f"{path} names no {name}"
        words = (w.strip("`'\"(),;:.") for step in steps for w in str(step)[:2_000].split())
        return self._describe_unwritten(w for w in words if _FILE_WORD.fullmatch(w))

    def _describe_unwritten(self, required: Iterable[str]) -> str:
        paths = {_normal_path(p) for c in self.changes for p in c.files}
        missing_paths = [p for p in dict.fromkeys(required) if _normal_path(p) not in paths]
        return f"not written: {', '.join(missing_paths[:10])}" if missing_paths else ""

    def _check_tests(self, _: ContractRequirement) -> str:
        """Check that tests succeeded since the last change; no test is run here."""
        last = max((c.turn for c in self.changes if c.files), default=-1)
        # changes are recorded per turn: a run in the turn of the last change counts
        runs = [ok for c in self.changes if c.turn >= last for command, ok in c.commands
                if _holds_text(self.plan.test_commands, command)]  # fmt: skip
        if not runs:
            commands = " or ".join(self.plan.test_commands)
            return f"the tests were not run after the last change: {commands}"
        return "" if runs[-1] else "the last run of the tests failed"

    def _check_command(self, r: ContractRequirement) -> str:
        """Check that the last run of a command succeeded."""
        command_text = (
            str((read_json(self.root, r.path or self.plan.brief_path) or {}).get(r.field) or "")
            if r.field
            else ""
        )
        # a command of the brief must occur as a whole; of a pattern one part between bars
        words = [command_text] if command_text else r.pattern.split("|")
        described = f" like {command_text or r.pattern!r}" if any(words) else ""
        last: bool | None = None
        for change in self._relevant_changes(r):
            for command, ok in change.commands:
                last = ok if _holds_text(words, command) else last
        if last is None:
            return f"no command{described} was run"
        return "" if last else f"the last command{described} failed"

    def _check_report(self, r: ContractRequirement) -> str:
        path = r.path or self.plan.report_path
        report = read_json(self.root, path)
        rows = report.get("results") if report else None
        if not isinstance(rows, list) or not rows:
            return f"{path} has no results"
        bad = [
            x for x in rows if not isinstance(x, dict) or str(x.get("status", "")).upper() != "PASS"
        ]
        if r.no_failures and bad:
            return f"{path} reports {len(bad)} of {len(rows)} as not passed"
        if r.has_assertions and not self._has_assertions():
            return "no test file that was written holds an assertion"
        return ""

    def _has_assertions(self) -> bool:
        files = {p for c in self.changes for p in c.files if "test" in p.casefold()}
        texts = (self.read(path)[:200_000] for path in sorted(files) if not path.endswith(".json"))
        return any(matches_any(self.plan.assertions, text) for text in texts)


def _normal_path(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")


def _holds_text(words: Iterable[str], command: str) -> bool:
    """Return True if a command contains one of several texts (in fuseraft: between bars)."""
    return any(w.strip().casefold() in command.casefold() for w in words)


SHELL_TOOLS = ("shell", "shell_run", "bash")
_FAILED_COMMAND = re.compile(r"\[(?:exit status \d+|stopped after [\d.]+ seconds)\]\s*\Z")
"""End of the shell tool's output for a failed command."""


@dataclass(frozen=True, kw_only=True)
class TurnFilesAndCommands:
    """Files that an agent wrote and commands that it ran in one turn of the team."""

    turn: int
    agent: str
    time: float
    files: tuple[str, ...]
    commands: tuple[tuple[str, bool], ...]
    """Each command, and whether it succeeded."""

    @property
    def text(self) -> str:
        """The entry in fuseraft's format."""
        at = datetime.fromtimestamp(self.time, UTC)
        lines = [f"[Turn {self.turn}] {self.agent} ({at:%Y-%m-%d %H:%M} UTC)"]
        if self.files:
            lines += ["  Files written:", *(f"    - {path}" for path in self.files)]
        if self.commands:
            lines.append("  Commands run:")
            lines += [f"    - {c} [{'OK' if ok else 'FAILED'}]" for c, ok in self.commands]
        return "\n".join(lines)


def find_written_files_and_commands(
    messages: Iterable[Message],
) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Return the files that were written and the commands that were run.

    Args:
        messages: calls and their results; a call without a result does not count.

    Returns:
        Paths of the files, each once, and pairs of a command and whether it succeeded.
    """
    calls: dict[str | None, ToolCall] = {}
    written: dict[str, None] = {}
    commands: list[tuple[str, bool]] = []
    for message in messages:
        for call in message.tool_calls:
            calls[call.id] = call
        call_of_result = calls.get(message.call_id) if message.role == "tool" else None
        if call_of_result is None:
            continue
        if (
            is_write_tool(call_of_result.name)
            and get_path_argument(call_of_result)
            and not message.is_error
        ):
            written[get_path_argument(call_of_result)] = None
        elif call_of_result.name.casefold() in SHELL_TOOLS:
            commands.append(
                (
                    get_call_target(call_of_result),
                    not (message.is_error or _FAILED_COMMAND.search(message.text)),
                )
            )
    return tuple(written), tuple(commands)


def make_turn_changes(
    turn: int, agent: str, messages: Sequence[Message]
) -> TurnFilesAndCommands | None:
    """Return what an agent changed in a turn; None if it changed nothing.

    Args:
        turn: number of the team's turn, from 0.
        agent: name of the agent that had the turn.
        messages: that the turn added to the agent's session.

    Returns:
        Files and commands, with the time of the last message in seconds since 1970.
    """
    written, commands = find_written_files_and_commands(messages)
    if not written and not commands:
        return None
    time = next((m.time for m in reversed(messages) if m.time is not None), 0.0)
    return TurnFilesAndCommands(turn=turn, agent=agent, time=time, files=written, commands=commands)


def collect_changes(turns: Iterable[tuple[int, str, Session, int]]) -> list[TurnFilesAndCommands]:
    """Return the changes of turns: number, agent, its session, and the turn in it.

    Args:
        turns: number of the team's turn, agent, session of the agent, and number of the turn in it.

    Returns:
        The changes in the order of the turns, without turns that changed nothing.
    """
    out = []
    for number, agent, session, own_turn in turns:
        change = make_turn_changes(
            number, agent, [m for m in session.messages if m.turn == own_turn]
        )
        if change is not None:
            out.append(change)
    return out


def read_json(root: FolderReader, path: str) -> dict[str, Any] | None:
    """Return a JSON object from the team's folder; None if there is none.

    Args:
        root: the team's folder.
        path: below it.

    Returns:
        None also for JSON that is no object, or a file that is not valid JSON.
    """
    try:
        value = json.loads(read_text(root, path))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_text(root: FolderReader, path: str) -> str:
    """Return a text from the team's folder, at most a million bytes; empty if unreadable.

    Args:
        root: the team's folder.
        path: below it; links that lead out are not followed.

    Returns:
        The text; bytes that are no UTF-8 are replaced.
    """
    try:
        return root.read(path, _MAX_READ_BYTES).decode("utf-8", "replace")
    except StoreError:
        return ""


class FolderReader(Protocol):
    """A folder, or a reconstruction of one."""

    def read(self, name: str, most: int, /) -> bytes:
        """Return a file's bytes; raise StoreError if there is none.

        Args:
            name: path of the file in the folder.
            most: maximum bytes; the rest of a longer file is not read.
        """


_MAX_READ_BYTES = 1_000_000
