"""Events have fuseraft's and ai's names and payloads."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, tool_call, user
from stand_in_models import COUNT, ECHO, Says, agent, run, said

from ctxkit import presets
from ctxkit.agent import Limits, PromptCharacterCounter
from ctxkit.errors import ModelError
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import ToolCall, Usage


def full():
    return session(*(m for i in range(9) for m in (user(f"{i} " + "x" * 3000), assistant("ok"))))


def payloads(heard, kind):
    return [e.payload for e in heard if e.kind == kind]


RULES = Rules(policy=Summary(keep_tokens=2_000), trigger=Above(4_000), counter=COUNT)


def test_a_context_report_is_told_for_every_call():
    heard = []
    a = agent(
        said("thinking", ToolCall("c1", "echo", {"x": "y"}), stop="tool"), heard=heard, tools=[ECHO]
    )
    run(a.turn("12345"))
    first, second = payloads(heard, "inner_call_context")
    assert (first["seq"], second["seq"]) == (1, 2)
    assert second["msg_counts"] == {"user": 1, "assistant": 1, "tool": 1, "summary": 0}
    chars = second["content_chars"]
    assert (chars["text"], chars["fn_call_args"], chars["fn_results"]) == (
        5 + 8,
        len('{"x":"y"}'),
        len("<y>"),
    )
    assert chars["content_total"] == 13 + 9 + 3
    assert chars["grand_total"] == chars["content_total"] + chars["tool_schema_est"]
    assert [m.text for m in a.model.asked[1].messages if m.role == "tool"] == ["<y>"]


def test_a_compaction_is_told_with_counts_before_and_after():
    heard = []
    a = agent(at=full(), rules=RULES, heard=heard, summary_model=Says(said("notes")))
    run(a.turn("go"))
    (start,), (end,) = payloads(heard, "compaction_start"), payloads(heard, "compaction_end")
    assert [e.kind for e in heard if e.kind in ("compaction_start", "compaction_end", "model_call")][:3] == [
        "compaction_start", "compaction_end", "model_call"]  # fmt: skip
    assert start["auto"]
    assert start["before"] == end["before"] == 19
    assert end["after"] == len(a.model.asked[0].messages)
    assert end["tokens_after"] < end["tokens_before"] == start["tokens_before"]
    assert start["trigger"] == end["trigger"] == a.session.edits[0].trigger == "window_size"


def test_a_failed_compaction_is_told_with_its_error():
    heard = []
    a = agent(at=full(), rules=RULES, heard=heard, summary_model=Says(*[ModelError("down")] * 9))
    run(a.turn("go"))
    assert "down" in payloads(heard, "compaction_end")[0]["error"]
    starts, ends = payloads(heard, "compaction_start"), payloads(heard, "compaction_end")
    assert len(starts) == len(ends)
    assert {e["trigger"] for e in (*starts, *ends)} == {"window_size"}


def test_a_failure_by_hand_is_told_too():
    heard = []
    a = agent(at=full(), rules=RULES, heard=heard, summary_model=Says(*[ModelError("down")] * 9))
    with pytest.raises(ModelError):
        run(a.compact())
    assert payloads(heard, "compaction_end")[0] | {"tokens_before": 0, "tokens_after": 0} == {
        "outcome": "failed", "error": "down", "reason": "down", "auto": False, "trigger": "manual",
        "summary_model": "test/says", "summary_tokens": None, "cost_usd": None,
        "before": 18, "after": 18, "tokens_before": 0, "tokens_after": 0}  # fmt: skip


def test_budgets_warn_once_a_cycle_and_cut_over_with_fuserafts_payload():
    heard = []
    dear = Usage(input_tokens=600, output_tokens=1)
    asks = [
        said(ToolCall(f"c{i}", "echo", {"x": "y" * 400}), stop="tool", usage=dear)
        for i in range(40)
    ]
    rules = presets.fuseraft(
        warn_at=1_000, cutover_at=2_000, trigger_turn_count=500, keep_recent_turns=2
    )
    a = agent(
        *asks, rules=rules, heard=heard, tools=[ECHO], summary_model=Says(*[said("notes")] * 40)
    )
    run(a.turn("go"))
    warned, cut = payloads(heard, "context_budget_warn"), payloads(heard, "context_budget_cutover")
    assert cut
    assert 0 < len(warned) <= len(cut) + 1
    assert {"cumulative_input_tokens", "warn_at", "cutover_at"} <= set(warned[0])
    assert (warned[0]["warn_at"], warned[0]["cutover_at"]) == (1_000, 2_000)
    assert cut[0]["cutover_at"] == 2_000
    # Each call has 600 tokens: two of them reach 1,000, four reach 2,000, in every cycle.
    assert {e["cumulative_input_tokens"] for e in warned} == {1_200}
    assert {e["cumulative_input_tokens"] for e in cut} == {2_400}


@pytest.mark.parametrize(
    ("log", "roles"),
    [
        ((assistant("ok"),), ["user", "assistant", "user"]),
        ((user(), assistant("ok")), ["user", "assistant", "user"]),
    ],
)
def test_a_user_message_that_is_put_first_is_an_event(log, roles):
    """Anthropic's API refuses a prompt that begins with the model: a message is put before it."""
    heard, model = [], Says(said("done"))
    model.name = "claude-opus-5-5"
    a = agent(at=session(*log), model=model, heard=heard)
    run(a.turn("go on"))
    assert [m.role for m in model.asked[0].messages] == roles
    added = len(roles) - len(log) - 1
    assert payloads(heard, "provider_guard") == [{"rule": "first_role", "n": 1}] * added


