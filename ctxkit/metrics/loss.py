"""Tables of loss: item by item, by family and compaction, and over successive compactions.

The definitions are those of `metrics.loss_analysis`, for recorded sessions, replays and runs alike.
The record's future is taken as it is: this is the opportunity for loss, not what an agent would
have done without the item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.engine import run_of_replay
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.compactions import get_replay_compactions
from ctxkit.metrics.item_index import ItemIndex
from ctxkit.metrics.items import ITEM_FAMILIES, MessageItemCache
from ctxkit.metrics.loss_analysis import ITEM_FATES, NO_CALL, LossAnalysis, OracleBound
from ctxkit.metrics.stats import median_or_none
from ctxkit.metrics.visibility import get_run_visibility, get_session_visibility
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session.session import Session


__all__ = ["ITEM_FATES", "analyse_loss", "drift", "loss_by_family", "losses", "score_loss_shares"]
__dir__ = public_dir(__all__)


LOSS_COLUMNS = (
    *("session", "cut", "call", "family", "item", "fate"),
    *("position", "message", "role", "tool", "needed_call", "delay", "weight"),
)


@accepts_session
def analyse_loss(session: Session) -> LossAnalysis | None:
    """Return what was lost of a session or a replay; None where it cannot be said.

    That is without text, and for a replay with a pruning that was read from a file: what was hidden
    is then not known.
    """
    if not session.has_text:
        return None
    done = run_of_replay(session)
    if done is None and session.details.get("replay", {}).get("pruning"):
        return None
    memory = ItemIndex(session, MessageItemCache())
    return LossAnalysis(
        memory,
        get_session_visibility(memory, session)
        if done is None
        else get_run_visibility(memory, done),
    )


def score_loss_shares(session: Session) -> dict[str, Any]:
    """Return a score's columns of loss; nothing where they cannot be said.

    Where nothing was cut, nothing was lost that was needed: that is a zero.
    """
    found = analyse_loss(session)
    return {} if found is None else make_loss_columns(found)


def make_loss_columns(found: LossAnalysis) -> dict[str, Any]:
    """Return the columns of loss of a score."""
    again, weight = len(found.memory.again), found.memory.weight
    n = int((len(found.times) - found.first[found.is_gone]).sum())
    retained, at_hand = (
        int(np.subtract(*spans.counts(found.times)[::-1]).sum()) for spans in found.both
    )
    missed, (_, _, in_sight) = found.charged, found.window
    lost, heavy = len(missed.item), float(weight[found.memory.again].sum())
    empty = None if len(found.times) else 0.0
    return {
        "items_n": n,
        "retained": retained / n if n else None,
        "recoverable": (at_hand - retained) / n if n else None,
        "lost": (n - at_hand) / n if n else None,
        "used_again_n": again,
        "needed_later_n": int(found.due.sum()),
        "needed_lost_n": lost,
        "needed_later_loss": lost / again if again else empty,
        "needed_later_gone": int((~missed.found).sum()) / again if again else empty,
        "weighted_loss": float(weight[missed.item].sum()) / heavy if again else empty,
        "at_stake_n": len(found.staked[0]),
        "summary_recall": found.recall,
        "rules_kept": found.rules_kept,
        "window_loss": int((~in_sight).sum()) / len(in_sight) if len(in_sight) else empty,
        "first_use_delay": median_or_none(missed.delay.tolist()),
        "regret": max(lost - OracleBound(found).least if lost else 0.0, 0.0) / again
        if again
        else empty,
    }


@accepts_session
def loss_by_family(session: Session) -> pd.DataFrame:
    """Return one row for each cut and family.

    Columns: `cut call family items_n retained recoverable lost needed_n needed_lost_n taken_n
    missed_n at_stake_n kept_n`. Retained, recoverable and lost are shares of the items removed
    since the start, missing where there are none. Needed and needed_lost count those of them that
    the record used before the next cut, and those of these that were not retained. Taken counts the
    items that this cut took out of sight, missed those of them that the record used at any time
    after it, unless a later cut took them again first. At stake are the items named later that this
    cut took as they were said, so that only the text put in could still say them; kept those that
    it said until they were named. What was done before one call is one cut, and so is each call
    at which a pruning changed something.
    """
    import pandas as pd

    found, rows = analyse_loss(session), []
    for number, call, family, counts in list_family_counts(found) if found is not None else ():
        n = sum(counts[:3])
        rows.append(
            (number, call, family, n, *(c / n if n else None for c in counts[:3]), *counts[3:])
        )
    counted = ("needed_n", "needed_lost_n", "taken_n", "missed_n", "at_stake_n", "kept_n")
    names = ["cut", "call", "family", "items_n", *ITEM_FATES, *counted]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(ITEM_FATES, "Float64"))


def list_family_counts(found: LossAnalysis) -> list[tuple[int, int, str, list[int]]]:
    """Return for each cut and family number, call, name and counts (`Forgotten.families`)."""
    counts, shown = found.families(), found.shown
    return [
        (number, call, family, counts[:, f, at].tolist())
        for at, (number, call) in enumerate(zip(shown.numbers, shown.moments.tolist(), strict=True))
        for f, family in enumerate(ITEM_FAMILIES)
    ]


@accepts_session
def losses(session: Session) -> pd.DataFrame:
    """Return one row for each item that a cut took out of sight.

    Columns: `session cut call family item fate position message role tool needed_call delay
    weight`: the cut that took it and the first call after it, where it was (place in the path, id,
    role and tool of the first message that held it), the first later call, at any time, that named
    it (missing: none did), how many calls after the cut, and what the item weighs
    (`item_arrays.USER_WEIGHT` where the user said it, else 1). An item that a message says again
    can be taken again: it has a row for each time, and a call is told in the last before it.
    """
    import pandas as pd

    found = analyse_loss(session)
    rows = _loss_rows(session, found) if found is not None else []
    return pd.DataFrame(rows, columns=list(LOSS_COLUMNS)).astype(
        {"needed_call": "Int64", "delay": "Int64"}
    )


def _loss_rows(session: Session, found: LossAnalysis) -> list[tuple[Any, ...]]:
    taken, shown, names = found.taken, found.shown, list(found.memory.numbers)
    places, first = _row_positions(session), found.first_row()
    rows = []
    for item, time, at_hand, needed in zip(*(of.tolist() for of in taken), strict=True):
        call, row, use = time // 2, first[item], None if needed == NO_CALL else needed
        number = shown.numbers[int(np.searchsorted(found.times, time))]
        m = found.memory.messages[row]
        fate = "recoverable" if at_hand else "lost"
        told = (*names[item], fate, places[row], m.id, m.role, m.tool)
        delay = None if use is None else use - call
        rows.append((session.id, number, call, *told, use, delay, float(found.memory.weight[item])))
    return sorted(rows, key=lambda r: (r[2], r[6], r[3:5]))


def _row_positions(session: Session) -> list[int]:
    """Return where each row stands in the session's path."""
    return [i for i, e in enumerate(session.path) if isinstance(e, Message) and e.visible]


