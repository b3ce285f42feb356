"""Items that a summary can lose (paths, ids, numbers, rules ...), extracted from messages, and the
exact values of a sentence.
"""

# Extraction by regular expressions, one per family. Patterns start only at the beginning of a token
# (a look-behind), and their repeats are bounded, so the time is linear in the text, even for a word
# of a megabyte. Cheap tests run first: each pattern reads only the words, or the lines, that
# contain a character or a word that it requires.
#
# Sentences give three families by phrases: constraints (the user's "must", "never" ...), decisions
# (the agent's "going with" ...) and open points (either's "TODO", "still need" ...).

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

from ctxkit.session.messages import SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session.messages import Message
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes


ItemFamily = Literal[
    "path", "url", "id", "name", "number", "command", "error", "constraint", "decision", "open"
]
ITEM_FAMILIES: tuple[ItemFamily, ...] = get_args(ItemFamily)
MAX_ITEM_CHARS = 300
"""Characters that are compared, from the start of a sentence, error line or command."""
ERROR_LINE_CHARS = 200
"""Characters of an error line after its first word; a text of this length may be truncated."""
MAX_SEARCHED_CHARS = 400_000
"""Characters that are searched, from the start of a text."""
SPEAKERS = ("user", "assistant")
"""Roles whose sentences are searched for constraints, decisions and open points."""


class LosableItem(NamedTuple):
    """One item; its text is normalised, so that equal items are equal.

    Example:
        >>> LosableItem("path", "src/a.py").family
        'path'
    """

    family: ItemFamily
    text: str


_PATH_CHARS = r"\w./~@+-"
_PATH = re.compile(
    rf"(?<![{_PATH_CHARS}])(?:~?/|\.{{1,2}}/)?(?:[\w.@+-]{{1,80}}/){{1,20}}[\w@+-][\w.@+-]{{0,80}}\b"
)
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,5}$")
_URL = re.compile(r"(?<![A-Za-z])https?://[^\s\"'<>)\]}`\\]{3,500}")
_ID = re.compile(  # a fast first character, then a look-behind at the start of the token
    r"[\dA-Za-f#](?<![\w-].)"
    r"(?:(?<=[0-9a-fA-F])[0-9a-fA-F]{7}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # UUID
    r"|(?<=[0-9a-fA-F])[0-9a-fA-F]{6,63}"  # hashes; a hash of digits only needs six
    r"|(?<=\d)\d{5,19}|(?<=#)\d{1,7}|(?<=[A-Z])[A-Z]{1,9}-\d{1,7})(?![\w-])"
)
_DIGIT = re.compile(r"\d")
_UUID_HYPHENS = 4
"""Hyphens of a UUID, the only id that may have no digit."""
_HYPHENATED_CODE = re.compile(  # fin-import-7, INV-2026-118842: words and numbers joined by hyphens
    r"(?<![\w./-])[A-Za-z][A-Za-z0-9]{0,40}(?:-[A-Za-z0-9]{1,40}){1,9}(?!-?\w|/|\.\w)"
)
_NAME = re.compile(  # X-Bill-Trace, MAX_RETRIES
    r"[A-Z](?<![\w./-].)(?:[A-Za-z0-9]{0,40}(?:-[A-Z][A-Za-z0-9]{0,40}){1,9}"
    r"|[A-Z0-9]{0,40}(?:_[A-Z0-9]{1,40}){1,9})(?!-?\w|/|\.\w)"
)
_COMMON_CODES = frozenset(
    ("utf-8", "utf-16", "utf-8-sig", "iso-8859-1", "sha-1", "sha-256", "x86-64", "a-za-z0-9")
)
"""Words that are spelled like a code but are common names."""
_NUMBER = re.compile(
    r"\d(?<![\w.,-].)\d{0,14}(?:[.,]\d{1,10})? ?"  # a fast first character
    r"(?:%|ms|µs|us|ns|s|min|h|days?|hours?|minutes?|seconds?|[kKMGT]i?B|bytes?|px|tokens?|lines?|tests?|files?|USD)"
    r"(?!\w)"
)
_ERROR = re.compile(
    r"(?<!\w)(?:[A-Z]\w{0,60}(?:Error|Exception|Failure|Fault)\b|error(?: TS\d{1,6}|\[E\d{1,5}\])?:"
    rf"|fatal:|panic:|FAILED\b|Traceback\b)[^\n]{{0,{ERROR_LINE_CHARS}}}"
)
_ERROR_WORDS = (
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
_SENTENCE_END = re.compile(r"\s(?:(?<=[.!?].)\s*|(?<=\n)\n*)", re.DOTALL)
"""The end of a sentence: a full stop before white space, so not the dot of 3.9 or main.py."""
_MIN_SENTENCE_CHARS = 8
"""Shorter sentences are skipped."""


class PhraseMatcher:
    """Finds phrases as whole words, in any case."""

    def __init__(self, *phrases: str) -> None:
        self._phrases = phrases
        words = "|".join(map(re.escape, phrases))
        self._whole = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)

    def occur_in(self, text: str) -> bool:
        """Return True if a text contains one of the phrases."""
        return self.may_occur_in(text) and self._whole.search(text) is not None

    def may_occur_in(self, text: str) -> bool:
        """Return False only if no part of a text contains one of the phrases; a cheap test."""
        return not text.isascii() or True in map(text.lower().__contains__, self._phrases)


