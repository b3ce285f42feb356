"""Empty what later calls made worthless: files written again, looks repeated, commands run again (fuseraft)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.messages import Message, ToolCall
from ctxkit.policies import contents
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

LOOKS = (
    "read_file",
    "grep_file",
    "list_files",
    "list_directory",
    "get_file_summary",
    "get_file_info",
    "session_context_read",
    "changes_read_latest",
    "git_status",
    "git_diff",
)
WRITE_NOTE = "[superseded — later write_file for same path]"
WRITE_GONE = "[omitted — superseded by later write_file]"
LOOK_NOTE = "[superseded — repeated call with same arguments]"
LOOK_GONE = "[omitted — superseded by later identical call]"
_EXIT = re.compile(r"exit(?:ed with)?[ _]?(?:code|status)?[:= ]+(-?\d+)", re.IGNORECASE)
_COMMAND = ("command", "cmd", "workingDirectory", "working_directory", "workdir", "cwd")
"""Arguments that make a command the same one; others, such as a time limit, do not matter."""
Key = Callable[[ToolCall], str]


@dataclass(frozen=True, kw_only=True, repr=False)
class Superseded(Traced, Setting):
    """Empty writes that a later write of the whole file replaced, and looks that were repeated."""

    min_chars: int = 65_536
    """Do nothing while the superseded results have fewer characters; 0 does it at once."""
    writers: tuple[str, ...] = ("write_file", "patch_file", "write", "edit")
    """Names or globs of tools that write a file."""
    whole_writers: tuple[str, ...] = ("write_file", "write")
    """Names or globs of those that write all of it."""
    looks: tuple[str, ...] = LOOKS
    """Names or globs of tools that only look."""

    def __post_init__(self) -> None:
        at_least(self, 0, "min_chars")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with superseded pairs emptied."""
        calls = _calls(history)
        gone: dict[int, str] = {}
        asked: dict[str, str] = {}
        for key, by, told, said in self._kinds:
            for call, result in _earlier(calls, key, by):
                gone[result], asked[call.id] = told, said
        if not gone or int(history.chars[list(gone)].sum()) < self.min_chars:
            return history
        changes: dict[int, Message | str] = {p: contents.with_text(history[p], text) for p, text in gone.items()}
        for p in {p for p, call, _ in calls if call.id in asked}:
            changes[p] = _noted(history[p], asked)
        return history.shorten(changes, reason="a later call made it worthless")

    changes = ("assistant", "tool")

    @property
    def alone(self) -> bool:
        """Whether no sum over all messages is taken."""
        return not self.min_chars

    @property
    def _kinds(self) -> tuple[tuple[Key, Key, str, str], ...]:
        """What is superseded by what, and what result and call then say."""
        return (
            (self._write, self._whole, WRITE_GONE, WRITE_NOTE),
            (self._look, self._look, LOOK_GONE, LOOK_NOTE),
        )

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each pair is emptied: when a later call replaced it, and enough characters are superseded."""
        if self.min_chars and course.states:
            raise Untraceable
        course.need_calls(lambda c: (c.id, self._write(c), self._whole(c), self._look(c)))
        pairs = Pairs(course)
        found = sorted(
            (late, result, p, call.id, told, said)
            for key, by, told, said in self._kinds
            for late, p, call, result in pairs.replaced(key, by)
        )
        if len({result for _, result, *_ in found}) < len(found):
            raise Untraceable  # one that is of both kinds: which of them comes first changes with time
        enough = int(np.searchsorted(np.cumsum(course.shown.chars[[f[1] for f in found]]), self.min_chars))
        begin = found[enough][0] if enough < len(found) else inf
        notes: dict[int, list[tuple[float, str, str]]] = {}
        for late, result, p, call_id, told, said in found:
            course.change(result, max(late, begin), partial(contents.with_text, text=told))
            notes.setdefault(p, []).append((max(late, begin), call_id, said))
        for p, of in notes.items():
            _note(course, p, of)

    def _write(self, call: ToolCall) -> str:
        return contents.path(call).casefold() if _among(call.name, self.writers) else ""

    def _whole(self, call: ToolCall) -> str:
        return contents.path(call).casefold() if _among(call.name, self.whole_writers) else ""

    def _look(self, call: ToolCall) -> str:
        return _identity(call) if _among(call.name, self.looks) else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class RepeatedCommands(Traced, Setting):
    """Leave of a command that was run again later only whether it succeeded."""

    tools: tuple[str, ...] = ("shell_run", "bash", "shell", "exec", "execute_command", "run_command")
    """Names or globs of tools that run commands."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with the results of repeated commands in one word."""
        repeated = _earlier(_calls(history), self._command, self._command)
        changes = {result: _outcome(history[result]) for _, result in repeated}
        return history.shorten(changes, reason="the command was run again later") if changes else history

    changes = ("tool",)

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each result is one word: when the same command has been run again."""
        course.need_calls(lambda c: (c.id, self._command(c)))
        for late, _, _, result in Pairs(course).replaced(self._command, self._command):
            course.change(result, late, _outcome)

    def _command(self, call: ToolCall) -> str:
        if not _among(call.name, self.tools):
            return ""
        command = [call.arguments.get(k) for k in _COMMAND]
        return call.name + contents.written(command) if any(command[:2]) else _identity(call)


def _note(course: Course, p: int, notes: list[tuple[float, str, str]]) -> None:
    """Let a reply note for some of its calls, each from its own time on, that their result is worthless."""
    for start, stop in pairwise([*sorted({late for late, _, _ in notes}), inf]):
        asked = {call_id: said for late, call_id, said in notes if late <= start}
        course.change(p, start, partial(_noted, asked=asked), stop=stop)


def _noted(message: Message, asked: dict[str, str]) -> Message:
    """Return a reply with a note in place of the arguments of some calls, by their ids."""
    return contents.with_arguments(message, lambda c: {"_note": asked[c.id]} if c.id in asked else None)


def _outcome(result: Message) -> Message:
    """Return a command's result with one word in place of its text."""
    status = _EXIT.search(contents.texts(result)[-200:])
    bad = result.is_error or (status is not None and status[1] != "0")
    return contents.with_text(
        result, f"failed [EXIT {status[1]}]" if bad and status else "failed" if bad else "succeeded"
    )


