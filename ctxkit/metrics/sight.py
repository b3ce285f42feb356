"""What a pruning hid when it was needed: a view for each call, so what is lost can be back at the next one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history import History
from ctxkit.metrics.indexes import Index
from ctxkit.metrics.items import Found
from ctxkit.policies.chain import applied

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.engine import Run


def shares(done: Run, index: Index | None = None) -> dict[str, Any]:
    """Return a score's columns of loss for a run with a pruning.

    An item was lost where no message shown held it at a call, and that call or a later one named it again; looked at
    are the calls that name something again. Each counts once. Retained and lost are those of the last call. What could
    be fetched again, and the best that the room could have held, are not worked out.
    """
    index = index or Index()
    log = done.log
    if not any(m.text for m in log.messages):
        return {}
    again, seen = index.used_again(log.messages), _Seen(done, index)
    hidden: set[Found] = set()
    out: set[Found] = set()
    needed: set[Found] = set()
    missed: set[Found] = set()
    for call in range(done.begin, done.call):
        reply = log.replies[call]
        upto = log.upto[call]
        used = index.used(reply) & again if reply is not None else frozenset[Found]()
        named = {item for item in used if item not in missed and seen.where[item][0] < upto}
        if not named:
            continue
        seen.at(call)
        for item in again - out:
            rows = seen.said(item, upto)
            if rows and not seen.shown[rows].all():
                hidden.add(item)
                if not seen.stands(item, rows):
                    out.add(item)
        needed |= named & hidden
        missed |= named & out
    if done.call > done.begin:
        seen.at(done.call - 1)
    gone = {item for row in np.flatnonzero(~seen.shown).tolist() for item in index.items(log.messages[row])}
    kept = sum(seen.stands(item, seen.where[item]) for item in gone)
    return {
        "items_n": len(gone),
        "retained": kept / len(gone) if gone else None,
        "lost": 1 - kept / len(gone) if gone else None,
        "used_again_n": len(again),
        "needed_later_n": len(needed),
        "needed_lost_n": len(missed),
        "needed_later_loss": len(missed) / len(again) if again else 0.0,
    }


class _Seen:
    """Which messages one call of a run was shown as they were said, and what was put in their place."""

    def __init__(self, done: Run, index: Index) -> None:
        self.done, self.words = done, ""
        self.shown: NDArray[Any] = np.zeros(len(done.log), bool)
        self.where: dict[Found, list[int]] = {}
        for row, message in enumerate(done.log.messages):
            for name in index.names(message):
                self.where.setdefault(name, []).append(row)
        self._starts = [done.begin, *(c.call for c in done.cuts)]
        self._views = [History.start(done.log, done.begin), *(c.new for c in done.cuts)]
        self._texts: dict[int, tuple[Any, str]] = {}

    def at(self, call: int) -> None:
        """Turn to a call."""
        done = self.done
        view = self._views[bisect_right(self._starts, call) - 1].at(call)
        if done.rules.pruning is not None:
            view = applied(done.rules.pruning, view, done.room)
        rows, keys = view.column("rows"), view.column("keys")
        self.shown = np.zeros(len(done.log), bool)
        self.shown[rows[(rows >= 0) & (keys == 0)]] = True
        made = [view.item(p).maker for p in np.flatnonzero((rows < 0) | (keys != 0)).tolist()]
        self.words = " ".join({id(m): self._text(m) for m in made if m is not None}.values())

    def said(self, item: Found, upto: int) -> list[int]:
        """Return the rows before `upto` that hold an item."""
        rows = self.where[item]
        return rows[: bisect_left(rows, upto)]

    def stands(self, item: Found, rows: list[int]) -> bool:
        """Say whether the call was shown an item that these rows hold."""
        return bool(self.shown[rows].any()) or item.text in self.words

    def _text(self, maker: Any) -> str:
        known = self._texts.get(id(maker))
        if known is None:  # the maker is kept, so that its identity stays its own
            known = self._texts[id(maker)] = (maker, " ".join(maker.message(self.done.log, 0).text.split()))
        return known[1]
