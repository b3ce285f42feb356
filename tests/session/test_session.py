"""The log only grows; what is shown, the turns and the calls are derived."""

from __future__ import annotations

import gc

import pytest
from builders import assistant, session, step, summarised, user

from ctxkit.errors import BadArguments
from ctxkit.session import Edit


def test_the_view_at_a_call_is_what_came_before_its_reply():
    a, b, c = user("a"), assistant("b"), user("c")
    s = session(a, b, c, assistant("d"))
    assert s.view(0) == (a,)
    assert s.view(-1) == (a, b, c)
    assert [len(v) for _, v in s.views()] == [1, 3]


def test_a_summary_stands_where_its_first_target_stood():
    a, b, c = user("a"), assistant("b"), user("c")
    edit = summarised([a, b])
    s = session(a, b, edit, c, assistant("d"))
    assert s.view(-1) == (edit.inserted[0], c)
    assert len(s.messages) == 4
    assert s.edits == (edit,)


def test_replaced_messages_keep_their_place():
    a, b = user("a"), assistant("b")
    new = user("A", id="new")
    s = session(a, b, Edit(kind="replaced", targets=(a.id,), inserted=(new,)))
    assert s.view() == (new, b)


def test_a_turn_begins_at_an_input_after_an_answer():
    s = session(user(), user(), step(), assistant(), user(), assistant())
    assert s.turns == (0, 0, 0, 0, 0, 1, 1)
    assert [c.turn for c in s.calls] == [0, 0, 1]


def test_a_recorded_turn_is_taken_as_it_stands():
    s = session(user(turn=4), assistant(turn=4), user(turn=9), assistant())
    assert s.turns == (4, 4, 9, 9)


def test_a_branch_is_a_pointer_and_loses_nothing():
    a, b, c = user("a"), assistant("b"), user("c")
    s = session(a, b, c)
    other = s.branch(b.id).append(user("other"))
    assert [m.text for m in other.messages] == ["a", "b", "other"]
    assert other.log[:3] == s.log
    assert other.branch(c.id).messages == (a, b, c)
    assert s.messages == (a, b, c)


def test_append_to_a_linear_session_stays_linear():
    s = session(user("a")).append(assistant("b"))
    assert s.parents == ()
    assert len(s.path) == 2


@pytest.mark.parametrize("index", [2, -3, 99])
def test_a_call_that_is_not_there_is_named(index: int):
    with pytest.raises(BadArguments, match="calls 0 to 1"):
        session(user(), assistant(), user(), assistant()).call(index)


def test_a_session_that_refers_to_itself_ends():
    s = session(user("a"), assistant("b"), parents=(1, 0))
    assert len(s.path) == 2


def test_the_collector_of_garbage_walks_over_no_message():
    asked, answer = step("bash", "ok", command=["ls", "-l"])
    cut = summarised([asked, answer], details={"turn": 1})
    assert not any(map(gc.is_tracked, (asked, *asked.parts, answer, cut)))
