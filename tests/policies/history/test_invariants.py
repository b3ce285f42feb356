"""The invariants of a shown history: pairs of calls and results, what stays, and its order."""

from __future__ import annotations

import numpy as np
from builders import assistant, call, result, step, system, tool_call, user
from hypothesis import given
from hypothesis import strategies as st
from random_sessions import Fours, shown, unchecked

from ctxkit.policies import History, MessageLog
from ctxkit.policies.history.edits import drop_positions
from ctxkit.policies.history.invariants import (
    PENDING_STAYS,
    PINNED_STAYS,
    SYSTEM_STAYS,
    CallsHaveResults,
    OrderStays,
    ResultsHaveCalls,
    find_changed_groups,
    find_violation,
)
from ctxkit.session import ToolCall

# -- Every tool call has its result.

CALLS_ASKED = assistant("Both.", tool_call("ls", "a"), tool_call("cat", "b"))
CALLS_LOG = (user(), CALLS_ASKED, result("1", "a", "ls"), result("2", "b", "cat"))


def find_broken_call(*kept):
    return CallsHaveResults().broken(unchecked(CALLS_LOG, *kept))


def test_whole_groups_are_sound():
    assert find_broken_call(0, 1, 2, 3) is None
    assert find_broken_call(0) is None


def test_one_of_two_results_is_not_enough():
    assert find_broken_call(0, 1, 2) == "Tool call cat (b) lost its result."
    assert find_broken_call(0, 1, 3) == "Tool call ls (a) lost its result."


def test_a_call_that_was_never_answered_is_sound():
    h = shown(user(), assistant("", tool_call("ls", "x")), user("stop"))
    assert CallsHaveResults().broken(h) is None


def test_a_call_without_ids_counts_its_results():
    asked = assistant("", ToolCall("", "ls"), ToolCall("", "cat"))
    log = (user(), asked, result("1", None, "ls"), result("2", None, "cat"))
    assert CallsHaveResults().broken(unchecked(log, 0, 1, 2, 3)) is None
    assert CallsHaveResults().broken(unchecked(log, 1, 2, 3)) is None
    for one in (2, 3):
        assert (
            CallsHaveResults().broken(unchecked(log, 0, 1, one))
            == "Tool call ls () lost its result."
        )


def test_of_results_without_ids_the_first_call_is_named():
    """Which call lost its result cannot be known, so the sentence names the first of the reply."""
    log = (user(), CALLS_ASKED, result("1", None, "ls"), result("2", None, "cat"))
    for one in (2, 3):
        assert (
            CallsHaveResults().broken(unchecked(log, 0, 1, one))
            == "Tool call ls (a) lost its result."
        )


def test_a_result_that_comes_after_the_prompt_is_not_missed():
    """The second result is the first message behind the prompt of an open call."""
    log = MessageLog(Fours())
    for message in CALLS_LOG[:3]:
        log.append(message)
    view = History.start(log, log.open())
    log.append(CALLS_LOG[3])
    changed = view.replace({2: "another text"})
    assert [m.text for m in changed.messages] == ["Do it.", "Both.", "another text"]
    assert find_violation(changed) is None


def test_a_reply_that_begins_the_log_needs_its_results():
    log = (CALLS_ASKED, *CALLS_LOG[2:], user())
    assert CallsHaveResults().broken(unchecked(log, 0, 1, 2, 3)) is None
    assert CallsHaveResults().broken(unchecked(log, 0, 3)) == "Tool call ls (a) lost its result."
    assert CallsHaveResults().broken(unchecked(log, 0, 1)) == "Tool call cat (b) lost its result."


# -- Every tool result has its call.

RESULTS_LOG = (user(), *step("ls"), *step("cat"))


def test_pairs_are_sound():
    assert ResultsHaveCalls().broken(unchecked(RESULTS_LOG, 0, 3, 4)) is None


def test_a_result_alone_is_named():
    asked = call("ls", "a")
    view = unchecked((user(), asked, result("1", asked)), 0, 2)
    assert ResultsHaveCalls().broken(view) == "The result of ls (a) lost its call."
    nameless = unchecked((user(), asked, result("1", "a", None)), 0, 2)
    assert ResultsHaveCalls().broken(nameless) == "The result of a tool (a) lost its call."


def test_a_result_that_the_log_has_no_call_for_is_a_fact():
    assert ResultsHaveCalls().broken(shown(user(), result("1", "nobody"))) is None


