"""What a live session says that it sent is what the model received, call by call."""

from __future__ import annotations

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics.test_scores_from_the_page import find_differences
from stand_in_models import ECHO, Says, agent, run, said

import ctxkit as ck
from ctxkit.agent import ProviderModel
from ctxkit.errors import ModelError
from ctxkit.metrics import count_groups_by_call
from ctxkit.presets import preset, swe_agent_mask
from ctxkit.session import ToolCall, Usage

PRUNING = ("ai", "fuseraft", "tyrum", "swe_agent_mask", "inspect_edit", "codex")


def talk(sizes, *more):
    """Return replies that each call a tool with a result of some size, answers in between."""
    for n, size in enumerate(sizes):
        usage = Usage(input_tokens=500 + 40 * n, output_tokens=7)
        call = ToolCall(id=f"c{n}", name="echo", arguments={"x": "ab " * size})
        yield said(call, usage=usage) if size % 3 else said("fine " * size, usage=usage)
    yield from more


def held(one, heard):
    """Hold what was sent, the events of the calls and the report against what the model was asked."""
    asked = one.model.asked
    told = [e.payload for e in heard if e.kind == "inner_call_context"]
    stacked = count_groups_by_call(one.session)
    assert len(one.session.calls) == len(asked) == len(told) == len(stacked.calls)
    for call, (request, event) in enumerate(zip(asked, told, strict=True)):
        items = one.session.sent(call)
        messages = [i for i in items if i.message.kind != "fixed"]
        assert [i.message.parts for i in messages] == [m.parts for m in request.messages]
        results = sum(len(i.message.text) for i in messages if i.message.role == "tool")
        assert event["content_chars"]["fn_results"] == results
        assert event["est_tokens"] == sum(i.tokens for i in items)
        made = ck.report(one.session, call)
        assert made.messages_n == len(request.messages)
        assert sum(p.tokens for p in made.parts) == made.prompt_tokens
        assert sum(g[call] for g in stacked.groups.values()) == made.prompt_tokens
        usage = one.session.calls[call].message.usage
        if usage is None:
            assert made.prompt_tokens == sum(i.tokens for i in items)
        else:
            assert made.prompt_tokens == usage.prompt_tokens


@pytest.mark.parametrize("name", PRUNING)
def test_it_is_what_the_model_was_asked(name):
    @settings(max_examples=examples(3))
    @given(st.lists(st.integers(1, 900), min_size=3, max_size=25))
    def check(sizes):
        heard = []
        rules = preset(name).but(window=6000, assumed=True, reserve=500)
        notes = Says(*[said("notes")] * 99)  # so that no reply of the talk is taken for a summary
        one = agent(*talk(sizes), rules=rules, heard=heard, tools=[ECHO], summary_model=notes)
        for turn in range(3):
            run(one.turn(f"go on {turn}"))
        held(one, heard)

    check()


def test_the_event_of_a_call_has_its_tokens():
    heard = []
    one = agent(*talk([400, 401, 3] * 6), rules=preset("swe_agent_mask"), heard=heard, tools=[ECHO])
    for turn in range(6):
        run(one.turn(f"go on {turn}"))
    told = [e.payload["est_tokens"] for e in heard if e.kind == "inner_call_context"]
    assert told == [sum(i.tokens for i in one.session.sent(c)) for c in range(len(told))]
    changed = {i.changed_by for c in range(len(told)) for i in one.session.sent(c)}
    assert changed - {None}
    assert one.session.sent(0)[0].message.kind == "fixed"  # the tools' schemas


def test_what_was_trimmed_to_fit_is_said():
    heard = []
    full = ModelError("too long: the maximum context length is 9000 tokens", overflow=True)
    replies = [*talk([4000, 5000]), full, full, said("done")]
    one = agent(*replies, rules=preset("none"), heard=heard, tools=[ECHO])
    run(one.turn("go"))
    held(one, heard)
    by = {i.changed_by for i in one.session.sent(-1)}
    assert any(b and b.startswith("trimmed to fit") for b in by)


