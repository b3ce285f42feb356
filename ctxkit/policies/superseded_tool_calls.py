"""Prunings that empty superseded tool calls: rewritten files, repeated reads and commands.

The rules are fuseraft's.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.policies.message_shortening import get_matching_call_path
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.texts import message_content_and_truncation, tool_outcomes_and_files
from ctxkit.policies.validated_settings_and_scheduled_prunings import ScheduledPruning
from ctxkit.session.messages import get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import matches_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
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
"""Texts of superseded results, and notes of their calls: for writes, and for looks."""
_COMMAND = ("command", "cmd", "workingDirectory", "working_directory", "workdir", "cwd")
"""Arguments that identify a command; others, such as a time limit, do not matter."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Superseded(ScheduledPruning):
    """Empty writes that a later write of the whole file replaces, and looks that are repeated.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = Superseded(min_chars=0, looks=("metrics", "logs"))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "Superseded" for item in pruned.sent(-1))
        20
    """

    counts = False
    min_chars: Natural = 65_536
    """Minimum characters of all superseded results; 0: empty them at once."""
    writers: tuple[str, ...] = ("write_file", "patch_file", "write", "edit")
    """Names or globs of tools that write a file."""
    whole_writers: tuple[str, ...] = ("write_file", "write")
    """Names or globs of tools that write the whole file."""
    looks: tuple[str, ...] = LOOK_TOOLS
    """Names or globs of tools that only look."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Empty a call and its result when a later call supersedes it."""
        if "emptied" not in view.memory:
            written_path = partial(get_matching_call_path, tools=self.writers)
            rewritten_path = partial(get_matching_call_path, tools=self.whole_writers)
            kinds = (
                SupersessionRule(written_path, rewritten_path),
                SupersessionRule(self._look, self._look),
            )
            view.memory["emptied"] = _Emptied(SupersessionTracker(kinds), self.min_chars)
        emptied: _Emptied = view.memory["emptied"]
        news = {
            call: (added, hidden)
            for call, added, hidden, _ in view.iter_visibility_changes("assistant", "tool")
        }
        changed_before = view.events() if self.min_chars else {}
        for call in sorted(news.keys() | changed_before.keys()):
            added, hidden = news.get(call, ([], []))
            emptied.follow(view, added, hidden, changed_before.get(call, ()), call)

    def _look(self, call: ToolCall) -> str:
        return _call_identity(call) if matches_tool(call.name, self.looks) else ""


class _Emptied:
    """State of the schedule of `Superseded` between calls: the superseded results and their size.

    While their characters are below the threshold nothing is emptied; when the threshold is
    crossed in either direction, all of them change.
    """

    def __init__(self, repeats: SupersessionTracker, min_chars: int) -> None:
        self.repeats, self.min_chars = repeats, min_chars
        self.enough = not min_chars
        self._total = 0
        self._results: dict[str, tuple[int, int]] = {}
        """For each superseded call id the position of its result, and the rule that applies."""
        self._chars: dict[int, int] = {}

    def follow(
        self,
        view: ScheduleView,
        added: list[int],
        hidden: list[int],
        changed_before: Iterable[int],
        call: int,
    ) -> None:
        """Apply the news of a call, and change what it empties or restores.

        Args:
            view: the calls whose prompts are computed.
            added: positions of replies and results that the prompt has from this call on.
            hidden: positions of those that a part before hides from this call on.
            changed_before: positions that a part before changes at this call.
            call: number of the call.
        """
        # Results that may change at this call, and replies whose tool calls may.
        results, replies = set[int](), set[int]()
        for call_id in self.repeats.follow(view, added, hidden):
            replies.update(self.repeats.callers(call_id))
            result, rule = self.repeats.result(call_id), self.repeats.get_rule_number(call_id)
            previous = self._results.pop(call_id, None)
            if previous is not None:
                results.add(previous[0])
            if rule >= 0 <= result:  # superseded, and answered
                self._results[call_id] = result, rule
                results.add(result)
        # The total counts superseded results as the part before leaves them.
        counted = self._chars.keys()
        for p in (*results, *(p for p in changed_before if p in counted and p not in results)):
            is_superseded = self._rule_of(view, p) >= 0
            chars = view.state_before(p, call).chars if is_superseded else 0
            self._total += chars - self._chars.pop(p, 0)
            if is_superseded:
                self._chars[p] = chars
        # Crossing the threshold in either direction changes all superseded results.
        enough = self._total >= self.min_chars
        if enough != self.enough:
            results.update(self._chars)
            replies.update(p for call_id in self._results for p in self.repeats.callers(call_id))
        if enough or self.enough:
            self._change_messages(view, results, replies, call, enough=enough)
        self.enough = enough

    def _change_messages(
        self, view: ScheduleView, results: set[int], replies: set[int], call: int, *, enough: bool
    ) -> None:
        """Empty or restore these results, and the arguments of their calls in these replies."""
        for p in sorted(results):
            kind = self._rule_of(view, p) if enough else -1
            what = (
                partial(message_content_and_truncation.replace_text, text=GONE_TEXTS[kind])
                if kind >= 0
                else UNDO_CHANGE
            )
            view.change(p, what, since=call)
        for p in sorted(replies):
            results_by_id = (
                {c.id: self._results.get(c.id) for c in view.recorded_calls(p)} if enough else {}
            )
            notes = {i: CALL_NOTES[of[1]] for i, of in results_by_id.items() if of is not None}
            what = partial(_with_notes, notes=notes) if notes else UNDO_CHANGE
            view.change(p, what, since=call)

    def _rule_of(self, view: ScheduleView, p: int) -> int:
        """Return the number of the rule by which a result is superseded; -1: by none."""
        result, kind = self._results.get(view.rows.message(p).call_id or "", (-1, -1))
        return kind if result == p else -1


