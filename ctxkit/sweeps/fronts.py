"""Which settings to take for one's own logs: those on the front, each with its price and its risk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.metrics.cells import FEW, pairs, summary
from ctxkit.metrics.fronts import front as _front
from ctxkit.sweeps.grids import rules_of
from ctxkit.sweeps.runs import sessions_of, sweep

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.readers.given import GivenAll
    from ctxkit.sweeps.grids import Several

LOSSES = ("cost_usd", "needed_later_loss", "unpaid_cuts_n")
"""What a setting must not be worse in: dollars, needed-later loss, unpaid cuts. There is no single score."""
NONE = "no management"
"""The baseline, in a window that holds everything; it may be on the front itself."""


def front(runs: pd.DataFrame, by: str = "rules") -> pd.DataFrame:
    """Return the summary of dollars, needed-later loss and unpaid cuts with a column `front`, cheapest first.

    A setting is on the front where no other one is at most as bad in all three and better in one.
    """
    rows = summary(runs, by, LOSSES)
    rows["front"] = _front(*(rows[name].tolist() for name in LOSSES))
    return rows.sort_values(["front", "cost_usd"], ascending=[False, True]).reset_index(drop=True)


def advise(
    sessions: GivenAll,
    rules: Several = "all",
    *,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """Return the settings on the front for these sessions, the cheapest first, each with its price and its risk.

    Columns: those of `front`, `saved_usd` with its 90 % interval (against no context management, session by session)
    `advice`, a sentence, and `session_notes`, what the logs behind it cannot say or say wrongly.

    Args:
        sessions: at least five recorded sessions with text, usage and prices: few tell nothing about the next one.
        rules: the settings to choose among: a grid, presets, or ``"all"`` presets.
        executor: where to run them (see `sweep`).

    Raises:
        BadArguments: fewer than five sessions can be used; the sentence says what the others lack.
    """
    from ctxkit.presets import none

    given = sessions_of(sessions)
    usable = [s for s in given if s.has_text and s.has_usage]
    if len(usable) < FEW:
        raise BadArguments(_too_few(len(usable), len(given)))
    asked = [*rules_of(rules), none(context_window=10_000_000).but(name=NONE)]
    runs = sweep(usable, asked, executor=executor, loss=True)
    found = front(runs)
    n = int(found["sessions_n"].max())
    if n < FEW:
        raise BadArguments(_too_few(n, len(given)))
    best = found[found["front"]].reset_index(drop=True)
    rows = [pairs(runs, NONE, str(name), "cost_usd") for name in best["rules"]]
    for column, key in (("saved_usd", "mean"), ("saved_usd_low", "low"), ("saved_usd_high", "high")):
        best[column] = [row[key] for row in rows]
    best["advice"] = [_sentence(r) for r in best.to_dict("records")]
    best["session_notes"] = " ".join(f"{s.id}: {note}" for s in usable for note in s.notes) or None
    return best


def _too_few(usable: int, given: int) -> str:
    return (
        f"Advice needs at least {FEW} sessions with text, usage and prices; {usable} of the {given} given have them. "
        "Read more with read_all, or look at one with compare."
    )


def _sentence(row: dict[Any, Any]) -> str:
    if row["rules"] == NONE:
        return (
            f"{NONE}: ${row['cost_usd']:,.2f} a session and nothing out of sight, while the window holds it all; "
            f"over {row['sessions_n']} sessions."
        )
    low, high = row["saved_usd_low"], row["saved_usd_high"]
    sure = (
        "" if low > 0 else "; on other sessions it may cost more than none" if high > 0 else "; it costs more than none"
    )
    return (
        f"{row['rules']}: ${row['cost_usd']:,.2f} a session (${row['saved_usd']:,.2f} less than no management, "
        f"${low:,.2f} to ${high:,.2f}{sure}); {row['needed_later_loss']:.0%} of what was used again had been cut away; "
        f"{row['unpaid_cuts_n']:.1f} cuts a session did not pay for themselves; over {row['sessions_n']} sessions."
    )
