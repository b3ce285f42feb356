"""Semantic Kernel's reducers: target and threshold, the system message, user messages within the threshold."""

import pytest
from builders import assistant, step, system, user
from histories import ROOM, ids, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments


def talk(n):
    return [(assistant if i % 2 else user)("x" * 40, id=f"m{i}") for i in range(n)]


def test_the_target_remains_behind_a_summary():
    rules = presets.semantic_kernel(target_count=4, summariser=lambda p: "SUMMARY")
    new = rules.policy(shown(talk(10)), ROOM)
    assert texts(new)[0] == "SUMMARY"
    assert ids(new)[1:] == ["m6", "m7", "m8", "m9"]


def test_nothing_is_done_within_target_and_threshold():
    """len <= target_count + threshold_count: None"""
    rules = presets.semantic_kernel(target_count=4, threshold_count=3)
    assert not rules.trigger(shown(talk(7)), ROOM)
    assert rules.trigger(shown(talk(8)), ROOM)
    h = shown(talk(7))
    assert rules.policy(h, ROOM) is h


def test_a_user_message_within_the_threshold_begins_what_is_kept():
    """locate_safe_reduction_index: from the target back to a user message"""
    new = presets.semantic_kernel(method="truncation", target_count=3, threshold_count=2).policy(
        shown(talk(10)), ROOM
    )
    assert ids(new)[0] == "m6"


def test_the_system_message_stays_and_counts():
    new = presets.semantic_kernel(method="truncation", target_count=3).policy(
        shown(system(id="s"), talk(10)), ROOM
    )
    assert ids(new) == ["s", "m8", "m9"]


def test_a_call_stays_with_its_result():
    h = shown(talk(6), *step("bash", "y"), assistant("z"))
    new = presets.semantic_kernel(method="truncation", target_count=2).policy(h, ROOM)
    assert [m.role for m in new.messages] == ["assistant", "tool", "assistant"]


def test_what_cannot_work_is_refused():
    with pytest.raises(BadArguments):
        presets.semantic_kernel(target_count=0)
    with pytest.raises(BadArguments):
        presets.semantic_kernel(method="both")
