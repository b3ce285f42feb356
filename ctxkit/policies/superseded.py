"""Empty what later calls made worthless: files written again, looks repeated, commands run again.

As fuseraft does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.policies.reads import path_of
from ctxkit.policies.repeats import RepeatKind, Repeats
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents, records
from ctxkit.tools.tool_names import among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.messages import Message, ToolCall
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
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
SHELLS = ("shell_run", "bash", "shell", "exec", "execute_command", "run_command")
WRITE_NOTE = "[superseded — later write_file for same path]"
WRITE_GONE = "[omitted — superseded by later write_file]"
LOOK_NOTE = "[superseded — repeated call with same arguments]"
LOOK_GONE = "[omitted — superseded by later identical call]"
GONE, NOTES = (WRITE_GONE, LOOK_GONE), (WRITE_NOTE, LOOK_NOTE)
"""What results and calls say, by the kind of what took their place: a write, a look."""
_COMMAND = ("command", "cmd", "workingDirectory", "working_directory", "workdir", "cwd")
"""Arguments that make a command the same one; others, such as a time limit, do not matter."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Superseded(Scheduled):
    """Empty writes that a later write of the whole file replaced, and looks that were repeated."""

    counts = False
    min_chars: Natural = 65_536
    """Do nothing while the superseded results have fewer characters; 0 does it at once."""
    writers: tuple[str, ...] = ("write_file", "patch_file", "write", "edit")
    """Names or globs of tools that write a file."""
    whole_writers: tuple[str, ...] = ("write_file", "write")
    """Names or globs of those that write all of it."""
    looks: tuple[str, ...] = LOOKS
    """Names or globs of tools that only look."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Empty a call and its result as soon as a later one took their place."""
        if "emptied" not in view.memory:
            written = partial(path_of, tools=self.writers)
            anew = partial(path_of, tools=self.whole_writers)
            kinds = RepeatKind(written, anew), RepeatKind(self._look, self._look)
            view.memory["emptied"] = _Emptied(Repeats(kinds), self.min_chars)
        emptied: _Emptied = view.memory["emptied"]
        news = {call: (came, went) for call, came, went, _ in view.news("assistant", "tool")}
        remade = view.events() if self.min_chars else {}
        for call in sorted(news.keys() | remade.keys()):
            came, went = news.get(call, ([], []))
            emptied.follow(view, came, went, remade.get(call, ()), call)

    def _look(self, call: ToolCall) -> str:
        return _identity(call) if among(call.name, self.looks) else ""


class _Emptied:
    """What a schedule of `Superseded` knows of the calls before: what is emptied, or would be."""

    def __init__(self, repeats: Repeats, min_chars: int) -> None:
        self.repeats, self.min_chars = repeats, min_chars
        self.enough = not min_chars
        self._total = 0
        self._results: dict[str, tuple[int, int]] = {}
        """Of each worthless id the position of its result, and its kind."""
        self._chars: dict[int, int] = {}

    def follow(
        self,
        view: ScheduleView,
        came: list[int],
        went: list[int],
        remade: Iterable[int],
        call: int,
    ) -> None:
        """Take in what became of the messages at a call, and say what is emptied from it on."""
        results, replies = set[int](), set[int]()
        for i in self.repeats.follow(view, came, went):
            replies.update(self.repeats.callers(i))
            result, kind = self.repeats.result(i), self.repeats.kind(i)
            old = self._results.pop(i, None)
            if old is not None:
                results.add(old[0])
            if kind >= 0 <= result:
                self._results[i] = result, kind
                results.add(result)
        counted = self._chars.keys()
        for p in (*results, *(p for p in remade if p in counted and p not in results)):
            chars = view.left(p, call).chars if self._kind(view, p) >= 0 else 0
            self._total += chars - self._chars.pop(p, 0)
            if self._kind(view, p) >= 0:
                self._chars[p] = chars
        enough = self._total >= self.min_chars
        if enough != self.enough:
            results.update(self._chars)
            replies.update(p for i in self._results for p in self.repeats.callers(i))
        if enough or self.enough:
            self._say(view, results, replies, call, enough=enough)
        self.enough = enough

    def _say(
        self, view: ScheduleView, results: set[int], replies: set[int], call: int, *, enough: bool
    ) -> None:
        """Empty these results, and note it in these replies; or let them be, each as it should."""
        for p in sorted(results):
            kind = self._kind(view, p) if enough else -1
            what = partial(contents.with_text, text=GONE[kind]) if kind >= 0 else AS_IT_CAME
            view.change(p, what, since=call)
        for p in sorted(replies):
            found = {c.id: self._results.get(c.id) for c in view.said_calls(p)} if enough else {}
            asked = {i: NOTES[of[1]] for i, of in found.items() if of is not None}
            what = partial(_noted, asked=asked) if asked else AS_IT_CAME
            view.change(p, what, since=call)

    def _kind(self, view: ScheduleView, p: int) -> int:
        """Return how a result is worthless; -1: it is not."""
        result, kind = self._results.get(view.rows.message(p).call_id or "", (-1, -1))
        return kind if result == p else -1


@dataclass(frozen=True, kw_only=True, repr=False)
class RepeatedCommands(Scheduled):
    """Leave of a command that was run again later only whether it succeeded."""

    counts = False
    tools: tuple[str, ...] = SHELLS
    """Names or globs of tools that run commands."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Put one word in the place of a result as soon as its command was run again."""
        if "repeats" not in view.memory:
            view.memory["repeats"] = Repeats((RepeatKind(self._command, self._command),)), {}
        repeats, said = view.memory["repeats"]
        for call, came, went, _ in view.news("assistant", "tool"):
            for i in sorted(repeats.follow(view, came, went)):
                was, now = said.pop(i, -1), repeats.result(i) if repeats.kind(i) >= 0 else -1
                if now >= 0:
                    said[i] = now
                if was >= 0 and was != now:
                    view.change(was, AS_IT_CAME, since=call)
                if now >= 0 and was != now:
                    view.change(now, _outcome, since=call)

    def _command(self, call: ToolCall) -> str:
        if not among(call.name, self.tools):
            return ""
        command = [call.arguments.get(k) for k in _COMMAND]
        return call.name + contents.written(command) if any(command[:2]) else _identity(call)


def _noted(message: Message, asked: dict[str, str]) -> Message:
    """Return a reply with a note in place of the arguments of some calls, by their ids."""
    return contents.with_arguments(
        message, lambda c: {"_note": asked[c.id]} if c.id in asked else None
    )


def _outcome(result: Message) -> Message:
    """Return a command's result with one word in place of its text, if that is there still."""
    text = contents.texts(result)
    if text in GONE:
        return result
    status = records.EXIT.search(text[-200:])
    bad = result.is_error or (status is not None and status[1] != "0")
    failed = f"failed [EXIT {status[1]}]" if status else "failed"
    return contents.with_text(result, failed if bad else "succeeded")


def _identity(call: ToolCall) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)
