"""Empty tool calls that later ones made worthless: rewritten files, repeated looks, commands run
again.

As fuseraft does.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.policies.base import ScheduledPruning
from ctxkit.policies.schedules.message_changes import AS_IT_CAME
from ctxkit.policies.shorten import matching_call_path
from ctxkit.policies.texts import content, tool_actions
from ctxkit.session.messages import plain_text
from ctxkit.session.tool_calls import matches_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.policies.base import Natural
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.tokens import ContextBudget

    Key = Callable[[ToolCall], str]


LOOK_TOOLS = (
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
SHELL_TOOLS = ("shell_run", "bash", "shell", "exec", "execute_command", "run_command")
WRITE_NOTE = "[superseded — later write_file for same path]"
WRITE_GONE = "[omitted — superseded by later write_file]"
LOOK_NOTE = "[superseded — repeated call with same arguments]"
LOOK_GONE = "[omitted — superseded by later identical call]"
GONE_TEXTS, CALL_NOTES = (WRITE_GONE, LOOK_GONE), (WRITE_NOTE, LOOK_NOTE)
"""What results and calls say, by the kind of what took their place: a write, a look."""
_COMMAND = ("command", "cmd", "workingDirectory", "working_directory", "workdir", "cwd")
"""Arguments that make a command the same one; others, such as a time limit, do not matter."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Superseded(ScheduledPruning):
    """Empty writes that a later write of the whole file replaced, and looks that were repeated."""

    counts = False
    min_chars: Natural = 65_536
    """Do nothing while the superseded results have fewer characters; 0 does it at once."""
    writers: tuple[str, ...] = ("write_file", "patch_file", "write", "edit")
    """Names or globs of tools that write a file."""
    whole_writers: tuple[str, ...] = ("write_file", "write")
    """Names or globs of those that write all of it."""
    looks: tuple[str, ...] = LOOK_TOOLS
    """Names or globs of tools that only look."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Empty a call and its result as soon as a later one took their place."""
        if "emptied" not in view.memory:
            written_path = partial(matching_call_path, tools=self.writers)
            rewritten_path = partial(matching_call_path, tools=self.whole_writers)
            kinds = RepeatRule(written_path, rewritten_path), RepeatRule(self._look, self._look)
            view.memory["emptied"] = _Emptied(RepeatTracker(kinds), self.min_chars)
        emptied: _Emptied = view.memory["emptied"]
        news = {call: (added, hidden) for call, added, hidden, _ in view.news("assistant", "tool")}
        changed_before = view.events() if self.min_chars else {}
        for call in sorted(news.keys() | changed_before.keys()):
            added, hidden = news.get(call, ([], []))
            emptied.follow(view, added, hidden, changed_before.get(call, ()), call)

    def _look(self, call: ToolCall) -> str:
        return _call_identity(call) if matches_tool(call.name, self.looks) else ""


class _Emptied:
    """What a schedule of `Superseded` knows of the calls before: what is emptied, or would be."""

    def __init__(self, repeats: RepeatTracker, min_chars: int) -> None:
        self.repeats, self.min_chars = repeats, min_chars
        self.enough = not min_chars
        self._total = 0
        self._results: dict[str, tuple[int, int]] = {}
        """Of each worthless id the position of its result, and its kind."""
        self._chars: dict[int, int] = {}

    def follow(
        self,
        view: ScheduleView,
        added: list[int],
        hidden: list[int],
        changed_before: Iterable[int],
        call: int,
    ) -> None:
        """Take in what became of the messages at a call, and say what is emptied from it on."""
        results, replies = set[int](), set[int]()
        for i in self.repeats.follow(view, added, hidden):
            replies.update(self.repeats.callers(i))
            result, kind = self.repeats.result(i), self.repeats.kind(i)
            old = self._results.pop(i, None)
            if old is not None:
                results.add(old[0])
            if kind >= 0 <= result:
                self._results[i] = result, kind
                results.add(result)
        counted = self._chars.keys()
        for p in (*results, *(p for p in changed_before if p in counted and p not in results)):
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
            what = partial(content.replace_text, text=GONE_TEXTS[kind]) if kind >= 0 else AS_IT_CAME
            view.change(p, what, since=call)
        for p in sorted(replies):
            results_by_id = (
                {c.id: self._results.get(c.id) for c in view.said_calls(p)} if enough else {}
            )
            notes = {i: CALL_NOTES[of[1]] for i, of in results_by_id.items() if of is not None}
            what = partial(_with_notes, notes=notes) if notes else AS_IT_CAME
            view.change(p, what, since=call)

    def _kind(self, view: ScheduleView, p: int) -> int:
        """Return how a result is worthless; -1: it is not."""
        result, kind = self._results.get(view.rows.message(p).call_id or "", (-1, -1))
        return kind if result == p else -1


