"""Every tool call has its result."""

from builders import assistant, result, tool_call, user
from talks_by_chance import shown, unchecked

from ctxkit.policies.history.invariants import CallsHaveResults

ASKED = assistant("Both.", tool_call("ls", "a"), tool_call("cat", "b"))
LOG = (user(), ASKED, result("1", "a", "ls"), result("2", "b", "cat"))


def broken(*kept):
    return CallsHaveResults().broken(unchecked(LOG, *kept))


def test_whole_groups_are_sound():
    assert broken(0, 1, 2, 3) is None
    assert broken(0) is None


def test_one_of_two_results_is_not_enough():
    assert broken(0, 1, 2) == "Tool call cat (b) lost its result."
    assert broken(0, 1, 3) == "Tool call ls (a) lost its result."


def test_a_call_that_was_never_answered_is_sound():
    h = shown(user(), assistant("", tool_call("ls", "x")), user("stop"))
    assert CallsHaveResults().broken(h) is None


def test_a_call_without_ids_counts_its_results():
    asked = assistant("", tool_call("ls", ""))
    h = shown(user(), asked, result("1", ""))
    assert CallsHaveResults().broken(h) is None
