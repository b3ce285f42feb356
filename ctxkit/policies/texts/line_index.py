"""The lines of messages as numbers, split and tagged once in a session's life."""

from __future__ import annotations

import re
import threading
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ctxkit.policies.history.columns import GrowingColumn
from ctxkit.policies.texts.content import one_line
from ctxkit.session.messages import RECALLED_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    from ctxkit.policies.history.log import MessageLog
    from ctxkit.session.messages import Message


MAX_HELD_CHARS = 16_000_000
"""Characters of summaries and other messages of no log, after which all lines are made anew."""
MAX_KEPT_LINES = 100_000
"""Lines of messages without a log that are kept for the next time."""
USER_LINE, SUMMARY_LINE, OTHER_LINE = range(3)
_LINE_CODES = {"User": USER_LINE, "Earlier": SUMMARY_LINE}


class GrowingArray:
    """Numbers that only grow, in one array."""

    __slots__ = ("_array", "_size")

    def __init__(self, dtype: DTypeLike, *first: int) -> None:
        self._array: NDArray[Any] = np.array(first, dtype)
        self._size = len(first)

    def extend(self, values: Sequence[float]) -> None:
        """Write more numbers behind the others; what was given out before stays as it was."""
        end = self._size + len(values)
        if end > len(self._array):
            grown = np.empty(max(2 * end, 64), self._array.dtype)
            grown[: self._size] = self._array[: self._size]
            self._array = grown
        self._array[self._size : end] = values
        self._size = end

    @property
    def all(self) -> NDArray[Any]:
        """The numbers, not to be written to."""
        return self._array[: self._size]


