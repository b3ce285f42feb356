"""The edited head of a history: recorded rows, changed rows, and messages that replaced others."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from ctxkit.policies.history.growing_columns_and_sums import ROLE_CODES, SUMMARY, count_chars
from ctxkit.session.messages import Message, SizeOnly, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.history.message_log import MessageLog

    Ints = NDArray[np.int64]


# Identity of content in a prompt cache. A recorded row is identified by its number: -row - 1. A
# changed or new message has a *key*, a hash of its content (0: recorded), and a content hash above
# 0 that includes the row it replaces. Two prompts share a prefix as far as these numbers are equal,
# so prefixes are compared as integer arrays, and no text is compared again.

_ROW_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
"""Multiplier of a row in the hash of (row, key): Fibonacci hashing, modulo 2**64."""
_ITEM_COLUMNS: dict[str, Callable[[HeadItem], int]] = {
    "rows": lambda i: i.row,
    "source_rows": lambda i: i.last_replaced if i.row < 0 else i.row,
    "keys": lambda i: 0 if i.source is None else i.source.key,
    "tokens": lambda i: i.tokens,
    "estimates": lambda i: i.estimate,
}
"""Columns with fields of an item."""
_SOURCE_COLUMNS: dict[str, Callable[[MessageSource, MessageLog, int], Any]] = {
    "roles": lambda source, log, row: source.role(log, row),
    "chars": lambda source, _log, _row: source.chars(),
    "asks": lambda source, log, row: bool(source.message(log, row).tool_calls),
    "thinks": lambda source, log, row: source.message(log, row).thinks,
    "contents": lambda source, _log, row: hash_row_content(row, source.content),
}
"""Columns in which a changed or new message has its own value, computed from its source."""


class ProtectedFront(msgspec.Struct, frozen=True, gc=False):
    """The protected items at the front of a head; a cut behind them keeps them as they are."""

    items: tuple[HeadItem, ...] = ()
    tokens: int = 0
    estimate: int = 0

    def append(self, items: tuple[HeadItem, ...]) -> ProtectedFront:
        """Return the front with more items appended."""
        tokens, estimate = sum([i.tokens for i in items]), sum([i.estimate for i in items])
        return ProtectedFront(self.items + items, self.tokens + tokens, self.estimate + estimate)


class EditedHead(msgspec.Struct, gc=False):
    """The items of a head, as a tuple (few) or as arrays (many); one is derived from the other.

    A compaction leaves a short head (a tuple); a pruning of many messages a long one (arrays).
    Derived values are cached in the fields that end in an underscore.
    """

    size: int = 0
    tokens: int = 0
    estimate: int = 0
    tuple_: tuple[HeadItem, ...] | None = ()
    front_: ProtectedFront | None = None
    """The protected items, where all of them are known to be at the front."""
    protected_places_: tuple[int, ...] | None = None
    columns_: dict[str, NDArray[Any]] | None = None
    sources_: dict[int, MessageSource] | None = None
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
        cls, columns: dict[str, NDArray[Any]], sources: dict[int, MessageSource]
    ) -> EditedHead:
        """Return a head from the arrays `rows source_rows keys tokens estimates`.

        Args:
            columns: the arrays, by name.
            sources: the sources of changed and new messages, by their keys (0: recorded).
        """
        tokens = int(columns["tokens"].sum())
        alike = columns["estimates"] is columns["tokens"]
        estimate = tokens if alike else int(columns["estimates"].sum())
        return cls(len(columns["rows"]), tokens, estimate, None, columns_=columns, sources_=sources)

    @property
    def items(self) -> tuple[HeadItem, ...]:
        """The items as a tuple."""
        if self.tuple_ is None:
            c, sources = self.columns_ or {}, self.sources
            columns = (c[name].tolist() for name in _ITEM_COLUMNS)
            self.tuple_ = tuple(
                HeadItem(r, t, e, sources[k] if k else None, s)
                for r, s, k, t, e in zip(*columns, strict=True)
            )
        return self.tuple_

    @property
    def sources(self) -> dict[int, MessageSource]:
        """The sources of changed and new messages, by their keys."""
        if self.sources_ is None:
            self.sources_ = {i.source.key: i.source for i in self.items if i.source is not None}
        return self.sources_

    def item(self, place: int) -> HeadItem:
        """Return one item, without building the others."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place]
        c = self.columns_
        row, last_row, key, tokens, estimate = [int(c[name][place]) for name in _ITEM_COLUMNS]
        return HeadItem(row, tokens, estimate, self.sources[key] if key else None, last_row)

    def message(self, log: MessageLog, place: int) -> Message:
        """Return the message of one item.

        Args:
            log: the log of the history.
            place: index of the item in the head, from 0.
        """
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].message(log)
        row, key = int(self.columns_["rows"][place]), int(self.columns_["keys"][place])
        return self.sources[key].message(log, row) if key else log.messages[row]

    def messages(self, log: MessageLog) -> list[Message]:
        """Return the messages of all items."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.message(log) for i in self.items]
        sources, log_messages, c = self.sources, log.messages, self.columns_
        rows = zip(c["rows"].tolist(), c["keys"].tolist(), strict=True)
        return [sources[key].message(log, row) if key else log_messages[row] for row, key in rows]

    def unchanged_rows(self) -> list[int]:
        """Return the rows that are unchanged."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.row for i in self.items if i.row >= 0 and i.source is None]
        rows, keys = self.columns_["rows"], self.columns_["keys"]
        unchanged: list[int] = rows[(rows >= 0) & (keys == 0)].tolist()
        return unchanged

    def row(self, place: int) -> int:
        """Return the row of one item; -1: it replaced others."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].row
        return int(self.columns_["rows"][place])

    def front(self, log: MessageLog, call: int) -> ProtectedFront | None:
        """Return the protected items as of a call if all of them are at the front, else None.

        Args:
            log: the log of the history.
            call: number of a call, from 0; messages that become protected later do not count.
        """
        if log.late_stays and self.size:
            return self._make_front(self.protected_places(log, call))
        if self.front_ is None:
            self.front_ = self._make_front(self.protected_places(log, call))
        return self.front_

    def _make_front(self, firm: tuple[int, ...]) -> ProtectedFront | None:
        if firm and firm[-1] != len(firm) - 1:
            return None
        return ProtectedFront().append(tuple([self.item(p) for p in firm]))

    def protected_places(self, log: MessageLog, call: int) -> tuple[int, ...]:
        """Return the places of the protected items as of a call.

        Args:
            log: the log of the history.
            call: number of a call, from 0; messages that become protected later do not count.

        Returns:
            Indices of items in the head, rising.
        """
        if log.late_stays and self.size:
            return self._protected_at(log, call)
        if self.protected_places_ is None:
            if self.front_ is not None:
                self.protected_places_ = tuple(range(len(self.front_.items)))
            else:
                self.protected_places_ = self._protected_at(log, call)
        return self.protected_places_

    def _protected_at(self, log: MessageLog, call: int) -> tuple[int, ...]:
        if self.tuple_ is not None:
            return tuple(p for p, i in enumerate(self.tuple_) if i.is_protected(log, call))
        protected_rows, rows = log.get_protected_rows(call), self.column(log, "rows")
        is_protected = (
            np.isin(rows, protected_rows) if protected_rows else np.zeros(self.size, bool)
        )
        for p in np.flatnonzero(rows < 0).tolist():
            is_protected[p] = self.sources[int(self.column(log, "keys")[p])].pinned
        return tuple(np.flatnonzero(is_protected).tolist())

    def column(self, log: MessageLog, name: str) -> NDArray[Any]:
        """Return a column of the log, or one of `rows source_rows keys contents`.

        Args:
            log: the log of the history.
            name: name of a column of `MessageLog.column`, or one of the four.

        Returns:
            One value per item of the head, those of changed messages as changed.
        """
        if self.columns_ is None:
            self.columns_ = {}
        values = self.columns_.get(name)
        if values is None:
            values = self.columns_[name] = self._make_column(log, name)
        return values

    def _make_column(self, log: MessageLog, name: str) -> NDArray[Any]:
        if name == "contents":
            return self._content_hashes(log)
        if name in _ITEM_COLUMNS:
            return np.array([_ITEM_COLUMNS[name](i) for i in self.items], np.int64)
        log_column = log.column(name)
        if not self.size:
            return log_column[:0]
        values: NDArray[Any] = log_column[np.maximum(self.column(log, "source_rows"), 0)]
        if name in ("roles", "chars", "groups", "tools", "errors", "asks", "thinks"):
            at = np.flatnonzero(self.column(log, "keys"))
            values[at] = self._values(log, name, at, values[at])
        return values

    def _content_hashes(self, log: MessageLog) -> NDArray[Any]:
        """Return a content hash per item, equal for equal content; below 0: recorded."""
        hashes: NDArray[Any] = -self.column(log, "rows") - 1
        at = np.flatnonzero(self.column(log, "keys"))
        hashes[at] = self._cached_values(log, "contents", at)
        return hashes

    def _cached_values(self, log: MessageLog, name: str, at: NDArray[Any]) -> NDArray[Any]:
        """Return the values of changed and new messages, computed once per row and key."""
        cache: IntegerKeyCache = log.memo.setdefault(("made", name), IntegerKeyCache())
        rows, keys = (self.column(log, of)[at] for of in ("rows", "keys"))

        def make(place: int) -> int:
            return int(_SOURCE_COLUMNS[name](self.sources[int(keys[place])], log, int(rows[place])))

        return cache.get_or_compute(keys + rows * _ROW_FACTOR, make)

    def _values(
        self, log: MessageLog, name: str, at: NDArray[Any], row_values: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the values of changed and new messages in a column.

        `row_values` are the values of their rows, or of the rows that they replaced.
        """
        if name in _SOURCE_COLUMNS:
            return self._cached_values(log, name, at)
        default = {"tools": log.code("tool", ""), "groups": -1, "errors": False}[name]
        return np.where(self.column(log, "rows")[at] < 0, default, row_values)

    def count(self, log: MessageLog, role: int) -> int:
        """Return the number of items with a role.

        Args:
            log: the log of the history.
            role: code of the role, as in `ROLE_CODES`.
        """
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
        """Return the tokens, or the estimates, of the items before a position.

        Args:
            position: index in the head, from 0; its size for the whole head.
            estimated: whether to add up the estimates of the rules' estimator, not the counted
                tokens.
        """
        if self.sums_ is None and self.columns_ is not None and self.tuple_ is None:
            return int(self.columns_["estimates" if estimated else "tokens"][:position].sum())
        if position < 4 and self.tuple_ is not None:
            return sum([i.estimate if estimated else i.tokens for i in self.tuple_[:position]])
        return self.sums(estimated)[position]

    @property
    def rows(self) -> frozenset[int]:
        """Rows of the log among the items."""
        if self.rows_ is None:
            self.rows_ = frozenset(self.row(p) for p in range(self.size)) - {-1}
        return self.rows_


