"""Checks of contracts against the files that agents wrote and the commands that they ran."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit._internal.redaction import redact
from ctxkit.errors import StoreError
from ctxkit.policies.texts.message_content import call_path, get_call_target
from ctxkit.session.tool_calls import is_write_tool
from ctxkit.teams.plan import matches_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.session.session import Session
    from ctxkit.teams.plan import ContractRequirement, HandoffContract, TeamPlan


_FILE_WORD = re.compile(r"[\w.\-/\\]*(?:/[\w.\-]+|[\w\-]\.(?:[A-Za-z]\w{1,7}|[chr]))")
"""A word that names a file: it has a slash or a suffix."""


@dataclass(frozen=True, kw_only=True)
class ContractEvidence:
    """The facts that contracts are checked against: the folder, the changes, the turn."""

    root: RootFolder
    plan: TeamPlan
    changes: Sequence[TurnChanges]
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

    def _relevant_changes(self, r: ContractRequirement) -> Sequence[TurnChanges]:
        return [c for c in self.changes if c.turn == self.turn] if r.this_turn else self.changes

    def _check_file(self, r: ContractRequirement) -> str:
        try:
            with self.root.open_file(r.path):
                return ""
        except StoreError:
            return f"there is no file {r.path}"

    def _check_brief(self, r: ContractRequirement) -> str:
        brief = read_json(self.root, r.path or self.plan.brief) or {}
        missing_keys = [
            k for k in ("goal", "files_to_change", "acceptance_criteria") if not brief.get(k)
        ]
        return (
            f"{r.path or self.plan.brief} has no {', '.join(missing_keys)}" if missing_keys else ""
        )

    def _check_written(self, r: ContractRequirement) -> str:
        if r.this_turn:
            written = any(c.files for c in self._relevant_changes(r))
            return "" if written else "no file was written in this turn"
        listed = (read_json(self.root, r.path or self.plan.brief) or {}).get(
            r.field or "files_to_change"
        )
        if not isinstance(listed, list) or not listed:
            return f"{r.path or self.plan.brief} names no {r.field or 'files_to_change'}"
        return self._describe_unwritten(str(p) for p in listed)

    def _check_checklist(self, r: ContractRequirement) -> str:
        """Check that every file named in a checklist's steps was written."""
        path, name = r.path or self.plan.brief, r.field or "execution_checklist"
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
                if _holds_text(self.plan.suite, command)]  # fmt: skip
        if not runs:
            return f"the tests were not run after the last change: {' or '.join(self.plan.suite)}"
        return "" if runs[-1] else "the last run of the tests failed"

    def _check_command(self, r: ContractRequirement) -> str:
        """Check that the last run of a command succeeded."""
        command_text = (
            str((read_json(self.root, r.path or self.plan.brief) or {}).get(r.field) or "")
            if r.field
            else ""
        )
        # a command of the brief must occur as a whole; of a pattern one part between bars
        words = [command_text] if command_text else r.pattern.split("|")
        described = command_text or r.pattern or "any command"
        last: bool | None = None
        for change in self._relevant_changes(r):
            for command, ok in change.commands:
                last = ok if _holds_text(words, command) else last
        if last is None:
            return f"no command like {described!r} was run"
        return "" if last else f"the last command like {described!r} failed"

    def _check_report(self, r: ContractRequirement) -> str:
        path = r.path or self.plan.report
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
class TurnChanges:
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
            and call_path(call_of_result)
            and not message.is_error
        ):
            written[call_path(call_of_result)] = None
        elif call_of_result.name.casefold() in SHELL_TOOLS:
            commands.append(
                (
                    get_call_target(call_of_result),
                    not (message.is_error or _FAILED_COMMAND.search(message.text)),
                )
            )
    return tuple(written), tuple(commands)


def make_turn_changes(turn: int, agent: str, messages: Sequence[Message]) -> TurnChanges | None:
    """Return what an agent changed in a turn; None if it changed nothing.

    Args:
        turn: number of the team's turn, from 0.
        agent: whose turn it was.
        messages: that the turn added to the agent's session.

    Returns:
        Files and commands, with the time of the last message in seconds since 1970.
    """
    written, commands = find_written_files_and_commands(messages)
    if not written and not commands:
        return None
    time = next((m.time for m in reversed(messages) if m.time is not None), 0.0)
    return TurnChanges(turn=turn, agent=agent, time=time, files=written, commands=commands)


def collect_changes(turns: Iterable[tuple[int, str, Session, int]]) -> list[TurnChanges]:
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


def read_json(root: ReadableFolder, path: str) -> dict[str, Any] | None:
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


def read_text(root: ReadableFolder, path: str) -> str:
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


class ReadableFolder(Protocol):
    """A folder, or a reconstruction of one."""

    def read(self, name: str, most: int, /) -> bytes:
        """Return a file's bytes; raise StoreError if there is none."""


_MAX_READ_BYTES = 1_000_000
