"""Cut rules on plain columns. PI cases: obtained by running Pi 0.58.3; sizes in tokens."""

import pytest

from ctxkit.policies import cuts

A = (["user", "assistant"] * 3, [10] * 6)
B = (["user", "assistant", "tool", "assistant", "user", "assistant", "tool"], [10, 5, 50, 5, 10, 5, 100])
G = (["user"] + ["assistant"] * 3, [100] * 4)


@pytest.mark.parametrize(
    ("keep", "cut"),
    [
        (1, (5, 4)),
        (10, (5, 4)),
        (11, (4, -1)),
        (20, (4, -1)),
        (21, (3, 2)),
        (30, (3, 2)),
        (40, (2, -1)),
        (59, (0, -1)),
        (60, (0, -1)),
        (61, (0, -1)),
    ],
)
def test_pi1_alternating_turns(keep, cut):
    """cuts fall on the message at which the tokens to keep are reached, users unsplit"""
    assert cuts.pi(*A, keep) == cut


@pytest.mark.parametrize(("keep", "cut"), [(110, (4, -1)), (120, (3, 0)), (150, (3, 0)), (190, (0, -1))])
def test_pi3_cuts_move_forward_from_a_tool_result(keep, cut):
    """a cut never begins with a tool result"""
    assert cuts.pi(*B, keep) == cut


@pytest.mark.parametrize("keep", [50, 100])
def test_pi4_a_large_last_result_blocks_the_cut(keep):
    """a trailing tool result as large as what is kept: nothing is cut"""
    assert cuts.pi(*B, keep) == (0, -1)


def test_pi5_entries_before_a_user_message_hide_it():
    """a model change before the user message moves the cut onto it, and a whole turn counts as split"""
    kinds = ["user", "assistant", "change", "change", "user", "assistant"]
    assert cuts.pi(kinds, [10, 10, 0, 0, 10, 10], 20) == (2, 0)


def test_pi6_a_command_of_the_user_is_a_split_with_an_empty_prefix():
    """a bash entry as the cut counts as split at itself"""
    assert cuts.pi(["user", "assistant", "bash", "assistant"], [10] * 4, 20) == (2, 2)


@pytest.mark.parametrize(("keep", "cut"), [(50, (3, 0)), (150, (2, 0)), (250, (1, 0)), (350, (0, -1))])
def test_pi7_one_giant_turn_is_split(keep, cut):
    """a turn of many replies is cut between them"""
    assert cuts.pi(*G, keep) == cut


def test_nothing_to_cut_at():
    assert cuts.pi(["tool", "tool"], [1, 1], 1) == (0, -1)
    assert cuts.pi([], [], 1) == (0, -1)


@pytest.mark.parametrize(("budget", "first"), [(2, 3), (1, 4), (0, 4), (5, 0), (99, 0)])
def test_go1_the_tail_within_a_budget(budget, first):
    """five messages of one token and a budget of two: the last two are kept"""
    assert cuts.fitting([1] * 5, budget) == first


def test_the_crossing_message_is_kept_by_the_session_path():
    assert cuts.reaching([1, 5, 1], 2) == 1
    assert cuts.reaching([1, 5, 1], 99) == 0


def test_going_back_to_the_user_may_find_none():
    assert cuts.back_to_user(["user", "assistant", "tool"], 2) == 0
    assert cuts.back_to_user(["assistant"], 0) == -1


def test_last_turns_and_last_messages():
    assert cuts.last_turns(["user", "assistant"] * 3, 2) == 2
    assert cuts.last_turns(["user", "assistant"] * 2, 2) == 0
    assert [cuts.last_messages(5, k) for k in (0, 2, 99)] == [4, 3, 1]
