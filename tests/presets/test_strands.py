"""Strands: the sliding window, the summary of the oldest, an overflow."""

import pytest
from builders import assistant, call, result, step, user
from histories import ROOM, ids, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments


def talk(n):
    return [(assistant if i % 2 else user)("x" * 40, id=f"m{i}") for i in range(n)]


def test_the_window_begins_with_a_user_message():
    """find_valid_trim_point: 45 of 40 begin at the next user message"""
    rules = presets.strands()
    assert ids(rules.policy(shown(talk(45)), ROOM))[0] == "m6"
    assert len(rules.policy(shown(talk(40)), ROOM)) == 40


def test_without_a_user_message_it_begins_with_a_call():
    """tool-heavy conversations fall back to a call with its result"""
    h = shown(user("go"), [s for i in range(10) for s in step("bash", "y", command=str(i))])
    new = presets.strands(window_size=5).policy(h, ROOM)
    assert [m.role for m in new.messages] == ["assistant", "tool"] * 2


def test_pinned_first_messages_stay():
    assert ids(presets.strands(window_size=4, pin_first=1).policy(shown(talk(9)), ROOM)) == [
        "m0",
        "m6",
        "m7",
        "m8",
    ]


def test_an_overflow_cuts_results_before_messages():
    """200 characters stay at each end"""
    bad = assistant("", error="prompt is too long: 213462 tokens > 200000 maximum")
    h = shown(user("go"), *step("bash", "a" * 500 + "b" * 500), bad)
    rules = presets.strands()
    assert rules.trigger(h, ROOM)
    cut = texts(rules.policy(h, ROOM))[2]
    assert (cut[:200], cut[-200:]) == ("a" * 200, "b" * 200)
    assert len(cut) < 450
    assert presets.strands(should_truncate_results=False).policy(h, ROOM) is h


def test_a_window_is_applied_when_a_turn_begins_or_at_each_call():
    rules, each = presets.strands(window_size=3), presets.strands(window_size=3, per_turn=True)
    mid = shown(*talk(3), *step("bash", "y"))
    assert not rules.trigger(mid, ROOM)
    assert each.trigger(mid, ROOM)
    assert rules.trigger(shown(talk(5)), ROOM)


def test_a_summary_takes_the_oldest_30_percent():
    rules = presets.strands(method="summary", summariser=lambda p: "SUMMARY")
    new = rules.policy(shown(talk(20)), ROOM)
    assert texts(new)[0] == "SUMMARY"
    assert ids(new)[1] == "m6"
    assert rules.policy(new, ROOM) is new


def test_a_summary_never_takes_the_last_ten_nor_parts_a_pair():
    rules = presets.strands(method="summary", summariser=lambda p: "S")
    assert len(rules.policy(shown(talk(10)), ROOM)) == 10
    asked = call("bash", command="x")
    rows = [user("u" * 99), assistant("a" * 99), asked, result("r", asked), *talk(10)]
    new = presets.strands(method="summary", summary_ratio=0.22, summariser=lambda p: "S").policy(
        shown(rows), ROOM
    )
    assert [m.role for m in new.messages[:2]] == ["summary", "user"]


@pytest.mark.parametrize(
    "bad", [{"method": "both"}, {"window_size": -1}, {"proactive_compression": 1.5}]
)
def test_what_strands_refuses_is_refused(bad):
    with pytest.raises(BadArguments):
        presets.strands(**bad)


def test_proactive_compression_is_off_unless_a_share_is_given():
    h = shown(user("abcd" * 140_000))
    assert not presets.strands(method="summary").trigger(h, ROOM)
    assert presets.strands(method="summary", proactive_compression=0.7).trigger(h, ROOM)
