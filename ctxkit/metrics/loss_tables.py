"""Tables of loss: by item, by family and compaction, and over successive compactions.

`metrics.loss_analysis` defines the terms. Whether an item is needed later follows from the replies
of the record: the tables measure the opportunity for loss, not what an agent would have done
without the item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.engine import get_run_of_replay
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_savings_and_payback import get_replay_compactions
from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
from ctxkit.metrics.losable_items import ITEM_FAMILIES, MessageItemCache
from ctxkit.metrics.loss_analysis import ITEM_FATES, NO_CALL, LossAnalysis, OracleBound
from ctxkit.metrics.means_and_prediction_intervals import median_or_none
from ctxkit.metrics.message_visibility import get_visibility
from ctxkit.session.messages import Message

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session.session import Session


__all__ = [
    "ITEM_FATES",
    "analyse_loss",
    "compute_loss_columns",
    "drift",
    "loss_by_family",
    "losses",
]
__dir__ = make_dunder_dir(__all__)


LOSS_COLUMNS = (
    *("session", "compaction", "call", "family", "item", "fate"),
    *("position", "message", "role", "tool", "needed_call", "calls_until_needed", "weight"),
)
FATE_COUNTS = (
    "needed_n",
    "needed_lost_n",
    "removed_n",
    "needed_after_n",
    "at_stake_items_n",
    "recalled_n",
)
"""Columns of `loss_by_family` after the shares, in the order of `LossAnalysis.count_by_family`."""


@accepts_session
def analyse_loss(
    session: Session, item_cache: MessageItemCache | None = None
) -> LossAnalysis | None:
    """Analyse which items the compactions of a session removed, and which were needed later.

    Args:
        session: a recorded session, a live one or a replay.
        item_cache: extracts the items; None: those of all families.

    Returns:
        The analysis; None for a session without text, and for a replay with a pruning that was read
        from a file, because the file does not say what the pruning hid.

    Example:
        >>> import ctxkit as ck
        >>> analysis = analyse_loss(ck.samples.path("billing"))
        >>> sorted(set(analysis.fates().values()))
        ['lost', 'recoverable', 'retained']
    """
    if not session.has_text:
        return None
    if get_run_of_replay(session) is None and session.details.get("replay", {}).get("pruning"):
        return None
    index = ItemIndex(session, item_cache or MessageItemCache())
    return LossAnalysis(index, get_visibility(index, session))


def compute_loss_columns(session: Session) -> dict[str, Any]:
    """Return the columns of loss of a score.

    Args:
        session: a session or a replay.

    Returns:
        Figures by column name, as `docs/scores.md` defines them; empty where `analyse_loss` returns
        None. Where nothing was removed, the shares of needed items are 0.
    """
    analysis = analyse_loss(session)
    return {} if analysis is None else make_loss_columns(analysis)


def make_loss_columns(analysis: LossAnalysis) -> dict[str, Any]:
    """Return the columns of loss of a score, from an analysis.

    Args:
        analysis: what `analyse_loss` returned.

    Returns:
        A value for each column that `docs/scores.md` lists under loss; shares are 0..1.
    """
    index, changes_n = analysis.memory, len(analysis.change_ticks)
    # Pairs of a removed item and a change at or after its removal; how many are retained.
    pairs_n = int((changes_n - analysis.first_change[analysis.is_removed]).sum())
    retained_n, available_n = (
        int(np.subtract(*spans.find_ranges(analysis.change_ticks)[::-1]).sum())
        for spans in (analysis.retained_spans, analysis.available_spans)
    )
    needed_lost, in_interval = analysis.needed_lost_items, analysis.needed_in_interval
    reused_n, lost_n = len(index.reused_items), len(needed_lost.item)
    reused_weight = float(index.weight[index.reused_items].sum())
    unrecoverable_n = int((~needed_lost.is_recoverable).sum())
    lost_weight = float(index.weight[needed_lost.item].sum())
    bound = OracleBound(analysis).lower_bound if lost_n and reused_n else 0.0
    # Unknown where nothing is used again, but 0 where nothing was removed.
    unknown = None if changes_n else 0.0

    def share_of_reused(value: float, total: float = reused_n) -> float | None:
        return value / total if reused_n else unknown

    return {
        "items_n": pairs_n,
        "retained": retained_n / pairs_n if pairs_n else None,
        "recoverable": (available_n - retained_n) / pairs_n if pairs_n else None,
        "lost": (pairs_n - available_n) / pairs_n if pairs_n else None,
        "reused_items_n": reused_n,
        "needed_later_n": int(analysis.needed_after_removal.sum()),
        "needed_lost_n": lost_n,
        "needed_later_loss": share_of_reused(lost_n),
        "needed_later_unrecoverable": share_of_reused(unrecoverable_n),
        "weighted_loss": share_of_reused(lost_weight, reused_weight),
        "at_stake_items_n": len(analysis.items_only_in_inserted_text.item),
        "summary_recall": analysis.recall,
        "user_rules_kept": analysis.rules_retained,
        "next_interval_loss": int((~in_interval.is_visible).sum()) / len(in_interval.item)
        if len(in_interval.item)
        else unknown,
        "calls_to_first_use": median_or_none(needed_lost.calls_until_needed.tolist()),
        "regret": share_of_reused(max(lost_n - bound, 0.0)),
    }


class FamilyLossCounts(NamedTuple):
    """Counts of one compaction and one family."""

    compaction: int
    call: int
    family: str
    counts: list[int]
    """One count per kind of `LossAnalysis.count_by_family`."""


def list_counts_by_compaction_and_family(analysis: LossAnalysis) -> list[FamilyLossCounts]:
    """Return the counts of each compaction and family, by compaction, then by family.

    Args:
        analysis: what `analyse_loss` returned.

    Returns:
        Counts of items that were removed, retained, recoverable, lost and needed.
    """
    counts, visibility = analysis.count_by_family(), analysis.visibility
    changes = zip(visibility.compaction_numbers, visibility.change_calls.tolist(), strict=True)
    return [
        FamilyLossCounts(number, call, family, counts[:, f, change].tolist())
        for change, (number, call) in enumerate(changes)
        for f, family in enumerate(ITEM_FAMILIES)
    ]


@accepts_session
def loss_by_family(session: Session) -> pd.DataFrame:
    """Tabulate what each compaction removed, by family of item.

    Args:
        session: a session or a replay; without text the result has no rows.

    Returns:
        One row per compaction and family, in order of calls. Compactions before one call count as
        one; each call at which a pruning changed something counts as a compaction:

        ================  ==========================================================================
        compaction        number of the compaction, from 0
        call              the first call after it
        family            path, url, id, name, number, command, error, constraint, decision or open
        items_n           items removed since the start of the session
        retained          share of them that the prompt states again; missing where items_n is 0
        recoverable       share that a file or an archive named in the prompt holds
        lost              share of the rest
        needed_n          removed items that the record used before the next compaction
        needed_lost_n     those of them that were not retained
        removed_n         items that this compaction removed
        needed_after_n    those of them that the record used before they were removed again
        at_stake_items_n  items used later that only the inserted text could still state
        recalled_n        those of them that it stated until their use
        ================  ==========================================================================

    Example:
        >>> import ctxkit as ck
        >>> families = loss_by_family(ck.samples.path("billing"))
        >>> paths = families[families.family == "path"]
        >>> print(paths[["compaction", "call", "items_n", "retained"]])
            compaction  call  items_n  retained
        0            0   175       40     0.525
        10           1   300       43  0.348837
    """
    import pandas as pd

    analysis, rows = analyse_loss(session), []
    for row in list_counts_by_compaction_and_family(analysis) if analysis is not None else ():
        items_n = sum(row.counts[: len(ITEM_FATES)])
        shares = [n / items_n if items_n else None for n in row.counts[: len(ITEM_FATES)]]
        rows.append((*row[:3], items_n, *shares, *row.counts[len(ITEM_FATES) :]))
    names = ["compaction", "call", "family", "items_n", *ITEM_FATES, *FATE_COUNTS]
    return pd.DataFrame(rows, columns=names).astype(dict.fromkeys(ITEM_FATES, "Float64"))


@accepts_session
def losses(session: Session) -> pd.DataFrame:
    """List every removal of every item, with its fate and its next use.

    Args:
        session: a session or a replay; without text the result has no rows.

    Returns:
        One row per removal; an item that is stated again can be removed again:

        ==================  ========================================================================
        session             id of the session
        compaction          number of the compaction that removed it, from 0
        call                the first call after it
        family              what the item is
        item                its text
        fate                recoverable or lost, at that call
        position            place in the path of the first message that stated it
        message             id of that message
        role                its role
        tool                the tool whose result it is
        needed_call         the first later call that used the item before its next removal, else
                            missing
        calls_until_needed  calls from the removal to that use
        weight              4 for an item that the user stated, else 1
        ==================  ========================================================================

    Example:
        >>> import ctxkit as ck
        >>> table = losses(ck.samples.path("billing"))
        >>> table["fate"].value_counts().to_dict()
        {'lost': 172, 'recoverable': 21}
    """
    import pandas as pd

    analysis = analyse_loss(session)
    rows = _make_loss_rows(session, analysis) if analysis is not None else []
    return pd.DataFrame(rows, columns=list(LOSS_COLUMNS)).astype(
        {"needed_call": "Int64", "calls_until_needed": "Int64"}
    )


def _make_loss_rows(session: Session, analysis: LossAnalysis) -> list[tuple[Any, ...]]:
    index, visibility = analysis.memory, analysis.visibility
    items, first_rows = list(index.item_numbers), analysis.find_first_rows()
    positions = [
        i for i, entry in enumerate(session.path) if isinstance(entry, Message) and entry.visible
    ]
    rows = []
    columns = (column.tolist() for column in analysis.removals)
    for item, tick, is_recoverable, next_use in zip(*columns, strict=True):
        call, row = tick // 2, first_rows[item]
        number = visibility.compaction_numbers[int(np.searchsorted(analysis.change_ticks, tick))]
        message = index.messages[row]
        fate = "recoverable" if is_recoverable else "lost"
        source = (positions[row], message.id, message.role, message.tool)
        use = (None, None) if next_use == NO_CALL else (next_use, next_use - call)
        weight = float(index.weight[item])
        rows.append((session.id, number, call, *items[item], fate, *source, *use, weight))
    # By compaction, position of the message, family and item.
    return sorted(rows, key=lambda r: (r[2], r[6], r[3:5]))


@accepts_session
def drift(session: Session) -> pd.DataFrame:
    """Tabulate what later compactions leave of the items that each compaction removed first.

    Args:
        session: a session or a replay; without text the result has no rows.

    Returns:
        One row per compaction (`cohort`) and each compaction from it on:

        ==============  ==========================================================================
        session         id of the session
        cohort          the compaction that removed the items first, from 0
        compactions_n   compactions since then; 1 is that compaction itself
        call            the first call after the latest of them
        items_n         items of the cohort
        retained        share of them that the prompt states again at that call
        recoverable     share that a file or an archive named in the prompt holds
        lost            share of the rest
        summary_tokens  tokens that the latest compaction inserted, missing where unknown: a summary
                        can state everything and still grow
        ==============  ==========================================================================

    Example:
        >>> import ctxkit as ck
        >>> table = drift(ck.samples.path("billing"))
        >>> print(table[["cohort", "compactions_n", "items_n", "retained"]].round(2))
           cohort  compactions_n  items_n  retained
        0       0       1      155      0.29
        1       0       2      155      0.24
        2       1       1       42      0.07
    """
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    analysis = analyse_loss(session)
    summary_tokens = (
        {c.call: c.inserted_tokens for c in get_replay_compactions(session)}
        if session.origin is not None
        else {}
    )
    if analysis is not None:
        counts, calls = analysis.count_by_cohort(), analysis.visibility.change_calls.tolist()
        items_n = counts.sum(axis=0)
        for cohort, change in np.argwhere(items_n.T > 0)[:, ::-1].tolist():
            n, call = int(items_n[cohort, change]), calls[change]
            shares = (counts[:, cohort, change] / n).tolist()
            cell = (session.id, cohort, change - cohort + 1, call, n)
            rows.append((*cell, *shares, summary_tokens.get(call)))
    names = ("session", "cohort", "compactions_n", "call", "items_n", *ITEM_FATES, "summary_tokens")
    return pd.DataFrame(rows, columns=list(names)).astype(
        {"session": "string", "summary_tokens": "Int64"}
    )
