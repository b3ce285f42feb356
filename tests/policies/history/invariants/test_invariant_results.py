"""Every tool result has its call."""

from builders import call, result, step, user
from talks_by_chance import shown, unchecked

from ctxkit.policies.history.invariants import ResultsHaveCalls

LOG = (user(), *step("ls"), *step("cat"))


def test_pairs_are_sound():
    assert ResultsHaveCalls().broken(unchecked(LOG, 0, 3, 4)) is None


def test_a_result_alone_is_named():
    asked = call("ls", "a")
    view = unchecked((user(), asked, result("1", asked)), 0, 2)
    assert ResultsHaveCalls().broken(view) == "The result of ls (a) lost its call."


def test_a_result_that_the_log_has_no_call_for_is_a_fact():
    assert ResultsHaveCalls().broken(shown(user(), result("1", "nobody"))) is None