def _hash_key(*content: object) -> int:
    """Return a hash above 0 that fits a column of int64."""
    return (hash(content) & 0x3FFF_FFFF_FFFF_FFFF) + 1


def _content_bytes(message: Message) -> bytes:
    """Return the content of a message as bytes, equal for equal parts."""
    try:
        return msgspec.json.encode(message.parts)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, odd arguments
        return repr(message.parts).encode("utf-8", "backslashreplace")


def hash_content(message: Message) -> int:
    """Return a hash above 0 of the content of a message, whatever its id."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return _hash_key("text", parts[0].text)
    return _hash_key(_content_bytes(message))


class ReplacementMessage(msgspec.Struct, frozen=True, gc=False):
    """A changed or new message, stored as it is."""

    stored: Message

    @property
    def content(self) -> int:
        """Hash of the content; see `hash_content`."""
        return hash_content(self.stored)

    @property
    def key(self) -> int:
        """A hash, equal for equal messages within one process; it identifies a cached prefix."""
        return _hash_key(self.stored.id, _content_bytes(self.stored))

    def message(self, _log: MessageLog, _row: int) -> Message:
        """Return the stored message."""
        return self.stored

    def role(self, _log: MessageLog, _row: int) -> int:
        """Return the code of its role."""
        return ROLE_CODES[self.stored.role]

    def chars(self) -> int:
        """Return its characters."""
        return count_chars(self.stored)

    @property
    def pinned(self) -> bool:
        """True where no policy may remove it."""
        return self.stored.pinned


_replace = msgspec.structs.replace


def with_content_id(message: Message, origin: str) -> Message:
    """Return a changed message with a new id: the original id and a checksum of the content.

    Args:
        message: the changed message.
        origin: id of the message that it was.
    """
    mark = f"{crc32(_content_bytes(message)):08x}"
    return _replace(message, id=f"{origin}~{mark}")


class Placeholder(msgspec.Struct, frozen=True, gc=False):
    """A text in place of the content of a row; the message is built on request."""

    text: str

    @property
    def key(self) -> int:
        """Equal texts have equal keys."""
        return _hash_key("placeholder", self.text)

    @property
    def content(self) -> int:
        """Hash of the content; see `hash_content`."""
        return hash_content(Message(role="tool", parts=(Text(self.text),)))

    def message(self, log: MessageLog, row: int) -> Message:
        """Return the message of the row with only this text.

        Args:
            log: the log of the history.
            row: the row whose content it replaces.
        """
        return with_content_id(
            _replace(log.messages[row], parts=(Text(self.text),)), log.messages[row].id
        )

    def role(self, log: MessageLog, row: int) -> int:
        """Return the code of the row's role.

        Args:
            log: the log of the history.
            row: the row whose content it replaces.
        """
        return log.roles[row]

    def chars(self) -> int:
        """Return the characters of the text."""
        return len(self.text)

    pinned = False


class SizeOnlySummary(msgspec.Struct, frozen=True, gc=False):
    """A summary of which only the size is known."""

    tokens: int
    call: int
    """The call before which it was made."""
    step: int = 0
    """Number of the verb of that call that made it."""

    @property
    def id(self) -> str:
        """Its id as a message."""
        return f"summary@{self.call}" + (f".{self.step}" if self.step else "")

    @property
    def key(self) -> int:
        """A hash, different for each summary."""
        return _hash_key("tokens", self.call, self.step, self.tokens)

    @property
    def content(self) -> int:
        """The key: the content of a sized summary is unknown, so it equals no other."""
        return self.key

    def message(self, _log: MessageLog, _row: int) -> Message:
        """Return a summary message with a size instead of a text."""
        return Message(role="summary", id=self.id, parts=(SizeOnly("summary", tokens=self.tokens),))

    def role(self, _log: MessageLog, _row: int) -> int:
        """Return the code of `summary`."""
        return SUMMARY

    def chars(self) -> int:
        """Return the characters: four per token."""
        return 4 * self.tokens

    pinned = False


MessageSource = ReplacementMessage | Placeholder | SizeOnlySummary


class HeadItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a head."""

    row: int
    """Its row in the log, changed or not; -1: it replaced others."""
    tokens: int
    estimate: int
    source: MessageSource | None = None
    """Source of a changed or new message; None: the row is unchanged."""
    last_replaced: int = -1
    """The last row that it replaced, where it is no row itself."""

    def message(self, log: MessageLog) -> Message:
        """Return the message itself."""
        return log.messages[self.row] if self.source is None else self.source.message(log, self.row)

    def role(self, log: MessageLog) -> int:
        """Return the code of its role."""
        return log.roles[self.row] if self.source is None else self.source.role(log, self.row)

    def is_protected(self, log: MessageLog, call: int) -> bool:
        """Return True where it is protected as of a call.

        Args:
            log: the log of the history.
            call: number of a call, from 0; a message that becomes protected later is not yet.
        """
        if self.row >= 0:
            return log.is_protected(self.row, call)
        return self.source is not None and self.source.pinned