@accepts_session
def drift(session: Session) -> pd.DataFrame:
    """Return one row for each cut and each later state of what it took.

    Columns: `session cohort cuts_n call items_n retained recoverable lost summary_tokens`: items
    that the cut `cohort` removed first, after `cuts_n` compactions (1: that cut itself), as shares;
    and the tokens that the compaction before `call` put in (missing where its size is not known). A
    summary may recall all and still grow.
    """
    import pandas as pd

    rows, found = [], analyse_loss(session)
    sizes = (
        {s.call: s.summary for s in get_replay_compactions(session)}
        if session.origin is not None
        else {}
    )
    if found is not None:
        counts, calls = found.cohorts(), found.shown.moments.tolist()
        n = counts.sum(axis=0)
        for cohort, at in np.argwhere(n.T > 0)[:, ::-1].tolist():
            items, shares = int(n[cohort, at]), (counts[:, cohort, at] / n[cohort, at]).tolist()
            told = (session.id, cohort, at - cohort + 1, calls[at], items)
            rows.append((*told, *shares, sizes.get(calls[at])))
    names = ("session", "cohort", "cuts_n", "call", "items_n", *ITEM_FATES, "summary_tokens")
    return pd.DataFrame(rows, columns=list(names)).astype(
        {"session": "string", "summary_tokens": "Int64"}
    )