@pytest.mark.parametrize("compacted", [False, True])
def test_a_warning_is_told_once_a_cycle_also_over_a_resume(compacted):
    rules = RULES.but(trigger=Above(40_000), warnings=(Above(2_000),), policy=Summary(keep_turns=1))
    first, again = [], []
    a = agent(rules=rules, heard=first)
    for prompt in ("x " * 6_000, "go on"):
        run(a.turn(prompt))
    if compacted:  # a cycle later, it is told again
        run(a.compact())
    b = agent(at=a.session, rules=rules, heard=again, tools=[ECHO])
    run(b.turn("x" * 9_000))
    assert len(payloads(first, "context_budget_warn")) == 1
    assert len(payloads(again, "context_budget_warn")) == int(compacted)


def test_a_prompt_near_the_cap_on_messages_is_told_once_a_cycle():
    heard = []
    asks = [said(ToolCall(f"c{i}", "echo"), stop="tool") for i in range(9)]
    a = agent(*asks, heard=heard, tools=[ECHO], limits=Limits(messages=10, messages_share=0.5))
    run(a.turn("go"))
    assert payloads(heard, "context_cap_warning") == [
        {"messages": 7, "cap": 10, "fraction": 0.5, "threshold": 5}
    ]


def test_a_prompt_trimmed_for_its_size_is_a_cut_over():
    heard = []
    asked = assistant("", tool_call("echo", "c1"))
    a = agent(at=session(user(), asked, result("z" * 9_000, asked), assistant()), heard=heard,
              limits=Limits(payload_bytes=6_000))  # fmt: skip
    run(a.turn("go"))
    assert payloads(heard, "context_budget_cutover") == [{"reason": "context_exceeded"}]
    assert payloads(heard, "inner_call_context")[0]["content_chars"]["fn_results"] < 4_100


def test_the_report_of_a_prompt_does_not_rest_on_the_prompts_before_it():
    a, b, c = (user(f"{'word ' * n}", id=str(n)) for n in (1, 20, 300))
    told = {"seq": 1, "schema_chars": 4, "tokens": 9}
    reports = PromptCharacterCounter()
    for prompt in ((a,), (a, b, c), (a, c), (a, c, b), (b,), (), (c, a)):
        assert reports.count(prompt, **told) == PromptCharacterCounter().count(prompt, **told)
