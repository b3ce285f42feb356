"""Each way to split a bill names its parts by what it splits, with the dollars worked out by hand."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user

import ctxkit as ck
from ctxkit.session import Usage

SONNET, HAIKU = "claude-sonnet-4-5", "claude-haiku-4-5"
BIG = 10_000 * 3e-6 + 100 * 15e-6
SMALL = 10_000 * 1e-6 + 100 * 5e-6
"""A call of 10,000 fresh tokens and a reply of 100, of either model."""


def call(model: str, agent: str, text: str = "ok", *calls):
    usage = Usage(input_tokens=10_000, cache_read_tokens=0, output_tokens=100)
    return assistant(text, *calls, usage=usage, model=model, agent=agent)


@pytest.fixture
def spent():
    read = tool_call("read_file", path="a.py")
    asked = call(SONNET, "Ann", "", read)
    return ck.spend(
        session(
            user("go"), asked, result("text " * 100, of=asked), call(HAIKU, "Ann"),
            user("on"), call(HAIKU, "Bob"), model=SONNET,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        ("agent", {"Ann": BIG + SMALL, "Bob": SMALL}),
        ("model", {SONNET: BIG, HAIKU: 2 * SMALL}),
    ],
)
def test_calls_are_split_by_who_made_them_and_by_what_answered(spent, way, parts):
    assert {p.name: p.usd for p in spent.by(way)} == pytest.approx(parts)


def test_turns_are_split_in_their_order(spent):
    by_turn = sorted(spent.by("turn"), key=lambda p: p.usd)
    assert [p.usd for p in by_turn] == pytest.approx([SMALL, BIG + SMALL])


def test_every_split_adds_up_with_the_largest_part_first(spent):
    assert {"turn", "tool", "file", "server", "cache", "agent", "model"} < set(spent.ways)
    for way in spent.ways:
        dollars = [p.usd for p in spent.by(way)]
        assert sum(dollars) == pytest.approx(BIG + 2 * SMALL), way
        assert dollars == sorted(dollars, reverse=True), way
        assert spent.frame(way).columns[0] == way


def test_the_name_of_a_tool_is_cut_at_sixty_characters():
    asked = call(SONNET, "Ann", "", tool_call("t" * 100, x="1"))
    spent = ck.spend(
        session(user("go"), asked, result("text " * 100, of=asked), call(SONNET, "Ann"))
    )
    names = [p.name for p in spent.by("tool") if p.name.startswith("ttt")]
    assert {len(name) for name in names} == {60}


def test_the_name_of_an_agent_is_cut_at_sixty_characters():
    spent = ck.spend(session(user("go"), call(SONNET, "a" * 100), user("on"), call(HAIKU, "Bob")))
    assert sorted(len(p.name) for p in spent.by("agent")) == [3, 60]


def test_names_of_parts_are_cut_at_the_length_that_fits_their_table():
    helper = session(user(), call(SONNET, "h"), id="i" * 200, title="c" * 300)
    read = tool_call("read_file", path="p" * 200)
    asked = call(SONNET, "Ann", "", read)
    log = [
        user("w" * 200),
        asked,
        result("text", of=asked),
        call(SONNET, "Ann"),
    ]
    spent = ck.spend(session(*log, children=(helper,), model=SONNET, title="Main"))

    def find_part(way: str, letter: str):
        (found,) = (p for p in spent.by(way) if letter * 20 in p.name)
        return found

    assert find_part("file", "p").name == "p" * 119 + "…"
    assert find_part("turn", "w").name == f"0: {'w' * 89}…"
    assert find_part("turn", "w").hover.startswith("w" * 90)
    assert find_part("subagent", "c").name == "c" * 59 + "…"
    assert find_part("subagent", "c").hover == f"id {'i' * 79}…"
