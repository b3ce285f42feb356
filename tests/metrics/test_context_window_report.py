"""The context report: every token of the prompt has a place, and the log's text stays text."""

from __future__ import annotations

import pandas as pd
import pytest
from builders import assistant, result, session, step, summarised, system, tool_call, usage, user
from conftest import sample
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.metrics import REPORT_COLUMNS, count_groups_by_call
from ctxkit.metrics.prompt_composition import GROUPS, split_sections
from ctxkit.session import Attachment, Edit, Message, Text, ToolSchema
from ctxkit.tokens import estimated_counter

COUNTER = estimated_counter()
PROMPT = """Be kind.
# Role
You are one.
```
# not a heading
```
## Tools
<memory>
# inside
likes tea
</memory>
rest
"""


def groups(s, call=-1):
    return ck.report(s, call, counter=COUNTER).groups()


def test_sections_are_headings_and_blocks():
    found = split_sections(PROMPT)
    assert [s.name for s in found] == ["preamble", "Role", "Tools", "memory", "text"]
    assert found[3].text == "<memory>\n# inside\nlikes tea\n</memory>\n"


@given(st.text(alphabet="# ab<>/\n`x", max_size=200))
def test_sections_lose_no_character(text):
    assert "".join(s.text for s in split_sections(text)) == text


def test_without_usage_every_part_has_its_plain_count():
    a = assistant("x" * 40, tool_call("bash", cmd="ls"), thinking="t" * 20)
    picture = Message(role="user", id="p", parts=(Attachment(), Attachment(kind="audio")))
    s = session(system("s" * 80), user("u" * 8), a, result("r" * 400, a), picture, assistant("end"))
    assert groups(s) == {
        "system prompt": 20, "user": 2, "assistant text": 10, "thinking": 5, "tool calls": 4,
        "tool results": 100, "images": 1200, "audio": 1200,
    }  # fmt: skip


def test_with_usage_the_parts_sum_up_to_the_recorded_prompt():
    tools = (ToolSchema(name="bash", chars=400), ToolSchema(name="read", chars=40))
    s = session(user("u" * 400), assistant(usage=usage(1000)), tools=tools)
    r = ck.report(s, counter=COUNTER)
    assert (r.prompt_tokens, r.prompt_source) == (1000, "recorded")
    assert r.groups() == {"tool schemas": 110, "user": 100, "not in the log": 790}
    assert [p.name for p in r.parts[:2]] == ["bash", "read"]
    assert r.residue == 790


def test_counts_above_the_recorded_prompt_are_scaled_down_and_said():
    s = session(
        user("u" * 4000), assistant(usage=usage(2000)), user("v" * 40), assistant(usage=usage(60))
    )
    r = ck.report(s, counter=COUNTER)
    assert sum(p.tokens for p in r.parts) == r.prompt_tokens == 60
    assert r.excess > 0
    assert "scaled down" in r.to_text()


def test_a_shortened_result_shows_both_sizes():
    (a, r) = step("bash", "y" * 400)
    cut = Edit(kind="shortened", targets=(r.id,), inserted=(result("y" * 40, a, id="short"),))
    s = session(user(), a, r, cut, assistant("end"))
    now = next(p for p in ck.report(s, counter=COUNTER).parts if p.group == "tool results")
    assert (now.tokens, now.raw_tokens) == (10, 100)
    big = ck.report(s, counter=COUNTER).contributors[0]
    assert (big.tokens, big.raw_tokens, big.position) == (10, 100, 2)
    before = session(user(), a, r, assistant("end"), cut)
    assert ck.report(before, counter=COUNTER).groups()["tool results"] == 100


def test_a_summary_is_a_part_and_stands_in_no_place_of_the_log():
    u = user("u" * 400)
    r = ck.report(session(u, summarised([u], "s" * 80), assistant()), counter=COUNTER)
    assert r.groups() == {"summaries": 20}
    assert r.contributors[0].position is None


def test_the_limit_is_recorded_else_of_the_table_else_missing_as_in_every_view():
    def at(**more):
        r = ck.report(session(user(), assistant(usage=usage(100)), **more), counter=COUNTER)
        return r.limit, r.limit_source

    assert at(context_window=1000) == (1000, "recorded")
    assert at(model="gpt-4o") == (128_000, "derived")
    assert at() == (None, None)
    unknown = session(user(), assistant(usage=usage(100), model="no-such-model"))
    assert "of an unknown window" in ck.report(unknown).to_text()
    size = ck.report(unknown)._format_size()
    assert size == "100 tokens (recorded) of an unknown window, 1 message"
    assert "of an unknown window" in ck.plots.composition(unknown, 0).caption
    assert pd.isna(ck.frame(unknown, per="call")["context_limit"].iloc[0])
    assert pd.isna(ck.score(unknown)["window_tokens"])
    assert (
        ck.report(
            session(user(), assistant(usage=usage(100)), context_window=400), counter=COUNTER
        ).full
        == 0.25
    )


def test_sums_over_whole_turns_are_no_prompt():
    s = session(user("u" * 40), Message(role="assistant", id="t", kind="turn", usage=usage(50_000)))
    assert ck.report(s, counter=COUNTER).prompt_tokens == 10