def hash_row_content(row: int, content: int) -> int:
    """Return a hash above 0 of the changed content of a message.

    The row is part of it: equal texts in place of two results differ, as each names its own call.

    Args:
        row: row of the message in the log; -1: a new message.
        content: hash of its content.
    """
    return content if row < 0 else _hash_key(row, content)


MAX_CACHED_VALUES = 1 << 16
"""Maximum number of cached values; with more the cache is cleared."""


class IntegerKeyCache:
    """A vectorised cache: values computed per integer id, looked up for many ids at once.

    Ids are a sorted array; a lookup is one `searchsorted`, and new ids are merged by `insert`.
    """

    def __init__(self) -> None:
        self._cached: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def get_or_compute(self, numbers: Ints, make: Callable[[int], int]) -> Ints:
        """Return the value of each id; `make` computes that of the id at a place of the array.

        Args:
            numbers: the ids; one may occur several times.
            make: computes the value of `numbers[place]`, given the place.
        """
        # Look up all ids at once; a miss is an id that differs from the one at its sorted place.
        cached, values = self._cached
        at = np.searchsorted(cached, numbers)
        new = np.flatnonzero((at == len(cached)) | (np.append(cached, 0)[at] != numbers))
        if not len(new):
            return values[at]
        if len(cached) > MAX_CACHED_VALUES:
            self._cached = cached[:0], values[:0]
            return self.get_or_compute(numbers, make)
        # Compute each missing id once, and merge the new ids into the sorted arrays.
        fresh, first, which = np.unique(numbers[new], return_index=True, return_inverse=True)
        new_values = np.array([make(place) for place in new[first].tolist()], np.int64)
        where = at[new[first]]
        self._cached = np.insert(cached, where, fresh), np.insert(values, where, new_values)
        result = np.append(values, 0)[at]
        result[new] = new_values[which]
        return result


EMPTY_HEAD = EditedHead(front_=ProtectedFront())


def replace_all_but_calls(message: Message, text: str) -> Message:
    """Return a message with only a text and its tool calls.

    Args:
        message: the message to change.
        text: its new text; empty: the calls only.
    """
    calls = tuple([p for p in message.parts if isinstance(p, ToolCall)])
    return _replace(message, parts=(Text(text), *calls) if text else calls)
