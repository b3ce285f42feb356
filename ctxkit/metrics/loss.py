"""What compactions lost: which items, whether they can be found again, and whether the record needed them later.

An item is *retained* where it stands word for word (a path also as the ending of a longer one) in what is shown after
the cut; *recoverable* where a file, an artifact or an archive holds it that is named there; else *lost*. A cut *took*
the items that stood before it and do not stand after it.

Needed-later loss: of the items that the record names again after they were said, in a reply's text or tool arguments,
the share that a cut took before such a call, however long before. Each item counts once, for the last cut that took it
before the first such call. What is divided by is the record's own, the same under any rules, so that neither few cuts
nor many look better for being so. A part of the loss could have been fetched again, which costs a call: what the record
says anew between cut and use counts as lost all the same, as the agent may have looked for it. The record's future is
taken as it is: this is the opportunity for loss, not what an agent would have done without the item.
"""

from __future__ import annotations

from itertools import zip_longest
from statistics import median
from typing import TYPE_CHECKING, Any

from ctxkit.frames.cuts import cuts
from ctxkit.messages import Message
from ctxkit.metrics.fates import FATES, CutLoss, Gone, Loss
from ctxkit.metrics.indexes import Index
from ctxkit.metrics.items import FAMILIES
from ctxkit.metrics.views import View
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.metrics.items import Found
    from ctxkit.session import Session

__all__ = ["FATES", "CutLoss", "Gone", "Index", "cut_losses", "families", "losses", "lost", "shares"]

COLUMNS = (
    *("session", "cut", "call", "family", "item", "fate"),
    *("position", "message", "role", "tool", "needed_call", "delay"),
)


@of_session
def lost(session: Session, index: Index | None = None) -> Loss:
    """Return what the compactions of a session or a replay lost; nothing where it holds no text."""
    index = index or Index()
    if not session.has_text:
        return Loss((), 0, frozenset())
    found = cuts(session)
    again = len(index.used_again(session.messages))
    if not found:
        return Loss((), again, frozenset())
    view = View(session, index)
    every = [view.cut(cut, following) for cut, following in zip_longest(found, found[1:])]
    return Loss(charged(every, view), again, frozenset(view.needed))


def charged(every: Sequence[CutLoss], view: View) -> tuple[CutLoss, ...]:
    """Return cuts with the calls that needed what they took, each call charged to the last cut that took the item."""
    until: dict[Found, int] = {}
    out = []
    for cut in reversed(every):
        told = tuple(t._replace(needed=view.first(t.item, cut.call, until.get(t.item, 1 << 62))) for t in cut.taken)
        until |= {t.item: cut.call for t in told}
        out.append(cut._replace(taken=told))
    return tuple(reversed(out))


@of_session
def cut_losses(session: Session, index: Index | None = None) -> tuple[CutLoss, ...]:
    """Return what was lost after each compaction of a session or a replay; nothing where it holds no text."""
    return lost(session, index).cuts


def shares(session: Session, index: Index | None = None) -> dict[str, Any]:
    """Return a score's columns of loss, over all cuts; missing without text, or where a pruning hides messages.

    Where nothing was cut, nothing was lost that was needed: that is a zero.
    """
    if not session.has_text or session.details.get("replay", {}).get("pruning"):
        return {}
    return summed(lost(session, index))


def summed(found: Loss) -> dict[str, Any]:
    """Return the columns of loss."""
    every, again, missed = found.cuts, found.used_again, found.missed
    n = sum(c.tally.total() for c in every)
    of: dict[str, Any] = {fate: sum(c.count(fate) for c in every) / n if n else None for fate in FATES}
    window = sum(c.count(needed=True) for c in every)
    seen = sum(c.count("retained", needed=True) for c in every)
    gone = sum(taken.fate == "lost" for _, taken in missed.values())
    delays = [taken.needed - call for call, taken in missed.values() if taken.needed is not None]
    least = max((max(c.due - c.saved, 0.0) for c in every), default=0.0)
    return {
        "items_n": n,
        **of,
        "used_again_n": again,
        "needed_later_n": len(found.needed),
        "needed_lost_n": len(missed),
        "needed_later_loss": len(missed) / again if again else 0.0,
        "needed_later_gone": gone / again if again else 0.0,
        "window_loss": (window - seen) / window if window else 0.0,
        "first_use_delay": float(median(delays)) if delays else None,
        "regret": max(len(missed) - least, 0.0) / again if again else 0.0,
    }


@of_session
def families(session: Session, index: Index | None = None) -> pd.DataFrame:
    """Return one row for each cut and family.

    Columns: `cut call family items_n retained recoverable lost needed_n needed_lost_n taken_n missed_n`. Retained,
    recoverable and lost are shares of the items removed since the start, missing where there are none. Needed and
    needed_lost count those of them that the record used before the next cut, and those of these that were not retained.
    Taken counts the items that this cut took out of sight, missed those of them that the record used at any time after
    it, unless a later cut took them again first.
    """
    import pandas as pd

    rows = []
    for c in cut_losses(session, index):
        for family in FAMILIES:
            n = c.count(family=family)
            of = {fate: c.count(fate, family) / n if n else None for fate in FATES}
            needed = c.count(family=family, needed=True)
            unseen = needed - c.count("retained", family, needed=True)
            taken = sum(t.item.family == family for t in c.taken)
            rows.append((c.number, c.call, family, n, *of.values(), needed, unseen, taken, c.missed(family)))
    names_ = ["cut", "call", "family", "items_n", *FATES, "needed_n", "needed_lost_n", "taken_n", "missed_n"]
    return pd.DataFrame(rows, columns=names_).astype(dict.fromkeys(FATES, "Float64"))


@of_session
def losses(session: Session, index: Index | None = None) -> pd.DataFrame:
    """Return one row for each item that a cut took out of sight.

    Columns: `session cut call family item fate position message role tool needed_call delay`: the cut that took it and
    the first call after it, where it was (place in the path, id, role and tool of the first message that held it), the
    first later call, at any time, that named it (missing: none did), and how many calls after the cut. An item that a
    message says again can be taken again: it has a row for each time, and a call is told in the last before it.
    """
    import pandas as pd

    rows = []
    for c in cut_losses(session, index):
        for t in sorted(c.taken, key=lambda t: (t.position, t.item)):
            m = session.path[t.position]
            told = (m.id, m.role, m.tool) if isinstance(m, Message) else (m.id, None, None)
            delay = None if t.needed is None else t.needed - c.call
            rows.append((session.id, c.number, c.call, *t.item, t.fate, t.position, *told, t.needed, delay))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"needed_call": "Int64", "delay": "Int64"})
