"""What becomes of the same items after one, two, three compactions: recall and size,
side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctxkit.metrics.loss import FATES, lost
from ctxkit.metrics.size import spots_in
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session import Session

__all__ = ["drift"]


@of_session
def drift(session: Session) -> pd.DataFrame:
    """Return one row for each cut and each later state of what it took.

    Columns: `session cohort cuts_n call items_n retained recoverable lost summary_tokens`: items
    that the cut `cohort` removed first, after `cuts_n` compactions (1: that cut itself), as shares;
    and the tokens that the compaction before `call` put in (missing where its size is not known). A
    summary may recall all and still grow.
    """
    import pandas as pd

    rows, found = [], lost(session)
    sizes = {s.call: s.summary for s in spots_in(session)} if session.origin is not None else {}
    if found is not None:
        counts, calls = found.cohorts(), found.shown.moments.tolist()
        n = counts.sum(axis=0)
        for cohort, at in np.argwhere(n.T > 0)[:, ::-1].tolist():
            items, shares = int(n[cohort, at]), (counts[:, cohort, at] / n[cohort, at]).tolist()
            told = (session.id, cohort, at - cohort + 1, calls[at], items)
            rows.append((*told, *shares, sizes.get(calls[at])))
    names = ("session", "cohort", "cuts_n", "call", "items_n", *FATES, "summary_tokens")
    return pd.DataFrame(rows, columns=list(names)).astype(
        {"session": "string", "summary_tokens": "Int64"}
    )
