"""OpenAI's server-side compaction: the threshold, the opaque item."""

import pytest
from builders import assistant, call, step, user
from histories import ROOM, shown

from ctxkit import presets
from ctxkit.errors import BadArguments


def test_everything_becomes_one_item_of_a_known_size():
    h = shown(user("x" * 4000), assistant("y" * 40_000), user("z" * 4000))
    new = presets.openai_server(item_tokens=500).policy(h, ROOM)
    assert [m.kind for m in new.messages] == ["native"]
    assert new.tokens == 500
    assert new.messages[0].text == ""


def test_a_call_at_work_stays():
    asked = call("bash", command="ls")
    new = presets.openai_server(item_tokens=10).policy(
        shown(user("x" * 400), *step("bash", "y" * 400), asked), ROOM
    )
    assert [m.role for m in new.messages] == ["summary", "assistant"]


@pytest.mark.parametrize(
    ("threshold", "tokens", "due"),
    [(5000, 5001, True), (5000, 5000, False), (None, 140_001, True), (None, 140_000, False)],
)
def test_it_acts_when_the_rendered_tokens_cross_the_threshold(threshold, tokens, due):
    """none is the default: 0.7 of the window, as Fased sets it"""
    rules = presets.openai_server(context_window=200_000, compact_threshold=threshold)
    h = shown(user("abcd" * tokens))
    assert rules.trigger(h, rules.context_budget(h.log)) is due
    with pytest.raises(BadArguments):
        presets.openai_server(compact_threshold=0)


def test_on_demand_the_users_messages_stay_and_one_item_stands_behind_them():
    h = shown(user("x" * 400), assistant("y" * 40_000), user("z" * 400), assistant("w" * 4000))
    rules = presets.openai_server(item_tokens=500, on_demand=True)
    new = rules.policy(h, ROOM)
    assert [(m.role, m.text[:1]) for m in new.messages] == [
        ("user", "x"),
        ("user", "z"),
        ("summary", ""),
    ]
    assert new.tokens < h.tokens
    assert h.tokens > 500 > 0
    again = rules.policy(new, ROOM)
    assert again.messages == new.messages


def test_on_demand_a_call_at_work_stays_behind_the_item():
    rows = [user("x" * 400), *step("bash", "y" * 4000), call("bash", command="ls")]
    new = presets.openai_server(item_tokens=10, on_demand=True).policy(shown(*rows), ROOM)
    assert [m.role for m in new.messages] == ["user", "summary", "assistant"]
