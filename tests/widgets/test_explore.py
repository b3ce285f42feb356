"""The explorer: what it shows at a call, by its traits; its twins; text of logs as text."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, summarised, usage, user
from reports.hostile import hostile, intruders

from ctxkit import explore
from ctxkit.errors import BadArguments
from ctxkit.widgets.scenes import PAGE, TEXT_CHARS, Scenes


@pytest.fixture
def story():
    a, b = user("first words"), assistant("found", usage=usage(50))
    return session(
        a, b, step(text="long " * 300), summarised([a, b]), assistant("done", usage=usage(700))
    )


def test_it_opens_at_the_last_call_with_the_largest_message_open(story):
    shown = explore(story)
    assert shown.call == 2
    assert "long long" in shown.text.value
    assert "700 tokens" in shown.heading.value


def test_moving_the_slider_shows_what_that_call_was_shown(story):
    shown = explore(story)
    shown.slider.value = 0
    assert [i.message for i in shown.scene.items] == list(story.view(0))
    assert "first words" in shown.text.value


def test_a_call_can_be_set_from_its_end(story):
    shown = explore(story, call=0)
    shown.call = -1
    assert shown.slider.value == 2


def test_choosing_a_message_opens_it(story):
    shown = explore(story)
    shown.order.value = False
    shown.list.index = 0
    assert "So far: nothing." in shown.text.value


def test_a_slider_chooses_too_as_the_lab_keeps_the_arrow_keys_of_lists(story):
    shown = explore(story)
    shown.order.value = False
    shown.pick.value = 1
    assert shown.list.index == 1
    shown.list.index = 2
    assert shown.pick.value == 2
    assert shown.pick.max == len(shown.list.options) - 1


def test_the_groups_and_the_remainder_sum_up_to_the_recorded_prompt(story):
    scene = Scenes(story).at(2)
    assert sum(n for _, n in scene.groups) == scene.tokens == 700


def test_a_long_list_has_pages():
    many = session(*(user(f"word {i}") for i in range(2 * PAGE + 5)), assistant())
    shown = explore(many)
    shown.order.value = False
    assert len(shown.list.options) == PAGE
    assert shown.back.disabled
    shown.more.click()
    shown.more.click()
    assert len(shown.list.options) == 5
    assert shown.more.disabled
    assert "word 200" in shown.text.value


def test_a_huge_message_is_cut_and_says_so():
    shown = explore(session(user("x" * 500_000), assistant()))
    assert len(shown.text.value) < 2 * TEXT_CHARS
    assert "the first 20,000 of 500,000 characters" in shown.text.value


def test_it_has_a_text_twin_and_an_html_twin(story):
    bundle = explore(story)._repr_mimebundle_()
    assert "Call 2 (of 0 to 2)" in bundle["text/plain"]
    assert "Largest messages" in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_session_without_calls_shows_what_stands():
    shown = explore(session(user("only this")))
    assert "No call" in shown.heading.value
    assert "only this" in shown.text.value
    assert explore(session()).list.options == ()


@pytest.mark.parametrize("call", [3, -4])
def test_a_call_that_is_not_there_is_named(story, call: int):
    with pytest.raises(BadArguments, match="calls 0 to 2"):
        explore(story, call=call)


def test_text_of_a_log_stays_text():
    shown = explore(hostile(), call=2)
    for i in range(len(shown.list.options)):
        shown.list.index = i
        assert intruders(shown.text.value) == []
    assert intruders(shown.to_html()) == []
    assert intruders(shown.heading.value + shown.bar.value + shown.growth.value) == []
    assert not {"\x1b", "\u202e", "\n"} & set("".join(shown.list.options))
