"""An index of the lines of messages: split, tagged and numbered once per session."""

from __future__ import annotations

import re
import threading
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ctxkit.policies.history.growing_columns_and_sums import GrowingArray, LazyColumn
from ctxkit.policies.texts.message_content_and_truncation import format_one_line
from ctxkit.session.messages import RECALLED_KIND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.messages import Message


MAX_CACHED_CHARS = 16_000_000
"""Maximum characters of cached texts outside the log; above it a new index is built."""
MAX_CACHED_LINES = 100_000
"""Maximum number of lines of a cached index of messages without a log."""
USER_LINE, SUMMARY_LINE, OTHER_LINE = range(3)
_NESTED_TAGS = ("User: ", "Earlier: ")
"""Tags that lines of an extract keep in the next extract."""
_LINE_CODES = {"User": USER_LINE, "Earlier": SUMMARY_LINE}


class _WordNumbers(dict[str, int]):
    """Numbers of words, from 0 on; a new word gets the next number."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class LineIndex:
    """The lines of messages as arrays; each message has a number, its *part*.

    Messages are identified by object identity; results and summaries also by content, so that equal
    summaries of two runs are one part. The index holds references to its messages, as an identity
    could be reused otherwise. It lives as long as its session or log.

    Layout (compressed rows): part k has the lines ``firsts[k]`` to ``firsts[k + 1]``; line i has
    the words ``ids[starts[i]:starts[i + 1]]``.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """For callers: sessions are compacted and replayed in several threads."""
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.words = _WordNumbers()
        """Word numbers; a line has each of its words once."""
        self.ids = GrowingArray(np.int32)
        """Word numbers of all lines, line by line."""
        self.starts = GrowingArray(np.int64, 0)
        """Start of each line in `ids`, and the end of the last line."""
        self.costs = GrowingArray(np.int64)
        """Characters of each line in an extract."""
        self.cues = GrowingArray(np.bool_)
        self.kinds = GrowingArray(np.int8)
        self.firsts = GrowingArray(np.int64, 0)
        """First line of each part, and one past the last line."""
        self.messages: list[Message] = []
        """The message of each part."""
        self.extracts: dict[Any, str] = {}
        """Cached extracts, by passage and options."""
        self.near: dict[str, GrowingArray] = {}
        """For each term of a focus, 1 for each word near it, else 0."""
        self._parts: dict[int, int] = {}
        self._part_by_content: dict[Any, int] = {}
        self._repeated_lines: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._equal_messages: list[Message] = []
        self._cached_chars: float = 0

    @property
    def full(self) -> bool:
        """True where the cached texts outside the log are over the bound."""
        return self._cached_chars > MAX_CACHED_CHARS

    def hold(self, chars: int) -> None:
        """Count characters of cached texts outside the log."""
        self._cached_chars += chars

    def parts(self, messages: Sequence[Message]) -> NDArray[Any]:
        """Return the parts of messages; new messages are added."""
        # Without the lock while all messages are known: a lookup in a dict that only grows is safe.
        try:
            return np.fromiter(map(self._parts.__getitem__, map(id, messages)), np.int32)
        except KeyError:
            pass
        with self.lock:
            try:
                return np.fromiter(map(self._part_of, messages), np.int32)
            except BaseException:  # an interrupt may leave half a message: retire the index
                self._cached_chars = inf
                raise

    def parts_outside_log(self, messages: Sequence[Message]) -> NDArray[Any]:
        """Return the parts of messages outside the log: summaries, shortened messages."""
        old_count = len(self._parts)
        parts = self.parts(messages)
        if len(self._parts) > old_count:
            self.hold(sum(len(m.text) + 500 for m in messages))
        return parts

    def _part_of(self, message: Message) -> int:
        part = self._parts.get(id(message))
        if part is None:
            part = self._parts[id(message)] = self._find_or_add_part(message)
        return part

    def _find_or_add_part(self, message: Message) -> int:
        key = None
        if message.role in ("summary", "tool"):
            key = message.role, message.tool, message.is_error, message.text
            same_part = self._part_by_content.get(key)
            if same_part is not None:
                self._equal_messages.append(message)
                return same_part
        part = len(self.messages)
        self.messages.append(message)
        self._add_lines(message)
        if key is not None:
            self._part_by_content[key] = part
        return part

    def _add_lines(self, message: Message) -> None:
        # Summaries of one session share most lines, and agents make the same calls again.
        is_summary, end = message.role == "summary", len(self.ids)
        for line in split_message_lines(message):
            tag, text = _unnest_line(*line) if is_summary else line
            is_repeated = is_summary or tag == "Call"
            words, has_cue = (self._read_repeated_line if is_repeated else self._read_line)(text)
            if not words:
                continue
            end += len(words)
            self.ids.extend(words)
            self.starts.append(end)
            self.costs.append(len(tag) + len(text) + 3)
            self.cues.append(has_cue)
            self.kinds.append(_LINE_CODES.get(tag, OTHER_LINE))
            self.tags.append(tag)
            self.texts.append(text)
        self.firsts.append(len(self.texts))

    def _read_line(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the word numbers of a line, and whether it has a cue."""
        ids = tuple(map(self.words.__getitem__, extract_line_words(text)))
        return ids, bool(ids) and CUE_PATTERN.search(text) is not None

    def _read_repeated_line(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the result of `_read_line`, cached."""
        cached = self._repeated_lines.get(text)
        if cached is None:
            cached = self._repeated_lines[text] = self._read_line(text)
        return cached


def _unnest_line(tag: str, text: str) -> tuple[str, str]:
    """Return a line of an earlier extract under the tag that it has there.

    So the user's words stay the user's through all summaries, and no tag is repeated.
    """
    while tag == "Earlier" and text.startswith(_NESTED_TAGS):
        tag, _, text = text.partition(": ")
    return tag, text


_live_indexes: WeakValueDictionary[int, LineIndex] = WeakValueDictionary()
"""Indexes by the identity of their first message: logs of one session share one."""
_last_index: list[LineIndex] = []
"""The last index of messages without a log."""


def index_for_messages(messages: Sequence[Message]) -> LineIndex:
    """Return the index whose first message is that of `messages`, or a new one."""
    if not messages:
        return LineIndex()
    lines = _live_indexes.get(id(messages[0]))
    if lines is None or lines.full or lines.messages[0] is not messages[0]:
        lines = LineIndex()
        lines.parts(messages[:1])
        _live_indexes[id(messages[0])] = lines
    return lines


def cache_last_index(lines: LineIndex) -> None:
    """Keep an index of messages without a log alive until the next one, unless it is large."""
    _last_index[:] = [lines] if len(lines.texts) < MAX_CACHED_LINES else []


def index_for_log(log: MessageLog) -> tuple[LineIndex, LazyColumn]:
    """Return the index of a log and the parts of its rows, cached in log and session."""
    entry: tuple[LineIndex, LazyColumn] | None = log.memo.get("lines")
    if entry is None or entry[0].full:
        lines, messages = index_for_messages(log.messages), log.messages
        entry = lines, LazyColumn(lambda a, b: lines.parts(messages[a:b]), np.int32)
        log.memo["lines"] = entry
        session = log.memo.get("session")
        if session is not None:
            session.__dict__["lines"] = lines
    return entry


class WeightedLines(NamedTuple):
    """The lines of a passage, and the weight of each."""

    at: NDArray[Any]
    """Line numbers in the index."""
    ids: NDArray[Any]
    """Word numbers, line by line."""
    starts: NDArray[Any]
    sizes: NDArray[Any]
    """Number of words of each line."""
    costs: NDArray[Any]
    weights: NDArray[Any]

    def words(self, place: int) -> NDArray[Any]:
        """Return the word numbers of one line."""
        start = self.starts[place]
        return self.ids[start : start + self.sizes[place]]


def expand_ranges(starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Return the concatenated ranges start..start + size, as one array.

    Args:
        starts: first integer of each range.
        sizes: number of integers in each range.
    """
    ends = sizes.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + sizes, sizes) + np.arange(total)


MAX_LINE_CHARS = 300
"""Maximum characters of a line."""
MAX_READ_CHARS = 4_000_000
"""Maximum characters of a message that are read, half at each end: about a million tokens."""
FOCUS_MARK = "[Focus "
"""Beginning of an extract's audit line, which later extracts leave out."""
CUE_PATTERN = re.compile(
    r"\b(?:must|never|always|don't|do not|only|need|should|because|decided?|instead|"
    r"fix(?:ed)?|todo|next|error|fail(?:ed|s)?|"
    r"exception|wrong|bug|done|works?|passed|created|changed|exit code)\b|"
    r"(?<![\w-])[\w-]{1,200}/[\w./-]|`[^`]+`|https?://",
    re.IGNORECASE,
)
"""Cues of informative lines: demands, decisions, outcomes, paths, quotes."""
ROLE_TAGS = {"user": "User", "assistant": "Assistant", "summary": "Earlier", "system": "System"}
_SENTENCE_GAP = re.compile(r"(?<=[.!?])\s+|\n+")
_TEXT_ROW = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""The lines of `str.splitlines`, without empty ones, found one at a time."""
_WORD = re.compile(r"[\w./-]{2,}")
_BLANKED_BYTES = bytes(
    ord(chr(n).lower()) if n < 128 and re.match(r"[\w./-]", chr(n)) else ord(" ")
    for n in range(256)
)
"""For each byte of an ASCII text: a blank, or the character of a word in lower case."""
_ONE_CHAR_WORDS = frozenset(map(chr, _BLANKED_BYTES)) - {" "}
"""Characters that are no words by themselves."""


def get_speaker_tag(message: Message) -> str:
    """Return the tag of a message in an extract: its role, or the tool of a result."""
    return ROLE_TAGS.get(message.role) or f"Result of {message.tool or 'a tool'}"


def split_message_lines(message: Message) -> list[tuple[str, str]]:
    """Return tag and text of each line of a message, except recalled memory."""
    if message.kind == RECALLED_KIND:
        return []
    if message.role == "tool":
        tag = get_speaker_tag(message)
        return [(tag, format_one_line(row, MAX_LINE_CHARS)) for row in _informative_rows(message)]
    tag = ROLE_TAGS[message.role]
    sentences = [s for text in _readable_parts(message.text) for s in split_sentences(text) if s]
    if message.role == "summary":
        sentences = [s for s in sentences if not s.startswith(FOCUS_MARK)]
    lines = [(tag, format_one_line(sentence, MAX_LINE_CHARS)) for sentence in sentences]
    for call in message.tool_calls:
        values = call.arguments.values()
        target = next((v for v in values if isinstance(v, str) and v), call.raw or "")
        lines.append(("Call", format_one_line(f"{call.name} {target[:120]}", MAX_LINE_CHARS)))
    return lines


def extract_line_words(line: str) -> set[str]:
    """Return the words of a line without their case; a path is one word."""
    if line.isascii():  # other characters become blanks at once, as a regular expression is slower
        words = set(line.encode().translate(_BLANKED_BYTES).decode().split())
        return words - _ONE_CHAR_WORDS
    return {w.lower() for w in _WORD.findall(line)}  # lowering can lengthen a non-ASCII text


def _readable_parts(text: str) -> tuple[str, ...]:
    return (
        (text,)
        if len(text) <= MAX_READ_CHARS
        else (text[: MAX_READ_CHARS // 2], text[-MAX_READ_CHARS // 2 :])
    )


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return _SENTENCE_GAP.split(text)


def _informative_rows(message: Message) -> list[str]:
    """Return the first row of a result with a cue (three if it failed), else its last row."""
    max_rows, last, rows = 3 if message.is_error else 1, "", []
    for hit in chain.from_iterable(map(_TEXT_ROW.finditer, _readable_parts(message.text))):
        row = hit.group()
        if row.isspace():
            continue
        if CUE_PATTERN.search(row):
            rows.append(row)
            if len(rows) == max_rows:
                break
        last = row
    return rows or ([last] if last else [])
