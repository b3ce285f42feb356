"""The edited head of a history: rows as said, changed rows, and messages that stand for others."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from ctxkit.policies.history.columns import ROLE_CODES, SUMMARY, count_chars
from ctxkit.session.messages import Message, SizeOnly, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.history.log import MessageLog

    Ints = NDArray[np.int64]


_APART = 0x9E3779B97F4A7C15 - (1 << 64)
"""Times a row and with a key added (both wrap around) it tells a changed message from others."""
_ITEM_COLUMNS: dict[str, Callable[[HeadItem], int]] = {
    "rows": lambda i: i.row,
    "stands": lambda i: i.stands if i.row < 0 else i.row,
    "keys": lambda i: 0 if i.maker is None else i.maker.key,
    "tokens": lambda i: i.tokens,
    "estimates": lambda i: i.estimate,
}
"""Columns that hold what an item is."""
_MAKER_COLUMNS: dict[str, Callable[[MessageSource, MessageLog, int], Any]] = {
    "roles": lambda maker, log, row: maker.role(log, row),
    "chars": lambda maker, _log, _row: maker.chars(),
    "asks": lambda maker, log, row: bool(maker.message(log, row).tool_calls),
    "thinks": lambda maker, log, row: maker.message(log, row).thinks,
    "contents": lambda maker, _log, row: row_content_hash(row, maker.content),
}
"""Columns of which a changed or a new message has a value of its own, and how it is made."""


class ProtectedFront(msgspec.Struct, frozen=True, gc=False):
    """The items at the front of a head that no policy may remove; a cut behind them keeps them as
    they are.
    """

    items: tuple[HeadItem, ...] = ()
    tokens: int = 0
    estimate: int = 0

    def then(self, items: tuple[HeadItem, ...]) -> ProtectedFront:
        """Return the front with more items behind."""
        tokens, estimate = sum([i.tokens for i in items]), sum([i.estimate for i in items])
        return ProtectedFront(self.items + items, self.tokens + tokens, self.estimate + estimate)


class EditedHead(msgspec.Struct, gc=False):
    """The items of a head, either as a tuple (few) or as arrays (many); each is made from the other
    on demand.
    """

    size: int = 0
    tokens: int = 0
    estimate: int = 0
    tuple_: tuple[HeadItem, ...] | None = ()
    front_: ProtectedFront | None = None
    """What stays, where it is known that it all stands at the front."""
    firm_: tuple[int, ...] | None = None
    columns_: dict[str, NDArray[Any]] | None = None
    makers_: dict[int, MessageSource] | None = None
    counts_: dict[int, int] | None = None
    rows_: frozenset[int] | None = None
    sums_: tuple[list[int], list[int]] | None = None

    @classmethod
    def of(cls, items: tuple[HeadItem, ...]) -> EditedHead:
        """Return the head of some items."""
        return cls(
            len(items), sum([i.tokens for i in items]), sum([i.estimate for i in items]), items
        )

    @classmethod
    def of_columns(
        cls, columns: dict[str, NDArray[Any]], makers: dict[int, MessageSource]
    ) -> EditedHead:
        """Return a head from arrays `rows stands keys tokens estimates` and the makers of the keys
        that are not 0.
        """
        tokens = int(columns["tokens"].sum())
        alike = columns["estimates"] is columns["tokens"]
        estimate = tokens if alike else int(columns["estimates"].sum())
        return cls(len(columns["rows"]), tokens, estimate, None, columns_=columns, makers_=makers)

    @property
    def items(self) -> tuple[HeadItem, ...]:
        """The items, one by one."""
        if self.tuple_ is None:
            c, makers = self.columns_ or {}, self.makers
            columns = (c[name].tolist() for name in _ITEM_COLUMNS)
            self.tuple_ = tuple(
                HeadItem(r, t, e, makers[k] if k else None, s)
                for r, s, k, t, e in zip(*columns, strict=True)
            )
        return self.tuple_

    @property
    def makers(self) -> dict[int, MessageSource]:
        """The makers of changed and new messages, by their keys."""
        if self.makers_ is None:
            self.makers_ = {i.maker.key: i.maker for i in self.items if i.maker is not None}
        return self.makers_

    def item(self, place: int) -> HeadItem:
        """Return one item without making the others."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place]
        c = self.columns_
        row, last_row, key, tokens, estimate = [int(c[name][place]) for name in _ITEM_COLUMNS]
        return HeadItem(row, tokens, estimate, self.makers[key] if key else None, last_row)

    def message(self, log: MessageLog, place: int) -> Message:
        """Return what one item says."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].message(log)
        row, key = int(self.columns_["rows"][place]), int(self.columns_["keys"][place])
        return self.makers[key].message(log, row) if key else log.messages[row]

    def messages(self, log: MessageLog) -> list[Message]:
        """Return what all items say."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.message(log) for i in self.items]
        makers, log_messages, c = self.makers, log.messages, self.columns_
        rows = zip(c["rows"].tolist(), c["keys"].tolist(), strict=True)
        return [makers[key].message(log, row) if key else log_messages[row] for row, key in rows]

    def said(self) -> list[int]:
        """Return the rows that stand as they were said."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.row for i in self.items if i.row >= 0 and i.maker is None]
        rows, keys = self.columns_["rows"], self.columns_["keys"]
        unchanged: list[int] = rows[(rows >= 0) & (keys == 0)].tolist()
        return unchanged

    def row(self, place: int) -> int:
        """Return the row of one item, or -1."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].row
        return int(self.columns_["rows"][place])

    def front(self, log: MessageLog, call: int) -> ProtectedFront | None:
        """Return what stays as of a call, where all of it stands first; None where some stands
        behind what may go.
        """
        if log.late_stays and self.size:
            return self._front_of(self.firm(log, call))
        if self.front_ is None:
            self.front_ = self._front_of(self.firm(log, call))
        return self.front_

    def _front_of(self, firm: tuple[int, ...]) -> ProtectedFront | None:
        if firm and firm[-1] != len(firm) - 1:
            return None
        return ProtectedFront().then(tuple([self.item(p) for p in firm]))

    def firm(self, log: MessageLog, call: int) -> tuple[int, ...]:
        """Return the places of the items that no policy may remove as of a call."""
        if log.late_stays and self.size:
            return self._firm_at(log, call)
        if self.firm_ is None:
            if self.front_ is not None:
                self.firm_ = tuple(range(len(self.front_.items)))
            else:
                self.firm_ = self._firm_at(log, call)
        return self.firm_

    def _firm_at(self, log: MessageLog, call: int) -> tuple[int, ...]:
        if self.tuple_ is not None:
            return tuple(p for p, i in enumerate(self.tuple_) if i.stays(log, call))
        stays, rows = log.stays_at(call), self.column(log, "rows")
        firm = np.isin(rows, stays) if stays else np.zeros(self.size, bool)
        for p in np.flatnonzero(rows < 0).tolist():
            firm[p] = self.makers[int(self.column(log, "keys")[p])].pinned
        return tuple(np.flatnonzero(firm).tolist())

    def column(self, log: MessageLog, name: str) -> NDArray[Any]:
        """Return one value an item; beside the log's columns `rows stands keys contents`."""
        if self.columns_ is None:
            self.columns_ = {}
        values = self.columns_.get(name)
        if values is None:
            values = self.columns_[name] = self._made(log, name)
        return values

    def _made(self, log: MessageLog, name: str) -> NDArray[Any]:
        if name == "contents":
            return self._contents(log)
        if name in _ITEM_COLUMNS:
            return np.array([_ITEM_COLUMNS[name](i) for i in self.items], np.int64)
        whole = log.column(name)
        if not self.size:
            return whole[:0]
        values: NDArray[Any] = whole[np.maximum(self.column(log, "stands"), 0)]
        if name in ("roles", "chars", "groups", "tools", "errors", "asks", "thinks"):
            at = np.flatnonzero(self.column(log, "keys"))
            values[at] = self._values(log, name, at, values[at])
        return values

    def _contents(self, log: MessageLog) -> NDArray[Any]:
        """Return a number an item, equal where a row says the same; below 0: as said."""
        hashes: NDArray[Any] = -self.column(log, "rows") - 1
        at = np.flatnonzero(self.column(log, "keys"))
        hashes[at] = self._once(log, "contents", at)
        return hashes

    def _once(self, log: MessageLog, name: str, at: NDArray[Any]) -> NDArray[Any]:
        """Return what changed and new messages have, worked out once for each row and key."""
        cache: ValueCache = log.memo.setdefault(("made", name), ValueCache())
        rows, keys = (self.column(log, of)[at] for of in ("rows", "keys"))

        def make(place: int) -> int:
            return int(_MAKER_COLUMNS[name](self.makers[int(keys[place])], log, int(rows[place])))

        return cache.of(keys + rows * _APART, make)

    def _values(
        self, log: MessageLog, name: str, at: NDArray[Any], was: NDArray[Any]
    ) -> NDArray[Any]:
        """Return what changed and new messages have in a column; `was` is what the rows had that
        they stand for.
        """
        if name in _MAKER_COLUMNS:
            return self._once(log, name, at)
        none = {"tools": log.code("tool", ""), "groups": -1, "errors": False}[name]
        return np.where(self.column(log, "rows")[at] < 0, none, was)

    def count(self, log: MessageLog, role: int) -> int:
        """Return how many items have a role."""
        if self.counts_ is None:
            self.counts_ = {}
        n = self.counts_.get(role)
        if n is None:
            if self.tuple_ is not None and self.size <= 16:
                n = [i.role(log) for i in self.tuple_].count(role)
            else:
                n = int((self.column(log, "roles") == role).sum())
            self.counts_[role] = n
        return n

    def sums(self, estimated: bool) -> list[int]:
        """Return running sums of tokens, or estimates, before each item and after the last."""
        if self.sums_ is None:
            if self.tuple_ is None and self.columns_ is not None:
                c = self.columns_
                tokens, estimates = c["tokens"].tolist(), c["estimates"].tolist()
            else:
                tokens, estimates = [i.tokens for i in self.items], [i.estimate for i in self.items]
            self.sums_ = ([0, *accumulate(tokens)], [0, *accumulate(estimates)])
        return self.sums_[estimated]

    def before(self, position: int, *, estimated: bool = False) -> int:
        """Return the tokens, or the estimates, of the items before a position."""
        if self.sums_ is None and self.columns_ is not None and self.tuple_ is None:
            return int(self.columns_["estimates" if estimated else "tokens"][:position].sum())
        if position < 4 and self.tuple_ is not None:
            return sum([i.estimate if estimated else i.tokens for i in self.tuple_[:position]])
        return self.sums(estimated)[position]

    @property
    def rows(self) -> frozenset[int]:
        """Rows that are items here."""
        if self.rows_ is None:
            self.rows_ = frozenset(self.row(p) for p in range(self.size)) - {-1}
        return self.rows_


