"""Tables of scores, for one session under several rules and for a sweep: figures as a report writes
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.amounts import MISSING, dollars, known, number, percent
from ctxkit.display.markup import line
from ctxkit.frames.frame_columns import BOOL, FLOAT, INT
from ctxkit.reports.page import table
from ctxkit.sweeps.score_columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

ROWS = 300
COST = (
    *("calls_n", "prompt_tokens", "peak_tokens"),
    *("cost_usd", "real_low_usd", "real_high_usd", "told_apart"),
    *("input_usd", "output_usd", "summaries_usd"),
)
CUTS = (
    *("cuts_n", "unpaid_cuts_n", "token_savings", "message_savings"),
    *("summary_tokens", "refill", "thrash"),
)
LOSS = (
    *("items_n", "retained", "recoverable", "lost"),
    *("used_again_n", "needed_lost_n", "needed_later_loss", "window_loss", "regret"),
    *("at_stake_n", "summary_recall", "rules_kept", "weighted_loss"),
)
LOST = (
    "Needed-later loss: of the items that the record used again, the share that a compaction took"
    " away before that; each counts once. Window loss looks to the next compaction only. Regret:"
    " what the best choice of messages would have spared, a bound. Summary recall: of what was"
    " named later and only the texts put in could still say (at stake), the share that they did"
    " say."
)
_COUNTS = ("rebound_calls", "reorientation_calls", "first_use_delay")
"""Columns of numbers that are neither shares nor dollars."""
_KINDS = {c.name: c.dtype for c in COLUMNS}
MEANINGS = {c.name: c.meaning for c in COLUMNS}


def cell(name: str, value: Any) -> str:
    """Return one figure of a score as text; what is missing is a dash."""
    if not known(value):
        return MISSING
    kind = _KINDS.get(name)
    if kind == BOOL:
        return "yes" if value else "no"
    if kind == INT:
        return number(value)
    if kind == FLOAT and name in _COUNTS:
        return f"{value:,.1f}"
    if kind == FLOAT and name.endswith("_usd"):
        return dollars(value)
    if kind == FLOAT:
        return percent(value) if abs(value) >= 0.1 else f"{100 * value:.1f} %"
    value = value.item() if hasattr(value, "item") else value
    whole = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if whole else line(str(value), 160)


def runs_table(frame: pd.DataFrame, names: Sequence[str], *, caption: str = "") -> str:
    """Return rows of scores as an HTML table of these columns, a bounded number of rows; empty
    without figures.
    """
    names = [n for n in names if frame[n].notna().any()]
    if not names:
        return ""
    rows = [
        (line(str(rules), 100), *map(cell, names, values))
        for rules, *values in frame[["rules", *names]].head(ROWS).itertuples(index=False)
    ]
    more = f"The first {ROWS} of {len(frame):,}. " if len(frame) > ROWS else ""
    numbers = frozenset(i for i, n in enumerate(names, 1) if _KINDS.get(n) in (INT, FLOAT))
    return table(("rules", *map(words, names)), rows, numbers=numbers, caption=more + caption)


def words(name: str) -> str:
    """Return a column's name as a head of a table."""
    return name.removesuffix("_n").removesuffix("_usd").replace("_", " ") + (
        " $" if name.endswith("_usd") else ""
    )


def failures(frame: pd.DataFrame, column: str = "error") -> list[tuple[str, str, str]]:
    """Return session, rules and reason of the runs without figures; with `note`, what was odd about
    the others.
    """
    told = frame[frame[column].notna()]
    return [
        (line(str(session), 80), line(str(rules), 100), line(str(why), 300))
        for session, rules, why in (
            told[["session", "rules", column]].head(ROWS).itertuples(index=False)
        )
    ]
