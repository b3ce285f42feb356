"""What of a talk may outlive it, found without a model: preferences, facts, procedures (Tyrum's).

It is a bound on what a model would find, and the same for the same words: preferences are sentences
of the user that say how it is to be, facts such of the agent that say what was decided or found
out, procedures commands that did their work twice.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.memory.entry import MemoryEntry, entry, short_name
from ctxkit.messages import INJECTED, RECALLED
from ctxkit.texts import contents, records
from ctxkit.texts.sentences import sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.messages import Message, ToolCall

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

    def entry(self, known: Sequence[str] | None = None) -> MemoryEntry:
        """Return it as an entry; equal texts get equal guids.

        Args:
            known: what `redaction.secrets()` gave, where many are made one after the other.
        """
        guid = sha256(f"{self.type}\0{self.text}".encode("utf-8", "replace")).hexdigest()[:32]
        name = short_name(self.text) or guid[:8]
        return entry(name, self.text, self.type, guid=guid, known=known)


def lessons(messages: Sequence[Message]) -> list[Lesson]:
    """Return what messages say that may be remembered, each thing once, in the order it came."""
    found = LessonIndex(messages).of(range(len(messages)))
    return [Lesson(kind, text, tuple(dict.fromkeys(ids))) for (kind, text), ids in found.items()]


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
        among = bytearray(self._read)
        for row in rows:
            among[row] = 1
        found: dict[tuple[str, str], list[str]] = {}
        for row, pairs in self._said:
            if among[row]:
                for pair in pairs:
                    found.setdefault(pair, []).append(self._messages[row].id)
        runs: dict[str, list[str]] = {}
        for run in self._runs:
            if among[run.row] and run.worked(among):
                runs.setdefault(run.command, []).append(self._messages[run.row].id)
        return found | {("procedure", c): ids for c, ids in runs.items() if len(ids) >= _TWICE}

    def _take(self, row: int, message: Message) -> None:
        self._read = row + 1
        pairs = said(message)
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
                answered.results.append((row, not records.failed(message)))


class _Run(NamedTuple):
    """A call of a tool, and what became of it."""

    row: int
    command: str
    """The shell command that it ran; empty: it ran none that is worth to be remembered."""
    results: list[tuple[int, bool]]
    """Rows of its results, and whether each says that it did its work."""

    def worked(self, among: bytearray) -> bool:
        """Say whether it did its work by the last of its results among some rows."""
        for row, worked in reversed(self.results):
            if among[row]:
                return worked
        return False


def said(message: Message) -> list[tuple[str, str]]:
    """Return type and text of what one message says."""
    if message.kind in (INJECTED, RECALLED) or message.role not in ("user", "assistant"):
        return []
    kind, telling = ("preference", _WISH) if message.role == "user" else ("fact", _FOUND)
    return [(kind, text) for text in _telling(message, telling)]


def _telling(message: Message, telling: re.Pattern[str]) -> list[str]:
    """Return the sentences of a message that a pattern finds; no questions, none too long."""
    if message.kind in (INJECTED, RECALLED):
        return []
    flat = (" ".join(s.split()) for s in sentences(contents.texts(message)))
    return [
        s.strip("-*# ")
        for s in flat
        if _SHORTEST <= len(s) <= _LONGEST and telling.search(s) and not s.endswith("?")
    ]


def preferences(messages: Iterable[Message]) -> list[str]:
    """Return what the user said of how it is to be, each once, in the order it came."""
    told = (text for m in messages for kind, text in said(m) if kind == "preference")
    return list(dict.fromkeys(told))


def decisions(messages: Iterable[Message]) -> list[str]:
    """Return what anybody said was decided, each once, in the order it came."""
    spoken = (m for m in messages if m.role in ("user", "assistant"))
    return list(dict.fromkeys(text for m in spoken for text in _telling(m, _DECIDED)))


def _command(call: ToolCall) -> str:
    """Return the shell command that a call runs, where it has a length to be remembered; or an
    empty text.
    """
    command = " ".join(contents.target(call).split()) if records.SHELLS.search(call.name) else ""
    return command if _SHORTEST // 2 <= len(command) <= _LONGEST else ""
