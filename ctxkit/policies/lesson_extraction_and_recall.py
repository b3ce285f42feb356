"""Memory around compactions: flush before, lessons extracted without a model, recall after."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit.errors import BadArguments
from ctxkit.policies.history.growing_columns_and_sums import USER, GrowingArray
from ctxkit.policies.history.history import find_end_of_summaries
from ctxkit.policies.memory_entries import MemoryEntry, make_entry, make_entry_name
from ctxkit.policies.memory_ranking_and_digests import (
    MemoryDigestLimits,
    MemoryEntryRanker,
    count_line_chars,
    extract_query_terms,
    fit_to_budgets,
    format_digest_lines,
)
from ctxkit.policies.texts import message_content_and_truncation, tool_outcomes_and_files
from ctxkit.policies.texts.message_lines_for_extracts import split_sentences
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.session.messages import INJECTED_KIND, RECALLED_KIND, Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


RECALL_HEADING = "MEMORY — recalled from what is no longer shown:"


@dataclass(frozen=True, kw_only=True, repr=False)
class LessonRecall(DataclassPolicy):
    """Insert a digest of lessons from removed messages behind the summary: `summary | recall`.

    Use it after a policy that removes messages. The lessons of removed messages are ranked by type,
    by the words of the user's last prompt, and by age; as many as the budgets allow go into one
    message. It is renewed at each compaction, when the cache behind it is lost anyway, and depends
    on the history only, so a replay and a live session agree.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=2000 | recall", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> sum(item.message.kind == "memory" for item in replay.sent(-1))
        1
    """

    items: Natural = 12
    """Maximum number of entries of the digest."""
    chars: Natural = 2_400
    """Maximum characters; each kind of entry has Tyrum's share of them."""

    @property
    def budgets(self) -> MemoryDigestLimits:
        """The budgets of the digest."""
        whole = MemoryDigestLimits()
        kinds = {
            kind: (max(n * self.items // whole.items, 1), chars * self.chars // whole.chars)
            for kind, (n, chars) in whole.kinds.items()
        }
        return MemoryDigestLimits(items=self.items, chars=self.chars, kinds=kinds)

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the history with the digest; unchanged where there is nothing to recall."""
        gone = find_removed_lessons(history)
        text = format_digest_lines(
            _LessonEntries.of(history.log).fitting(gone, _last_request(history), self.budgets)
        )
        old = [p for p in range(history.head.size) if _is_digest(history[p])]
        if not text or any(history[p].text == f"{RECALL_HEADING}\n{text}" for p in old):
            return history
        if old:
            history = history.drop(old, "recalled anew", method="recall")
        place = find_end_of_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        return history.insert(place, _recall_message(text), "recalled from memory", method="recall")


def find_removed_lessons(history: History) -> list[tuple[str, str]]:
    """Return the lessons of removed messages as (type, text), in order."""
    log = history.log
    index: LessonExtractor | None = log.memo.get("lessons")
    if index is None:
        index = log.memo["lessons"] = LessonExtractor(log.messages)
    is_hidden = np.ones(history.lo, np.bool_)
    is_hidden[index.get_rows({history[p].id for p in range(history.head.size)}, history.lo)] = False
    return index.select_lessons(np.flatnonzero(is_hidden))


class _LessonEntries:
    """Memory entries of a log's lessons, cached while the environment's secrets are the same."""

    def __init__(self, secrets: list[str]) -> None:
        self.secrets = secrets
        self._ranked = MemoryEntryRanker()
        self._numbers: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}

    @classmethod
    def of(cls, log: MessageLog) -> _LessonEntries:
        """Return the entries of a log, from its cache."""
        secrets, promoted = get_environment_secrets(), log.memo.get("entries of lessons")
        if promoted is None or promoted.secrets != secrets:
            promoted = log.memo["entries of lessons"] = cls(secrets)
        return cast("_LessonEntries", promoted)

    def fitting(
        self, lessons: Sequence[tuple[str, str]], request: str, budgets: MemoryDigestLimits
    ) -> list[MemoryEntry]:
        """Return the entries that fit the budgets, by score for a request, then by age."""
        # The newest of equal entries comes first, so rank the lessons in reverse.
        for pair in lessons:
            if pair not in self._numbers:
                self._add_lesson(pair)
        numbers = [self._numbers[pair] for pair in reversed(lessons)]
        return fit_to_budgets(
            self._ranked.ranked(numbers, extract_query_terms(request)), budgets, self._sizes
        )

    def _add_lesson(self, pair: tuple[str, str]) -> None:
        entry = Lesson(*pair).entry(self.secrets)
        self._numbers[pair] = self._ranked.add(entry)
        self._sizes[entry.guid] = count_line_chars(entry)


def _last_request(history: History) -> str:
    """Return the text of the user's last prompt."""
    log = history.log
    for row in reversed(log.of_role[USER]):
        if row < history.hi and log.messages[row].kind != INJECTED_KIND:
            return log.messages[row].text
    return ""


def _is_digest(message: Message) -> bool:
    return message.kind == RECALLED_KIND and message.text.startswith(RECALL_HEADING)


def _recall_message(text: str) -> Message:
    return Message(role="user", kind=RECALLED_KIND, parts=(Text(f"{RECALL_HEADING}\n{text}"),))


NOTHING_TO_SAVE = "NO_REPLY"
"""Answer of a model that has nothing to save (Fased's word)."""


@dataclass(frozen=True, kw_only=True)
class MemoryFlushSettings:
    """Settings of a model call that saves to memory before a compaction, without delaying it."""

    below: int | None = None
    """Tokens below the window at which it runs, once per compaction (Fased); None: at each
    compaction, on the messages that it removes (Tyrum)."""
    writes: int | None = None
    """Maximum number of notes to write; None: no limit."""
    message_chars: int | None = None
    """Characters of each message in the prompt; None: the messages as they are."""
    seconds: float = 120.0
    """Time limit in seconds."""
    turn_share: float | None = None
    """Time limit as a share of the time limit of the turn, where it has one."""
    prompt: str = (
        "The context will soon be compacted. Save what must outlive it, and nothing else, with"
        " save_memory: decisions, demands, facts and names that were found out. If there is"
        f" nothing to save, answer {NOTHING_TO_SAVE}."
    )
    """Prompt of the call."""

    def __post_init__(self) -> None:
        if not self.seconds > 0 or (self.writes is not None and self.writes < 1):
            raise BadArguments(
                f"A memory flush needs more than 0 seconds and at least 1 write; got {self}."
            )

    def is_due(self, tokens: int, window: int) -> bool:
        """Return True where a context is so near the end of the window that memory should be saved.

        Args:
            tokens: size of the context.
            window: context window in tokens.
        """
        return self.below is not None and window > self.below and tokens >= window - self.below

    @property
    def full_prompt(self) -> str:
        """The prompt, with the answer for "nothing to save" appended if it is missing."""
        if NOTHING_TO_SAVE in self.prompt:
            return self.prompt
        return f"{self.prompt}\n\nIf there is nothing to save, answer {NOTHING_TO_SAVE}."


_PREFERENCE = re.compile(
    r"(?<!\w)(?:always|never|must(?: not|n't)?|do not|don't|prefer|please (?:use|keep|avoid)|"
    r"from now on|make sure|ensure|only use|stay on|remember)(?!\w)",
    re.IGNORECASE,
)
_FINDING = re.compile(
    r"(?<!\w)(?:decided|root cause|because|turns out|caused by|is (?:defined|located|configured)|"
    r"lives in|requires|going with|instead of|fixed by|the (?:problem|issue|bug|cause|fix)"
    r" (?:is|was))"
    r"(?!\w)",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"(?<!\w)(?:decided|agreed|we chose|going with|we(?:'ll| will) (?:use|keep|go with)|"
    r"instead of)(?!\w)",
    re.IGNORECASE,
)
_MIN_CHARS, _MAX_CHARS = 16, 300
"""Length of a sentence that can be a lesson."""
_MIN_PREFERENCE_CHARS = 10
"""Minimum length of a preference: `I prefer tabs.` is one."""
_MIN_SUCCESSES = 2
"""Successful runs of a command that make it a procedure."""


class Lesson(NamedTuple):
    """A statement worth remembering."""

    type: str
    """`preference`, `fact` or `procedure`."""
    text: str
    sources: tuple[str, ...] = ()
    """Ids of the messages that state it."""

    def entry(self, secrets: Sequence[str] | None = None) -> MemoryEntry:
        """Return the lesson as a memory entry; equal texts get equal guids.

        Args:
            secrets: result of `get_environment_secrets()`, to compute it once for many entries.
        """
        guid = sha256(f"{self.type}\0{self.text}".encode("utf-8", "replace")).hexdigest()[:32]
        name = make_entry_name(self.text) or guid[:8]
        return make_entry(name, self.text, self.type, guid=guid, secrets=secrets)


def extract_lessons(messages: Sequence[Message]) -> list[Lesson]:
    """Return the lessons of messages, each once, in order."""
    lessons = LessonExtractor(messages).get_lessons(range(len(messages)))
    return [Lesson(kind, text, tuple(dict.fromkeys(ids))) for (kind, text), ids in lessons.items()]


# Lessons are extracted by patterns, so they are a deterministic lower bound of what a model would
# find: preferences are user sentences with a wish, facts are agent sentences with a decision or a
# finding, procedures are shell commands that succeeded at least twice.
class LessonExtractor:
    """The lessons of a growing log; each message is read once.

    Layout: lessons and shell commands have numbers; parallel arrays hold the row and the number of
    each statement of a lesson, of each run of a command, and the run of each result. A selection of
    rows is then a few array operations, however often it is made.

    Args:
        messages: the messages of the log; more may be appended later.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._read = 0
        self._rows_by_id: dict[str, list[int]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._lessons: list[tuple[str, str]] = []
        """The (type, text) of each number."""
        self._statement_rows, self._statement_lessons = GrowingArray(np.intp), GrowingArray(np.intp)
        self._run_rows, self._run_lessons = GrowingArray(np.intp), GrowingArray(np.intp)
        self._result_rows, self._result_runs = GrowingArray(np.intp), GrowingArray(np.intp)
        self._result_succeeded = GrowingArray(np.bool_)
        self._run_of_call: dict[str, int | None] = {}
        """The run of each tool call, by its id; None where it runs no command."""

    def get_lessons(self, rows: Sequence[int]) -> dict[tuple[str, str], list[str]]:
        """Return the lessons of some sorted rows: message ids by (type, text), in order."""
        lessons: dict[tuple[str, str], list[str]] = {}
        for numbers, at in self._select(np.asarray(rows, np.intp)):
            for number, row in zip(numbers.tolist(), at.tolist(), strict=True):
                lessons.setdefault(self._lessons[number], []).append(self._messages[row].id)
        return lessons

    def select_lessons(self, rows: NDArray[Any]) -> list[tuple[str, str]]:
        """Return the (type, text) of the lessons of some sorted rows, each once, in order."""
        numbers = np.concatenate([numbers for numbers, _ in self._select(rows)])
        first_places = np.sort(np.unique(numbers, return_index=True)[1])
        return [self._lessons[number] for number in numbers[first_places].tolist()]

    def get_rows(self, ids: Iterable[str], end: int) -> list[int]:
        """Return the rows before `end` whose messages have one of some ids.

        Args:
            ids: ids of messages.
            end: one past the last row of the log.
        """
        self._read_messages(end)
        return [row for name in ids for row in self._rows_by_id.get(name, ()) if row < end]

    def _select(self, rows: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return number and row of each statement in some rows, then of each procedure's runs."""
        self._read_messages(int(rows[-1]) + 1 if len(rows) else 0)
        is_included = np.zeros(self._read, np.bool_)
        is_included[rows] = True
        at, lessons = self._statement_rows.all, self._statement_lessons.all
        is_stated = is_included[at]
        # A command becomes a procedure if at least two runs succeeded, by their last result.
        has_succeeded = np.zeros(len(self._run_rows), np.bool_)
        is_result_included = is_included[self._result_rows.all]
        # of several values for one run the last one is assigned
        has_succeeded[self._result_runs.all[is_result_included]] = self._result_succeeded.all[
            is_result_included
        ]
        is_good = is_included[self._run_rows.all] & has_succeeded
        runs, run_lessons = self._run_rows.all[is_good], self._run_lessons.all[is_good]
        is_procedure = np.bincount(run_lessons, minlength=1)[run_lessons] >= _MIN_SUCCESSES
        return [
            (lessons[is_stated], at[is_stated]),
            (run_lessons[is_procedure], runs[is_procedure]),
        ]

    def _read_messages(self, end: int) -> None:
        for row in range(self._read, end):
            self._read_message(row, self._messages[row])

    def _read_message(self, row: int, message: Message) -> None:
        self._read = row + 1
        self._rows_by_id.setdefault(message.id, []).append(row)
        for lesson in extract_message_lessons(message):
            self._statement_lessons.append(self._number(lesson))
            self._statement_rows.append(row)
        if message.role == "assistant":
            for call in message.tool_calls:
                self._run_of_call[call.id] = self._add_run(row, _shell_command(call))
        elif message.role == "tool" and message.call_id:
            run = self._run_of_call.get(message.call_id)
            if run is not None:
                self._result_rows.append(row)
                self._result_runs.append(run)
                self._result_succeeded.append(
                    tool_outcomes_and_files.get_outcome(message) == "done"
                )

    def _add_run(self, row: int, command: str) -> int | None:
        """Return the number of a new run; None where there is no command."""
        if not command:
            return None
        self._run_rows.append(row)
        self._run_lessons.append(self._number(("procedure", command)))
        return len(self._run_rows) - 1

    def _number(self, lesson: tuple[str, str]) -> int:
        number = self._numbers.setdefault(lesson, len(self._lessons))
        if number == len(self._lessons):
            self._lessons.append(lesson)
        return number


def extract_message_lessons(message: Message) -> list[tuple[str, str]]:
    """Return the lessons of one message as (type, text)."""
    if message.role not in ("user", "assistant"):
        return []
    kind, pattern = ("preference", _PREFERENCE) if message.role == "user" else ("fact", _FINDING)
    least = _MIN_PREFERENCE_CHARS if kind == "preference" else _MIN_CHARS
    return [(kind, text) for text in _matching_sentences(message, pattern, least)]


def _matching_sentences(
    message: Message, pattern: re.Pattern[str], least: int = _MIN_CHARS
) -> list[str]:
    """Return the sentences of a message that match a pattern; no questions, none too long."""
    if message.kind in (INJECTED_KIND, RECALLED_KIND):
        return []
    sentences = [s for s in split_sentences(get_plain_text(message)) if len(s) >= least]
    flat = [" ".join(s.split()) for s in sentences]
    return [
        s.strip("-*# ")
        for s in flat
        if least <= len(s) <= _MAX_CHARS and pattern.search(s) and not s.endswith("?")
    ]


def extract_preferences(messages: Iterable[Message]) -> list[str]:
    """Return the user's preferences, each once, in order."""
    preferences = (
        text for m in messages for kind, text in extract_message_lessons(m) if kind == "preference"
    )
    return list(dict.fromkeys(preferences))


def extract_decisions(messages: Iterable[Message]) -> list[str]:
    """Return the decisions in messages of user and agent, each once, in order."""
    spoken = (m for m in messages if m.role in ("user", "assistant"))
    return list(dict.fromkeys(text for m in spoken for text in _matching_sentences(m, _DECISION)))


def _shell_command(call: ToolCall) -> str:
    """Return the shell command of a call; empty where it has none, or one of unfit length."""
    command = (
        " ".join(message_content_and_truncation.get_call_target(call).split())
        if tool_outcomes_and_files.is_shell_tool(call.name)
        else ""
    )
    return command if _MIN_CHARS // 2 <= len(command) <= _MAX_CHARS else ""
