"""Events, edits and bills of compactions by hand, and sizes of edits, field by field."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user
from msgspec.structs import replace
from stand_in_models import COUNT, Says, agent, run, said

from ctxkit.agent.compaction import _with_sizes
from ctxkit.errors import ModelError
from ctxkit.policies import Above, KeepTurns, ResultExcerpts, Rules, Summary, Window
from ctxkit.session import Edit, Usage

CLAUDE = "anthropic/claude-sonnet-4-5"
"""Dollars for a million tokens: 3 uncached, 15 of replies."""
KEY = "sk-ant-api03-" + "Ab3xY9" * 15


def talk(turns=3):
    return session(
        *(m for i in range(turns) for m in (user(f"{i}" + "x" * 399), assistant("y" * 400)))
    )


def compact(*replies, policy=None, turns=3, focus="", name=CLAUDE, rules=None, **more):
    """Compact by hand; return the agent, the payloads of start and end, and what it raised."""
    events = []
    one = agent(at=talk(turns), heard=events, summary_model=Says(*replies), rules=rules or Rules(
        Summary(keep_turns=1), counter=COUNT, window=50_000, **more))  # fmt: skip
    one.writer.name, one.writer.notice = name, ""
    error = ""
    try:
        run(one.compact(policy, focus=focus))
    except ModelError as e:
        error = str(e)
    payloads = [e.payload for e in events if e.kind.startswith("compaction_")]
    assert [e.kind for e in events if e.kind.startswith("compaction_")] == [
        "compaction_start",
        "compaction_end",
    ]
    return one, *payloads, error


def test_a_compaction_by_hand():
    usage = Usage(input_tokens=1_000, output_tokens=20)
    one, start, end, _ = compact(said("The notes.", usage=usage), focus=f"ports {KEY}")
    shared = {
        "auto": False,
        "trigger": "manual",
        "before": 6,
        "tokens_before": start["tokens_before"],
    }
    assert start == {**shared, "focus": "ports [redacted]"}
    dollars = end.pop("cost_usd")
    assert dollars == pytest.approx((1_000 * 3 + 20 * 15) / 1e6)
    assert end == {
        "outcome": "compacted", "messages": 4, "tokens_source": "estimated", "summary_calls": ["text"],
        "summary_model": CLAUDE, "summary_tokens": 1_020, **shared, "after": 3,
        "tokens_after": end["tokens_after"]}  # fmt: skip
    assert end["tokens_after"] < start["tokens_before"]
    (edit,) = one.session.edits
    assert (edit.usage, edit.model, edit.trigger) == (usage, CLAUDE, "manual")
    assert edit.details["summary_calls"] == ["text"]
    assert (edit.tokens_before, edit.tokens_after) == (start["tokens_before"], end["tokens_after"])
    assert one.compactor.compaction_count == 1
    assert "ports [redacted]" in one.writer.asked[0].messages[0].text


def test_a_compaction_without_a_model_has_no_bill():
    one, _, end, _ = compact(policy=KeepTurns(keep_turns=1))
    assert (end["outcome"], end["messages"], end["after"]) == ("compacted", 4, 2)
    assert not {"summary_model", "summary_tokens", "cost_usd", "summary_calls", "error"} & set(end)
    assert one.session.edits[0].model is None
    assert one.writer.asked == []


def test_too_little_to_compact():
    one, start, end, _ = compact(turns=1)
    shared = {
        "auto": False,
        "trigger": "manual",
        "before": 2,
        "tokens_before": start["tokens_before"],
    }
    assert start == {**shared, "focus": None}
    reason = "there is too little history to compact"
    assert end == {
        "outcome": "skipped", "reason": reason, **shared, "after": 2, "tokens_after": start["tokens_before"]}  # fmt: skip
    attempt = one.session.messages[-1]
    assert (attempt.text, attempt.model, attempt.usage, attempt.visible) == (
        reason,
        None,
        None,
        False,
    )
    assert attempt.details["outcome"] == "skipped"
    assert one.session.edits == ()


def test_a_summary_that_fails_leaves_the_session_as_it_is():
    one, start, end, error = compact(ModelError(f"down {KEY}\nnow"))
    assert error == "down [redacted]\nnow"
    assert end == {
        "outcome": "failed", "reason": "down [redacted] now", "error": "down [redacted] now",
        "summary_model": CLAUDE, "summary_tokens": None, "cost_usd": None,
        "auto": False, "trigger": "manual", "before": 6, "tokens_before": start["tokens_before"],
        "after": 6, "tokens_after": start["tokens_before"]}  # fmt: skip
    assert one.session.edits == ()
    assert one.session.messages[-1].model == CLAUDE
    assert (
        "retry_after_calls" not in one.session.messages[-1].details
    )  # a person may ask again at once


def test_a_summary_that_is_not_used_is_billed():
    usage = Usage(input_tokens=1_000, output_tokens=20)
    one, _, end, _ = compact(said("z" * 9_000, usage=usage))
    assert end["outcome"] == "refused"
    assert end["reason"].startswith("not smaller: after it the prompt would have ")
    assert (end["summary_model"], end["summary_tokens"]) == (CLAUDE, 1_020)
    assert one.session.messages[-1].usage == usage
    assert "error" not in end


def make_edits(*sizes):
    return tuple(
        Edit(kind="removed", id=f"e{i}", targets=(), tokens_before=b, tokens_after=a)
        for i, (b, a) in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("counted", "before", "after", "expected"),
    [
        ([(1_000, 500)], 2_000, 900, [(2_000, 900)]),
        # 1,000 billed tokens for 500 counted ones: two for one
        ([(1_000, 800), (800, 500)], 2_000, 1_000, [(2_000, 1_600), (1_600, 1_000)]),
        ([(1_000, 800), (800, 500)], 1_250, 1_000, [(1_250, 1_150), (1_150, 1_000)]),
        ([(1_000, 1_000)], 2_000, 900, [(900, 900)]),
        ([(1_000, 0), (0, 500)], 2_000, 100, [(2_000, 0), (0, 100)]),  # none is below 0
        ([(None, None)], 2_000, 900, [(900, 900)]),
    ],
)  # fmt: skip
def test_the_sizes_of_edits_in_billed_tokens(counted, before, after, expected):
    edits = _with_sizes(make_edits(*counted), before, after)
    assert [(e.tokens_before, e.tokens_after) for e in edits] == expected
    assert [e.id for e in edits] == [f"e{i}" for i in range(len(counted))]


def test_a_window_that_an_error_named_is_used_if_it_is_smaller():
    one = agent(rules=Rules(window=50_000, reserve=9_000, counter=COUNT))
    compactor = one.compactor
    compactor.adopt_window(50_000)
    compactor.adopt_window(60_000)
    assert (compactor.rules.window, compactor.rules.reserve, one.gauge()[1]) == (
        50_000,
        9_000,
        50_000,
    )
    compactor.adopt_window(40_000)
    assert (compactor.rules.reserve, compactor.rules.assumed, one.gauge()[1]) == (
        9_000,
        True,
        40_000,
    )
    compactor.adopt_window(10_003)
    assert (compactor.rules.window, compactor.rules.reserve, one.gauge()[1]) == (
        10_003,
        2_500,
        10_003,
    )


def write_nothing(_passage):
    return "notes"


write_nothing.needs_model = False


@pytest.mark.parametrize(
    ("rules", "lent", "may_call", "uses"),
    [
        (Rules(Summary()), True, True, True),
        (Rules(Summary()), False, False, True),
        (Rules(Summary(), summariser=write_nothing), True, False, False),
        (Rules(Summary(), summariser=lambda _: ""), False, True, False),
        (Rules(KeepTurns(keep_turns=1)), True, False, False),
        (Rules(), True, False, False),
        (Rules(pruning=ResultExcerpts(strategy="llm")), True, False, True),
        (Rules(Window(keep_tokens=500), pruning=ResultExcerpts()), True, False, False),
    ],
)
def test_whether_a_compaction_may_ask_a_model(rules, lent, may_call, uses):
    model = Says()
    model.notice = "scripted"
    one = agent(model=model, rules=rules, summary_model=Says() if lent else None)
    assert one.compactor._may_call_model is may_call
    assert one.compactor.uses_summary_model is uses


def test_an_automatic_compaction_that_fails_waits_for_the_next():
    events = []
    rules = Rules(Summary(keep_turns=1), Above(500), counter=COUNT, window=50_000)
    one = agent(at=talk(), heard=events, rules=rules, summary_model=Says(*[ModelError("down")] * 9))
    one.writer.notice = ""
    for _ in range(4):
        run(one.turn("go"))
    ends = [e.payload for e in events if e.kind == "compaction_end"]
    assert [(e["outcome"], e["auto"], e["retry_after_calls"]) for e in ends] == [
        ("failed", True, 2),
        ("failed", True, 4),
    ]
    assert {e["trigger"] for e in ends} == {one.session.messages[7].details["trigger"]}
    starts = [e.payload for e in events if e.kind == "compaction_start"]
    assert [s["tokens_before"] for s in starts] == [e["tokens_before"] for e in ends]


def test_tokens_of_summaries_count_for_the_turn():
    rules = Rules(Summary(keep_turns=1), Above(500), counter=COUNT, window=50_000)
    writer = Says(said("The notes.", usage=Usage(input_tokens=700, output_tokens=9)))
    one = agent(said("done"), at=talk(), rules=rules, summary_model=writer)
    writer.notice = one.model.notice = ""
    outcome = run(one.turn("go"))
    assert outcome.compactions == 1
    assert (outcome.spent.calls, outcome.spent.fresh, outcome.spent.output) == (1, 700 + 10, 9 + 1)


def test_a_prompt_that_does_not_fit_is_compacted_or_marked():
    overflow = ModelError("prompt is too long", overflow=True)
    writer = Says(ModelError("down"))
    one = agent(overflow, said("done"), at=talk(), summary_model=writer,
                rules=Rules(Summary(keep_turns=1), Above(40_000), counter=COUNT, window=50_000))  # fmt: skip
    writer.notice = ""
    run(one.turn("go"))
    (marker,) = [m for m in one.session.messages if m.kind == "injected"]
    assert marker.role == "user"
    assert "down" in marker.text
    assert marker.text in [m.text for m in one.model.asked[-1].messages]  # the model is told so
    assert one.session.edits == ()
    heavy = tool_call("look", "c1")
    at = session(
        user("Look."),
        assistant("", heavy),
        replace(result("r" * 400, heavy)),
        assistant("y" * 400),
        user("a"),
        assistant("b"),
    )
    events = []
    one = agent(
        overflow,
        said("done"),
        at=at,
        heard=events,
        rules=Rules(KeepTurns(keep_turns=9), Above(40_000), counter=COUNT),
    )
    assert run(one.turn("go")).text == "done"
    (edit,) = one.session.edits
    assert edit.trigger == "overflow"
    assert len(edit.targets) == 6  # all but the newest turn, without a model