_CONSTRAINT_PHRASES = PhraseMatcher(
    *("must", "never", "always", "do not", "don't", "dont", "only", "make sure", "ensure"),
    *("should", "shouldn't", "without", "keep"),
)
_DECISION_PHRASES = PhraseMatcher(
    *("decided", "i'll use", "i will use", "we'll use", "we will use", "let's use", "going with"),
    *("instead of", "rather than", "chose"),
)
_OPEN_PHRASES = PhraseMatcher(
    *("todo", "fixme", "still need", "remains to", "remaining", "next step", "not yet"),
    *("follow-up", "later we"),
)
_PHRASES_OF_ROLE: dict[str, tuple[ItemFamily, PhraseMatcher]] = {
    "user": ("constraint", _CONSTRAINT_PHRASES),
    "assistant": ("decision", _DECISION_PHRASES),
}
"""The family of the sentences that each role is searched for, and their phrases."""
_OPEN_CHECKBOX = "- [ ]"
"""An unchecked box of a task list."""
_COMMAND_ARGUMENTS = ("command", "cmd", "script")


def extract_items(message: Message) -> frozenset[LosableItem]:
    """Return the items of a message.

    Args:
        message: any message; paths and values are also found in the arguments of calls.

    Returns:
        Items of the families `ITEM_FAMILIES`; constraints only of users, decisions only of agents.

    Example:
        >>> from ctxkit.session import Message, Text
        >>> asked = Message(role="user", parts=(Text("Look into src/api/users.py"),))
        >>> [(item.family, item.text) for item in extract_items(asked)]
        [('path', 'src/api/users.py')]
    """
    # no item spans two lines, so the texts of a message are read as one
    items = extract_text_items("\n".join(iter_texts_and_argument_strings(message)))
    is_speaker = message.role in SPEAKERS
    for part in message.parts:
        if isinstance(part, ToolCall):
            items += _find_command_items(part)
        elif is_speaker and isinstance(part, Text):
            items += _find_sentence_items(message.role, part.text[:MAX_SEARCHED_CHARS])
    return frozenset(items)


def expand_path_endings(items: Iterable[LosableItem]) -> frozenset[LosableItem]:
    """Return items and the endings of their paths: `src/a/b.ts` also mentions `a/b.ts`."""
    items = frozenset(items)
    paths = [item.text for item in items if item.family == "path"]
    return items.union(*map(get_path_endings, paths)) if paths else items


def extract_items_without_thinking(message: Message) -> frozenset[LosableItem]:
    """Return the items of a message, without its thinking."""
    if not message.thinks:
        return extract_items(message)
    spoken_parts = tuple([p for p in message.parts if type(p) is not Thinking])
    return extract_items(msgspec.structs.replace(message, parts=spoken_parts))


def extract_thinking_items(message: Message) -> frozenset[LosableItem]:
    """Return the items of a message's thinking."""
    return frozenset(
        item
        for part in message.parts
        if type(part) is Thinking
        for item in extract_text_items(part.text[:MAX_SEARCHED_CHARS])
    )


def iter_texts_and_argument_strings(message: Message) -> Iterator[str]:
    """Yield the texts of a message and all strings in the arguments of its tool calls."""
    for part in message.parts:
        if isinstance(part, (Text, Thinking)):
            yield part.text[:MAX_SEARCHED_CHARS]
        elif isinstance(part, ToolCall):
            if part.raw is not None:
                yield part.raw[:MAX_SEARCHED_CHARS]
            yield from _iter_strings(part.arguments)


def extract_text_items(text: str) -> list[LosableItem]:
    """Return the paths, URLs, ids, names, numbers and errors of a text; some repeat.

    Args:
        text: a text of any length; no item spans two lines.

    Returns:
        Items in no order.
    """
    items, rest = [], text
    if "://" in text:
        items = [LosableItem("url", hit.rstrip(".,;:!?")) for hit in _URL.findall(text)]
        rest = _URL.sub(" ", text)
    words = [w for w in set(rest.split()) if not w.isalpha()]
    for word in words:
        items += (_find_word_items if len(word) <= _MAX_CACHED_WORD else _search_word)(word)
    if words and _DIGIT.search(rest):
        items += [LosableItem("number", hit.replace(" ", "")) for hit in _NUMBER.findall(rest)]
    if _may_have_error(rest):
        for start, end in _find_lines_with(_ERROR_WORDS, rest).items():
            items += [
                LosableItem("error", collapse_whitespace_and_truncate(h))
                for h in _ERROR.findall(rest, start, end)
            ]
    return items