@dataclass(frozen=True, kw_only=True, repr=False)
class RepeatedCommands(ScheduledPruning):
    """Reduce the result of a command that is run again later to its success.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> pruning = RepeatedCommands(tools=("run",))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "RepeatedCommands" for item in pruned.sent(-1))
        75
    """

    counts = False
    tools: tuple[str, ...] = SHELL_TOOLS
    """Names or globs of tools that run commands."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Replace a result by one word when its command is run again."""
        if "repeats" not in view.memory:
            view.memory["repeats"] = (
                SupersessionTracker((SupersessionRule(self._command, self._command),)),
                {},
            )
        repeats, shortened = view.memory["repeats"]
        for call, added, hidden, _ in view.iter_visibility_changes("assistant", "tool"):
            for i in sorted(repeats.follow(view, added, hidden)):
                old, new = (
                    shortened.pop(i, -1),
                    repeats.result(i) if repeats.get_rule_number(i) >= 0 else -1,
                )
                if new >= 0:
                    shortened[i] = new
                if old >= 0 and old != new:
                    view.change(old, UNDO_CHANGE, since=call)
                if new >= 0 and old != new:
                    view.change(new, _outcome_only, since=call)

    def _command(self, call: ToolCall) -> str:
        if not matches_tool(call.name, self.tools):
            return ""
        command = [call.arguments.get(k) for k in _COMMAND]
        return (
            call.name + message_content_and_truncation.get_argument_text(command)
            if any(command[:2])
            else _call_identity(call)
        )


def _with_notes(message: Message, notes: dict[str, str]) -> Message:
    """Return a reply with a note in place of the arguments of some calls, by their ids."""
    return message_content_and_truncation.replace_arguments(
        message, lambda c: {"_note": notes[c.id]} if c.id in notes else None
    )


def _outcome_only(result: Message) -> Message:
    """Return a command's result with one word in place of its text, unless it is emptied."""
    text = get_plain_text(result)
    if text in GONE_TEXTS:
        return result
    status = tool_outcomes_and_files.EXIT_STATUS_PATTERN.search(text[-200:])
    is_failure = result.is_error or (status is not None and status[1] != "0")
    if status is None and result.is_error is None:
        return message_content_and_truncation.replace_text(result, "done, outcome unknown")
    failed = f"failed [EXIT {status[1]}]" if status else "failed"
    return message_content_and_truncation.replace_text(
        result, failed if is_failure else "succeeded"
    )


def _call_identity(call: ToolCall) -> str:
    return call.name + json.dumps(call.arguments, sort_keys=True, ensure_ascii=False, default=str)


