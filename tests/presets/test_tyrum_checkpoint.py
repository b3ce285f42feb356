"""Tyrum's checkpoint: made without a model, rendered, read back."""

import pytest
from builders import assistant, result, system, tool_call, user

from ctxkit.errors import BadArguments
from ctxkit.presets.systems import tyrum_checkpoint as ob


def test_ty9_a_long_goal_is_cut_to_240():
    """a previous goal of 400 x and nothing else: 237 x and three dots"""
    assert (
        ob.make_checkpoint_without_model([], ob.TyrumCheckpoint(goal="x" * 400)).goal
        == "x" * 237 + "..."
    )


def test_goal_is_the_first_user_line_else_the_first_assistant_line():
    assert (
        ob.make_checkpoint_without_model([assistant("plan"), user("build  a\nship")]).goal
        == "build a ship"
    )
    assert ob.make_checkpoint_without_model([assistant("plan")]).goal == "plan"
    assert ob.make_checkpoint_without_model([]).goal


def test_constraints_are_the_first_user_lines_and_the_system():
    point = ob.make_checkpoint_without_model([system("be kind"), *map(user, "abcd")])
    assert point.user_constraints == ("a", "b", "c", "be kind")
    assert point.pending_work == ("c", "d")


def test_lines_differing_in_case_only_are_said_once():
    assert ob.list_unique_lines(["Do it", "do IT", ""], 8) == ("Do it",)


def test_rendering_says_what_it_left_out():
    text = ob.render_checkpoint(
        ob.TyrumCheckpoint(goal="g", decisions=tuple(f"d{i}" for i in range(10)))
    )
    assert "Goal:\ng" in text
    assert "- d7\n- ... and 2 more" in text


def test_a_model_reads_all_texts_but_those_of_tool_results():
    read = tool_call("read", "c1", path="a")
    messages = [user("go", id="u"), assistant("I look.", read, id="a"), result("x = 1", read)]
    assert ob.write_tyrum_transcript(messages) == "User [u]: go\nAssistant [a]: I look."


def test_pending_work_is_rendered():
    assert "is pending" in ob.render_checkpoint(
        ob.TyrumCheckpoint(), [result(of="c1", tool="deploy", pending=True)]
    )


def test_a_checkpoint_of_a_model_is_checked():
    assert ob.parse_checkpoint({"goal": "g", "decisions": ["d"]}) == ob.TyrumCheckpoint(
        goal="g", decisions=("d",)
    )
    with pytest.raises(BadArguments, match="decisions"):
        ob.parse_checkpoint({"decision": []})
    with pytest.raises(BadArguments, match="text"):
        ob.parse_checkpoint({"goal": 3})


def test_preferences_and_decisions_are_found_without_a_model_and_roll_on():
    """T17, T18: What the user said of how it is to be, and what was decided, is in the
    checkpoint that no model writes, and in the next one.
    """
    first = ob.make_checkpoint_without_model(
        [
            *(user(f"Step {n}.") for n in range(5)),
            user("Never touch the legacy layer. Is it old?"),
            assistant("We decided to keep SQLite because it is enough."),
        ]
    )
    assert first.preferences == ("Never touch the legacy layer.",)
    assert first.decisions == ("We decided to keep SQLite because it is enough.",)
    then = ob.make_checkpoint_without_model([user("From now on write in British English.")], first)
    assert then.decisions == first.decisions
    assert then.preferences[-1] == "From now on write in British English."
    assert "Preferences:\n- Never touch" in ob.render_checkpoint(then)
    assert "Decisions:\n- We decided" in ob.render_checkpoint(then)


def test_what_a_person_allowed_and_refused_stays_a_fact():
    """T15: Each answer is a line, in every later checkpoint, whoever writes it."""
    asked = assistant("", tool_call("shell", "c1", command="rm -rf build"))
    ran = result(of="c1", tool="shell", details={"approval": "refused"})
    first = ob.make_checkpoint_without_model([user("Clean."), asked, ran])
    assert first.approvals == ("shell command=rm -rf build: refused by the user",)
    allowed = result(of="c2", tool="deploy", details={"approval": "allowed"})
    then = ob.add_approvals(ob.TyrumCheckpoint(goal="by a model"), [allowed], first)
    assert then.approvals == (*first.approvals, "deploy: allowed by the user")
    assert "Approvals:\n- shell command=rm" in ob.render_checkpoint(then)
    forged = result(of="c3", tool="x", details={"approval": "always"})
    assert ob.add_approvals(then, [forged], None).approvals == ()
