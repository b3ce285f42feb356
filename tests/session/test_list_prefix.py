"""The beginning of a list behaves as the tuple of its values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.session import Edit, ListPrefix, Message, Session, Text


@given(st.lists(st.integers()), st.lists(st.integers()), st.integers(-5, 5), st.integers(-5, 5))
def test_it_is_a_tuple_of_what_stood_then(values, later, at, stop):
    own, was = ListPrefix(values), tuple(values)
    values.extend(later)
    assert (own, tuple(own), len(own), hash(own), repr(own)) == (
        *(was, was, len(was)),
        *(hash(was), repr(was)),
    )
    assert own[at:stop] == was[at:stop]
    assert own.__add__((1,)) == (*was, 1)
    assert own.__radd__((1,)) == (1, *was)
    assert own != (*was, 1)
    assert own != list(was)
    if -len(was) <= at < len(was):
        assert own[at] == was[at]
    with pytest.raises(IndexError):
        own[len(was)]


@given(st.lists(st.integers()), st.lists(st.integers()), st.lists(st.integers()))
def test_it_tells_what_was_added_since_an_earlier_one(values, later, last):
    first = ListPrefix(values)
    values.extend(later)
    own = ListPrefix(values)
    values.extend(last)
    assert own.added_since(first) == later
    assert own.added_since(own) == []
    assert own.added_since(ListPrefix(list(own))) is None
    assert own.added_since(()) is None


def test_each_prompt_is_what_view_says_of_its_call():
    def said(i: int, role: str) -> Message:
        return Message(role=role, id=f"m{i}", parts=(Text(f"text {i}"),))

    log = [said(i, "user" if i % 2 == 0 else "assistant") for i in range(20)]
    log.insert(11, Edit(id="e", kind="dropped", targets=("m0", "m1", "m2")))
    session = Session(id="s", log=tuple(log))
    shown = list(session.views())  # all of them, before any is looked at
    assert [view for _, view in shown] == [session.view(call.index) for call, _ in shown]
    assert len({len(view) for _, view in shown}) > 5


def test_the_prompts_of_a_real_session(real):
    session = ck.read(real / "pi/before-compaction.jsonl")
    for call, shown in list(session.views())[::50]:
        assert shown == session.view(call.index)
