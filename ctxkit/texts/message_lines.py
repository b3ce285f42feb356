"""The lines of messages as numbers, worked out once in a session's life."""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ctxkit.history.columns import GrowingColumn
from ctxkit.texts import sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray

    from ctxkit.history import Log
    from ctxkit.messages import Message

HELD = 16_000_000
"""Characters of summaries and other messages of no log, after which all lines are made anew."""
KEPT = 100_000
"""Lines of messages without a log that are kept for the next time."""
USER, EARLIER, OTHER = range(3)
_KINDS = {"User": USER, "Earlier": EARLIER}


class Numbers:
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


class Lines:
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
        self.ids = Numbers(np.int32)
        """The words of all lines, one line after the other."""
        self.starts = Numbers(np.int64, 0)
        """Where each line's words start, and where the last one's end."""
        self.costs = Numbers(np.int64)
        """Characters that a line takes up in an extract."""
        self.cues = Numbers(np.bool_)
        self.kinds = Numbers(np.int8)
        self.firsts = Numbers(np.int64, 0)
        """The first line of each part, and one past the last line."""
        self.messages: list[Message] = []
        """The message of each part."""
        self.written: dict[Any, str] = {}
        """Extracts by what they are made of."""
        self.near: dict[str, Numbers] = {}
        """For each term of a focus 1 or 0 a word: whether it is near."""
        self._parts: dict[int, int] = {}
        self._alike: dict[Any, int] = {}
        self._earlier: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._twins: list[Message] = []
        self._held: float = 0

    @property
    def full(self) -> bool:
        """True where so much is held beside the session's own that it is time to begin anew."""
        return self._held > HELD

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
        known = len(self._parts)
        parts = self.parts(messages)
        if len(self._parts) > known:
            self.hold(sum(len(m.text) + 500 for m in messages))
        return parts

    def _part(self, message: Message) -> int:
        found = self._parts.get(id(message))
        if found is None:
            found = self._parts[id(message)] = self._alike_or_new(message)
        return found

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
        for tag, text in sentences.said(message):
            words, cue = self._read(text) if tag != "Earlier" else self._read_again(text)
            if not words:
                continue
            ids += words
            ends.append(at + len(ids))
            costs.append(len(tag) + len(text) + 3)
            cues.append(cue)
            kinds.append(_KINDS.get(tag, OTHER))
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
        known, found = self.words, sentences.words(text)
        ids = tuple([known.setdefault(w, len(known)) for w in found])
        return ids, bool(ids) and sentences.CUE.search(text) is not None

    def _read_again(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the same of a line of a summary: summaries of one session say most lines alike."""
        found = self._earlier.get(text)
        if found is None:
            found = self._earlier[text] = self._read(text)
        return found


_living: WeakValueDictionary[int, Lines] = WeakValueDictionary()
"""Lines by the identity of the first message that they hold: logs of one session share them."""
_last: list[Lines] = []
"""What was made last for messages that no log holds."""


def of(messages: Sequence[Message]) -> Lines:
    """Return the lines that begin with the first of some messages, or new ones."""
    if not messages:
        return Lines()
    lines = _living.get(id(messages[0]))
    if lines is None or lines.full or lines.messages[0] is not messages[0]:
        lines = Lines()
        lines.parts(messages[:1])
        _living[id(messages[0])] = lines
    return lines


def keep(lines: Lines) -> None:
    """Keep the lines of messages that no log holds, only the last ones, unless they are many."""
    _last[:] = [lines] if len(lines.texts) < KEPT else []


def of_log(log: Log) -> tuple[Lines, GrowingColumn]:
    """Return the lines of a log and the parts of its rows; kept by the log and its session."""
    found: tuple[Lines, GrowingColumn] | None = log.memo.get("lines")
    if found is None or found[0].full:
        lines, messages = of(log.messages), log.messages
        found = lines, GrowingColumn(lambda a, b: lines.parts(messages[a:b]), np.int32)
        log.memo["lines"] = found
        session = log.memo.get("session")
        if session is not None:
            session.__dict__["lines"] = lines
    return found


class Weighed(NamedTuple):
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


def ranges(starts: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers start..start + size of each range, one range after the other."""
    ends = sizes.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + sizes, sizes) + np.arange(total)