def _may_have_error(text: str) -> bool:
    """Return False only if a text has none of `_ERROR_WORDS`; a loop takes twice as long."""
    return (
        "rror" in text
        or "xception" in text
        or "ailure" in text
        or "ault" in text
        or "fatal:" in text
        or "panic:" in text
        or "FAILED" in text
        or "raceback" in text
    )


def _find_lines_with(words: Iterable[str], text: str) -> dict[int, int]:
    """Return the end of each line that contains one of some words, by the start of the line."""
    line_ends: dict[int, int] = {}
    for word in words:
        at = text.find(word)
        while at >= 0:
            start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            line_ends[start] = end if end >= 0 else len(text)
            at = text.find(word, line_ends[start])
    return line_ends


def _search_word(word: str) -> tuple[LosableItem, ...]:
    """Return the items of a word that is not all letters.

    A blank ends every item here, so a text has the items of its words. Each pattern is tried only
    where the word has the characters that it requires.
    """
    items: list[LosableItem] = []
    if "/" in word:
        items += [LosableItem("path", hit) for hit in _PATH.findall(word) if _EXTENSION.search(hit)]
    hyphens_n = word.count("-")
    if hyphens_n >= _UUID_HYPHENS or _DIGIT.search(word):
        for hit in _ID.findall(word):
            if not hit.isalpha() and (
                hit.isdigit() or hit[0] == "#" or "-" in hit or _has_digits_and_letters(hit)
            ):
                items.append(LosableItem("id", hit.casefold()))
    for hit in _HYPHENATED_CODE.findall(word) if hyphens_n else ():
        code = hit.casefold()
        if any(c.isdigit() for c in hit) and code not in _COMMON_CODES:
            items.append(LosableItem("id", code))
    for hit in _NAME.findall(word) if hyphens_n or "_" in word else ():
        if "_" in hit or not any(c.isdigit() for c in hit):
            items.append(LosableItem("name", hit))
    return tuple(items)


_MAX_CACHED_WORD = 200
"""Characters of the longest word whose items are cached."""
_find_word_items = lru_cache(1 << 14)(_search_word)
"""`_search_word`, cached: sessions name the same paths, ids and numbers again and again."""


@lru_cache(1 << 13)
def get_path_endings(path: str) -> tuple[LosableItem, ...]:
    """Return a path and its endings of at least two components."""
    parts = [p for p in path.split("/") if p not in ("", ".", "..", "~")]
    ends = (LosableItem("path", "/".join(parts[i:])) for i in range(len(parts) - 1))
    return LosableItem("path", path), *ends


def collapse_whitespace_and_truncate(text: str) -> str:
    """Return a text for comparison: single spaces, at most `MAX_ITEM_CHARS` characters."""
    return " ".join(text[: 2 * MAX_ITEM_CHARS].split())[:MAX_ITEM_CHARS]