def _hash_key(*content: object) -> int:
    """Return a number above 0 that fits a column."""
    return (hash(content) & 0x3FFF_FFFF_FFFF_FFFF) + 1


def _content_bytes(message: Message) -> bytes:
    """Return what a message says as bytes, equal for equal parts."""
    try:
        return msgspec.json.encode(message.parts)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, odd arguments
        return repr(message.parts).encode("utf-8", "backslashreplace")


def content_hash(message: Message) -> int:
    """Return a number above 0 that is equal for messages that say the same, whatever their ids."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return _hash_key("text", parts[0].text)
    return _hash_key(_content_bytes(message))


class GivenMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as it is."""

    given: Message

    @property
    def content(self) -> int:
        """What it says, as `content_key` has it."""
        return content_hash(self.given)

    @property
    def key(self) -> int:
        """Equal messages have equal keys, within one process: that is how a cached prefix is
        recognised.
        """
        return _hash_key(self.given.id, _content_bytes(self.given))

    def message(self, _log: MessageLog, _row: int) -> Message:
        """Return the message."""
        return self.given

    def role(self, _log: MessageLog, _row: int) -> int:
        """Return the code of its role."""
        return ROLE_CODES[self.given.role]

    def chars(self) -> int:
        """Return its characters."""
        return count_chars(self.given)

    @property
    def pinned(self) -> bool:
        """True where no policy may remove it."""
        return self.given.pinned