# -- System messages stay.

SYSTEM_LOG = (system(id="s"), user(), system("A reminder.", id="s2"))


def test_all_are_there():
    assert SYSTEM_STAYS.broken(shown(*SYSTEM_LOG)) is None
    assert SYSTEM_STAYS.broken(unchecked(SYSTEM_LOG, 0, 2)) is None


def test_one_is_gone():
    assert (
        SYSTEM_STAYS.broken(unchecked(SYSTEM_LOG, 1, 2))
        == "The system message s is gone: it must stay."
    )
    assert "s2" in SYSTEM_STAYS.broken(unchecked(SYSTEM_LOG, 0, 1))


def test_one_that_was_not_yet_said_is_not_missed():
    assert SYSTEM_STAYS.broken(shown(*SYSTEM_LOG).at(0)) is None


# -- Pinned messages stay.

PINNED_LOG = (system(), user("never!", pinned=True, id="p"), user())


def test_pinned_ones_are_asked_for_and_others_not():
    assert PINNED_STAYS.broken(unchecked(PINNED_LOG, 1)) is None
    assert (
        PINNED_STAYS.broken(unchecked(PINNED_LOG, 0, 2))
        == "The pinned message p is gone: it must stay."
    )


# -- What an approval waits on stays.

PENDING_ASKED = call("rm", "a")
PENDING_LOG = (user(), PENDING_ASKED, result("waits", PENDING_ASKED, pending=True, id="w"))


def test_pending_ones_are_asked_for():
    assert PENDING_STAYS.broken(unchecked(PENDING_LOG, 1, 2)) is None
    assert (
        PENDING_STAYS.broken(unchecked(PENDING_LOG, 0))
        == "The pending message w is gone: it must stay."
    )


# -- Order stays.

ORDER_LOG = tuple(user(str(n), id=f"m{n}") for n in range(4))


def test_gaps_are_in_order():
    assert OrderStays().broken(unchecked(ORDER_LOG, 0, 3)) is None


def test_turned_round_or_twice_is_not():
    assert (
        OrderStays().broken(unchecked(ORDER_LOG, 0, 2, 1))
        == "Message m1 stands out of order, or twice."
    )
    assert "m2" in OrderStays().broken(unchecked(ORDER_LOG, 2, 2))


# -- Groups that were sound are looked at again only where something else is shown of them.

GROUPS_ASKED = assistant("Both.", tool_call("ls", "a"), tool_call("cat", "b"))
GROUPS_MORE = assistant("One.", tool_call("ls", "c"))
GROUPS_LONG = "a result of many words, " * 9
GROUPS_LOG = (
    user(),
    GROUPS_ASKED,
    result(GROUPS_LONG, "a", "ls"),
    result("2", "b", "cat"),
    GROUPS_MORE,
    result("3", "c", "ls"),
)


def test_what_was_sound_is_asked_for_once():
    view = shown(*GROUPS_LOG).shorten({2: "-"}, reason="test")
    assert [group.row for group in find_changed_groups(view)] == [1]
    assert find_violation(view) is None
    assert find_changed_groups(view) == []


def test_what_was_sound_may_break_later():
    view = shown(*GROUPS_LOG).shorten({2: "-"}, reason="test")
    assert find_violation(view) is None
    gone = drop_positions(view, np.array([3]), "test", None)
    assert find_violation(gone) == "Tool call cat (b) lost its result."
    assert find_violation(gone) is not None
    assert find_violation(view) is None


@given(st.lists(st.lists(st.sampled_from(range(1, 6)), unique=True), min_size=1, max_size=6))
def test_a_log_that_remembers_finds_what_a_fresh_one_finds(cuts):
    base = shown(*GROUPS_LOG)
    shorter = {2: result("-", "a", "ls"), 3: result("-", "b", "cat"), 5: result("-", "c", "ls")}
    for cut in cuts:
        at = np.array(sorted(cut), int)
        parts_a_group = any(0 < len(group & {*cut}) < len(group) for group in ({1, 2, 3}, {4, 5}))
        short = base.replace({p: m for p, m in shorter.items() if p in cut}, reason="shorter")
        assert find_violation(short) is None
        if not cut:
            continue
        views = (base, short, shown(*GROUPS_LOG))
        found = [find_violation(drop_positions(view, at, "t", None)) for view in views]
        assert len({*found}) == 1
        assert (found[0] is not None) == parts_a_group
