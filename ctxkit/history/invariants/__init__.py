"""What holds for every history: one object an invariant, each kind in a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import UnsoundHistory
from ctxkit.history.invariants.answered_calls import CallsHaveResults
from ctxkit.history.invariants.invariant import keep_in_mind
from ctxkit.history.invariants.order import OrderStays
from ctxkit.history.invariants.results import ResultsHaveCalls
from ctxkit.history.invariants.stays import PENDING_STAYS, PINNED_STAYS, SYSTEM_STAYS

if TYPE_CHECKING:
    from ctxkit.history.invariants.invariant import Invariant
    from ctxkit.history.view import View

ALL: tuple[Invariant, ...] = (
    CallsHaveResults(),
    ResultsHaveCalls(),
    SYSTEM_STAYS,
    PINNED_STAYS,
    PENDING_STAYS,
    OrderStays(),
)


def broken(view: View) -> str | None:
    """Return the sentence of the first invariant that a history breaks, or None."""
    why = next((why for invariant in ALL if (why := invariant.broken(view))), None)
    if why is None:
        keep_in_mind(view)
    return why


def check(view: View, was: View) -> None:
    """Raise UnsoundHistory where a history breaks an invariant that it did not break before.

    A result may have come after its call was compacted away: then nobody's change is to blame.
    """
    why = broken(view)
    if why and not broken(was):
        raise UnsoundHistory(why)