_replace = msgspec.structs.replace


def with_content_id(message: Message, origin: str) -> Message:
    """Return a changed message under an id of its own: the origin's and a mark of the content."""
    mark = f"{crc32(_content_bytes(message)):08x}"
    return _replace(message, id=f"{origin}~{mark}")


class Placeholder(msgspec.Struct, frozen=True, gc=False):
    """A text in place of all that a row said; the message is made only when it is asked for."""

    text: str

    @property
    def key(self) -> int:
        """Equal texts have equal keys."""
        return _hash_key("placeholder", self.text)

    @property
    def content(self) -> int:
        """What it says, as `content_key` has it."""
        return content_hash(Message(role="tool", parts=(Text(self.text),)))

    def message(self, log: MessageLog, row: int) -> Message:
        """Return the row's message with this text alone."""
        return with_content_id(
            _replace(log.messages[row], parts=(Text(self.text),)), log.messages[row].id
        )

    def role(self, log: MessageLog, row: int) -> int:
        """Return the code of the row's role."""
        return log.roles[row]

    def chars(self) -> int:
        """Return the characters of the text."""
        return len(self.text)

    pinned = False


class SizedSummary(msgspec.Struct, frozen=True, gc=False):
    """A summary of which only the size is known."""

    tokens: int
    call: int
    """The call before which it was made."""
    step: int = 0
    """Which verb of that call made it."""

    @property
    def id(self) -> str:
        """Its id as a message."""
        return f"summary@{self.call}" + (f".{self.step}" if self.step else "")

    @property
    def key(self) -> int:
        """Each is its own."""
        return _hash_key("tokens", self.call, self.step, self.tokens)

    @property
    def content(self) -> int:
        """Each says something of its own."""
        return self.key

    def message(self, _log: MessageLog, _row: int) -> Message:
        """Return a summary that holds a size instead of a text."""
        return Message(role="summary", id=self.id, parts=(SizeOnly("summary", tokens=self.tokens),))

    def role(self, _log: MessageLog, _row: int) -> int:
        """Return the code of `summary`."""
        return SUMMARY

    def chars(self) -> int:
        """Return four characters a token."""
        return 4 * self.tokens

    pinned = False


