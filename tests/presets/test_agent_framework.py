"""agent-framework: tool uses become lines at half the budget, the oldest groups go at 0.8."""

import pytest
from builders import assistant, session, step, system, usage, user
from histories import CHARS, ids, shown, texts

import ctxkit as ck
from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.presets.systems.agent_framework import TRUNCATED_MARK, format_tool_results_line
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(2000, 0, CHARS)


def rules(**settings):
    return presets.agent_framework(context_window=2000, max_output_tokens=0, **settings)


def uses(n, chars=800):
    return [s for i in range(n) for s in step("bash", str(i) * chars, command="echo " * 9)]


def test_old_tool_uses_become_one_line_each():
    """[Tool results: name: text]; the last groups stay"""
    new = rules(keep_last_tool_call_groups=2).policy(shown(user("go"), uses(6)), ROOM)
    assert [m.role for m in new.messages] == ["user"] + ["assistant"] * 4 + [
        "assistant",
        "tool",
    ] * 2
    assert texts(new)[1] == "[Tool results: bash: " + "0" * 800 + "]"


def test_below_half_the_budget_nothing_happens():
    h = shown(user("go"), uses(4))
    assert not rules().trigger(h, ROOM)
    assert rules().policy(h, ROOM) is h


def test_above_08_the_oldest_groups_go_until_half():
    h = shown(system(id="s"), [user("x" * 400, id=f"m{i}") for i in range(18)])
    new = rules().policy(h, ROOM)
    assert new.tokens <= 1000
    assert ids(new)[0] == "s"
    assert ids(new)[-1] == "m17"


def test_the_first_user_group_stays_where_asked():
    h = shown([user("x" * 400, id=f"m{i}") for i in range(18)])
    assert ids(rules(preserve_first_user_group=True).policy(h, ROOM))[0] == "m0"


def test_a_line_has_at_most_4096_characters():
    text = format_tool_results_line(["bash: " + "x" * 9000])
    assert len(text) == 4096
    assert text.endswith(TRUNCATED_MARK + "]")


@pytest.mark.parametrize(
    "bad",
    [
        {"tool_eviction_threshold": 0},
        {"truncation_threshold": 0.4},
        {"keep_last_tool_call_groups": -1},
    ],
)
def test_what_it_refuses_is_refused(bad):
    with pytest.raises(BadArguments):
        rules(**bad)


def test_the_last_group_always_stays():
    h = shown(user("go"), assistant("y" * 9000, id="last"))
    assert ids(rules().policy(h, ROOM))[-1] == "last"


def test_a_log_that_begins_with_a_reply_near_the_window_is_left_alone():
    """A log cut at its head: one reply, no prompt, and a usage of the whole window."""
    for prompt in (150_000, 190_000, 400_000):
        reply = assistant("It is done.", usage=usage(prompt, output=9))
        alone = session(reply, assistant("And this.", usage=usage(prompt, output=9)))
        done = ck.replay(alone, ck.presets.agent_framework())
        assert done.edits == ()
        assert len(ck.compare(alone, "all", progress=False).query("error.notna()")) == 0