def test_a_branch_and_a_resumed_session_keep_what_they_know():
    heard = []
    rules = preset("swe_agent_mask", n=2)
    one = agent(*talk([50] * 9), rules=rules, heard=heard, tools=[ECHO])
    for turn in range(3):
        run(one.turn(f"go {turn}"))
    before = [one.session.sent(c) for c in range(len(one.session.calls))]
    place = one.session.calls[6].position
    one.move(one.session.branch(place))
    run(one.turn("elsewhere"))
    after = one.session
    assert [after.sent(c) for c in range(7)] == before[:7]
    assert [i.message.parts for i in after.sent(-1)[1:]] == [
        m.parts for m in one.model.asked[-1].messages
    ]
    again = agent(at=after.branch(len(after.log) - 1), rules=rules, model=Says())
    run(again.turn("and now"))
    assert len(again.session.sent(-1)) == len(again.model.asked[-1].messages) + 1
    for call in range(7):  # another agent made these calls, and the log records its prunings
        then, now = before[call][1:], again.session.sent(call)[1:]  # it has other tools
        assert [i.message.parts for i in now] == [i.message.parts for i in then]
        assert [(i.tokens, i.raw_tokens, i.changed_by) for i in now] == [
            (i.tokens, i.raw_tokens, i.changed_by) for i in then
        ]


@pytest.mark.filterwarnings("default")
def test_a_server_received_what_is_shown():
    asks = [Play(calls=(("echo", {"x": f"{n} " * 300}),)) for n in range(8)]
    with wire("chat", *asks, Play("All is well.")) as up:
        options = {"api_base": up.url, "api_key": "none"}
        model = ProviderModel(FORMATS["chat"][0], context_window=50_000, options=options)
        one = agent(model=model, rules=preset("swe_agent_mask", n=3), tools=[ECHO])
        run(one.turn("go"))
    for call, body in enumerate(up.asked):
        items = [i for i in one.session.sent(call) if i.message.kind != "fixed"]
        results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        assert results == [i.message.text for i in items if i.message.role == "tool"]
        assert len(items) == len(body["messages"])
        made = ck.report(one.session, call)
        shown = sum(p.chars for p in made.parts if p.group == "tool results")
        assert shown == sum(map(len, results))
        assert sum(p.tokens for p in made.parts) == made.prompt_tokens
    assert sum(i.changed_by is not None for i in items) == 5
    frame = ck.frame(one.session, per="message").set_index("id")
    assert frame["pruned_by"].notna().sum() == 5
    assert ck.explore(one.session).explorer_session.at(8).items[2].changed_by == "Clear"


@pytest.mark.parametrize("instructed", [False, True])
def test_the_words_that_a_provider_wants_first_are_in_the_prompt(instructed, tmp_path):
    """A tail that begins with a reply is refused by some: a user's message is put before it."""
    heard = []
    model = Says(*talk([50] * 9))
    model.name = "anthropic/claude-sonnet-4-5"
    rules = preset("none").but(pruning="tail:messages=2")
    one = agent(model=model, rules=rules, heard=heard, tools=[ECHO])
    if instructed:
        one.instruct("Be brief.")
    for turn in range(3):
        run(one.turn(f"go {turn}"))
    held(one, heard)
    place = 1 if instructed else 0
    added = [
        (call, item)
        for call in range(len(one.session.calls))
        for item in one.session.sent(call)
        if item.changed_by == "provider guard"
    ]
    assert added
    for call, item in added:
        messages = [i for i in one.session.sent(call) if i.message.kind != "fixed"]
        assert messages[place] == item
        assert (item.message.role, item.message.text, item.raw_tokens) == (
            "user",
            "(earlier messages were left out)",
            0,
        )
        assert item.tokens > 0
    ck.write(one.session, tmp_path / "s.jsonl")
    again = ck.read(tmp_path / "s.jsonl")
    for call, request in enumerate(one.model.asked):
        assert [m.parts for m in again.view(call)] == [m.parts for m in request.messages]
    assert ck.frame(again, per="call").equals(ck.frame(one.session, per="call"))


def test_its_loss_counts_what_prunings_hid(tmp_path):
    """The score of a pruned session counts prunings as compactions, live and read from its log."""
    sizes = [400, 401, 3] * 4
    calls = [ToolCall(id=f"p{n}", name="echo", arguments={"x": f"docs/notes-{n}.md " * size})
             for n, size in enumerate(sizes)]  # fmt: skip
    one = agent(*(said(c) if n % 3 < 2 else said(f"docs/notes-{n - 2}.md") for n, c in enumerate(calls)),
                rules=swe_agent_mask(n=2), tools=[ECHO])  # fmt: skip
    for turn in range(4):
        run(one.turn(f"go on {turn}"))
    ck.write(one.session, tmp_path / "s.jsonl")
    for session in (one.session, ck.read(tmp_path / "s.jsonl")):
        assert any(i.pruned for i in session.sent(-1))
        assert ck.score(session)["items_n"] > 0
        assert find_differences(session) == []
