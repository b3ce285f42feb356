"""System messages stay."""

from builders import system, user
from talks_by_chance import shown, unchecked

from ctxkit.policies.history.invariants import SYSTEM_STAYS

LOG = (system(id="s"), user(), system("A reminder.", id="s2"))


def test_all_are_there():
    assert SYSTEM_STAYS.broken(shown(*LOG)) is None
    assert SYSTEM_STAYS.broken(unchecked(LOG, 0, 2)) is None


def test_one_is_gone():
    assert (
        SYSTEM_STAYS.broken(unchecked(LOG, 1, 2)) == "The system message s is gone: it must stay."
    )
    assert "s2" in SYSTEM_STAYS.broken(unchecked(LOG, 0, 1))


def test_one_that_was_not_yet_said_is_not_missed():
    assert SYSTEM_STAYS.broken(shown(*LOG).at(0)) is None
