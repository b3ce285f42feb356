"""Pinned messages stay."""

from builders import system, user
from talks_by_chance import unchecked

from ctxkit.policies.history.invariants import PINNED_STAYS

LOG = (system(), user("never!", pinned=True, id="p"), user())


def test_pinned_ones_are_asked_for_and_others_not():
    assert PINNED_STAYS.broken(unchecked(LOG, 1)) is None
    assert (
        PINNED_STAYS.broken(unchecked(LOG, 0, 2)) == "The pinned message p is gone: it must stay."
    )