def _has_digits_and_letters(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def _find_command_items(call: ToolCall) -> list[LosableItem]:
    items = []
    for name in _COMMAND_ARGUMENTS:
        value = call.arguments.get(name)
        if isinstance(value, list):
            value = " ".join(v for v in value if isinstance(v, str))
        if isinstance(value, str) and value.strip():
            items.append(LosableItem("command", collapse_whitespace_and_truncate(value)))
    return items


def _find_sentence_items(role: str, text: str) -> list[LosableItem]:
    """Return the user's constraints, the agent's decisions, and the open points of both."""
    if len(text) < _MIN_SENTENCE_CHARS:
        return []
    family, phrases = _PHRASES_OF_ROLE[role]
    may_state = phrases.may_occur_in(text)
    may_be_open = _OPEN_CHECKBOX in text or _OPEN_PHRASES.may_occur_in(text)
    items: list[LosableItem] = []
    for hit in split_sentences(text) if may_state or may_be_open else ():
        if may_state and phrases.occur_in(hit):
            items.append(LosableItem(family, collapse_whitespace_and_truncate(hit)))
        if may_be_open and (_OPEN_CHECKBOX in hit or _OPEN_PHRASES.occur_in(hit)):
            items.append(LosableItem("open", collapse_whitespace_and_truncate(hit)))
    return items


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text without the final full stop; skip short ones.

    Args:
        text: the text of a message.

    Yields:
        Sentences of at least `_MIN_SENTENCE_CHARS` characters, as they stand in the text.
    """
    for part in _SENTENCE_END.split(text):
        sentence = part.strip().rstrip(".!?")[: 2 * MAX_ITEM_CHARS]
        if len(sentence) >= _MIN_SENTENCE_CHARS:
            yield sentence


def _iter_strings(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_SEARCHED_CHARS]
    elif depth < 20 and isinstance(value, (dict, list)):
        inner: Iterable[object] = value.values() if isinstance(value, dict) else value
        for each in inner:
            yield from _iter_strings(each, depth + 1)


_EXACT_VALUE = re.compile(
    r"(?<![\w./:-])(?:[\w.@~+-]*/[\w./@+-]+|[\w.:#@+-]*\d[\w.:%@+-]*"  # paths; whatever has a digit
    # names as programs spell them
    r"|[A-Z]\w*(?:-[A-Z]\w*)+|\w+_\w+|[A-Za-z]*[a-z][A-Z]\w*|[A-Za-z]\w+\.[a-z_]\w+)"
)


def extract_exact_values(fact: str) -> tuple[str, ...]:
    """Return the numbers, dates, paths and identifiers of a sentence, each once."""
    return tuple(
        dict.fromkeys(v for hit in _EXACT_VALUE.findall(fact) if len(v := hit.rstrip(".,:;")) > 0)
    )


def find_missing_values(values: Iterable[str], text: str) -> tuple[str, ...]:
    """Return the values that a casefolded text does not contain.

    Args:
        values: exact values of a fact, as `extract_exact_values` returns them.
        text: the text, casefolded.

    Returns:
        The missing ones in their order; a value inside a longer word or number does not count.
    """
    return tuple(v for v in values if not _contains_value(v.casefold(), text))


def _contains_value(value: str, text: str) -> bool:
    at = text.find(value)
    while at >= 0 and not is_whole_value(text, at, at + len(value)):
        at = text.find(value, at + 1)
    return at >= 0


def is_whole_value(text: str, start: int, end: int) -> bool:
    """Return True if the value at ``start..end`` of a text is not part of a longer value.

    Args:
        text: a text.
        start: first character of the value.
        end: one past its last character.
    """
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    if before == "." or _is_word_char(before) or _is_word_char(after):
        return False
    return not (after and after in ".,:" and text[end + 1 : end + 2].isdecimal())


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char == "_"


class MessageItemCache:
    """The items and sizes of messages, each computed once.

    Args:
        anchored: the sizes of a recorded session; None: all sizes are estimated.
    """

    def __init__(self, anchored: MessageSizes | None = None) -> None:
        self._items: dict[int, tuple[Any, frozenset[LosableItem], frozenset[LosableItem]]] = {}
        """By `id()` of the parts: the parts (kept alive), items, items with path endings."""
        self._used: dict[int, frozenset[LosableItem]] = {}
        self._size: dict[int, int] = {}
        if anchored is not None:
            messages = anchored.session.messages
            self._size = {
                id(m.parts): n for m, n in zip(messages, anchored.tokens, strict=True) if m.parts
            }

    def items(self, message: Message) -> frozenset[LosableItem]:
        """Return the items of a message."""
        return self._get_entry(message)[1]

    def items_and_path_endings(self, message: Message) -> frozenset[LosableItem]:
        """Return the items of a message and the endings of its paths."""
        return self._get_entry(message)[2]

    def items_used_by_reply(self, message: Message) -> frozenset[LosableItem]:
        """Return the items that a reply mentions in text and arguments, not in thinking."""
        self._get_entry(message)
        return self._used[id(message.parts)]

    def count_tokens(self, message: Message) -> int:
        """Return the tokens of a message: anchored if it is in the record, else characters / 4."""
        anchored_size = self._size.get(id(message.parts))
        if anchored_size is not None:
            return anchored_size
        recorded = sum(p.tokens or 0 for p in message.parts if isinstance(p, SizeOnly))
        return recorded or len(message.text) // 4

    def extract(self, message: Message) -> tuple[frozenset[LosableItem], frozenset[LosableItem]]:
        """Return the items of a message without its thinking, and those of its thinking."""
        if not message.thinks:
            return extract_items(message), frozenset()
        return extract_items_without_thinking(message), extract_thinking_items(message)

    def _get_entry(
        self, message: Message
    ) -> tuple[Any, frozenset[LosableItem], frozenset[LosableItem]]:
        key = id(message.parts)
        entry = self._items.get(key)
        if entry is None:
            spoken, thought = self.extract(message)
            items = spoken | thought if thought else spoken
            mentions = expand_path_endings(items) if items else items
            self._used[key] = expand_path_endings(spoken) if thought else mentions
            entry = self._items[key] = (message.parts, items, mentions)
        return entry