class LineIndex:
    """The lines of some messages; a message has a number, its *part*, by which lines are asked for.

    Messages are known by identity, results and summaries by what they say, too: a summary that two
    runs wrote alike is one part. They are held, so that an identity stays what it is; the lines
    live as long as their session or log.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held by whoever asks: sessions are compacted and replayed in threads of their own."""
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.words: dict[str, int] = {}
        """Numbers of the words; a line holds each of its words once."""
        self.ids = GrowingArray(np.int32)
        """The words of all lines, one line after the other."""
        self.starts = GrowingArray(np.int64, 0)
        """Where each line's words start, and where the last one's end."""
        self.costs = GrowingArray(np.int64)
        """Characters that a line takes up in an extract."""
        self.cues = GrowingArray(np.bool_)
        self.kinds = GrowingArray(np.int8)
        self.firsts = GrowingArray(np.int64, 0)
        """The first line of each part, and one past the last line."""
        self.messages: list[Message] = []
        """The message of each part."""
        self.written: dict[Any, str] = {}
        """Extracts by what they are made of."""
        self.near: dict[str, GrowingArray] = {}
        """For each term of a focus 1 or 0 a word: whether it is near."""
        self._parts: dict[int, int] = {}
        self._alike: dict[Any, int] = {}
        self._earlier: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._twins: list[Message] = []
        self._held: float = 0

    @property
    def full(self) -> bool:
        """True where so much is held beside the session's own that it is time to begin anew."""
        return self._held > MAX_HELD_CHARS

    def hold(self, chars: int) -> None:
        """Say that so many characters are held beside the session's own."""
        self._held += chars

    def parts(self, messages: Sequence[Message]) -> NDArray[Any]:
        """Return the parts of messages; the lines of new ones are taken up."""
        try:
            return np.fromiter(map(self._parts.__getitem__, map(id, messages)), np.int32)
        except KeyError:
            pass
        with self.lock:
            try:
                return np.fromiter(map(self._part, messages), np.int32)
            except BaseException:  # an interrupt may leave half a message: nobody uses these again
                self._held = inf
                raise

    def made(self, messages: Sequence[Message]) -> NDArray[Any]:
        """Return the parts of messages that are in no log: summaries, and what was shortened."""
        cache = len(self._parts)
        parts = self.parts(messages)
        if len(self._parts) > cache:
            self.hold(sum(len(m.text) + 500 for m in messages))
        return parts

    def _part(self, message: Message) -> int:
        part = self._parts.get(id(message))
        if part is None:
            part = self._parts[id(message)] = self._alike_or_new(message)
        return part

    def _alike_or_new(self, message: Message) -> int:
        key = None
        if message.role in ("summary", "tool"):
            key = message.role, message.tool, message.is_error, message.text
            twin = self._alike.get(key)
            if twin is not None:
                self._twins.append(message)
                return twin
        part = len(self.messages)
        self.messages.append(message)
        self._take(message)
        if key is not None:
            self._alike[key] = part
        return part

    def _take(self, message: Message) -> None:
        ids: list[int] = []
        ends, costs, cues, kinds = [], [], [], []
        at = len(self.ids.all)
        for tag, text in message_lines(message):
            words, cue = self._read(text) if tag != "Earlier" else self._read_again(text)
            if not words:
                continue
            ids += words
            ends.append(at + len(ids))
            costs.append(len(tag) + len(text) + 3)
            cues.append(cue)
            kinds.append(_LINE_CODES.get(tag, OTHER_LINE))
            self.tags.append(tag)
            self.texts.append(text)
        self.ids.extend(ids)
        self.starts.extend(ends)
        self.costs.extend(costs)
        self.cues.extend(cues)
        self.kinds.extend(kinds)
        self.firsts.extend([len(self.texts)])

    def _read(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the numbers of a line's words, and whether it has a cue."""
        cache, lines = self.words, line_words(text)
        ids = tuple([cache.setdefault(w, len(cache)) for w in lines])
        return ids, bool(ids) and CUE_PATTERN.search(text) is not None

    def _read_again(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the same of a line of a summary: summaries of one session say most lines alike."""
        lines = self._earlier.get(text)
        if lines is None:
            lines = self._earlier[text] = self._read(text)
        return lines


_live_indexes: WeakValueDictionary[int, LineIndex] = WeakValueDictionary()
"""Lines by the identity of the first message that they hold: logs of one session share them."""
_last_index: list[LineIndex] = []
"""What was made last for messages that no log holds."""


def index_for_messages(messages: Sequence[Message]) -> LineIndex:
    """Return the lines that begin with the first of some messages, or new ones."""
    if not messages:
        return LineIndex()
    lines = _live_indexes.get(id(messages[0]))
    if lines is None or lines.full or lines.messages[0] is not messages[0]:
        lines = LineIndex()
        lines.parts(messages[:1])
        _live_indexes[id(messages[0])] = lines
    return lines


def keep_last_index(lines: LineIndex) -> None:
    """Keep the lines of messages that no log holds, only the last ones, unless they are many."""
    _last_index[:] = [lines] if len(lines.texts) < MAX_KEPT_LINES else []


def index_for_log(log: MessageLog) -> tuple[LineIndex, GrowingColumn]:
    """Return the lines of a log and the parts of its rows; kept by the log and its session."""
    entry: tuple[LineIndex, GrowingColumn] | None = log.memo.get("lines")
    if entry is None or entry[0].full:
        lines, messages = index_for_messages(log.messages), log.messages
        entry = lines, GrowingColumn(lambda a, b: lines.parts(messages[a:b]), np.int32)
        log.memo["lines"] = entry
        session = log.memo.get("session")
        if session is not None:
            session.__dict__["lines"] = lines
    return entry


class WeighedLines(NamedTuple):
    """The lines of a passage, and the weight of each."""

    at: NDArray[Any]
    """Their numbers among all lines."""
    ids: NDArray[Any]
    """Their words, one line after the other."""
    starts: NDArray[Any]
    sizes: NDArray[Any]
    """How many words each has."""
    costs: NDArray[Any]
    weights: NDArray[Any]

    def words(self, place: int) -> NDArray[Any]:
        """Return the words of one line."""
        start = self.starts[place]
        return self.ids[start : start + self.sizes[place]]


def expand_ranges(starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers start..start + size of each range, one range after the other."""
    ends = sizes.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + sizes, sizes) + np.arange(total)


MAX_LINE_CHARS = 300
"""Characters of one line of an extract."""
MAX_READ_CHARS = 4_000_000
"""Characters of one message that are read, as many as a million tokens: its first and its last."""
FOCUS_MARK = "[Focus "
"""How an extract begins a line on its own focus, which no later extract takes over."""
CUE_PATTERN = re.compile(
    r"\b(?:must|never|always|don't|do not|only|need|should|because|decided?|instead|"
    r"fix(?:ed)?|todo|next|error|fail(?:ed|s)?|"
    r"exception|wrong|bug|done|works?|passed|created|changed|exit code)\b|"
    r"(?<![\w-])[\w-]{1,200}/[\w./-]|`[^`]+`|https?://",
    re.IGNORECASE,
)
"""What makes a line telling: a demand, a decision, an outcome, a path, something quoted."""
ROLE_TAGS = {"user": "User", "assistant": "Assistant", "summary": "Earlier", "system": "System"}
_GAP = re.compile(r"(?<=[.!?])\s+|\n+")
_ROW = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
"""What `str.splitlines` would give, one at a time; empty lines are left out."""
_WORD = re.compile(r"[\w./-]{2,}")


def speaker_tag(message: Message) -> str:
    """Return who speaks in a message, as an extract writes it."""
    return ROLE_TAGS.get(message.role) or f"Result of {message.tool or 'a tool'}"


def message_lines(message: Message) -> Iterator[tuple[str, str]]:
    """Yield tag and text of each line of a message; most lines without a word are left out.

    What memory recalled is recalled anew, and is no line.
    """
    if message.kind == RECALLED_KIND:
        return
    if message.role == "tool":
        yield from (
            (speaker_tag(message), one_line(row, MAX_LINE_CHARS)) for row in _telling_rows(message)
        )
        return
    word, summary = _WORD.search, message.role == "summary"
    for sentence in chain.from_iterable(map(split_sentences, _readable_parts(message.text))):
        if word(sentence) and not (summary and sentence.startswith(FOCUS_MARK)):
            yield ROLE_TAGS[message.role], one_line(sentence, MAX_LINE_CHARS)
    for call in message.tool_calls:
        values = call.arguments.values()
        target = next((v for v in values if isinstance(v, str) and v), call.raw or "")
        yield "Call", one_line(f"{call.name} {target[:120]}", MAX_LINE_CHARS)


def line_words(line: str) -> set[str]:
    """Return the words of a line without their case; a path is one word."""
    if line.isascii():
        return set(_WORD.findall(line.lower()))
    return {w.lower() for w in _WORD.findall(line)}  # a letter may become two when it is lowered


def _readable_parts(text: str) -> tuple[str, ...]:
    return (
        (text,)
        if len(text) <= MAX_READ_CHARS
        else (text[: MAX_READ_CHARS // 2], text[-MAX_READ_CHARS // 2 :])
    )


def split_sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text."""
    at = 0
    for gap in _GAP.finditer(text):
        yield text[at : gap.start()]
        at = gap.end()
    yield text[at:]


def _telling_rows(message: Message) -> list[str]:
    """Return the first row of a result with a cue (three, where it failed), else its last row."""
    most, last, rows = 3 if message.is_error else 1, "", []
    for hit in chain.from_iterable(map(_ROW.finditer, _readable_parts(message.text))):
        row = hit.group()
        if row.isspace():
            continue
        if CUE_PATTERN.search(row):
            rows.append(row)
            if len(rows) == most:
                break
        last = row
    return rows or ([last] if last else [])