class SupersessionRule:
    """A rule by which a call supersedes earlier ones: its `by` equals their `key`.

    For each key the positions of earlier and of superseding calls are sorted lists; per call id it
    counts the superseded calls, as an id can occur several times. Adding or removing a call only
    touches the calls between the old and the new last superseding one.

    Args:
        key: returns the key by which later calls can supersede a call; empty: none can.
        by: returns the key of the calls that a call supersedes; empty: none.
    """

    def __init__(self, key: Key, by: Key) -> None:
        self.key, self.by = key, by
        self._earlier: dict[str, list[tuple[int, str]]] = {}
        self._later: dict[str, list[int]] = {}
        self._superseded_counts: dict[str, int] = {}
        """Number of superseded calls by call id."""

    def is_worthless(self, call_id: str) -> bool:
        """Return True where a later call supersedes a call with this id."""
        return bool(self._superseded_counts.get(call_id))

    def add_call(self, p: int, call: ToolCall) -> Iterable[str]:
        """Add an answered call at a position; return the ids whose count changes.

        Args:
            p: position of the reply with the call.
            call: the tool call.
        """
        changed: list[str] = []
        key = self.key(call)
        if key and "_note" not in call.arguments:
            insort(self._earlier.setdefault(key, []), (p, call.id))
            if self._last_superseding(key) > p:
                changed += self._add_count(call.id, 1)
        # A new superseding call can move the last one: calls between the two change.
        key = self.by(call)
        if key:
            was = self._last_superseding(key)
            insort(self._later.setdefault(key, []), p)
            changed += self._count_between(key, was, self._last_superseding(key), 1)
        return changed

    def remove_call(self, p: int, call: ToolCall) -> Iterable[str]:
        """Remove a call; return the ids whose count changes.

        Args:
            p: position of the reply with the call.
            call: a call that was added.
        """
        changed: list[str] = []
        key = self.by(call)
        if key:
            was = self._last_superseding(key)
            self._later[key].remove(p)
            changed += self._count_between(key, self._last_superseding(key), was, -1)
        key = self.key(call)
        if key and "_note" not in call.arguments:
            self._earlier[key].remove((p, call.id))
            if self._last_superseding(key) > p:
                changed += self._add_count(call.id, -1)
        return changed

    def _last_superseding(self, key: str) -> int:
        later = self._later.get(key)
        return later[-1] if later else -1

    def _count_between(self, key: str, first: int, last: int, n: int) -> Iterable[str]:
        """Add `n` to the counts of the calls between two positions; return their ids."""
        calls = self._earlier.get(key, [])
        a, b = (bisect_left(calls, (p, "")) for p in (first, last))
        return [i for _, call_id in calls[a : max(a, b)] for i in self._add_count(call_id, n)]

    def _add_count(self, call_id: str, n: int) -> Iterable[str]:
        self._superseded_counts[call_id] = self._superseded_counts.get(call_id, 0) + n
        return (call_id,)


class SupersessionTracker:
    """The visible calls with a result, by id, and which of them are superseded by which rule.

    Where an id is used twice its last result counts. Calls are read as recorded.
    """

    def __init__(self, rules: Sequence[SupersessionRule]) -> None:
        self.rules = rules
        self._results: dict[str, list[int]] = {}
        self._callers: dict[str, list[int]] = {}

    def follow(self, view: ScheduleView, added: list[int], hidden: list[int]) -> set[str]:
        """Apply the changes of visibility at a call; return the call ids that may have changed.

        Args:
            view: the messages of the schedule.
            added: positions that become visible.
            hidden: positions that are no longer visible.
        """
        changed: set[str] = set()
        for p in hidden:
            changed.update(self._remove_message(view, p))
        for p in added:
            changed.update(self._add_message(view, p))
        return changed

    def get_rule_number(self, call_id: str) -> int:
        """Return the number of the last rule that supersedes the calls of an id; -1: none."""
        kinds = [n for n, kind in enumerate(self.rules) if kind.is_worthless(call_id)]
        return kinds[-1] if kinds else -1

    def result(self, call_id: str) -> int:
        """Return the position of the last result of an id; -1: there is none."""
        results = self._results.get(call_id)
        return results[-1] if results else -1

    def callers(self, call_id: str) -> Sequence[int]:
        """Return the positions of the replies that make a call of an id."""
        return self._callers.get(call_id, ())

    def _add_message(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.recorded_calls(p):
            insort(self._callers.setdefault(call.id, []), p)
            yield call.id
            if self._results.get(call.id):
                yield from self._add_answered(p, call)
        call_id = _answered_call_id(view, p)
        if call_id is not None:
            results = self._results.setdefault(call_id, [])
            insort(results, p)
            yield call_id
            # The first result makes the calls of this id answered.
            if len(results) == 1:
                for q, call in self._calls_with_id(view, call_id):
                    yield from self._add_answered(q, call)

    def _remove_message(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.recorded_calls(p):
            if self._results.get(call.id):
                yield from self._remove_answered(p, call)
            self._callers[call.id].remove(p)
            yield call.id
        call_id = _answered_call_id(view, p)
        if call_id is not None:
            self._results[call_id].remove(p)
            yield call_id
            # Without a result the calls of this id are unanswered again.
            if not self._results[call_id]:
                for q, call in self._calls_with_id(view, call_id):
                    yield from self._remove_answered(q, call)

    def _calls_with_id(self, view: ScheduleView, call_id: str) -> list[tuple[int, ToolCall]]:
        replies = dict.fromkeys(self._callers.get(call_id, ()))
        return [(q, call) for q in replies for call in view.recorded_calls(q) if call.id == call_id]

    def _add_answered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.rules:
            yield from kind.add_call(p, call)

    def _remove_answered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.rules:
            yield from kind.remove_call(p, call)


def _answered_call_id(view: ScheduleView, p: int) -> str | None:
    message = view.rows.message(p)
    return message.call_id if message.role == "tool" else None
