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

    from ctxkit.messages import Message

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
    sources: tuple[str, ...]
    """Ids of the messages that it rests on."""

    def entry(self) -> MemoryEntry:
        """Return it as an entry; equal texts get equal guids."""
        guid = sha256(f"{self.type}\0{self.text}".encode("utf-8", "replace")).hexdigest()[:32]
        return entry(short_name(self.text) or guid[:8], self.text, self.type, guid=guid)


def lessons(
    messages: Sequence[Message], known: Iterable[Sequence[tuple[str, str]]] | None = None
) -> list[Lesson]:
    """Return what messages say that may be remembered, each thing once, in the order it came.

    Args:
        messages: what was said.
        known: what each of them says (`said`), where that is known.
    """
    found: dict[tuple[str, str], list[str]] = {}
    each = map(said, messages) if known is None else known
    for message, told in zip(messages, each, strict=True):
        for kind, text in told:
            found.setdefault((kind, text), []).append(message.id)
    for text, ids in procedures(messages):
        found.setdefault(("procedure", text), []).extend(ids)
    return [Lesson(kind, text, tuple(dict.fromkeys(ids))) for (kind, text), ids in found.items()]


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


def procedures(messages: Sequence[Message]) -> Iterable[tuple[str, list[str]]]:
    """Yield commands that did their work twice or more, with the ids of the replies that
    ran them.
    """
    runs: dict[str, list[str]] = {}
    for act in records.commands(records.actions(messages)):
        command = " ".join(act.target.split())
        if act.outcome == "done" and _SHORTEST // 2 <= len(command) <= _LONGEST:
            runs.setdefault(command, []).append(messages[act.row].id)
    yield from ((command, ids) for command, ids in runs.items() if len(ids) >= _TWICE)