@dataclass(frozen=True, kw_only=True, repr=False)
class RepeatedCommands(ScheduledPruning):
    """Leave of a command that was run again later only whether it succeeded."""

    counts = False
    tools: tuple[str, ...] = SHELL_TOOLS
    """Names or globs of tools that run commands."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Put one word in the place of a result as soon as its command was run again."""
        if "repeats" not in view.memory:
            view.memory["repeats"] = RepeatTracker((RepeatRule(self._command, self._command),)), {}
        repeats, shortened = view.memory["repeats"]
        for call, added, hidden, _ in view.news("assistant", "tool"):
            for i in sorted(repeats.follow(view, added, hidden)):
                old, new = shortened.pop(i, -1), repeats.result(i) if repeats.kind(i) >= 0 else -1
                if new >= 0:
                    shortened[i] = new
                if old >= 0 and old != new:
                    view.change(old, AS_IT_CAME, since=call)
                if new >= 0 and old != new:
                    view.change(new, _outcome_only, since=call)

    def _command(self, call: ToolCall) -> str:
        if not matches_tool(call.name, self.tools):
            return ""
        command = [call.arguments.get(k) for k in _COMMAND]
        return (
            call.name + content.argument_text(command) if any(command[:2]) else _call_identity(call)
        )


def _with_notes(message: Message, notes: dict[str, str]) -> Message:
    """Return a reply with a note in place of the arguments of some calls, by their ids."""
    return content.replace_arguments(
        message, lambda c: {"_note": notes[c.id]} if c.id in notes else None
    )


def _outcome_only(result: Message) -> Message:
    """Return a command's result with one word in place of its text, if that is there still."""
    text = plain_text(result)
    if text in GONE_TEXTS:
        return result
    status = tool_actions.EXIT_STATUS_PATTERN.search(text[-200:])
    is_failure = result.is_error or (status is not None and status[1] != "0")
    failed = f"failed [EXIT {status[1]}]" if status else "failed"
    return content.replace_text(result, failed if is_failure else "succeeded")


def _call_identity(call: ToolCall) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)


