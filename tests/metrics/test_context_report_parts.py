"""Parts and largest messages of a report: sizes, sources and characters, worked out by hand."""

from __future__ import annotations

from builders import assistant, result, session, system, tool_call, user
from metrics.hand_computed_sessions import make_priced_session
from random_sessions import Fours

import ctxkit as ck
from ctxkit import report
from ctxkit.session import Usage

READ = tool_call("read_file", path="a.py")


def bill(prompt: int) -> Usage:
    return Usage(input_tokens=prompt, cache_read_tokens=0, output_tokens=3)


def make_log(first_usage: Usage | None = None, usage: Usage | None = None):
    first = assistant("", READ, usage=first_usage)
    return session(
        system("s" * 40),
        user("u" * 120),
        first,
        result("r" * 800, of=first),
        assistant("ok", usage=usage),
    )


def test_parts_come_from_the_bill_where_there_is_one():
    billed = report(make_log(bill(60), bill(400)), call=1)
    assert billed.prompt_tokens == 400
    assert sum(p.tokens for p in billed.parts) == 400
    assert {p.source for p in billed.parts} == {"derived"}
    by_group = {p.group: p.tokens for p in billed.parts}
    assert by_group["system prompt"] + by_group["user"] == 60  # the first prompt
    unbilled = report(make_log(), call=1, counter=Fours())
    assert {p.source for p in unbilled.parts if p.messages_n} == {"estimated"}


def test_the_largest_messages_come_first_with_their_characters():
    found = report(make_log(), call=1, counter=Fours()).contributors
    by_role = {c.role: c for c in found}
    assert [c.tokens for c in found] == sorted((c.tokens for c in found), reverse=True)
    assert (by_role["tool"].chars, by_role["tool"].tokens) == (800, 200)
    assert (by_role["user"].chars, by_role["user"].tokens) == (120, 30)
    assert (by_role["system"].chars, by_role["system"].tokens) == (40, 10)
    assert [c.position for c in found if c.role == "tool"] == [3]


def test_ten_messages_are_listed():
    many = session(*(user("x" * 40 * n) for n in range(1, 15)), assistant("ok"))
    found = report(many, call=0, counter=Fours()).contributors
    assert [c.tokens for c in found] == [10 * n for n in range(14, 4, -1)]


# -- The prompt of a replay is modelled: a report of it never calls its size recorded.


def test_a_recorded_prompt_is_recorded_and_a_replayed_one_is_not():
    session = make_priced_session()
    for call in range(4):
        assert ck.report(session, call).prompt_source == "recorded"
    replay = ck.replay(session, "none")
    for call in range(4):
        assert ck.report(replay, call).prompt_source != "recorded"
