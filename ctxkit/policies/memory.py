"""Memory around compactions: flush before, lessons found without a model, recall after.

It is a bound on what a model would find, and the same for the same words: preferences are sentences
of the user that say how it is to be, facts such of the agent that say what was decided or found
out, procedures commands that did their work twice.
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
from ctxkit.session.messages import INJECTED_KIND, RECALLED_KIND, Message, Text, plain_text

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
    """Put a digest of what is no longer shown behind the summary: `summary | recall`.

    It stands behind a policy that takes messages out. What they say that may outlive them
    (`lessons`) is promoted, and as much of it as the budgets hold is shown in one message, ranked
    by type, by the words of the user's last prompt, and then by age. It is made anew at each
    compaction, when the prompt behind it is read anew in any case, and is the same for the same
    history, so that a replay and a live session agree.
    """

    items: Natural = 12
    """Entries at most."""
    chars: Natural = 2_400
    """Characters at most; the budgets of each kind are Tyrum's, in proportion."""

    @property
    def budgets(self) -> MemoryBudgets:
        """What the digest may take."""
        whole = MemoryBudgets()
        kinds = {
            kind: (max(n * self.items // whole.items, 1), chars * self.chars // whole.chars)
            for kind, (n, chars) in whole.kinds.items()
        }
        return MemoryBudgets(items=self.items, chars=self.chars, kinds=kinds)

    def __call__(self, history: History, _room: ContextBudget) -> History:
        """Return the history with the digest of what is gone; itself where that is nothing."""
        gone = promote_lessons(history)
        text = format_entries(
            _Promoted.of(history.log).fitting(gone, _last_request(history), self.budgets)
        )
        old = [p for p in range(history.head.size) if history[p].kind == RECALLED_KIND]
        if not text or any(history[p].text == f"{RECALL_HEADING}\n{text}" for p in old):
            return history
        if old:
            history = history.drop(old, "recalled anew", method="recall")
        place = _behind_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        return history.insert(place, _recall_message(text), "recalled from memory", method="recall")


def promote_lessons(history: History) -> list[tuple[str, str]]:
    """Return types and texts of what the messages said that are no longer shown, in the order it
    came.
    """
    log = history.log
    shown_ids = {history[p].id for p in range(history.head.size)}
    hidden_rows = [row for row, m in enumerate(log.messages[: history.lo]) if m.id not in shown_ids]
    index: LessonIndex | None = log.memo.get("lessons")
    if index is None:
        index = log.memo["lessons"] = LessonIndex(log.messages)
    return list(index.of(hidden_rows))


class _Promoted:
    """The entries of a log's lessons, each made once as long as the environment's secrets stay."""

    def __init__(self, secrets: list[str]) -> None:
        self.known = secrets
        self._ranked = RankedEntries()
        self._numbers: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}

    @classmethod
    def of(cls, log: MessageLog) -> _Promoted:
        """Return those of a log."""
        secrets, promoted = environment_secrets(), log.memo.get("entries of lessons")
        if promoted is None or promoted.known != secrets:
            promoted = log.memo["entries of lessons"] = cls(secrets)
        return cast("_Promoted", promoted)

    def fitting(
        self, lessons: Sequence[tuple[str, str]], request: str, budgets: MemoryBudgets
    ) -> list[MemoryEntry]:
        """Return the entries that budgets have room for, the best for a prompt first; of equals the
        newest.
        """
        for pair in lessons:
            if pair not in self._numbers:
                self._take(pair)
        numbers = [self._numbers[pair] for pair in reversed(lessons)]
        return fit_to_budgets(
            self._ranked.ranked(numbers, query_terms(request)), budgets, self._sizes
        )

    def _take(self, pair: tuple[str, str]) -> None:
        entry = Lesson(*pair).entry(self.known)
        self._numbers[pair] = self._ranked.add(entry)
        self._sizes[entry.guid] = row_size(entry)


def _last_request(history: History) -> str:
    """Return the user's last prompt."""
    log = history.log
    for row in reversed(log.of_role[USER]):
        if row < history.hi and log.messages[row].kind != INJECTED_KIND:
            return log.messages[row].text
    return ""


def _behind_summaries(history: History) -> int:
    """Return the position behind the last summary, or behind what is first and stays."""
    roles = [history[p].role for p in range(history.head.size)]
    last = max((p for p, role in enumerate(roles) if role == "summary"), default=-1)
    if last >= 0:
        return last + 1
    return next((p for p, m in enumerate(history.messages) if m.role != "system"), len(history))


def _recall_message(text: str) -> Message:
    return Message(role="user", kind=RECALLED_KIND, parts=(Text(f"{RECALL_HEADING}\n{text}"),))


NOTHING_TO_SAVE = "NO_REPLY"
"""What a model answers that has nothing to save (Fased's word)."""


@dataclass(frozen=True, kw_only=True)
class MemoryFlush:
    """A call beside the conversation to write to memory; it never holds a compaction back."""

    below: int | None = None
    """Due at so many tokens below the window, once between two compactions (Fased); None: at each
    compaction, over the messages that it takes (Tyrum)."""
    writes: int | None = None
    """Notes that are written at most; None: all that the model asks for."""
    message_chars: int | None = None
    """Characters of each message that the model sees; None: the conversation as it stands."""
    seconds: float = 120.0
    """How long it may take."""
    turn_share: float | None = None
    """The same as a share of the turn's own limit in seconds, where it has one."""
    prompt: str = (
        "The context will soon be compacted. Save what must outlive it, and nothing else, with"
        " save_memory: decisions, demands, facts and names that were found out. If there is"
        f" nothing to save, answer {NOTHING_TO_SAVE}."
    )
    """What the model is told."""

    def __post_init__(self) -> None:
        if not self.seconds > 0 or (self.writes is not None and self.writes < 1):
            raise BadArguments(
                f"A memory flush needs more than 0 seconds and at least 1 write; got {self}."
            )

    def due(self, tokens: int, window: int) -> bool:
        """Return True where a context of so many tokens has reached the threshold."""
        return self.below is not None and window > self.below and tokens >= window - self.below

    @property
    def told(self) -> str:
        """What the model is told; a prompt of the user's own gets the word for nothing to save."""
        if NOTHING_TO_SAVE in self.prompt:
            return self.prompt
        return f"{self.prompt}\n\nIf there is nothing to save, answer {NOTHING_TO_SAVE}."


_WISH = re.compile(
    r"(?<!\w)(?:always|never|must(?: not|n't)?|do not|don't|prefer|please (?:use|keep|avoid)|"
    r"from now on|make sure|ensure|only use|stay on|remember)(?!\w)",
    re.IGNORECASE,
)
_FOUND = re.compile(
    r"(?<!\w)(?:decided|root cause|because|turns out|caused by|is (?:defined|located|configured)|"
    r"lives in|requires|going with|instead of|fixed by|the (?:problem|issue|bug|cause|fix)"
    r" (?:is|was))"
    r"(?!\w)",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"(?<!\w)(?:decided|agreed|we chose|going with|we(?:'ll| will) (?:use|keep|go with)|"
    r"instead of)(?!\w)",
    re.IGNORECASE,
)
_SHORTEST, _LONGEST = 16, 300
_TWICE = 2


class Lesson(NamedTuple):
    """Something that may be remembered."""

    type: str
    """`preference`, `fact` or `procedure`."""
    text: str
    sources: tuple[str, ...] = ()
    """Ids of the messages that it rests on."""

    def entry(self, secrets: Sequence[str] | None = None) -> MemoryEntry:
        """Return it as an entry; equal texts get equal guids.

        Args:
            secrets: what `_internal.redaction.environment_secrets()` gave, where many are made one
                after the other.
        """
        guid = sha256(f"{self.type}\0{self.text}".encode("utf-8", "replace")).hexdigest()[:32]
        name = make_entry_name(self.text) or guid[:8]
        return make_entry(name, self.text, self.type, guid=guid, secrets=secrets)


def extract_lessons(messages: Sequence[Message]) -> list[Lesson]:
    """Return what messages say that may be remembered, each thing once, in the order it came."""
    lessons = LessonIndex(messages).of(range(len(messages)))
    return [Lesson(kind, text, tuple(dict.fromkeys(ids))) for (kind, text), ids in lessons.items()]


class LessonIndex:
    """What the messages of a log that only grows say that may be remembered: each is read once.

    Args:
        messages: the log's; more may be added to it later.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._read = 0
        self._said: list[tuple[int, list[tuple[str, str]]]] = []
        """Rows that say something, and what."""
        self._asked: dict[str, _Run] = {}
        self._runs: list[_Run] = []

    def of(self, rows: Sequence[int]) -> dict[tuple[str, str], list[str]]:
        """Return types and texts of what the messages of some rising rows say, each thing once, in
        the order it came, with the ids of the messages that it rests on.
        """
        for row in range(self._read, rows[-1] + 1 if rows else 0):
            self._take(row, self._messages[row])
        is_included = bytearray(self._read)
        for row in rows:
            is_included[row] = 1
        lessons: dict[tuple[str, str], list[str]] = {}
        for row, pairs in self._said:
            if is_included[row]:
                for pair in pairs:
                    lessons.setdefault(pair, []).append(self._messages[row].id)
        runs: dict[str, list[str]] = {}
        for run in self._runs:
            if is_included[run.row] and run.worked(is_included):
                runs.setdefault(run.command, []).append(self._messages[run.row].id)
        return lessons | {("procedure", c): ids for c, ids in runs.items() if len(ids) >= _TWICE}

    def _take(self, row: int, message: Message) -> None:
        self._read = row + 1
        pairs = lessons_in_message(message)
        if pairs:
            self._said.append((row, pairs))
        if message.role == "assistant":
            for call in message.tool_calls:
                run = self._asked[call.id] = _Run(row, _command(call), [])
                if run.command:
                    self._runs.append(run)
        elif message.role == "tool" and message.call_id:
            answered = self._asked.get(message.call_id)
            if answered is not None and answered.command:
                answered.results.append((row, not tool_actions.is_failed_result(message)))


class _Run(NamedTuple):
    """A call of a tool, and what became of it."""

    row: int
    command: str
    """The shell command that it ran; empty: it ran none that is worth to be remembered."""
    results: list[tuple[int, bool]]
    """Rows of its results, and whether each says that it did its work."""

    def worked(self, is_included: bytearray) -> bool:
        """Say whether it did its work by the last of its results among some rows."""
        for row, worked in reversed(self.results):
            if is_included[row]:
                return worked
        return False


def lessons_in_message(message: Message) -> list[tuple[str, str]]:
    """Return type and text of what one message says."""
    if message.kind in (INJECTED_KIND, RECALLED_KIND) or message.role not in ("user", "assistant"):
        return []
    kind, pattern = ("preference", _WISH) if message.role == "user" else ("fact", _FOUND)
    return [(kind, text) for text in _matching_sentences(message, pattern)]


def _matching_sentences(message: Message, pattern: re.Pattern[str]) -> list[str]:
    """Return the sentences of a message that a pattern finds; no questions, none too long."""
    if message.kind in (INJECTED_KIND, RECALLED_KIND):
        return []
    flat = (" ".join(s.split()) for s in split_sentences(plain_text(message)))
    return [
        s.strip("-*# ")
        for s in flat
        if _SHORTEST <= len(s) <= _LONGEST and pattern.search(s) and not s.endswith("?")
    ]


def extract_preferences(messages: Iterable[Message]) -> list[str]:
    """Return what the user said of how it is to be, each once, in the order it came."""
    preferences = (
        text for m in messages for kind, text in lessons_in_message(m) if kind == "preference"
    )
    return list(dict.fromkeys(preferences))


def extract_decisions(messages: Iterable[Message]) -> list[str]:
    """Return what anybody said was decided, each once, in the order it came."""
    spoken = (m for m in messages if m.role in ("user", "assistant"))
    return list(dict.fromkeys(text for m in spoken for text in _matching_sentences(m, _DECIDED)))


def _command(call: ToolCall) -> str:
    """Return the shell command that a call runs, where it has a length to be remembered; or an
    empty text.
    """
    command = (
        " ".join(content.call_target(call).split())
        if tool_actions.SHELL_TOOL_PATTERN.search(call.name)
        else ""
    )
    return command if _SHORTEST // 2 <= len(command) <= _LONGEST else ""