def test_a_log_without_content_says_that_it_cannot_tell():
    s = session(
        *[Message(role="assistant", id=f"t{i}", kind="turn", usage=usage(50)) for i in range(3)]
    )
    r = ck.report(s, counter=COUNTER)
    assert (r.parts, r.contributors, r.prompt_tokens) == ((), (), 0)
    assert "neither content" in r.to_text()
    assert "neither content" in ck.plots.composition(s, counter=COUNTER).caption


def test_the_next_prompt_and_a_session_without_calls():
    s = session(user("u" * 40), assistant("a" * 40))
    assert ck.report(s, None, counter=COUNTER).prompt_tokens == 20
    assert ck.report(session(user("u" * 40)), counter=COUNTER).call is None
    assert ck.report(session(id="empty"), counter=COUNTER).to_text().startswith("Context of empty")
    with pytest.raises(ck.BadArguments, match="no call 7"):
        ck.report(s, 7)


def test_the_frame_has_the_columns_of_its_table():
    frame = ck.report(session(user(), assistant()), counter=COUNTER).frame()
    assert [(n, str(t)) for n, t in frame.dtypes.items()] == [
        (c.name, c.dtype) for c in REPORT_COLUMNS
    ]
    assert frame["share"].sum() == pytest.approx(1)
    tools = (ToolSchema(name="bash", chars=400),)
    report = ck.report(
        session(user("u" * 400), assistant(usage=usage(1_000)), tools=tools, id="s"),
        counter=COUNTER,
    )
    assert report.frame().astype(object).to_numpy(na_value=None).tolist() == [
        ["s", 0, "tool schemas", "bash", 100, 100, 400, 0, 0.1, "estimated"],
        ["s", 0, "user", None, 100, 100, 400, 1, 0.1, "estimated"],
        ["s", 0, "not in the log", None, 800, 800, None, 0, 0.8, "derived"],
    ]
    assert report.to_text().splitlines()[4:10] == [
        "    tokens   share  part",
        "       100  10.0 %  tool schemas",
        "       100            bash",
        "       100  10.0 %  user",
        "       800  80.0 %  not in the log",
        "",
    ]


def test_nothing_of_a_log_becomes_markup():
    evil = '<script>alert(1)</script><img src=x onerror="a()">\x1b[31m\u202e'
    a = assistant(evil, tool_call(evil, arg=evil))
    s = session(
        system(f"# {evil}\nx"),
        user(evil),
        a,
        result(evil, a, tool=evil),
        assistant(),
        id=evil,
        model=evil,
    )
    r = ck.report(s, counter=COUNTER)
    page = r.to_html()
    assert "<script" not in page
    assert "<img" not in page
    for bad in ("\x1b", "\u202e"):
        assert bad not in page + r.to_text()
    assert "&lt;script&gt;" in page


def test_layers_are_the_reports_of_all_calls():
    u, (a, r) = user("x" * 40), step("bash", "y" * 400)
    cut = Edit(kind="shortened", targets=(r.id,), inserted=(result("z" * 40, a, id="short"),))
    s = session(u, a, r, assistant("mid", usage=usage(300)), cut, assistant("end", usage=usage(90)))
    found = count_groups_by_call(s, COUNTER)
    for call in found.calls:
        there = {g: tokens[call] for g, tokens in found.groups.items() if tokens[call]}
        assert there == groups(s, call)
    assert list(found.groups) == [g for g in GROUPS if g in found.groups]


@pytest.mark.parametrize("kind", ["pi", "claude-code", "codex", "opencode"])
def test_reports_of_real_sessions_sum_up_and_agree_with_their_layers(real, kind):
    for s in sample(list(ck.read_all(real / kind, progress=False)), 2):
        found = count_groups_by_call(s, COUNTER)
        for call in sample(list(found.calls), 3):
            r = ck.report(s, call, counter=COUNTER)
            assert sum(p.tokens for p in r.parts) == r.prompt_tokens
            assert {g: n for g, n in r.groups().items() if n} == {
                g: t[call] for g, t in found.groups.items() if t[call]
            }


def test_tags_that_are_never_closed_cost_no_more_than_their_text():
    prompt = "".join(f"<t{i}>\n" for i in range(20_000)) + "<a>\nx\n</a>\n"
    assert [s.name for s in split_sections(prompt)] == ["preamble", "a"]


def test_sections_that_a_message_names_are_parts_by_their_length():
    """By four characters a token they have 2, 11 and, before shortening, 25; the message has 12 of 13."""
    rows = [{"name": "task"}, {"name": "memory", "raw_chars": 100}]
    message = Message(
        role="system", id="s", parts=(Text("a" * 5), Text("b" * 43)), details={"sections": rows}
    )
    report = ck.report(session(message, user("hi"), assistant("x")), counter=COUNTER)
    assert [(p.group, p.name, p.tokens, p.raw_tokens) for p in report.parts[:2]] == [
        ("system prompt", "task", 2, 2),
        ("memory", "memory", 10, 23),
    ]
    assert "memory (before shortening 23)" in str(report)
    assert str(report).count("before shortening") == 1
