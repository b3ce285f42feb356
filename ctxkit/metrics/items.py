"""Items that a summary can lose (paths, ids, numbers, rules ...), extracted from messages by
patterns.

Every pattern begins where no character of its own stands before, and repeats are bounded, so that a
word of a megabyte costs no more than it is long.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from ctxkit.session.messages import SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.messages import Message
    from ctxkit.tokens.sizes import MessageSizes


ItemFamily = Literal[
    "path", "url", "id", "name", "number", "command", "error", "constraint", "decision", "open"
]
ITEM_FAMILIES: tuple[ItemFamily, ...] = get_args(ItemFamily)
MAX_ITEM_CHARS = 300
"""Characters of a sentence, an error line or a command that is looked at; of longer ones the
beginning.
"""
ERROR_LINE_CHARS = 200
"""Characters from which on an error line, and the rest of those, may have been cut."""
MAX_SEARCHED_CHARS = 400_000
"""Characters of one text that are searched; what lies behind is not looked at."""
SPEAKERS = ("user", "assistant")
"""Roles whose sentences are looked at; what anyone else says is read line by line."""


class Item(NamedTuple):
    """One item; its text is normalised, so that equal items are equal."""

    family: ItemFamily
    text: str


_BODY = r"\w./~@+-"
_PATH = re.compile(
    rf"(?<![{_BODY}])(?:~?/|\.{{1,2}}/)?(?:[\w.@+-]{{1,80}}/){{1,20}}[\w@+-][\w.@+-]{{0,80}}\b"
)
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,5}$")
_URL = re.compile(r"(?<![A-Za-z])https?://[^\s\"'<>)\]}`\\]{3,500}")
_ID = re.compile(  # begins as a search skips ahead best, then looks back at what it begins with
    r"[\dA-Za-f#](?<![\w-].)"
    r"(?:(?<=[0-9a-fA-F])[0-9a-fA-F]{7}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # UUID
    r"|(?<=[0-9a-fA-F])[0-9a-fA-F]{6,63}"  # hashes; one of digits alone needs six
    r"|(?<=\d)\d{5,19}|(?<=#)\d{1,7}|(?<=[A-Z])[A-Z]{1,9}-\d{1,7})(?![\w-])"
)
_DIGIT = re.compile(r"\d")
_HYPHENS = 4
"""Those of a UUID, the only id that may be without a digit."""
_CODE = re.compile(  # fin-import-7, INV-2026-118842: words and numbers joined by hyphens
    r"(?<![\w./-])[A-Za-z][A-Za-z0-9]{0,40}(?:-[A-Za-z0-9]{1,40}){1,9}(?!-?\w|/|\.\w)"
)
_NAME = re.compile(  # X-Bill-Trace, MAX_RETRIES
    r"[A-Z](?<![\w./-].)(?:[A-Za-z0-9]{0,40}(?:-[A-Z][A-Za-z0-9]{0,40}){1,9}"
    r"|[A-Z0-9]{0,40}(?:_[A-Z0-9]{1,40}){1,9})(?!-?\w|/|\.\w)"
)
_EVERYWHERE = frozenset(
    ("utf-8", "utf-16", "utf-8-sig", "iso-8859-1", "sha-1", "sha-256", "x86-64", "a-za-z0-9")
)
"""What is spelled like a code and names nothing of anybody's."""
_NUMBER = re.compile(
    r"\d(?<![\w.,-].)\d{0,14}(?:[.,]\d{1,10})? ?"  # begins as a search skips ahead best
    r"(?:%|ms|µs|us|ns|s|min|h|days?|hours?|minutes?|seconds?|[kKMGT]i?B|bytes?|px|tokens?|lines?|tests?|files?|USD)"
    r"(?!\w)"
)
_ERROR = re.compile(
    r"(?<!\w)(?:[A-Z]\w{0,60}(?:Error|Exception|Failure|Fault)\b|error(?: TS\d{1,6}|\[E\d{1,5}\])?:"
    rf"|fatal:|panic:|FAILED\b|Traceback\b)[^\n]{{0,{ERROR_LINE_CHARS}}}"
)
_FAULTS = (
    "Error",
    "Exception",
    "Failure",
    "Fault",
    "error",
    "fatal:",
    "panic:",
    "FAILED",
    "Traceback",
)
_END = re.compile(r"\s(?:(?<=[.!?].)\s*|(?<=\n)\n*)", re.DOTALL)
"""Between two sentences: the dot of 3.9 or of main.py ends none."""
_SHORTEST = 8
"""Characters of a sentence that says something."""


