"""Tyrum's checkpoint: made without a model, rendered, read back."""

import pytest
from builders import assistant, result, system, user

from ctxkit.errors import BadArguments
from ctxkit.texts import obligations as ob


def test_ty9_a_long_goal_is_cut_to_240():
    """a previous goal of 400 x and nothing else: 237 x and three dots"""
    assert ob.deterministic([], ob.Obligations(goal="x" * 400)).goal == "x" * 237 + "..."


def test_goal_is_the_first_user_line_else_the_first_assistant_line():
    assert ob.deterministic([assistant("plan"), user("build  a\nship")]).goal == "build a ship"
    assert ob.deterministic([assistant("plan")]).goal == "plan"
    assert ob.deterministic([]).goal


def test_constraints_are_the_first_user_lines_and_the_system():
    point = ob.deterministic([system("be kind"), *map(user, "abcd")])
    assert point.user_constraints == ("a", "b", "c", "be kind")
    assert point.pending_work == ("c", "d")


def test_lines_differing_in_case_only_are_said_once():
    assert ob.unique(["Do it", "do IT", ""], 8) == ("Do it",)


def test_rendering_says_what_it_left_out():
    text = ob.rendered(ob.Obligations(goal="g", decisions=tuple(f"d{i}" for i in range(10))))
    assert "Goal:\ng" in text
    assert "- d7\n- ... and 2 more" in text


def test_pending_work_is_rendered():
    assert "is pending" in ob.rendered(
        ob.Obligations(), [result(of="c1", tool="deploy", pending=True)]
    )


def test_a_checkpoint_of_a_model_is_checked():
    assert ob.checkpoint({"goal": "g", "decisions": ["d"]}) == ob.Obligations(
        goal="g", decisions=("d",)
    )
    with pytest.raises(BadArguments, match="decisions"):
        ob.checkpoint({"decision": []})
    with pytest.raises(BadArguments, match="text"):
        ob.checkpoint({"goal": 3})
