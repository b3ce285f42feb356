"""The AI SDK's pruneMessages, and Tyrum's cap on messages."""

import pytest
from builders import assistant, call, result, step, system, tool_call, user
from histories import ROOM, ids, shown, texts

from ctxkit.errors import BadArguments
from ctxkit.policies import MessageCountCap, PruneToolCalls


def steps(n):
    out = []
    for i in range(1, n + 1):
        c = call(id=f"k{i}")
        out += [assistant("", *c.tool_calls, id=f"call{i}"), result("r", c, id=f"res{i}")]
    return out


def three():
    return shown(
        system("s", id="sys"), user("u", id="user"), steps(3), assistant("done", id="done")
    )


def test_a_call_just_outside_the_window_survives_with_its_result():
    new = PruneToolCalls(tool_calls="before-last-4-messages")(three(), ROOM)
    assert ids(new) == ["sys", "user", "call2", "res2", "call3", "res3", "done"]


def test_zero_messages_is_no_window_and_drops_nothing():
    h = three()
    assert PruneToolCalls(tool_calls="before-last-0-messages")(h, ROOM) is h
    assert PruneToolCalls()(h, ROOM) is h


def test_all_drops_every_call_and_what_is_empty():
    assert ids(PruneToolCalls(tool_calls="all")(three(), ROOM)) == ["sys", "user", "done"]


def test_text_beside_a_call_survives():
    c = tool_call("bash")
    h = shown(
        user("u"), assistant("Let me look.", c), result("x", c), assistant("a"), assistant("b")
    )
    assert texts(PruneToolCalls(tool_calls="before-last-message")(h, ROOM)) == [
        "u",
        "Let me look.",
        "a",
        "b",
    ]


def test_parallel_results_count_as_one_message():
    a, b = tool_call(), tool_call()
    h = shown(
        user("u"), assistant("", a, b, id="both"), result("1", a), result("2", b), assistant("end")
    )
    assert len(PruneToolCalls(tool_calls="before-last-2-messages")(h, ROOM)) == 5
    assert len(PruneToolCalls(tool_calls="before-last-1-messages")(h, ROOM)) == 2


def test_only_named_tools():
    h = shown(user("u"), step("read_file"), step("bash"), assistant("end"))
    new = PruneToolCalls(tool_calls="all", tools=("ba*",))(h, ROOM)
    assert [m.tool for m in new.messages if m.role == "tool"] == ["read_file"]


def test_reasoning_goes_from_all_or_all_but_the_last():
    h = shown(user("u"), assistant("a", thinking="t"), assistant("b", thinking="t"))
    assert texts(PruneToolCalls(reasoning="all")(h, ROOM)) == ["u", "a", "b"]
    assert texts(PruneToolCalls(reasoning="before-last-message")(h, ROOM)) == ["u", "a", "t\nb"]


def test_the_turn_of_the_call_keeps_its_reasoning_from_its_first_reply_on():
    """Turn 1 has no message of a user: it begins with a reply."""
    asked = assistant("b", tool_call(id="k"), thinking="t", turn=1)
    h = shown(
        user("u", turn=0), assistant("a", thinking="t", turn=0), asked, result("r", "k", turn=1)
    )
    assert texts(PruneToolCalls(reasoning="all")(h, ROOM)) == ["u", "a", "t\nb", "r"]


def test_empty_messages_go_unless_kept():
    h = shown(user(""), user("x"))
    assert texts(PruneToolCalls(tool_calls="none")(h, ROOM)) == ["x"]
    assert PruneToolCalls(empty_messages="keep")(h, ROOM) is h


def test_modes_are_checked():
    with pytest.raises(BadArguments, match="before-last"):
        PruneToolCalls(tool_calls="before-last")
    with pytest.raises(BadArguments, match="reasoning"):
        PruneToolCalls(reasoning="some")


def test_the_cap_keeps_the_head_and_skips_leading_results():
    h = shown(system(id="s"), user(id="u"), steps(6))
    assert ids(MessageCountCap(max_messages=7)(h, ROOM))[2:] == ["call5", "res5", "call6", "res6"]


def test_the_cap_keeps_a_protected_group_that_fills_the_end():
    """The newest messages are results of one reply; with one of them pinned, the group stays."""
    calls = [tool_call(id=f"k{n}") for n in range(4)]
    group = [assistant("", *calls, id="all"), *(result("r", c, id=f"r{c.id}") for c in calls)]
    group[-1] = result("r", calls[-1], id="pinned", pinned=True)
    h = shown(user(id="u"), steps(2), group)
    assert ids(MessageCountCap(max_messages=3)(h, ROOM)) == ["u", *(m.id for m in group)]
