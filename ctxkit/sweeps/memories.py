"""What a session's messages hold, as arrays: made once, so that what a run lost is a matter of a few look-ups a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.metrics.items import Found
from ctxkit.metrics.thrash import _key
from ctxkit.metrics.views import _files
from ctxkit.tools import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.messages import Message
    from ctxkit.metrics.indexes import Index
    from ctxkit.session import Session

    Ints = NDArray[Any]


class Memory:
    """The items of a session by message and by call, numbered."""

    def __init__(self, session: Session, index: Index, log: Log) -> None:
        messages = [m for m in session.messages if m.visible]
        self.index = index
        self.numbers: dict[Found, int] = {}
        self.named = Lists(self._numbered(index.names(m)) for m in messages)
        """The items that each message names."""
        self.held = Lists(self._numbered(index.items(m)) for m in messages)
        """The items that each message holds."""
        self.used = Lists(self._numbered(index.used(c.message)) for c in session.calls)
        """The items that the reply of each call uses."""
        files = _files(session)
        pairs = [self._files_of(m, files.get(id(m))) for m in messages]
        self.filed = Lists([f for f, _ in pair] for pair in pairs)
        """The items of each message that is a file's content, and for each the number of the file's path."""
        self.paths = np.array([path for _, pair in zip(pairs, pairs, strict=True) for _, path in pair], np.int64)
        self.sizes = np.concatenate(([0], np.cumsum([index.size(m) for m in messages]))).astype(np.int64)
        self.size = np.maximum(np.diff(self.sizes), 1)
        self.again = len(index.used_again(session.messages))
        self.upto = log.upto
        self.calls = len(session.calls)
        self.n = len(self.numbers)
        self.texts = [found.text for found in self.numbers]
        order = np.lexsort((self.used.owner, self.used.values))
        self._uses = np.append(self.used.values[order] * (self.calls + 1) + self.used.owner[order], -1)
        self.last_use = np.full(self.n, -1)
        np.maximum.at(self.last_use, self.used.values, self.used.owner)
        self._tools(session)

    def _tools(self, session: Session) -> None:
        """Number the tool calls by what they ask for."""
        keys: dict[Any, int] = {}
        told = [(at, call) for at, m in enumerate(session.messages) for call in m.tool_calls]
        self.tool_keys = np.array([keys.setdefault(_key(call), len(keys)) for _, call in told], np.int64)
        """What each tool call asks for; equal for equal calls."""
        places = {id(m): at for at, m in enumerate(session.messages)}
        replies = [places[id(c.message)] for c in session.calls]
        self.first_tool = np.searchsorted([at for at, _ in told], replies)
        """For each call the first tool call from its reply on."""
        self.asked = Lists([keys[_key(c)] for c in m.tool_calls] for m in session.messages if m.visible)
        """What the tool calls of each message ask for."""
        writes = [i for i, (_, call) in enumerate(told) if names.writes(call.name)]
        self.writes = np.array([*writes, -1], np.int64)
        self.next_write = np.searchsorted(writes, np.arange(len(told) + 1))

    @classmethod
    def of(cls, session: Session, index: Index, log: Log) -> Memory | None:
        """Return the memory of a session, or None where what it shows is not its log, row by row."""
        rows = [id(m.parts) for m in session.messages if m.visible]
        replies = [id(reply) for reply in log.replies if reply is not None]
        fits = session.has_text and rows == [id(m.parts) for m in log.messages]
        if not fits or replies != [id(c.message) for c in session.calls] or len(replies) != log.calls:
            return None
        return cls(session, index, log)

    def first_uses(self, items: Ints, call: int) -> Ints:
        """Return the first call from one on that uses each of some items; a large number where none does."""
        width = self.calls + 1
        found = self._uses[np.searchsorted(self._uses[:-1], items * width + call)]
        return np.where(found // width == items, found % width, 1 << 62)

    def _numbered(self, found: Iterable[Found]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(f, len(numbers)) for f in found]

    def _files_of(self, message: Message, path: str | None) -> list[tuple[int, int]]:
        if not path:
            return []
        (at,) = self._numbered([Found("path", path)])
        return [(self._numbered([f])[0], at) for f in self.index.items(message) if f.text != path]


class Lists:
    """Lists of numbers end to end."""

    def __init__(self, lists: Iterable[list[int]]) -> None:
        given = list(lists)
        lengths = [len(one) for one in given]
        self.starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64).tolist()
        self.values = np.array([n for one in given for n in one], np.int64)
        self.owner = np.repeat(np.arange(len(given)), lengths)
        """Which list each number stands in."""

    def of(self, start: int, stop: int) -> Ints:
        """Return the numbers of the lists start..stop."""
        return self.values[self.starts[start] : self.starts[stop]]
