"""Empty what later calls made worthless: files written again, looks repeated, commands run again (fuseraft)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.messages import Message, Part, Text, Thinking, ToolCall
from ctxkit.policies import contents
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from ctxkit.history import History
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
Key = Callable[[ToolCall], str]


@dataclass(frozen=True, kw_only=True, repr=False)
class Superseded(Setting):
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
        for call, result in _earlier(calls, self._write, self._whole):
            gone[result], asked[call.id] = WRITE_GONE, WRITE_NOTE
        for call, result in _earlier(calls, self._look, self._look):
            gone[result], asked[call.id] = LOOK_GONE, LOOK_NOTE
        if not gone or int(history.chars[list(gone)].sum()) < self.min_chars:
            return history
        changes: dict[int, Message | str] = {p: contents.with_text(history[p], text) for p, text in gone.items()}
        for p in {p for p, call, _ in calls if call.id in asked}:
            changes[p] = contents.with_arguments(history[p], lambda c: _note(asked.get(c.id)))
        return history.shorten(changes, reason="a later call made it worthless")

    def _write(self, call: ToolCall) -> str:
        return contents.path(call).casefold() if _among(call.name, self.writers) else ""

    def _whole(self, call: ToolCall) -> str:
        return contents.path(call).casefold() if _among(call.name, self.whole_writers) else ""

    def _look(self, call: ToolCall) -> str:
        return _identity(call) if _among(call.name, self.looks) else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class RepeatedCommands(Setting):
    """Leave of a command that was run again later only whether it succeeded."""

    tools: tuple[str, ...] = ("shell_run", "bash", "shell", "exec", "execute_command", "run_command")
    """Names or globs of tools that run commands."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with the results of repeated commands in one word."""
        changes: dict[int, Message | str] = {}
        for _, result in _earlier(_calls(history), self._command, self._command):
            message = history[result]
            status = _EXIT.search(contents.texts(message)[-200:])
            bad = message.is_error or (status is not None and status[1] != "0")
            word = f"failed [EXIT {status[1]}]" if bad and status else "failed" if bad else "succeeded"
            changes[result] = contents.with_text(message, word)
        return history.shorten(changes, reason="the command was run again later") if changes else history

    def _command(self, call: ToolCall) -> str:
        return _identity(call) if _among(call.name, self.tools) else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Intermediate(Setting):
    """Cut text, reasoning and arguments of replies that only led to the next tool call."""

    max_chars: int = 120
    """Characters that text and reasoning keep."""
    max_argument_chars: int = 500
    """Argument values of more characters become a note that says so."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_chars", "max_argument_chars")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with shorter steps; the last reply is left alone."""
        last = history.nth_last("assistant", 1)
        long = history.role("assistant") & (history.chars > min(self.max_chars, self.max_argument_chars))
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(long).tolist():
            message = history[p]
            if p != last and message.tool_calls:
                changes[p] = contents.with_arguments(self._short(message), self._arguments)
        return history.shorten(changes, reason="a step on the way") if changes else history

    def _short(self, message: Message) -> Message:
        import msgspec

        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, (Text, Thinking)) and len(part.text) > self.max_chars + 30:
                word = "text" if isinstance(part, Text) else "reasoning"
                parts.append(type(part)(text=part.text[: self.max_chars] + f" [{word} omitted]"))
            else:
                parts.append(part)
        return msgspec.structs.replace(message, parts=tuple(parts))

    def _arguments(self, call: ToolCall) -> dict[str, object] | None:
        long = {k for k, v in call.arguments.items() if len(_written(v)) > self.max_argument_chars}
        return {k: _elided(v) if k in long else v for k, v in call.arguments.items()} if long else None


def _elided(value: object) -> str:
    return (
        f"[ELIDED — {len(_written(value))} chars, NOT the real value. Do not reuse this placeholder as content; "
        "re-read the file or regenerate the value if you need it again.]"
    )


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _note(text: str | None) -> dict[str, object] | None:
    return None if text is None else {"_note": text}


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