class PhraseMatcher:
    """Some phrases, to be found as whole words in whatever case."""

    def __init__(self, *phrases: str) -> None:
        self._phrases = phrases
        words = "|".join(map(re.escape, phrases))
        self._whole = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)

    def stand_in(self, text: str) -> bool:
        """Return True where one of them stands in a text."""
        if text.isascii():
            low = text.lower()
            if not any(phrase in low for phrase in self._phrases):
                return False
        return self._whole.search(text) is not None


_MUST = PhraseMatcher(
    *("must", "never", "always", "do not", "don't", "dont", "only", "make sure", "ensure"),
    *("should", "shouldn't", "without", "keep"),
)
_DECIDED = PhraseMatcher(
    *("decided", "i'll use", "i will use", "we'll use", "we will use", "let's use", "going with"),
    *("instead of", "rather than", "chose"),
)
_OPEN = PhraseMatcher(
    *("todo", "fixme", "still need", "remains to", "remaining", "next step", "not yet"),
    *("follow-up", "later we"),
)
_BOX = "- [ ]"
"""Before what is still to be done, in a list."""
_COMMANDS = ("command", "cmd", "script")


def extract_items(message: Message) -> frozenset[Item]:
    """Return the items of a message."""
    return frozenset(_iter_items(message))


def expand_path_endings(found: Iterable[Item]) -> frozenset[Item]:
    """Return items and the endings of the paths among them: `src/a/b.ts` says `a/b.ts` too."""
    return frozenset(
        n for f in found for n in (path_endings(f.text) if f.family == "path" else (f,))
    )


def extract_spoken_items(message: Message) -> frozenset[Item]:
    """Return the items of a message but for those of its thinking."""
    if not message.thinks:
        return extract_items(message)
    said = tuple([p for p in message.parts if type(p) is not Thinking])
    return extract_items(msgspec.structs.replace(message, parts=said))


def extract_thinking_items(message: Message) -> frozenset[Item]:
    """Return the items of a message's thinking."""
    return frozenset(
        found
        for p in message.parts
        if type(p) is Thinking
        for found in extract_text_items(p.text[:MAX_SEARCHED_CHARS])
    )


def _iter_items(message: Message) -> Iterator[Item]:
    for text in iter_texts(message):
        yield from extract_text_items(text)
    for part in message.parts:
        if isinstance(part, ToolCall):
            yield from _command_items(part)
        elif isinstance(part, Text):
            yield from _sentence_items(message.role, part.text[:MAX_SEARCHED_CHARS])


