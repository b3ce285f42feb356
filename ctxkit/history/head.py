"""The edited head of a history: rows that still stand, rows that were changed, and messages that
stand for others.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ctxkit.history.head_items import Item, Maker, content_at
from ctxkit.history.known_values import KnownValues

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history.log import Log
    from ctxkit.messages import Message


_APART = 0x9E3779B97F4A7C15 - (1 << 64)
"""Times a row and with a key added (both wrap around) it tells a changed message from others."""
_NUMBERS: dict[str, Callable[[Item], int]] = {
    "rows": lambda i: i.row,
    "stands": lambda i: i.stands if i.row < 0 else i.row,
    "keys": lambda i: 0 if i.maker is None else i.maker.key,
    "tokens": lambda i: i.tokens,
    "estimates": lambda i: i.estimate,
}
"""Columns that hold what an item is."""
_MADE: dict[str, Callable[[Maker, Log, int], Any]] = {
    "roles": lambda maker, log, row: maker.role(log, row),
    "chars": lambda maker, _log, _row: maker.chars(),
    "asks": lambda maker, log, row: bool(maker.message(log, row).tool_calls),
    "thinks": lambda maker, log, row: maker.message(log, row).thinks,
    "contents": lambda maker, _log, row: content_at(row, maker.content),
}
"""Columns of which a changed or a new message has a value of its own, and how it is made."""


class Front(msgspec.Struct, frozen=True, gc=False):
    """The items at the front of a head that no policy may remove; a cut behind them keeps them as
    they are.
    """

    items: tuple[Item, ...] = ()
    tokens: int = 0
    estimate: int = 0

    def then(self, items: tuple[Item, ...]) -> Front:
        """Return the front with more items behind."""
        tokens, estimate = sum([i.tokens for i in items]), sum([i.estimate for i in items])
        return Front(self.items + items, self.tokens + tokens, self.estimate + estimate)


class Head(msgspec.Struct, gc=False):
    """The items of a head, either as a tuple (few) or as arrays (many); each is made from the other
    on demand.
    """

    size: int = 0
    tokens: int = 0
    estimate: int = 0
    tuple_: tuple[Item, ...] | None = ()
    front_: Front | None = None
    """What stays, where it is known that it all stands at the front."""
    firm_: tuple[int, ...] | None = None
    columns_: dict[str, NDArray[Any]] | None = None
    makers_: dict[int, Maker] | None = None
    counts_: dict[int, int] | None = None
    rows_: frozenset[int] | None = None
    sums_: tuple[list[int], list[int]] | None = None

    @classmethod
    def of(cls, items: tuple[Item, ...]) -> Head:
        """Return the head of some items."""
        return cls(
            len(items), sum([i.tokens for i in items]), sum([i.estimate for i in items]), items
        )

    @classmethod
    def of_columns(cls, columns: dict[str, NDArray[Any]], makers: dict[int, Maker]) -> Head:
        """Return a head from arrays `rows stands keys tokens estimates` and the makers of the keys
        that are not 0.
        """
        tokens = int(columns["tokens"].sum())
        alike = columns["estimates"] is columns["tokens"]
        estimate = tokens if alike else int(columns["estimates"].sum())
        return cls(len(columns["rows"]), tokens, estimate, None, columns_=columns, makers_=makers)

    @property
    def items(self) -> tuple[Item, ...]:
        """The items, one by one."""
        if self.tuple_ is None:
            c, makers = self.columns_ or {}, self.makers
            columns = (c[name].tolist() for name in _NUMBERS)
            self.tuple_ = tuple(
                Item(r, t, e, makers[k] if k else None, s)
                for r, s, k, t, e in zip(*columns, strict=True)
            )
        return self.tuple_

    @property
    def makers(self) -> dict[int, Maker]:
        """The makers of changed and new messages, by their keys."""
        if self.makers_ is None:
            self.makers_ = {i.maker.key: i.maker for i in self.items if i.maker is not None}
        return self.makers_

    def item(self, place: int) -> Item:
        """Return one item without making the others."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place]
        c = self.columns_
        row, stands, key, tokens, estimate = [int(c[name][place]) for name in _NUMBERS]
        return Item(row, tokens, estimate, self.makers[key] if key else None, stands)

    def message(self, log: Log, place: int) -> Message:
        """Return what one item says."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].message(log)
        row, key = int(self.columns_["rows"][place]), int(self.columns_["keys"][place])
        return self.makers[key].message(log, row) if key else log.messages[row]

    def messages(self, log: Log) -> list[Message]:
        """Return what all items say."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.message(log) for i in self.items]
        makers, said, c = self.makers, log.messages, self.columns_
        rows = zip(c["rows"].tolist(), c["keys"].tolist(), strict=True)
        return [makers[key].message(log, row) if key else said[row] for row, key in rows]

    def said(self) -> list[int]:
        """Return the rows that stand as they were said."""
        if self.tuple_ is not None or self.columns_ is None:
            return [i.row for i in self.items if i.row >= 0 and i.maker is None]
        rows, keys = self.columns_["rows"], self.columns_["keys"]
        found: list[int] = rows[(rows >= 0) & (keys == 0)].tolist()
        return found

    def row(self, place: int) -> int:
        """Return the row of one item, or -1."""
        if self.tuple_ is not None or self.columns_ is None:
            return self.items[place].row
        return int(self.columns_["rows"][place])

    def front(self, log: Log, call: int) -> Front | None:
        """Return what stays as of a call, where all of it stands first; None where some stands
        behind what may go.
        """
        if log.late_stays and self.size:
            return self._front_of(self.firm(log, call))
        if self.front_ is None:
            self.front_ = self._front_of(self.firm(log, call))
        return self.front_

    def _front_of(self, firm: tuple[int, ...]) -> Front | None:
        if firm and firm[-1] != len(firm) - 1:
            return None
        return Front().then(tuple([self.item(p) for p in firm]))

    def firm(self, log: Log, call: int) -> tuple[int, ...]:
        """Return the places of the items that no policy may remove as of a call."""
        if log.late_stays and self.size:
            return self._firm_at(log, call)
        if self.firm_ is None:
            if self.front_ is not None:
                self.firm_ = tuple(range(len(self.front_.items)))
            else:
                self.firm_ = self._firm_at(log, call)
        return self.firm_

    def _firm_at(self, log: Log, call: int) -> tuple[int, ...]:
        if self.tuple_ is not None:
            return tuple(p for p, i in enumerate(self.tuple_) if i.stays(log, call))
        stays, rows = log.stays_at(call), self.column(log, "rows")
        firm = np.isin(rows, stays) if stays else np.zeros(self.size, bool)
        for p in np.flatnonzero(rows < 0).tolist():
            firm[p] = self.makers[int(self.column(log, "keys")[p])].pinned
        return tuple(np.flatnonzero(firm).tolist())

    def column(self, log: Log, name: str) -> NDArray[Any]:
        """Return one value an item; beside the log's columns `rows stands keys contents`."""
        if self.columns_ is None:
            self.columns_ = {}
        found = self.columns_.get(name)
        if found is None:
            found = self.columns_[name] = self._made(log, name)
        return found

    def _made(self, log: Log, name: str) -> NDArray[Any]:
        if name == "contents":
            return self._contents(log)
        if name in _NUMBERS:
            return np.array([_NUMBERS[name](i) for i in self.items], np.int64)
        whole = log.column(name)
        if not self.size:
            return whole[:0]
        values: NDArray[Any] = whole[np.maximum(self.column(log, "stands"), 0)]
        if name in ("roles", "chars", "groups", "tools", "errors", "asks", "thinks"):
            at = np.flatnonzero(self.column(log, "keys"))
            values[at] = self._values(log, name, at, values[at])
        return values

    def _contents(self, log: Log) -> NDArray[Any]:
        """Return a number an item, equal where a row says the same; below 0: as said."""
        found: NDArray[Any] = -self.column(log, "rows") - 1
        at = np.flatnonzero(self.column(log, "keys"))
        found[at] = self._once(log, "contents", at)
        return found

    def _once(self, log: Log, name: str, at: NDArray[Any]) -> NDArray[Any]:
        """Return what changed and new messages have, worked out once for each row and key."""
        known: KnownValues = log.memo.setdefault(("made", name), KnownValues())
        rows, keys = (self.column(log, of)[at] for of in ("rows", "keys"))

        def make(place: int) -> int:
            return int(_MADE[name](self.makers[int(keys[place])], log, int(rows[place])))

        return known.of(keys + rows * _APART, make)

    def _values(self, log: Log, name: str, at: NDArray[Any], was: NDArray[Any]) -> NDArray[Any]:
        """Return what changed and new messages have in a column; `was` is what the rows had that
        they stand for.
        """
        if name in _MADE:
            return self._once(log, name, at)
        none = {"tools": log.code("tool", ""), "groups": -1, "errors": False}[name]
        return np.where(self.column(log, "rows")[at] < 0, none, was)

    def count(self, log: Log, role: int) -> int:
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


EMPTY = Head(front_=Front())
