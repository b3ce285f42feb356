"""Inspect's edit, trim and summary: the cases of its own tests."""

import pytest
from builders import assistant, step, system, user
from histories import ROOM, ids, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.tokens import ContextBudget


def uses(n, tool="bash"):
    return [s for i in range(n) for s in step(tool, str(i) * 400, command=str(i))]


def test_edit_keeps_the_last_three_tool_uses():
    h = shown(user("go"), uses(5))
    assert [
        t == "(Tool result removed)" for t in texts(presets.inspect_edit().policy(h, ROOM))[2::2]
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_edit_does_not_count_excluded_tools():
    """a tool that is excluded is neither cleared nor counted"""
    h = shown(user("go"), uses(2), uses(3, "memory"), uses(1))
    new = presets.inspect_edit(keep_tool_uses=1, exclude_tools=("memory",)).policy(h, ROOM)
    assert [t == "(Tool result removed)" for t in texts(new)[2::2]] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_edit_takes_no_other_call_of_the_same_id():
    """some logs name calls again with each reply"""
    rows = [user("x"), *step(id="c0", text="y" * 900), *step(id="c0", text="kept")]
    policy = presets.inspect_edit(keep_tool_uses=1, keep_tool_inputs=False).policy
    new = policy(shown(rows), ROOM)
    assert len(new.messages) == 4
    assert new.messages[2:] == tuple(rows[3:])


def test_edit_puts_a_line_in_the_place_of_a_whole_use():
    """keep_tool_inputs false: the result goes, the call becomes a text"""
    h = shown(user("go"), uses(2))
    new = presets.inspect_edit(keep_tool_uses=1, keep_tool_inputs=False).policy(h, ROOM)
    assert texts(new)[1] == "[Tool call: bash (parameters and results removed from history)]"
    assert [m.role for m in new.messages] == ["user", "assistant", "assistant", "tool"]


@pytest.mark.parametrize(("keep", "left"), [(1, 1), (2, 2), ("all", 3), (0, 0)])
def test_edit_keeps_thinking_of_the_last_turns(keep, left):
    h = shown(user("go"), [assistant("done", thinking="hm " * 50) for _ in range(3)])
    new = presets.inspect_edit(keep_thinking_turns=keep).policy(h, ROOM)
    assert sum(len(m.parts) == 2 for m in new.messages) == left


def test_trim_drops_a_fifth_after_the_task():
    """preserve 0.8 of eleven: int(11 x 0.2) messages after the input go"""
    rows = [
        system("be good", id="s"),
        user("task", id="t"),
        *((assistant if i % 2 else user)("x" * 400, id=f"m{i}") for i in range(11)),
    ]
    h = shown(rows)
    rules = presets.inspect_trim(threshold=h.tokens - 10)
    assert ids(rules.policy(h, ROOM)) == ["s", "t", *(f"m{i}" for i in range(2, 11))]


def test_trim_goes_on_until_it_fits_and_never_orphans():
    h = shown(user("task"), uses(20))
    new = presets.inspect_trim(threshold=h.tokens // 3).policy(h, ROOM)
    assert new.tokens <= h.tokens // 3
    assert [m.role for m in new.messages[:3]] == ["user", "assistant", "tool"]


def test_trim_within_the_threshold_changes_nothing():
    h = shown(user("task"), uses(3))
    assert presets.inspect_trim().policy(h, ROOM) is h


def test_summary_keeps_the_task_and_nothing_else():
    """system, input, summary"""
    h = shown(system("be good"), user("task"), uses(3))
    new = presets.inspect_summary(summariser=lambda p: "SUMMARY").policy(h, ROOM)
    assert texts(new) == ["be good", "task", "[CONTEXT COMPACTION SUMMARY]\n\nSUMMARY"]


def test_a_second_summary_starts_from_the_first():
    seen = []
    rules = presets.inspect_summary(
        summariser=lambda p: seen.append([m.role for m in p.messages]) or "S"
    )
    once = rules.policy(shown(user("task"), uses(3)), ROOM)
    assert rules.policy(once, ROOM) is once
    assert len(seen) == 1


@pytest.mark.parametrize("name", ["inspect_edit", "inspect_trim", "inspect_summary"])
def test_a_threshold_is_a_share_or_tokens(name):
    """0.9 of the window, or 5,000 tokens; strictly above"""
    budget = ContextBudget(10_000, 0, ROOM.counter)
    share, tokens = getattr(presets, name)(), getattr(presets, name)(threshold=5000)
    h = [shown(user("abcd" * n)) for n in (5000, 5001, 9000, 9001)]
    assert [tokens.trigger(x, budget) for x in h] == [False, True, True, True]
    assert [share.trigger(x, budget) for x in h] == [False, False, False, True]
    with pytest.raises(BadArguments):
        getattr(presets, name)(threshold=0)
