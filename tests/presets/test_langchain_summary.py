"""LangChain's summarization middleware: its own cases of triggers, cuts and what the summariser sees."""

import pytest
from builders import assistant, call, result, step, user
from histories import ROOM, ids, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments

PREFIX = "Here is a summary of the conversation to date:\n\n"


def summarised(history, **settings):
    rules = presets.langchain_summary(trigger=("messages", 1), **settings)
    return rules.policy(history, ROOM)


def test_without_a_trigger_nothing_is_compacted():
    rules = presets.langchain_summary()
    assert rules.policy is None
    assert rules.trigger is None


def test_the_last_messages_stay():
    h = shown([user("x" * 400, id=f"m{i}") for i in range(6)])
    new = summarised(h, keep=("messages", 2), summariser=lambda p: "SUMMARY")
    assert texts(new)[0] == PREFIX + "SUMMARY"
    assert ids(new)[1:] == ["m4", "m5"]


def test_a_cut_among_results_moves_back_to_their_call():
    """_find_safe_cutoff_point: the AI message with the calls is kept as well"""
    two = assistant("", call("a").tool_calls[0], call("b").tool_calls[0])
    h = shown(
        user("x" * 900),
        assistant("y" * 900),
        two,
        result("1", two.tool_calls[0]),
        result("2", two.tool_calls[1]),
    )
    new = summarised(h, keep=("messages", 1), summariser=lambda p: "S")
    assert [m.role for m in new.messages] == ["summary", "assistant", "tool", "tool"]


def test_by_tokens_the_longest_end_that_fits_stays():
    h = shown([user("x" * 400, id=f"m{i}") for i in range(6)])
    new = summarised(h, keep=("tokens", 250), summariser=lambda p: "S")
    assert ids(new)[1:] == ["m4", "m5"]
    assert summarised(h, keep=("tokens", 600)) is h


@pytest.mark.parametrize(
    ("trigger", "messages", "due"),
    [
        (("messages", 4), 4, True),
        (("messages", 5), 4, False),
        (("tokens", 400), 4, True),
        (("tokens", 401), 4, False),
        (("fraction", 0.002), 4, True),
        ({"tokens": 400, "messages": 5}, 4, False),
        ({"tokens": 400, "messages": 4}, 4, True),
        ([{"tokens": 900, "messages": 1}, ("messages", 4)], 4, True),
    ],
)
def test_triggers_are_joined_by_and_and_or(trigger, messages, due):
    """a dict: all of them; a list: any"""
    rules = presets.langchain_summary(trigger=trigger)
    h = shown([user("abcd" * 100)] * messages)
    assert rules.trigger(h, ROOM) is due


def test_the_summariser_sees_the_last_4000_tokens_from_a_user_message_on():
    seen = []
    h = shown([user("u" * 400), assistant("a" * 4000)] * 20)
    summarised(h, keep=("messages", 2), summariser=lambda p: seen.extend(p.messages) or "S")
    assert seen[0].role == "user"
    assert len(seen) == 6


def test_where_nothing_is_left_to_see_it_says_so():
    h = shown(user("go"), *(s for i in range(9) for s in step("bash", "y" * 8000, command=str(i))))
    assert (
        texts(summarised(h, keep=("messages", 2), summariser=lambda p: "S"))[0]
        == PREFIX + "Previous conversation was too long to summarize."
    )
    assert (
        texts(
            summarised(
                h, keep=("messages", 2), summariser=lambda p: "S", trim_tokens_to_summarize=None
            )
        )[0]
        == PREFIX + "S"
    )


@pytest.mark.parametrize(
    "bad", [("tokens", 0), ("fraction", 1.5), ("words", 3), {}, {"messages": 2.5}, "often"]
)
def test_what_langchain_refuses_is_refused(bad):
    with pytest.raises(BadArguments):
        presets.langchain_summary(trigger=bad)