class RepeatRule:
    """One way in which a call makes earlier ones worthless: its `by` is the `key` of theirs."""

    def __init__(self, key: Key, by: Key) -> None:
        self.key, self.by = key, by
        self._earlier: dict[str, list[tuple[int, str]]] = {}
        self._later: dict[str, list[int]] = {}
        self._worthless: dict[str, int] = {}
        """How many worthless calls there are of an id; none: not in it."""

    def is_worthless(self, call_id: str) -> bool:
        """Return True where a later call took the place of a call with this id."""
        return bool(self._worthless.get(call_id))

    def put(self, p: int, call: ToolCall) -> Iterable[str]:
        """Take in an answered call at a position; return the ids that are worthless by that."""
        changed: list[str] = []
        word = self.key(call)
        if word and "_note" not in call.arguments:
            insort(self._earlier.setdefault(word, []), (p, call.id))
            if self._last(word) > p:
                changed += self._count(call.id, 1)
        word = self.by(call)
        if word:
            was = self._last(word)
            insort(self._later.setdefault(word, []), p)
            changed += self._between(word, was, self._last(word), 1)
        return changed

    def out(self, p: int, call: ToolCall) -> Iterable[str]:
        """Leave out a call; return the ids that are worthless no more, or one time less."""
        changed: list[str] = []
        word = self.by(call)
        if word:
            was = self._last(word)
            self._later[word].remove(p)
            changed += self._between(word, self._last(word), was, -1)
        word = self.key(call)
        if word and "_note" not in call.arguments:
            self._earlier[word].remove((p, call.id))
            if self._last(word) > p:
                changed += self._count(call.id, -1)
        return changed

    def _last(self, word: str) -> int:
        later = self._later.get(word)
        return later[-1] if later else -1

    def _between(self, word: str, first: int, last: int, n: int) -> Iterable[str]:
        """Count the calls from one position up to another one more or less; return their ids."""
        calls = self._earlier.get(word, [])
        a, b = (bisect_left(calls, (p, "")) for p in (first, last))
        return [i for _, call_id in calls[a : max(a, b)] for i in self._count(call_id, n)]

    def _count(self, call_id: str, n: int) -> Iterable[str]:
        self._worthless[call_id] = self._worthless.get(call_id, 0) + n
        return (call_id,)


class RepeatTracker:
    """The calls that are shown with a result, and which of them are worthless, by their ids.

    Of an id that is used twice the last result so far counts. Calls are read as they were said.
    """

    def __init__(self, kinds: Sequence[RepeatRule]) -> None:
        self.kinds = kinds
        self._results: dict[str, list[int]] = {}
        self._callers: dict[str, list[int]] = {}

    def follow(self, view: ScheduleView, added: list[int], hidden: list[int]) -> set[str]:
        """Take in what became of replies and results; return the ids that may have changed."""
        changed: set[str] = set()
        for p in hidden:
            changed.update(self._went(view, p))
        for p in added:
            changed.update(self._came(view, p))
        return changed

    def kind(self, call_id: str) -> int:
        """Return the last way in which the calls of an id are worthless; -1: they are not."""
        kinds = [n for n, kind in enumerate(self.kinds) if kind.is_worthless(call_id)]
        return kinds[-1] if kinds else -1

    def result(self, call_id: str) -> int:
        """Return the position of the last result of an id; -1: there is none."""
        results = self._results.get(call_id)
        return results[-1] if results else -1

    def callers(self, call_id: str) -> Sequence[int]:
        """Return the positions of the replies that make a call of an id."""
        return self._callers.get(call_id, ())

    def _came(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.said_calls(p):
            insort(self._callers.setdefault(call.id, []), p)
            yield call.id
            if self._results.get(call.id):
                yield from self._answered(p, call)
        call_id = _answered_call_id(view, p)
        if call_id is not None:
            results = self._results.setdefault(call_id, [])
            insort(results, p)
            yield call_id
            if len(results) == 1:
                for q, call in self._calls(view, call_id):
                    yield from self._answered(q, call)

    def _went(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.said_calls(p):
            if self._results.get(call.id):
                yield from self._unanswered(p, call)
            self._callers[call.id].remove(p)
            yield call.id
        call_id = _answered_call_id(view, p)
        if call_id is not None:
            self._results[call_id].remove(p)
            yield call_id
            if not self._results[call_id]:
                for q, call in self._calls(view, call_id):
                    yield from self._unanswered(q, call)

    def _calls(self, view: ScheduleView, call_id: str) -> list[tuple[int, ToolCall]]:
        replies = dict.fromkeys(self._callers.get(call_id, ()))
        return [(q, call) for q in replies for call in view.said_calls(q) if call.id == call_id]

    def _answered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.kinds:
            yield from kind.put(p, call)

    def _unanswered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.kinds:
            yield from kind.out(p, call)


def _answered_call_id(view: ScheduleView, p: int) -> str | None:
    message = view.rows.message(p)
    return message.call_id if message.role == "tool" else None
