"""Messages stand in the order in which they were said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ctxkit.history.view import View


class OrderStays:
    """Rows that are shown rise, and none is shown twice."""

    name = "order stays"

    def broken(self, view: View) -> str | None:
        """Return a sentence that names the first message out of order, or None."""
        rows = view.column("rows")
        rows = rows[rows >= 0]
        wrong = np.flatnonzero(np.diff(rows) <= 0)
        if not len(wrong):
            return None
        message = view.log.messages[int(rows[wrong[0] + 1])]
        return f"Message {message.id or int(rows[wrong[0] + 1])} stands out of order, or twice."
