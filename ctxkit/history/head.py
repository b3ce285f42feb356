"""The edited head of a history: rows that still stand, rows that were changed, and messages that stand for others."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from ctxkit.history.columns import ROLE_CODES, SUMMARY, chars
from ctxkit.messages import Message, Sized, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.history.log import Log

_replace = msgspec.structs.replace


class Given(msgspec.Struct, frozen=True, gc=False):
    """A message as it is."""

    given: Message

    @property
    def key(self) -> int:
        """Equal messages have equal keys: that is how a cached prefix is recognised."""
        return crc32(msgspec.json.encode(self.given.parts), 1) + 1

    def message(self, _log: Log, _row: int) -> Message:
        """Return the message."""
        return self.given

    def role(self, _log: Log, _row: int) -> int:
        """Return the code of its role."""
        return ROLE_CODES[self.given.role]

    def chars(self) -> int:
        """Return its characters."""
        return chars(self.given)

    @property
    def pinned(self) -> bool:
        """True where no policy may remove it."""
        return self.given.pinned


class Placeholder(msgspec.Struct, frozen=True, gc=False):
    """A text in place of all that a row said; the message is made only when it is asked for."""

    text: str

    @property
    def key(self) -> int:
        """Equal texts have equal keys."""
        return crc32(self.text.encode("utf-8", "surrogatepass"), 2) + 1

    def message(self, log: Log, row: int) -> Message:
        """Return the row's message with this text alone."""
        return renamed(_replace(log.messages[row], parts=(Text(self.text),)), log.messages[row].id)

    def role(self, log: Log, row: int) -> int:
        """Return the code of the row's role."""
        return log.roles[row]

    def chars(self) -> int:
        """Return the characters of the text."""
        return len(self.text)

    pinned = False


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """A summary of which only the size is known."""

    tokens: int
    id: str

    @property
    def key(self) -> int:
        """Each is its own."""
        return crc32(self.id.encode(), 3) + 1

    def message(self, _log: Log, _row: int) -> Message:
        """Return a summary that holds a size instead of a text."""
        return Message(role="summary", id=self.id, parts=(Sized("summary", tokens=self.tokens),))

    def role(self, _log: Log, _row: int) -> int:
        """Return the code of `summary`."""
        return SUMMARY

    def chars(self) -> int:
        """Return four characters a token."""
        return 4 * self.tokens

    pinned = False


Maker = Given | Placeholder | Tokens


def renamed(message: Message, origin: str) -> Message:
    """Return a changed message under an id of its own: the origin's, and a mark of the new content."""
    mark = f"{crc32(msgspec.json.encode(message.parts)):08x}"
    return _replace(message, id=f"{origin}~{mark}")


class Item(NamedTuple):
    """One message of a head."""

    row: int
    """Its row in the log, changed or not; -1: it stands for others."""
    tokens: int
    estimate: int
    maker: Maker | None = None
    """None: the row stands as it was said."""
    stands: int = -1
    """The last row that it stands for, where it is none itself."""

    def message(self, log: Log) -> Message:
        """Return the message itself."""
        return log.messages[self.row] if self.maker is None else self.maker.message(log, self.row)

    def role(self, log: Log) -> int:
        """Return the code of its role."""
        return log.roles[self.row] if self.maker is None else self.maker.role(log, self.row)

    def stays(self, log: Log) -> bool:
        """Return True where no policy may remove it."""
        return log.stays_in(self.row) if self.row >= 0 else self.maker is not None and self.maker.pinned


class Head:
    """The items of a head, either as a tuple (few) or as arrays (many); each is made from the other on demand."""

    def __init__(self, items: tuple[Item, ...] = ()) -> None:
        self.items = items
        self.size = len(items)
        self.tokens = sum([i[1] for i in items])
        self.estimate = sum([i[2] for i in items])
        self._counts: dict[int, int] = {}
        self._columns: dict[str, NDArray[Any]] = {}

    @classmethod
    def of(cls, columns: dict[str, NDArray[Any]], makers: dict[int, Maker]) -> Head:
        """Return a head from arrays `rows stands keys tokens estimates` and the makers of the keys that are not 0."""
        head = cls.__new__(cls)
        head.__dict__.update(
            size=len(columns["rows"]),
            tokens=int(columns["tokens"].sum()),
            estimate=int(columns["estimates"].sum()),
            makers=makers,
            _counts={},
            _columns=columns,
        )
        return head

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The items, one by one."""
        c, makers = self._columns, self.makers
        columns = (c[name].tolist() for name in ("rows", "tokens", "estimates", "keys", "stands"))
        return tuple(Item(r, t, e, makers[k] if k else None, s) for r, t, e, k, s in zip(*columns, strict=True))

    @cached_property
    def makers(self) -> dict[int, Maker]:
        """The makers of changed and new messages, by their keys."""
        return {i.maker.key: i.maker for i in self.items if i.maker is not None}

    def column(self, log: Log, name: str) -> NDArray[Any]:
        """Return one value an item; beside the log's columns: `rows`, `stands`, `keys`."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._made(log, name)
        return found

    def _made(self, log: Log, name: str) -> NDArray[Any]:
        if name in ("rows", "stands", "keys", "tokens", "estimates"):
            get = {
                "rows": lambda i: i.row,
                "stands": lambda i: i.stands if i.row < 0 else i.row,
                "keys": lambda i: 0 if i.maker is None else i.maker.key,
                "tokens": lambda i: i.tokens,
                "estimates": lambda i: i.estimate,
            }[name]
            return np.fromiter((get(i) for i in self.items), np.int64, self.size)
        whole = log.column(name)
        if not self.size:
            return whole[:0]
        values = whole[np.maximum(self.column(log, "stands"), 0)]
        keys = self.column(log, "keys")
        if name in ("roles", "chars", "groups", "tools", "errors", "stays"):
            for p in np.flatnonzero(keys).tolist():
                values[p] = self._value(log, name, p, values[p])
        return values

    def _value(self, log: Log, name: str, p: int, value: Any) -> Any:
        """Return what a changed or new message has in a column, if not what the row had."""
        maker, row = self.makers[int(self.column(log, "keys")[p])], int(self.column(log, "rows")[p])
        if name == "roles":
            return maker.role(log, row)
        if name == "chars":
            return maker.chars()
        if row >= 0:
            return value
        if name == "tools":
            return log.code("tool", "")
        return {"groups": -1, "errors": False, "stays": maker.pinned}[name]

    def count(self, log: Log, role: int) -> int:
        """Return how many items have a role."""
        n = self._counts.get(role)
        if n is None:
            n = self._counts[role] = sum(i.role(log) == role for i in self.items)
        return n

    @cached_property
    def sums(self) -> tuple[list[int], list[int]]:
        """Running sums of the tokens and the estimates before each item."""
        tokens, estimates = [0], [0]
        for i in self.items:
            tokens.append(tokens[-1] + i.tokens)
            estimates.append(estimates[-1] + i.estimate)
        return tokens, estimates

    @cached_property
    def groups(self) -> frozenset[int]:
        """Rows that are items here."""
        return frozenset(i.row for i in self.items if i.row >= 0)


EMPTY = Head()


def joined(parts: Iterable[Sequence[Item]]) -> Head:
    """Return the head of several runs of items, in order."""
    return Head(tuple(i for part in parts for i in part))
