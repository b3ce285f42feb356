"""Sweeps summed up, and the settings that no other one beats in dollars, loss and unpaid cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.metrics.fronts import front as _front
from ctxkit.metrics.pooled import pairs, summary

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LOSSES", "front", "pairs", "summary"]

LOSSES = ("cost_usd", "needed_later_loss", "unpaid_cuts_n")
"""What a setting must not be worse in: dollars, needed-later loss, unpaid cuts. There is no single
score.
"""


def front(runs: pd.DataFrame, by: str = "rules") -> pd.DataFrame:
    """Return the summary of dollars, needed-later loss and unpaid cuts with a column `front`,
    cheapest first.

    A setting is on the front where no other one is at most as bad in all three and better in one.
    """
    rows = summary(runs, by, LOSSES)
    rows["front"] = _front(*(rows[name].tolist() for name in LOSSES))
    return rows.sort_values(["front", "cost_usd"], ascending=[False, True]).reset_index(drop=True)
