"""The lines of a message that an extract may take over: sentences, calls, what results tell."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from ctxkit.messages import RECALLED
from ctxkit.texts.contents import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.messages import Message

LONGEST = 300
"""Characters of one line of an extract."""
READ = 4_000_000
"""Characters of one message that are read, as many as a million tokens: its first and its last."""
MARK = "[Focus "
"""How an extract begins a line on its own focus, which no later extract takes over."""
CUE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|need|should|because|decided?|instead|"
    r"fix(?:ed)?|todo|next|error|fail(?:ed|s)?|"
    r"exception|wrong|bug|done|works?|passed|created|changed|exit code)\b|"
    r"(?<![\w-])[\w-]{1,200}/[\w./-]|`[^`]+`|https?://",
    re.IGNORECASE,
)
"""What makes a line telling: a demand, a decision, an outcome, a path, something quoted."""
TAGS = {"user": "User", "assistant": "Assistant", "summary": "Earlier", "system": "System"}
_GAP = re.compile(r"(?<=[.!?])\s+|\n+")
_ROW = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""What `str.splitlines` would give, one at a time; empty lines are left out."""
_WORD = re.compile(r"[\w./-]{2,}")


def tag(message: Message) -> str:
    """Return who speaks in a message, as an extract writes it."""
    return TAGS.get(message.role) or f"Result of {message.tool or 'a tool'}"


def said(message: Message) -> Iterator[tuple[str, str]]:
    """Yield tag and text of each line of a message; most lines without a word are left out.

    What memory recalled is recalled anew, and is no line.
    """
    if message.kind == RECALLED:
        return
    if message.role == "tool":
        yield from ((tag(message), one_line(row, LONGEST)) for row in _telling(message))
        return
    word, summary = _WORD.search, message.role == "summary"
    for sentence in chain.from_iterable(map(sentences, _read(message.text))):
        if word(sentence) and not (summary and sentence.startswith(MARK)):
            yield TAGS[message.role], one_line(sentence, LONGEST)
    for call in message.tool_calls:
        values = call.arguments.values()
        target = next((v for v in values if isinstance(v, str) and v), call.raw or "")
        yield "Call", one_line(f"{call.name} {target[:120]}", LONGEST)


def words(line: str) -> set[str]:
    """Return the words of a line without their case; a path is one word."""
    if line.isascii():
        return set(_WORD.findall(line.lower()))
    return {w.lower() for w in _WORD.findall(line)}  # a letter may become two when it is lowered


def _read(text: str) -> tuple[str, ...]:
    return (text,) if len(text) <= READ else (text[: READ // 2], text[-READ // 2 :])


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text."""
    at = 0
    for gap in _GAP.finditer(text):
        yield text[at : gap.start()]
        at = gap.end()
    yield text[at:]


def _telling(message: Message) -> list[str]:
    """Return the first row of a result with a cue (three, where it failed), else its last row."""
    most, last, found = 3 if message.is_error else 1, "", []
    for hit in chain.from_iterable(map(_ROW.finditer, _read(message.text))):
        row = hit.group()
        if row.isspace():
            continue
        if CUE.search(row):
            found.append(row)
            if len(found) == most:
                break
        last = row
    return found or ([last] if last else [])
