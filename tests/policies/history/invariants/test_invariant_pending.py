"""What an approval waits on stays."""

from builders import call, result, user
from talks_by_chance import unchecked

from ctxkit.policies.history.invariants import PENDING_STAYS

ASKED = call("rm", "a")
LOG = (user(), ASKED, result("waits", ASKED, pending=True, id="w"))


def test_pending_ones_are_asked_for():
    assert PENDING_STAYS.broken(unchecked(LOG, 1, 2)) is None
    assert PENDING_STAYS.broken(unchecked(LOG, 0)) == "The pending message w is gone: it must stay."
