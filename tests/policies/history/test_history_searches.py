"""Searches against looking at every message, on histories by chance with edited heads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_sessions import Fours, by_chance, size

from ctxkit.errors import BadArguments
from ctxkit.policies import History, MessageLog
from ctxkit.policies.history.growing_columns_and_sums import RowAndCallSums


@st.composite
def histories(draw):
    talk = by_chance(draw(st.integers(0, 10**6)), draw(st.integers(3, 25)))
    log = MessageLog.of(talk.messages, Fours())
    h = History.start(log, draw(st.integers(1, log.calls)))
    for verb in draw(st.lists(st.sampled_from(["cut", "clear", "drop", "shorten"]), max_size=3)):
        p = draw(st.integers(0, len(h)))
        if verb == "cut":
            h = h.summarise(p, draw(st.sampled_from([40, "So far: nothing."])))
        elif verb == "drop":
            h = h.drop(list(range(min(p, len(h)))[::3]))
        elif verb == "clear":
            h = h.shorten(h.role("tool"), "[gone]")
        else:
            h = h.shorten(dict.fromkeys(range(0, p, 4), "!"))
    return h.at(draw(st.integers(h.call, log.calls)))


def sizes(h):
    return [i.tokens for i in map(h.item, range(len(h)))]


def safe(h):
    """Positions before which a cut parts no call from a result, seen from the messages alone."""
    out = []
    for p in range(len(h) + 1):
        asked = {c.id for m in h.messages[:p] for c in m.tool_calls}
        out.append(not any(m.role == "tool" and m.call_id in asked for m in h.messages[p:]))
    return out


@given(histories(), st.integers(0, 5000))
def test_back_is_the_last_position_that_shows_so_much(h, tokens):
    enough = [p for p in range(len(h) + 1) if sum(sizes(h)[p:]) >= tokens]
    assert h.back(tokens) == max(enough, default=0)


@given(histories(), st.integers(0, 5000), st.integers(0, 3))
def test_fitting_is_the_first_position_whose_rest_fits(h, budget, start):
    start = min(start, len(h))
    kept = lambda p: sum(n for i, n in enumerate(sizes(h)) if i < start or i >= p or h.stays[i])
    fits = [p for p in range(start, len(h) + 1) if kept(p) <= budget]
    assert h.fitting(budget, start=start) == (fits[0] if fits else len(h))


@given(histories())
def test_safe_cuts_are_those_that_part_nothing(h):
    known = safe(h)
    for p in range(len(h)):
        assert h.is_safe(p) == known[p]
        assert h.safe(p) == next((q for q in range(p, len(h)) if known[q]), 0)
        assert h.safe_before(p) == max(q for q in range(p + 1) if known[q])


@given(histories(), st.sampled_from(["user", "assistant", "tool", "summary"]), st.integers(1, 9))
def test_roles_are_found_and_counted(h, role, n):
    places = [p for p, m in enumerate(h.messages) if m.role == role]
    assert h.count(role) == len(places)
    assert h.nth_last(role, n) == (places[-n] if n <= len(places) else -1)
    assert h.next(n, role) == next((p for p in places if p >= n), -1)
    assert h.role(role).nonzero()[0].tolist() == places


@given(histories())
def test_sums_are_those_of_the_messages_shown(h):
    assert h.tokens == h.estimated == sum(sizes(h)) == h.sizes.sum()
    assert len(h) == len(h.messages) == len(h.sizes)
    assert [h.before(p) for p in range(len(h) + 1)] == [
        sum(sizes(h)[:p]) for p in range(len(h) + 1)
    ]
    assert sizes(h) == [
        size(m) if m.text or m.tool_calls else n for m, n in zip(h.messages, sizes(h), strict=True)
    ]


@given(histories())
def test_columns_say_what_the_messages_say(h):
    from ctxkit.policies import count_chars

    assert h.errors.tolist() == [m.is_error for m in h.messages]
    assert h.chars.tolist() == [count_chars(m) for m in h.messages]
    assert h.agent("MAIN").all()
    tools = h.tool("read_*").nonzero()[0].tolist()
    assert tools == [
        p for p, m in enumerate(h.messages) if m.role == "tool" and m.tool == "read_file"
    ]
    assert all(h[p].role in ("system", "user", "assistant", "tool") for p in h.stays.nonzero()[0])


def test_unknown_words_are_refused():
    h = History.start(MessageLog.of(by_chance(1, 3).messages, Fours()), 2)
    with pytest.raises(BadArguments, match="Did you mean 'assistant'"):
        h.count("asistant")
    with pytest.raises(BadArguments, match="count from 1"):
        h.nth_last("user", 0)
    with pytest.raises(BadArguments, match="is not in the prompt"):
        h.position(10**6)


def test_a_row_is_found_again_by_its_position():
    h = History.start(MessageLog.of(by_chance(5, 20).messages, Fours()), 20)
    h = h.summarise(h.safe(h.back(900)), 50)
    shown = [p for p in range(len(h)) if h.row(p) >= 0]
    assert [h.position(h.row(p)) for p in shown] == shown


@given(
    st.lists(st.integers(0, 9), max_size=400),
    st.integers(0, 9),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_the_first_call_above_a_limit_is_found_in_prompts_that_also_shrink(fixed, limit, a, b):
    sums = RowAndCallSums()
    for n in (*fixed, 5, 4):  # the last one shrinks, so the sizes are not sorted
        sums.append_call(0, n)
    start, stop = sorted((min(a, len(fixed)), min(b, len(fixed))))
    first = next((k for k in range(start, stop) if fixed[k] > limit), stop)
    assert sums.above(limit, start, stop) == first
