"""Groups that were sound are looked at again only where something else is shown of them."""

from __future__ import annotations

import numpy as np
from builders import assistant, result, tool_call, user
from hypothesis import given
from hypothesis import strategies as st
from talks_by_chance import shown

from ctxkit.policies.history.edits import drop_positions
from ctxkit.policies.history.invariants import find_changed_groups, find_violation

ASKED = assistant("Both.", tool_call("ls", "a"), tool_call("cat", "b"))
MORE = assistant("One.", tool_call("ls", "c"))
LONG = "a result of many words, " * 9
LOG = (
    user(),
    ASKED,
    result(LONG, "a", "ls"),
    result("2", "b", "cat"),
    MORE,
    result("3", "c", "ls"),
)


def test_what_was_sound_is_asked_for_once():
    view = shown(*LOG).shorten({2: "-"}, reason="test")
    assert [group.row for group in find_changed_groups(view)] == [1]
    assert find_violation(view) is None
    assert find_changed_groups(view) == []


def test_what_was_sound_may_break_later():
    view = shown(*LOG).shorten({2: "-"}, reason="test")
    assert find_violation(view) is None
    gone = drop_positions(view, np.array([3]), "test", None)
    assert find_violation(gone) == "Tool call cat (b) lost its result."
    assert find_violation(gone) is not None
    assert find_violation(view) is None


@given(st.lists(st.lists(st.sampled_from(range(1, 6)), unique=True), min_size=1, max_size=6))
def test_a_log_that_remembers_finds_what_a_fresh_one_finds(cuts):
    base = shown(*LOG)
    for cut in cuts:
        at = np.array(sorted(cut), int)
        fresh = shown(*LOG)
        if len(at):
            assert find_violation(drop_positions(base, at, "t", None)) == find_violation(
                drop_positions(fresh, at, "t", None)
            )
        text = base.replace({p: LOG[p] for p in cut}, reason="the same again")
        assert find_violation(text) is None
