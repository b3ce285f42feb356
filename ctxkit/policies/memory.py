"""Memory around compactions: flush before, lessons extracted without a model, recall after.

Lessons are extracted by patterns, so they are a deterministic lower bound of what a model would
find: preferences are user sentences with a wish, facts are agent sentences with a decision or a
finding, procedures are shell commands that succeeded at least twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

from ctxkit._internal.redaction import environment_secrets
from ctxkit.errors import BadArguments
from ctxkit.policies.base import ConfiguredPolicy
from ctxkit.policies.history.columns import USER
from ctxkit.policies.history.history import behind_summaries
from ctxkit.policies.memory_entries import (
    MemoryBudgets,
    MemoryEntry,
    RankedEntries,
    fit_to_budgets,
    format_entries,
    make_entry,
    make_entry_name,
    query_terms,
    row_size,
)
from ctxkit.policies.texts import content, tool_actions
from ctxkit.policies.texts.line_index import split_sentences
from ctxkit.session.messages import INJECTED_KIND, RECALLED_KIND, Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.policies.base import Natural
    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


RECALL_HEADING = "MEMORY — recalled from what is no longer shown:"


@dataclass(frozen=True, kw_only=True, repr=False)
class Recall(ConfiguredPolicy):
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
    """Most entries of the digest."""
    chars: Natural = 2_400
    """Most characters; each kind of entry has Tyrum's share of them."""

    @property
    def budgets(self) -> MemoryBudgets:
        """The budgets of the digest."""
        whole = MemoryBudgets()
        kinds = {
            kind: (max(n * self.items // whole.items, 1), chars * self.chars // whole.chars)
            for kind, (n, chars) in whole.kinds.items()
        }
        return MemoryBudgets(items=self.items, chars=self.chars, kinds=kinds)

    def __call__(self, history: History, _room: ContextBudget) -> History:
        """Return the history with the digest; unchanged where there is nothing to recall."""
        gone = promote_lessons(history)
        text = format_entries(
            _LessonEntries.of(history.log).fitting(gone, _last_request(history), self.budgets)
        )
        old = [p for p in range(history.head.size) if _is_digest(history[p])]
        if not text or any(history[p].text == f"{RECALL_HEADING}\n{text}" for p in old):
            return history
        if old:
            history = history.drop(old, "recalled anew", method="recall")
        place = behind_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        return history.insert(place, _recall_message(text), "recalled from memory", method="recall")


def promote_lessons(history: History) -> list[tuple[str, str]]:
    """Return the lessons of removed messages as (type, text), in order."""
    log = history.log
    present_ids = {history[p].id for p in range(history.head.size)}
    hidden_rows = [
        row for row, m in enumerate(log.messages[: history.lo]) if m.id not in present_ids
    ]
    index: LessonIndex | None = log.memo.get("lessons")
    if index is None:
        index = log.memo["lessons"] = LessonIndex(log.messages)
    return list(index.of(hidden_rows))


class _LessonEntries:
    """Memory entries of a log's lessons, cached while the environment's secrets are the same."""

    def __init__(self, secrets: list[str]) -> None:
        self.known = secrets
        self._ranked = RankedEntries()
        self._numbers: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}

    @classmethod
    def of(cls, log: MessageLog) -> _LessonEntries:
        """Return the entries of a log, from its cache."""
        secrets, promoted = environment_secrets(), log.memo.get("entries of lessons")
        if promoted is None or promoted.known != secrets:
            promoted = log.memo["entries of lessons"] = cls(secrets)
        return cast("_LessonEntries", promoted)

    def fitting(
        self, lessons: Sequence[tuple[str, str]], request: str, budgets: MemoryBudgets
    ) -> list[MemoryEntry]:
        """Return the entries that fit the budgets, by score for a request, then by age."""
        # The newest of equal entries comes first, so rank the lessons in reverse.
        for pair in lessons:
            if pair not in self._numbers:
                self._add_lesson(pair)
        numbers = [self._numbers[pair] for pair in reversed(lessons)]
        return fit_to_budgets(
            self._ranked.ranked(numbers, query_terms(request)), budgets, self._sizes
        )

    def _add_lesson(self, pair: tuple[str, str]) -> None:
        entry = Lesson(*pair).entry(self.known)
        self._numbers[pair] = self._ranked.add(entry)
        self._sizes[entry.guid] = row_size(entry)


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
class MemoryFlush:
    """Settings of a model call that saves to memory before a compaction, without delaying it."""

    below: int | None = None
    """Tokens below the window at which it runs, once per compaction (Fased); None: at each
    compaction, on the messages that it removes (Tyrum)."""
    writes: int | None = None
    """Most notes to write; None: no limit."""
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

    def due(self, tokens: int, window: int) -> bool:
        """Return True where a context of `tokens` has reached the threshold."""
        return self.below is not None and window > self.below and tokens >= window - self.below

    @property
    def told(self) -> str:
        """The prompt, with the answer for "nothing to save" where it lacks that."""
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
"""Least length of a preference: `I prefer tabs.` is one."""
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
            secrets: result of `environment_secrets()`, to compute it once for many entries.
        """
        guid = sha256(f"{self.type}\0{self.text}".encode("utf-8", "replace")).hexdigest()[:32]
        name = make_entry_name(self.text) or guid[:8]
        return make_entry(name, self.text, self.type, guid=guid, secrets=secrets)


def extract_lessons(messages: Sequence[Message]) -> list[Lesson]:
    """Return the lessons of messages, each once, in order."""
    lessons = LessonIndex(messages).of(range(len(messages)))
    return [Lesson(kind, text, tuple(dict.fromkeys(ids))) for (kind, text), ids in lessons.items()]


class LessonIndex:
    """The lessons of a growing log; each message is read once.

    Args:
        messages: the messages of the log; more may be appended later.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._read = 0
        self._lessons_by_row: list[tuple[int, list[tuple[str, str]]]] = []
        """Rows with lessons, each with its (type, text) pairs."""
        self._runs_by_call: dict[str, _CommandRun] = {}
        self._runs: list[_CommandRun] = []

    def of(self, rows: Sequence[int]) -> dict[tuple[str, str], list[str]]:
        """Return the lessons of some sorted rows: message ids by (type, text), in order."""
        # Read new messages once, then select by row: the lessons themselves do not change.
        for row in range(self._read, rows[-1] + 1 if rows else 0):
            self._read_message(row, self._messages[row])
        is_included = bytearray(self._read)
        for row in rows:
            is_included[row] = 1
        lessons: dict[tuple[str, str], list[str]] = {}
        for row, pairs in self._lessons_by_row:
            if is_included[row]:
                for pair in pairs:
                    lessons.setdefault(pair, []).append(self._messages[row].id)
        # A command becomes a procedure if at least two runs succeeded, by their last result.
        runs: dict[str, list[str]] = {}
        for run in self._runs:
            if is_included[run.row] and run.worked(is_included):
                runs.setdefault(run.command, []).append(self._messages[run.row].id)
        return lessons | {
            ("procedure", c): ids for c, ids in runs.items() if len(ids) >= _MIN_SUCCESSES
        }

    def _read_message(self, row: int, message: Message) -> None:
        self._read = row + 1
        pairs = lessons_in_message(message)
        if pairs:
            self._lessons_by_row.append((row, pairs))
        if message.role == "assistant":
            for call in message.tool_calls:
                run = self._runs_by_call[call.id] = _CommandRun(row, _shell_command(call), [])
                if run.command:
                    self._runs.append(run)
        elif message.role == "tool" and message.call_id:
            answered = self._runs_by_call.get(message.call_id)
            if answered is not None and answered.command:
                answered.results.append((row, tool_actions.get_outcome(message) == "done"))


class _CommandRun(NamedTuple):
    """A shell command of a tool call, and its results."""

    row: int
    command: str
    """The command; empty where the call runs none, or one too short or too long."""
    results: list[tuple[int, bool]]
    """Rows of its results, and whether each reports success."""

    def worked(self, is_included: bytearray) -> bool:
        """Return True where its last result among the included rows reports success."""
        for row, worked in reversed(self.results):
            if is_included[row]:
                return worked
        return False


def lessons_in_message(message: Message) -> list[tuple[str, str]]:
    """Return the lessons of one message as (type, text)."""
    if message.kind in (INJECTED_KIND, RECALLED_KIND) or message.role not in ("user", "assistant"):
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
    flat = (" ".join(s.split()) for s in split_sentences(get_plain_text(message)))
    return [
        s.strip("-*# ")
        for s in flat
        if least <= len(s) <= _MAX_CHARS and pattern.search(s) and not s.endswith("?")
    ]


def extract_preferences(messages: Iterable[Message]) -> list[str]:
    """Return the user's preferences, each once, in order."""
    preferences = (
        text for m in messages for kind, text in lessons_in_message(m) if kind == "preference"
    )
    return list(dict.fromkeys(preferences))


def extract_decisions(messages: Iterable[Message]) -> list[str]:
    """Return the decisions in messages of user and agent, each once, in order."""
    spoken = (m for m in messages if m.role in ("user", "assistant"))
    return list(dict.fromkeys(text for m in spoken for text in _matching_sentences(m, _DECISION)))


def _shell_command(call: ToolCall) -> str:
    """Return the shell command of a call; empty where it has none, or one of unfit length."""
    command = (
        " ".join(content.call_target(call).split())
        if tool_actions.SHELL_TOOL_PATTERN.search(call.name)
        else ""
    )
    return command if _MIN_CHARS // 2 <= len(command) <= _MAX_CHARS else ""