class Pairs:
    """The calls of a course with their results, to find when a later one makes each worthless.

    Raises:
        Untraceable: an id is used twice, so that which result is meant changes with time.
    """

    def __init__(self, course: Course) -> None:
        self.course, shown = course, course.shown
        self.calls = _calls(shown)
        results = sum(m.call_id is not None for m in course.messages if m.role == "tool")
        if not len({c.id for _, c, _ in self.calls}) == len(self.calls) == results:
            raise Untraceable

    def replaced(self, key: Key, by: Key) -> Iterator[tuple[int, int, ToolCall, int]]:
        """Yield since when a call is worthless, its position, itself and the position of its result."""
        arrive = self.course.arrive
        later: dict[str, list[tuple[int, int]]] = {}
        """By key the positions of calls from the last on, each with when one of those so far is first answered."""
        for p, call, result in reversed(self.calls):
            known = later.setdefault(by(call), [])
            at = int(arrive[result])
            known.append((p, min(at, known[-1][1]) if known else at))
        for p, call, result in self.calls:
            word = key(call)
            if not word or "_note" in call.arguments:
                continue
            after = [at for other, at in later.get(word, ()) if other > p]
            if after:
                yield max(after[-1], int(arrive[result])), p, call, result


def _calls(history: History) -> list[tuple[int, ToolCall, int]]:
    """Return each call with its position and that of its result (calls without a result left out)."""
    messages = {p: history[p] for p in np.flatnonzero(history.role("assistant", "tool")).tolist()}
    results = {m.call_id: p for p, m in messages.items() if m.role == "tool"}
    return [(p, c, results[c.id]) for p, m in messages.items() for c in m.tool_calls if c.id in results]


def _earlier(calls: list[tuple[int, ToolCall, int]], key: Key, by: Key) -> Iterable[tuple[ToolCall, int]]:
    """Return the calls that a later call with the same key makes worthless, each with the position of its result."""
    last = {by(call): p for p, call, _ in calls if by(call)}
    for p, call, result in calls:
        word = key(call)
        if word and last.get(word, -1) > p and "_note" not in call.arguments:
            yield call, result


def _identity(call: ToolCall) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)


def _among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)