def iter_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message: what it says, and every string among the arguments of its
    calls.
    """
    for part in message.parts:
        if isinstance(part, (Text, Thinking)):
            yield part.text[:MAX_SEARCHED_CHARS]
        elif isinstance(part, ToolCall):
            if part.raw is not None:
                yield part.raw[:MAX_SEARCHED_CHARS]
            yield from _strings(part.arguments)


def extract_text_items(text: str) -> Iterator[Item]:
    """Yield paths, URLs, ids, names, numbers and errors of a text, some of them several times."""
    bare = text
    if "://" in text:
        for hit in _URL.findall(text):
            yield Item("url", hit.rstrip(".,;:!?"))
        bare = _URL.sub(" ", text)
    if words := [w for w in set(bare.split()) if not w.isalpha()]:
        yield from _word_items(words)
        for hit in _NUMBER.findall(bare):
            yield Item("number", hit.replace(" ", ""))
    for start, end in _lines_with(_FAULTS, bare).items():
        for hit in _ERROR.findall(bare, start, end):
            yield Item("error", normalise_text(hit))


def _lines_with(words: Iterable[str], text: str) -> dict[int, int]:
    """Return where the lines begin and end in which one of some words stands."""
    out: dict[int, int] = {}
    for word in words:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            out[start] = end if end >= 0 else len(text)
            at = text.find(word, out[start])
    return out


def _word_items(words: list[str]) -> Iterator[Item]:
    """Yield what has no space in it: each pattern reads the words that hold its sign."""
    every = " ".join(words)
    if "/" in every:
        for hit in _PATH.findall(" ".join([w for w in words if "/" in w])):
            if _EXTENSION.search(hit):
                yield Item("path", hit)
    if _DIGIT.search(every) or every.count("-") >= _HYPHENS:
        for hit in _ID.findall(every):
            if not hit.isalpha() and (hit.isdigit() or hit[0] == "#" or "-" in hit or _mixed(hit)):
                yield Item("id", hit.casefold())
    joined = [w for w in words if "-" in w] if "-" in every else []
    for hit in _CODE.findall(" ".join(joined)) if joined else ():
        code = hit.casefold()
        if any(c.isdigit() for c in hit) and code not in _EVERYWHERE:
            yield Item("id", code)
    if "_" in every:
        joined += [w for w in words if "_" in w]
    for hit in _NAME.findall(" ".join(joined)) if joined else ():
        if "_" in hit or not any(c.isdigit() for c in hit):
            yield Item("name", hit)


@lru_cache(1 << 13)
def path_endings(path: str) -> tuple[Item, ...]:
    """Return a path and its endings of at least two parts."""
    parts = [p for p in path.split("/") if p not in ("", ".", "..", "~")]
    ends = (Item("path", "/".join(parts[i:])) for i in range(len(parts) - 1))
    return Item("path", path), *ends


def normalise_text(text: str) -> str:
    """Return a text as it is compared: one space between words, no more than `LONGEST`
    characters.
    """
    return " ".join(text[: 2 * MAX_ITEM_CHARS].split())[:MAX_ITEM_CHARS]


def _mixed(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _command_items(call: ToolCall) -> Iterator[Item]:
    for name in _COMMANDS:
        value = call.arguments.get(name)
        if isinstance(value, list):
            value = " ".join(v for v in value if isinstance(v, str))
        if isinstance(value, str) and value.strip():
            yield Item("command", normalise_text(value))


def _sentence_items(role: str, text: str) -> Iterator[Item]:
    """Yield what the user asked for, what the agent decided, and what either left open."""
    if role not in SPEAKERS:
        return
    for hit in split_sentences(text):
        if role == "user" and _MUST.stand_in(hit):
            yield Item("constraint", normalise_text(hit))
        if role == "assistant" and _DECIDED.stand_in(hit):
            yield Item("decision", normalise_text(hit))
        if _BOX in hit or _OPEN.stand_in(hit):
            yield Item("open", normalise_text(hit))


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text that say something, each without its last dot."""
    for part in _END.split(text):
        hit = part.strip().rstrip(".!?")[: 2 * MAX_ITEM_CHARS]
        if len(hit) >= _SHORTEST:
            yield hit


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_SEARCHED_CHARS]
    elif depth < 20 and isinstance(value, (dict, list)):
        inner: Iterable[object] = value.values() if isinstance(value, dict) else value
        for each in inner:
            yield from _strings(each, depth + 1)


class MessageItemCache:
    """What each message holds, says and uses, and how large it is.

    Args:
        anchored: the sizes of a recorded session; None: all are estimated.
    """

    def __init__(self, anchored: MessageSizes | None = None) -> None:
        self._held: dict[int, tuple[Any, frozenset[Item], frozenset[Item]]] = {}
        self._used: dict[int, frozenset[Item]] = {}
        self._size: dict[int, int] = {}
        if anchored is not None:
            messages = anchored.session.messages
            self._size = {
                id(m.parts): n for m, n in zip(messages, anchored.tokens, strict=True) if m.parts
            }

    def items(self, message: Message) -> frozenset[Item]:
        """Return the items of a message."""
        return self._of(message)[1]

    def names(self, message: Message) -> frozenset[Item]:
        """Return its items and the endings of its paths."""
        return self._of(message)[2]

    def used(self, message: Message) -> frozenset[Item]:
        """Return what a reply names in text and arguments."""
        self._of(message)  # keeps the parts alive, so that their identity is theirs
        return self._used[id(message.parts)]

    def size(self, message: Message) -> int:
        """Return the tokens of a message: anchored where it is of the record, else a quarter of its
        characters.
        """
        known = self._size.get(id(message.parts))
        if known is not None:
            return known
        sized = sum(p.tokens or 0 for p in message.parts if isinstance(p, SizeOnly))
        return sized or len(message.text) // 4

    def _of(self, message: Message) -> tuple[Any, frozenset[Item], frozenset[Item]]:
        key = id(message.parts)
        found = self._held.get(key)
        if found is None:
            said, unsaid = extract_spoken_items(message), extract_thinking_items(message)
            held = said | unsaid if unsaid else said
            of = expand_path_endings(held)
            self._used[key] = expand_path_endings(said) if unsaid else of
            found = self._held[key] = (message.parts, held, of)
        return found
