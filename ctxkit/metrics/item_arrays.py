"""What a session's messages hold, as arrays: made once, looked up by all that ask for loss."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.messages import Text, ToolCall
from ctxkit.metrics.items import FAMILIES, SEARCHED, SPEAKERS, FoundItem
from ctxkit.metrics.text_items import TextItems
from ctxkit.metrics.wordings import Wordings
from ctxkit.subjects import path_of
from ctxkit.tools.tool_names import reads, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.messages import Message
    from ctxkit.metrics.indexes import Index
    from ctxkit.session import Session

    Ints = NDArray[np.int64]

USER_WEIGHT = 4.0
"""What an item weighs that the user said, where one of a reply or a tool's result weighs 1: chosen,
not measured.
"""


class RowTimes:
    """When each message came that can be shown: a *row*, counted in the order of the log."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages = [m for m in session.messages if m.visible]
        upto, n = [], 0
        for message in session.messages:
            if message.role == "assistant":
                upto.append(n)
            n += message.visible
        self.upto = np.array(upto, np.int64)
        """For each call how many rows came before it."""
        self.calls = len(upto)
        self.arrival = np.searchsorted(self.upto, np.arange(n), "right")
        """For each row the first call at which it is there."""

    def tokens(self, _message: Message) -> int:
        """Return the tokens of a text that is no row; here they do not matter."""
        return 0

    def stands_in(self, _message: Message) -> Ints:
        """Return the items that a text holds; here none is known."""
        return np.zeros(0, np.int64)


class ItemArrays(RowTimes):
    """The items of a session's rows and calls, numbered.

    A *text* is a message that is no row: a compaction or a pruning put it in, of any replay of the
    session.
    """

    def __init__(self, session: Session, index: Index) -> None:
        super().__init__(session)
        self.index, messages = index, self.messages
        self.numbers: dict[FoundItem, int] = {}
        named = [self._numbered(index.names(m)) for m in messages]
        self.wordings = Wordings(
            (n, found) for found, n in self.numbers.items() if found.family == "constraint"
        )
        """The user's rules, to be found again in whatever words."""
        self._rules: dict[tuple[str, int], set[int]] = {}
        given = map(self._rules_of, messages)
        self.named = Lists(map(_joined, named, given))
        """The items that each row names: its own, the endings of its paths, and rules in other
        words.
        """
        self.held = Lists(self._numbered(index.items(m)) for m in messages)
        """The items that each row holds."""
        self.used = Lists(
            _joined(self._numbered(index.used(c.message)), self._rules_of(c.message))
            for c in session.calls
        )
        """The items that the reply of each call uses."""
        files = _files(session)
        pairs = [self._files_of(m, files.get(id(m))) for m in messages]
        self.filed = Lists([f for f, _ in pair] for pair in pairs)
        """The items of each row that is a file's content, and for each (`paths`) the number of the
        file's path.
        """
        self.paths = np.array([path for pair in pairs for _, path in pair], np.int64)
        self.size = np.array([index.size(m) for m in messages], np.int64)
        self.n = len(self.numbers)
        self.family = np.array([FAMILIES.index(f.family) for f in self.numbers], np.int64)
        self._sorted()
        self.again = self._again()
        """The items that a reply names after an earlier message held them: the same under any
        rules.
        """
        self.weight = np.ones(self.n)
        """What each item weighs: `USER_WEIGHT` where the user said it."""
        mine = np.array([m.role == "user" for m in messages], bool)
        self.weight[self.held.values[mine[self.held.owner]]] = USER_WEIGHT

    def _sorted(self) -> None:
        width = self.calls + 1
        order = np.lexsort((self.used.owner, self.used.values))
        self._uses = np.append(self.used.values[order] * width + self.used.owner[order], -1)
        self.last_use = np.full(self.n, -1)
        np.maximum.at(self.last_use, self.used.values, self.used.owner)
        order = np.argsort(self.named.values, kind="stable")
        self.names_item, self.names_row = self.named.values[order], self.named.owner[order]
        """Every pair of an item and a row that names it, by item and then by row."""

    def _again(self) -> Ints:
        first = np.full(self.n, len(self.messages))
        np.minimum.at(first, self.held.values, self.held.owner)
        seen = np.array([c.message.visible for c in self.session.calls], bool)
        last = np.full(self.n, -1)
        mine = seen[self.used.owner]
        np.maximum.at(last, self.used.values[mine], self.used.owner[mine])
        return np.flatnonzero((last >= 0) & (np.append(self.upto, 0)[last] > first))

    def _rules_of(self, message: Message) -> set[int]:
        """Return the rules that a message of the user or the agent gives, in whatever words."""
        if message.role not in SPEAKERS:
            return set()
        key = message.role, id(message.parts)
        if key not in self._rules:
            spoken = "\n".join(p.text[:SEARCHED] for p in message.parts if isinstance(p, Text))
            self._rules[key] = self.wordings.in_text(spoken)
        return self._rules[key]

    def first_uses(self, found: Ints, calls: Ints) -> Ints:
        """Return the first call from a given one on that uses each item; a large number: none."""
        width = self.calls + 1
        use = self._uses[
            np.searchsorted(self._uses[:-1], found * width + np.minimum(calls, self.calls))
        ]
        return np.where(use // width == found, use % width, 1 << 62)

    # -- texts that are no rows --------------------------------------------------------------------

    def tokens(self, message: Message) -> int:
        """Return the tokens of a text."""
        return self.index.size(message)

    def stands_in(self, message: Message) -> Ints:
        """Return the items that a text holds: it names them, or they stand in it as they are."""
        return self._put_in.of(message)

    @cached_property
    def _put_in(self) -> TextItems:
        return TextItems(self.numbers, self.wordings)

    # -- numbers -----------------------------------------------------------------------------------

    def _numbered(self, found: Iterable[FoundItem]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(f, len(numbers)) for f in found]

    def _files_of(self, message: Message, path: str | None) -> list[tuple[int, int]]:
        if not path:
            return []
        (at,) = self._numbered([FoundItem("path", path)])
        return [(self._numbered([f])[0], at) for f in self.index.items(message) if f.text != path]


def _joined(numbers: list[int], more: set[int]) -> list[int]:
    return [*numbers, *sorted(more.difference(numbers))] if more else numbers


class Lists:
    """Lists of numbers end to end."""

    def __init__(self, lists: Iterable[list[int]]) -> None:
        given = list(lists)
        lengths = [len(one) for one in given]
        self.values = np.array([n for one in given for n in one], np.int64)
        self.owner = np.repeat(np.arange(len(given)), lengths)
        """Which list each number stands in."""
        self.starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)

    def of(self, which: int) -> Ints:
        """Return the numbers of one list."""
        return self.values[self.starts[which] : self.starts[which + 1]]


def _files(session: Session) -> dict[int, str]:
    """Return the file on disk whose content a result or a call carries, by its identity."""
    asked: dict[str, str] = {}
    out: dict[int, str] = {}
    for message in session.messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (reads(part.name) or writes(part.name)):
                path = path_of(part)
                if path is not None:
                    asked[part.id] = out[id(message)] = path
        if message.call_id in asked:
            out[id(message)] = asked[message.call_id]
    return out
