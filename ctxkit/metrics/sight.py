"""What a pruning hid when it was needed: a view for each call, so what is lost can be back at the next one."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.metrics.loss import Index
from ctxkit.policies.chain import applied

if TYPE_CHECKING:
    from ctxkit.engine import Run
    from ctxkit.history import History
    from ctxkit.metrics.items import Found


def shares(done: Run, index: Index | None = None) -> dict[str, Any]:
    """Return a score's columns of loss for a run with a pruning.

    An item was needed where a reply names it that stands in a message which this call did not show as it was said; it
    was out of sight where no message shown held it. Each counts once between two compactions. Retained and lost are
    those of the last call. What could be fetched again, and the best that the room could have held, are not worked
    out.
    """
    index = index or Index()
    log, cuts = done.log, [c.call for c in done.cuts]
    if not any(m.text for m in log.messages):
        return {}
    where: dict[Found, list[int]] = {}
    for row, message in enumerate(log.messages):
        for name in index.names(message):
            where.setdefault(name, []).append(row)
    starts = [done.begin, *cuts]
    views = [log_start(done), *(c.new for c in done.cuts)]
    needed: dict[tuple[int, Found], bool] = {}
    shown, words = np.zeros(len(log), bool), ""
    for call in range(done.begin, done.call):
        part = bisect_right(starts, call) - 1
        shown, words = _sight(done, views[part].at(call))
        reply = log.replies[call]
        for item in index.used(reply) if reply is not None else ():
            rows = [r for r in where.get(item, ()) if r < log.upto[call]]
            if rows and not all(shown[r] for r in rows):
                needed.setdefault((part, item), not any(shown[r] for r in rows) and item.text not in words)
    gone = {item for row in np.flatnonzero(~shown).tolist() for item in index.items(log.messages[row])}
    kept = sum(any(shown[r] for r in where[item]) or item.text in words for item in gone)
    missed = sum(needed.values())
    return {
        "items_n": len(gone),
        "retained": kept / len(gone) if gone else None,
        "lost": 1 - kept / len(gone) if gone else None,
        "needed_later_n": len(needed),
        "needed_later_loss": missed / len(needed) if needed else 0.0,
    }


def log_start(done: Run) -> History:
    """Return the history before the first compaction."""
    from ctxkit.history import History

    return History.start(done.log, done.begin)


def _sight(done: Run, history: History) -> tuple[Any, str]:
    """Return which rows a call was shown as they were said, and the text of what was put in their place."""
    view = applied(done.rules.pruning, history, done.room) if done.rules.pruning is not None else history
    rows, keys = view.column("rows"), view.column("keys")
    shown = np.zeros(len(done.log), bool)
    shown[rows[(rows >= 0) & (keys == 0)]] = True
    made = [view.item(p).maker for p in np.flatnonzero((rows < 0) | (keys != 0)).tolist()]
    texts = {id(m): m.message(done.log, 0).text for m in made if m is not None}
    return shown, " ".join(" ".join(texts.values()).split())
