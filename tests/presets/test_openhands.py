"""OpenHands: the condenser's own examples."""

import pytest
from builders import assistant, step, user
from histories import ROOM, ids, shown

from ctxkit import presets
from ctxkit.errors import BadArguments


def condensed(n, **settings):
    rules = presets.openhands(summariser=lambda p: "SUMMARY", **settings)
    h = shown([(user if i % 2 == 0 else assistant)("x" * 40, id=f"e{i}") for i in range(n)])
    return [i if i.startswith("e") else "S" for i in ids(rules.policy(h, ROOM))]


def test_half_remains_with_the_first_two():
    """max_size 20, keep_first 2: ten are left: two, the summary, the last seven"""
    assert condensed(21, max_size=20) == ["e0", "e1", "S", *(f"e{i}" for i in range(14, 21))]


def test_a_summary_is_summarised_in_its_turn():
    rules = presets.openhands(max_size=10, keep_first=1, summariser=lambda p: "SUMMARY")
    h = shown([user("x" * 40, id=f"e{i}") for i in range(11)])
    once = rules.policy(h, ROOM)
    assert [m.role for m in once.messages].count("summary") == 1
    assert rules.policy(once, ROOM).tokens == once.tokens


def test_by_tokens_half_of_the_limit_remains():
    """token reduction: total less max_tokens // 2"""
    rules = presets.openhands(max_tokens=400, summariser=lambda p: "S")
    h = shown([user("x" * 40) for _ in range(100)])
    assert 150 < rules.policy(h, ROOM).tokens <= 210


def test_it_is_due_above_the_size_not_at_it():
    rules = presets.openhands(max_size=20)
    assert not rules.trigger(shown([user("x")] * 20), ROOM)
    assert rules.trigger(shown([user("x")] * 21), ROOM)


def test_a_tool_call_goes_with_its_result():
    """manipulation indices: the next legal place"""
    rules = presets.openhands(max_size=10, keep_first=1, summariser=lambda p: "S")
    h = shown(user("go"), [s for i in range(6) for s in step("bash", "y" * 99, command=str(i))])
    new = rules.policy(h, ROOM)
    assert [m.role for m in new.messages] == ["user", "summary", "assistant", "tool"]


def test_no_room_to_condense_is_refused():
    """keep_first must be less than max_size // 2"""
    with pytest.raises(BadArguments, match="keep_first"):
        presets.openhands(max_size=10, keep_first=5)


def test_what_must_be_condensed_and_cannot_is_forgotten_as_a_whole():
    """hard_context_reset: above the tokens, where less than a tenth could go"""
    h = shown([user("x" * 400, id=f"e{i}") for i in range(4)])
    rules = presets.openhands(max_tokens=300, keep_first=4, summariser=lambda p: "SUMMARY")
    assert [m.role for m in rules.policy(h, ROOM).messages] == ["summary"]


def test_above_the_size_alone_it_is_put_off():
    """a soft requirement: the loop of a tool spans the view"""
    rules = presets.openhands(
        max_size=6, keep_first=1, minimum_progress=0.9, summariser=lambda p: "S"
    )
    h = shown([user("x" * 40) for _ in range(7)])
    assert rules.trigger(h, ROOM)
    assert rules.policy(h, ROOM) is h