MessageSource = GivenMessage | Placeholder | SizedSummary


class HeadItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a head."""

    row: int
    """Its row in the log, changed or not; -1: it stands for others."""
    tokens: int
    estimate: int
    maker: MessageSource | None = None
    """None: the row stands as it was said."""
    stands: int = -1
    """The last row that it stands for, where it is none itself."""

    def message(self, log: MessageLog) -> Message:
        """Return the message itself."""
        return log.messages[self.row] if self.maker is None else self.maker.message(log, self.row)

    def role(self, log: MessageLog) -> int:
        """Return the code of its role."""
        return log.roles[self.row] if self.maker is None else self.maker.role(log, self.row)

    def stays(self, log: MessageLog, call: int) -> bool:
        """Return True where no policy may remove it as of a call."""
        if self.row >= 0:
            return log.stays_in(self.row, call)
        return self.maker is not None and self.maker.pinned


def row_content_hash(row: int, content: int) -> int:
    """Return a number above 0 for what a row of the log says instead (row -1: no row does).

    The same text in the place of two results is sent twice differently: each names its own call.
    """
    return content if row < 0 else _hash_key(row, content)


MAX_CACHED_VALUES = 1 << 16
"""Values that are remembered; with more it begins anew."""


class ValueCache:
    """Values by number, each worked out once."""

    def __init__(self) -> None:
        self._known: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def of(self, numbers: Ints, make: Callable[[int], int]) -> Ints:
        """Return the value of each number; `make` gives that of the number at a place."""
        cached, values = self._known
        at = np.searchsorted(cached, numbers)
        new = np.flatnonzero((at == len(cached)) | (np.append(cached, 0)[at] != numbers))
        if not len(new):
            return values[at]
        if len(cached) > MAX_CACHED_VALUES:
            self._known = cached[:0], values[:0]
            return self.of(numbers, make)
        fresh, first, which = np.unique(numbers[new], return_index=True, return_inverse=True)
        new_values = np.array([make(place) for place in new[first].tolist()], np.int64)
        where = at[new[first]]
        self._known = np.insert(cached, where, fresh), np.insert(values, where, new_values)
        found = np.append(values, 0)[at]
        found[new] = new_values[which]
        return found


EMPTY_HEAD = EditedHead(front_=ProtectedFront())


def with_text_and_calls(message: Message, text: str) -> Message:
    """Return a message that says only a text, and keeps its tool calls."""
    calls = tuple([p for p in message.parts if isinstance(p, ToolCall)])
    return _replace(message, parts=(Text(text), *calls) if text else calls)
