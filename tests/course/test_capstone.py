"""The capstone is marked by what can be counted of it."""

from __future__ import annotations

import pytest

import ctxkit as ck

RULES = ck.policies.Rules(
    policy="clear:keep_last=5", trigger=ck.policies.triggers.Above(30_000), name="mine"
)


@pytest.fixture(scope="module")
def good():
    chosen, held_out = ck.read(ck.samples.path()), ck.course.make_session("held out")
    table = ck.compare(held_out, [RULES], progress=False)
    mine, recorded = table.loc["mine"], table.loc["recorded"]
    return {
        "sessions": [chosen],
        "held_out": [held_out],
        "rules": RULES,
        "cheaper": round(1 - mine["cost_usd"] / recorded["cost_usd"], 2),
        "loses": round(float(mine["needed_later_loss"]), 2),
    }


def test_a_choice_that_holds_on_held_out_sessions_is_right(good):
    mark = ck.check("capstone", good)
    assert mark.right, mark
    assert "rubric" in mark.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cheaper": 0.9}, "another share"),
        ({"loses": 0.5}, "largest loss"),
        ({"rules": "none"}, "window"),
        ({"rules": "nobody"}, "preset"),
        ({"held_out": []}, "list of sessions"),
        ({"held_out": ["x.jsonl"]}, "list of sessions"),
    ],
)
def test_what_does_not_hold_is_said(good, change, said):
    mark = ck.check("capstone", good | change)
    assert mark.right is False
    assert said in mark.said


def test_a_session_that_was_chosen_on_is_not_held_out(good):
    assert "among the held-out" in ck.check("capstone", good | {"held_out": good["sessions"]}).said
    few = ck.session.Session(id="few", log=())
    assert "fewer than" in ck.check("capstone", good | {"held_out": [few]}).said
    assert "dictionary" in ck.check("capstone", {"rules": RULES}).said
